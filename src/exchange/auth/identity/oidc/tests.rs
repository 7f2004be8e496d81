use std::cell::{Cell, RefCell};
use std::rc::Rc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, advance, timeout};

use super::discovery::FetchError;
use super::key_set::{KEYS_MAX, KeySet, KeySetError};
use super::refresh::{REFRESH_INTERVAL, REQUESTED_INTERVAL};
use super::*;
use crate::auth::identity::tests::base64url;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
const URL: &str = "https://id.example.org";

struct Signer {
    id: &'static str,
    key: EncodingKey,
    public: Vec<u8>,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let key = EncodingKey::from_ed_der(pair.to_pkcs8().unwrap().as_ref());
        Self { id, key, public: pair.public_key().as_ref().to_vec() }
    }

    fn jwk(&self) -> Value {
        let x = base64url(&self.public);
        json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": self.id, "x": x})
    }

    fn token(&self) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::EdDSA) };
        let claims = json!({"iss": URL, "aud": "a", "sub": "ada", "exp": NOW.seconds() + 600});
        jsonwebtoken::encode(&header, &claims, &self.key).unwrap()
    }
}

fn key_set(signers: &[&Signer]) -> KeySet {
    let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
    KeySet::from_json(json!({"keys": keys}).to_string().as_bytes()).unwrap()
}

fn down() -> FetchError {
    FetchError::Malformed { address: URL.into() }
}

/// An issuer whose provider returns `answer` and counts the fetches.
struct World {
    issuer: Rc<OidcIssuer>,
    answer: Rc<RefCell<Option<KeySet>>>,
    delay: Rc<Cell<Duration>>,
    fetches: Rc<Cell<u32>>,
}

impl World {
    /// Runs `test` next to the task that refreshes keys, with a provider that responds at once.
    async fn run(answer: Option<KeySet>, test: impl AsyncFn(&World)) {
        Self::run_slowly(answer, Duration::ZERO, test).await;
    }

    /// Like [`Self::run`], with a provider that takes this long to respond.
    async fn run_slowly(answer: Option<KeySet>, delay: Duration, test: impl AsyncFn(&World)) {
        let issuer = Rc::new(OidcIssuer::new(URL.parse().unwrap(), "a", None));
        let world = World {
            issuer,
            answer: Rc::new(RefCell::new(answer)),
            delay: Rc::new(Cell::new(delay)),
            fetches: Rc::default(),
        };
        let fetch = || async {
            world.fetches.set(world.fetches.get() + 1);
            tokio::time::sleep(world.delay.get()).await;
            world.answer.borrow().clone().ok_or_else(down)
        };
        tokio::select! {
            biased;
            () = world.issuer.keep_fresh(fetch) => unreachable!("it never ends"),
            () = test(&world) => {}
        }
    }

    fn set(&self, answer: Option<KeySet>) {
        *self.answer.borrow_mut() = answer;
    }

    /// The outcome of a request with this signer's token.
    async fn ask(&self, signer: &Signer) -> Result<(), TokenError> {
        self.issuer.verify_with_newer_keys(&signer.token(), NOW).await.map(|_| ())
    }

    /// Advances time in steps small enough that no timer is skipped.
    async fn pass(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            advance((end - Instant::now()).min(Duration::from_millis(500))).await;
            tokio::task::yield_now().await;
        }
    }
}

fn unknown() -> Result<(), TokenError> {
    Err(TokenFlaw::UnknownKey.into())
}

#[tokio::test(start_paused = true)]
async fn the_first_requests_wait_for_the_first_keys() {
    let signer = Signer::new("a");
    let delay = Duration::from_millis(700);
    World::run_slowly(Some(key_set(&[&signer])), delay, async |world| {
        let token = signer.token();
        let refused = world.issuer.verify(&token, NOW);
        assert!(matches!(refused, Err(TokenError::Unavailable { retry_after_seconds: 1 })));
        let (first, second) = tokio::join!(world.ask(&signer), world.ask(&signer));
        assert_eq!((first, second), (Ok(()), Ok(())));
        assert_eq!(world.fetches.get(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_trigger_at_most_one_fetch_a_minute() {
    let (old, new, never) = (Signer::new("old"), Signer::new("new"), Signer::new("never"));
    World::run(Some(key_set(&[&old])), async |world| {
        assert_eq!(world.ask(&old).await, Ok(()));
        world.set(Some(key_set(&[&new, &old])));
        world.delay.set(Duration::from_millis(100));
        let answers = tokio::join!(
            world.ask(&never),
            world.ask(&new),
            world.ask(&never),
            world.ask(&new),
            world.ask(&old)
        );
        assert_eq!(answers, (unknown(), Ok(()), unknown(), Ok(()), Ok(())));
        assert_eq!(world.fetches.get(), 2);
        // For a minute, nobody triggers a fetch and nobody waits.
        for second in 1..60 {
            world.pass(Duration::from_secs(1)).await;
            let before = Instant::now();
            if second < 59 {
                assert_eq!(world.ask(&never).await, unknown());
                assert_eq!((world.fetches.get(), before), (2, Instant::now()), "{second}");
            }
        }
        world.pass(Duration::from_secs(1)).await;
        world.set(Some(key_set(&[&never])));
        assert_eq!(world.ask(&never).await, Ok(()));
        assert_eq!(world.fetches.get(), 3);
        assert_eq!(world.ask(&old).await, unknown(), "what is not published is not believed");
        assert!(REQUESTED_INTERVAL <= Duration::from_mins(1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_schedule_finds_new_keys_without_a_request() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    World::run(Some(key_set(&[&old])), async |world| {
        assert_eq!(world.ask(&old).await, Ok(()));
        world.set(Some(key_set(&[&new])));
        world.pass(REFRESH_INTERVAL.saturating_sub(Duration::from_secs(1))).await;
        assert_eq!(world.fetches.get(), 1);
        assert!(world.issuer.verify(&old.token(), NOW).is_ok());
        world.pass(Duration::from_secs(2)).await;
        assert_eq!(world.fetches.get(), 2);
        assert!(world.issuer.verify(&new.token(), NOW).is_ok());
        assert!(world.issuer.verify(&old.token(), NOW).is_err());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn known_keys_stay_in_use_while_the_issuer_is_down() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    World::run(Some(key_set(&[&old])), async |world| {
        assert_eq!(world.ask(&old).await, Ok(()));
        world.set(None);
        // An hour later: the last keys are still in use, and an unknown key may be good or not.
        world.pass(Duration::from_hours(1)).await;
        assert!(world.issuer.verify(&old.token(), NOW).is_ok());
        assert!(matches!(world.ask(&new).await, Err(TokenError::Unavailable { .. })));
        let fetches = world.fetches.get();
        assert!((50..90).contains(&fetches), "about one try a minute: {fetches}");
        // Once the issuer is back, the next attempt succeeds.
        world.set(Some(key_set(&[&new])));
        world.pass(Duration::from_secs(61)).await;
        assert!(world.issuer.verify(&new.token(), NOW).is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_keys_every_token_gets_retry_after() {
    let signer = Signer::new("a");
    World::run(None, async |world| {
        let found = world.ask(&signer).await;
        assert!(matches!(found, Err(TokenError::Unavailable { .. })), "{found:?}");
        // A malformed token does not wait for keys.
        let junk = world.issuer.verify_with_newer_keys("junk", NOW).await;
        assert_eq!(junk, Err(TokenFlaw::Malformed.into()));
        world.pass(Duration::from_mins(5)).await;
        let fetches = world.fetches.get();
        assert!((9..15).contains(&fetches), "1, 2, 4 ... 60 s apart: {fetches}");
        let found = world.issuer.verify(&signer.token(), NOW);
        let Err(TokenError::Unavailable { retry_after_seconds }) = found else { panic!() };
        assert!((1..=60).contains(&retry_after_seconds), "{retry_after_seconds}");
        world.set(Some(key_set(&[&signer])));
        world.pass(Duration::from_secs(retry_after_seconds)).await;
        assert!(world.issuer.verify(&signer.token(), NOW).is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_longer_than_the_limit() {
    let signer = Signer::new("a");
    let delay = Duration::from_hours(1);
    World::run_slowly(Some(key_set(&[&signer])), delay, async |world| {
        for _ in 0..3 {
            let before = Instant::now();
            let found = timeout(2 * WAIT_MAX, world.ask(&signer)).await.unwrap();
            assert!(matches!(found, Err(TokenError::Unavailable { .. })), "{found:?}");
            assert!(before.elapsed() <= WAIT_MAX + Duration::from_millis(1));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_is_unavailable_not_unknown_while_a_fetch_runs() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    World::run(Some(key_set(&[&old])), async |world| {
        assert_eq!(world.ask(&old).await, Ok(()));
        world.set(Some(key_set(&[&new, &old])));
        world.delay.set(2 * WAIT_MAX);
        let found = world.ask(&new).await;
        assert!(matches!(found, Err(TokenError::Unavailable { .. })), "{found:?}");
        assert_eq!(world.ask(&new).await, Ok(()), "the fetch has succeeded meanwhile");
        assert_eq!(world.fetches.get(), 2);
    })
    .await;
}

#[test]
fn a_key_is_used_only_for_its_published_purpose() {
    let signer = Signer::new("a");
    let check = |changes: Value, is_used: bool| {
        let mut jwk = signer.jwk();
        for (name, value) in changes.as_object().unwrap() {
            jwk[name] = value.clone();
        }
        // A second key, so that the set is never empty.
        let other = Signer::new("other").jwk();
        let text = json!({"keys": [jwk, other]}).to_string();
        let found = KeySet::from_json(text.as_bytes()).unwrap();
        assert_eq!(found.key_count() == 2, is_used, "{changes}");
        assert_eq!(found.passed_over(), usize::from(!is_used), "{changes}");
        assert_eq!(found.find(Some("a")).is_some(), is_used, "{changes}");
        assert!(found.find(Some("other")).is_some(), "{changes}");
    };
    check(json!({}), true);
    check(json!({"alg": null, "use": null, "key_ops": null}), true);
    check(json!({"use": "sig", "key_ops": ["verify"], "x5c": ["?"]}), true);
    check(json!({"key_ops": ["sign", "verify"]}), true);
    check(json!({"use": "enc"}), false);
    check(json!({"key_ops": ["encrypt"]}), false);
    check(json!({"key_ops": []}), false);
    for algorithm in ["RS256", "HS256", "ES256", "none", "eddsa", ""] {
        check(json!({ "alg": algorithm }), false);
    }
    check(json!({"crv": "X25519"}), false);
    check(json!({"crv": "P-256"}), false);
    check(json!({"kty": "EC"}), false);
    check(json!({"kty": "oct", "k": "AAAA"}), false);
    check(json!({"kty": 5}), false);
    check(json!({"x": "AAAA"}), false);
    check(json!({"x": null}), false);
    check(json!({"x": "****"}), false);
    check(json!({"d": "AAAA"}), false);
    check(json!({"kid": 5}), false);
    check(json!({"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA", "alg": "ES256"}), false);
    let off_curve = "A".repeat(43);
    check(
        json!({"kty": "EC", "crv": "P-256", "x": off_curve, "y": off_curve, "alg": "ES256"}),
        false,
    );
    let modulus = |bytes: usize| {
        let digits = "_".repeat(bytes / 3 * 4);
        let rest = ["", "_w", "__8"][bytes % 3];
        format!("{digits}{rest}")
    };
    let rsa =
        |bytes: usize, e: &str| json!({"kty": "RSA", "alg": "RS256", "n": modulus(bytes), "e": e});
    check(rsa(256, "AQAB"), true);
    check(rsa(1024, "AQAB"), true);
    for (bytes, e) in
        [(128, "AQAB"), (255, "AQAB"), (1025, "AQAB"), (256, ""), (256, "AAAAAAAAAAAA")]
    {
        check(rsa(bytes, e), false);
    }
}

#[test]
fn an_unusable_set_is_refused_as_a_whole() {
    let many = vec![Signer::new("a").jwk(); KEYS_MAX + 1];
    for (text, expected) in [
        (json!({"keys": many[1..]}).to_string(), Ok(KEYS_MAX)),
        (json!({"keys": many}).to_string(), Err(KeySetError::TooMany { count: KEYS_MAX + 1 })),
        (json!({"keys": []}).to_string(), Err(KeySetError::NoneUsable { count: 0 })),
        (json!({"keys": [1, "x", {}]}).to_string(), Err(KeySetError::NoneUsable { count: 3 })),
        (json!({"keys": {}}).to_string(), Err(KeySetError::Malformed)),
        (json!([]).to_string(), Err(KeySetError::Malformed)),
        (String::new(), Err(KeySetError::Malformed)),
        (r#"{"keys":[],"keys":[]}"#.to_owned(), Err(KeySetError::Malformed)),
    ] {
        let found = KeySet::from_json(text.as_bytes()).map(|keys| keys.key_count());
        assert_eq!(found, expected, "{}", &text[..text.len().min(80)]);
    }
}

#[test]
fn a_token_without_a_key_id_needs_a_set_of_one() {
    let (one, other) = (Signer::new("a"), Signer::new("b"));
    assert!(key_set(&[&one]).find(None).is_some());
    assert!(key_set(&[&one, &other]).find(None).is_none());
    assert!(key_set(&[&one]).find(Some("")).is_none());
}
