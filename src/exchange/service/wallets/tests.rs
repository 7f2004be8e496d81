mod clients;
mod naive;
mod secrets;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicI64;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use paperbourse_clob::signature::Chain;
use paperbourse_clob::signature::address::Address;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::auth::identity::IdentitySource;
use crate::auth::identity::embedded::EmbeddedIssuer;
use crate::auth::ws_token::WsTokens;
use crate::service::{Parts, RateRule, key_observer, key_table};
use crate::shard::Shards;
use paperbourse_core::clock::Clock;
use paperbourse_core::engine::Rules;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::bucket::{AccountRates, AddressRules, BucketRule, Rate};
use paperbourse_core::limits::tier::{Tier, TierTable, Tiers};
use paperbourse_core::market::Markets;
use paperbourse_store::disk::Disk;
use paperbourse_store::journal::{Journal, JournalConfig, Waiters};
use paperbourse_store::snapshot::{self, Folder, Opened};

const NOW_S: i64 = 1_800_000_000;
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const MASTER_KEY: [u8; MASTER_KEY_BYTES] = [7; MASTER_KEY_BYTES];
const ORDER: (&str, &str, &[u8]) = ("POST", "/order", b"{\"a\":'b'}");

/// A service on a data folder, with one worker of several threads.
struct World {
    runtime: Runtime,
    service: Service,
    journal: Arc<Journal>,
    folder: Folder,
    waiters: Arc<Waiters>,
}

impl World {
    fn open(data: &Path) -> Self {
        Self::with_rules(data, None)
    }

    fn with_rules(data: &Path, address_rules: Option<AddressRules>) -> Self {
        let config = JournalConfig {
            segment_bytes: 32 << 10,
            ring_bytes: 32 << 10,
            block_bytes_max: 8 << 10,
            record_bytes_max: 2 << 10,
            ..JournalConfig::default()
        };
        let opened = snapshot::open(Disk::System, data, &config, NonZeroUsize::MIN).unwrap();
        let Opened { journal, recovered, folder, .. } = opened;
        let journal = Arc::new(journal);
        let markets = Arc::new(Markets::new());
        let keys = Arc::new(key_table(recovered.states(), &Tiers::default()).unwrap());
        let tiers = Arc::new(TierTable::new(Tiers::default()));
        let now = Timestamp::from_seconds(NOW_S);
        let shards = Shards::new(
            recovered,
            journal.clone(),
            markets.clone(),
            Rules::default(),
            Clock::Virtual(Arc::new(AtomicI64::new(now.nanos()))),
            Arc::default(),
            key_observer(keys.clone(), tiers.clone()),
        );
        let service = Service::new(Parts {
            markets,
            shards: Arc::new(shards),
            keys,
            issuer: IdentitySource::Embedded(EmbeddedIssuer::in_memory().unwrap()),
            ws_tokens: WsTokens::generate().unwrap(),
            tiers,
            default_tier: Tier::Pro,
            address_rules,
            account_rates: AccountRates { keys: Rate::Unlimited, sockets: Rate::Unlimited },
        });
        let service = service.with_master_key(&MASTER_KEY).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(8).build();
        let (runtime, waiters) = (runtime.unwrap(), journal.register());
        runtime.spawn({
            let waiters = waiters.clone();
            async move { waiters.run().await }
        });
        Self { runtime, service, waiters, journal, folder }
    }

    fn block_on<T>(&self, task: impl Future<Output = T>) -> T {
        self.runtime.block_on(task)
    }

    fn context(&self) -> RequestContext<'_> {
        RequestContext { moment: moment(), address: ADDRESS, waiters: &self.waiters }
    }

    async fn create(&self, auth: &ClobAuth) -> Result<Credentials, ServiceError> {
        self.service.wallet_credentials(auth, self.context()).await
    }

    async fn find(&self, auth: &ClobAuth) -> Option<Credentials> {
        self.service.find_wallet_credentials(auth, self.context()).await.unwrap()
    }

    /// Sends a request that is signed with these credentials.
    fn call(&self, address: Address, credentials: &Credentials) -> Result<Caller, Denied> {
        let sent = Sent::new(address, credentials, NOW_S, ORDER);
        self.request(&sent.headers(), ORDER)
    }

    /// Both steps of a request.
    fn request(
        &self,
        headers: &L2Headers<'_>,
        request: (&str, &str, &[u8]),
    ) -> Result<Caller, Denied> {
        let caller = self.service.identify_wallet(headers, ADDRESS, moment())?;
        self.service.require_signed(headers, request, ADDRESS, moment())?;
        Ok(caller)
    }
}

/// The headers that a client sends.
struct Sent {
    address: String,
    api_key: String,
    passphrase: String,
    timestamp: String,
    signature: String,
}

impl Sent {
    fn new(
        address: Address,
        credentials: &Credentials,
        timestamp_s: i64,
        (method, path, body): (&str, &str, &[u8]),
    ) -> Self {
        let timestamp = timestamp_s.to_string();
        let secret = URL_SAFE.decode(credentials.secret()).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let signed = [timestamp.as_bytes(), method.as_bytes(), path.as_bytes(), body].concat();
        Self {
            address: address.checksummed(),
            api_key: credentials.api_key(),
            passphrase: credentials.passphrase(),
            timestamp,
            signature: URL_SAFE.encode(hmac::sign(&key, &signed)),
        }
    }

    fn headers(&self) -> L2Headers<'_> {
        L2Headers {
            address: self.address.as_bytes(),
            api_key: self.api_key.as_bytes(),
            passphrase: self.passphrase.as_bytes(),
            timestamp: self.timestamp.as_bytes(),
            signature: self.signature.as_bytes(),
        }
    }
}

fn moment() -> Moment {
    Moment { now: Timestamp::from_seconds(NOW_S), monotonic_ns: 0 }
}

fn wallet(number: u8) -> Address {
    Address::from_bytes([number; 20])
}

fn auth(number: u8, nonce: u64) -> ClobAuth {
    ClobAuth { address: wallet(number), chain: Chain::Polygon, timestamp_s: NOW_S, nonce }
}

fn texts(credentials: &Credentials) -> [String; 3] {
    [credentials.api_key(), credentials.secret(), credentials.passphrase()]
}

#[test]
fn a_wallet_calls_lists_and_deletes() {
    let data = TempDir::new().unwrap();
    let world = World::open(data.path());
    world.block_on(async {
        assert!(world.find(&auth(1, 0)).await.is_none());
        let [first, second] = [0, 7].map(|nonce| auth(1, nonce));
        let credentials = world.create(&first).await.unwrap();
        let other = world.create(&second).await.unwrap();
        assert_eq!(texts(&world.find(&first).await.unwrap()), texts(&credentials));

        let caller = world.call(wallet(1), &credentials).unwrap();
        assert_eq!(caller.tier(), Tier::Pro);
        let other_caller = world.call(wallet(1), &other).unwrap();
        assert_eq!(caller.account().unwrap(), other_caller.account().unwrap());
        let listed = world.service.api_keys(&caller, world.context()).await.unwrap();
        assert_eq!(listed, [credentials.api_key(), other.api_key()]);
        let keys = world.service.list_keys(&caller, world.context()).await.unwrap();
        let [own] = &keys[..] else { panic!("without `admin`, a key lists only itself: {keys:?}") };
        let name = format!("0x{}, nonce 0", "01".repeat(20));
        assert_eq!(own.key.grant.name.as_deref(), Some(&*name));

        world.service.delete_api_key(&caller, world.context()).await.unwrap();
        assert_eq!(
            world.service.require_valid(&caller, moment().now),
            Err(KeyError::Revoked.into())
        );
        let refused = world.call(wallet(1), &credentials).map(|_| ());
        assert_eq!(refused, Err(KeyError::Revoked.into()));
        let listed = world.service.api_keys(&other_caller, world.context()).await.unwrap();
        assert_eq!(listed, [other.api_key()]);
        assert!(world.find(&first).await.is_none());
        let next = world.create(&first).await.unwrap();
        assert!(texts(&next).iter().zip(texts(&credentials)).all(|(new, old)| *new != old));
        assert!(world.call(wallet(1), &next).is_ok());
    });
}

#[test]
fn many_threads_get_the_same_credentials() {
    let data = TempDir::new().unwrap();
    let world = Arc::new(World::open(data.path()));
    world.block_on(async {
        for nonce in 0..4 {
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let world = world.clone();
                    tokio::spawn(
                        async move { texts(&world.create(&auth(1, nonce)).await.unwrap()) },
                    )
                })
                .collect();
            let mut all = BTreeSet::new();
            for task in tasks {
                all.insert(task.await.unwrap());
            }
            assert_eq!(all.len(), 1, "nonce {nonce}");
        }
    });
    assert_eq!((world.service.account_count(), world.service.key_count()), (1, 4));
}

#[test]
fn wrong_credentials_are_refused_and_count_against_the_address() {
    let data = TempDir::new().unwrap();
    let rules = AddressRules {
        public: BucketRule::PUBLIC_READS,
        bootstrap: BucketRule::BOOTSTRAP,
        failures: BucketRule::FAILED_CREDENTIALS,
    };
    let world = World::open(data.path());
    let credentials = world.block_on(world.create(&auth(1, 0))).unwrap();
    let others = world.block_on(world.create(&auth(2, 0))).unwrap();
    drop(world);
    let sent =
        |address, credentials, timestamp_s| Sent::new(address, credentials, timestamp_s, ORDER);
    let unknown = MasterKey::new(&[8; 32]).credentials(wallet(1), 0, 1);
    let good = sent(wallet(1), &credentials, NOW_S);
    let malformed = Sent { api_key: "x".into(), ..sent(wallet(1), &credentials, NOW_S) };
    let forged = Sent {
        signature: sent(wallet(2), &others, NOW_S).signature,
        ..sent(wallet(1), &credentials, NOW_S)
    };
    let late = WalletError::NotCurrent { now_s: NOW_S };
    for (wrong, expected) in [
        (malformed, Denied::from(WalletError::ApiKey)),
        (sent(wallet(1), &unknown, NOW_S), WalletError::UnknownApiKey.into()),
        (sent(wallet(2), &credentials, NOW_S), WalletError::OtherWallet.into()),
        (sent(wallet(1), &credentials, NOW_S - 61), late.into()),
        (sent(wallet(1), &credentials, NOW_S + 31), late.into()),
        (forged, WalletError::Signature.into()),
    ] {
        let world = World::with_rules(data.path(), Some(rules));
        let wrong = wrong.headers();
        let call = |headers| world.request(headers, ORDER).map(|_| ());
        assert_eq!(call(&wrong), Err(expected.clone()));
        let mut tries = 1;
        while call(&wrong) == Err(expected.clone()) {
            tries += 1;
            assert!(tries < 1_000, "{expected:?} is not limited");
        }
        let limited = call(&wrong).unwrap_err();
        assert!(matches!(limited, Denied::TooOften { rule: RateRule::Failures, .. }), "{limited}");
        assert_eq!(call(&good.headers()), Ok(()), "good credentials are exempt");
    }
}

/// An API key is no secret. Whoever knows no more of it cannot use up its limits.
#[test]
fn only_the_holder_of_a_key_counts_against_its_limits() {
    let data = TempDir::new().unwrap();
    let world = World::open(data.path());
    world.block_on(async {
        let credentials = world.create(&auth(1, 0)).await.unwrap();
        let sent = Sent::new(wallet(1), &credentials, NOW_S, ORDER);
        let stranger =
            Sent { passphrase: "0".repeat(64), ..Sent::new(wallet(1), &credentials, NOW_S, ORDER) };
        let (sent, stranger) = (sent.headers(), stranger.headers());
        let count = |headers| world.service.identify_wallet(headers, ADDRESS, moment());
        for _ in 0..1_000 {
            let refused = count(&stranger).map(|_| ());
            assert_eq!(refused, Err(WalletError::Passphrase.into()));
        }
        let mut admitted = 0;
        loop {
            let caller = count(&sent).unwrap();
            if world.service.admit(&caller, ADDRESS, moment()).0.is_err() {
                break;
            }
            admitted += 1;
        }
        let allowed = Tiers::default().get(Tier::Pro).requests_per_second;
        assert_eq!(Some(admitted), allowed.get());
    });
}

#[test]
fn a_socket_ends_with_its_key() {
    let data = TempDir::new().unwrap();
    let world = World::open(data.path());
    world.block_on(async {
        let credentials = world.create(&auth(1, 0)).await.unwrap();
        let [api_key, secret, passphrase] = texts(&credentials);
        let presented = SocketCredentials {
            api_key: api_key.as_bytes(),
            secret: secret.as_bytes(),
            passphrase: passphrase.as_bytes(),
        };
        let open = |presented: &SocketCredentials<'_>| {
            world.service.identify_wallet_socket(presented, ADDRESS, moment())
        };
        let (socket, owner) = open(&presented).unwrap();
        assert_eq!(owner, wallet(1));
        let refused = open(&SocketCredentials { secret: passphrase.as_bytes(), ..presented });
        assert_eq!(refused.map(|_| ()), Err(Denied::from(WalletError::Secret).into()));
        assert!(socket.is_valid(moment().now));
        let caller = world.call(wallet(1), &credentials).unwrap();
        world.service.delete_api_key(&caller, world.context()).await.unwrap();
        assert!(!socket.is_valid(moment().now));
        let refused = open(&presented).map(|_| ());
        assert_eq!(refused, Err(Denied::from(KeyError::Revoked).into()));
    });
}

/// Accounts count against the address, and another master key is noticed before anybody calls.
#[test]
fn what_wallets_may_open_is_limited() {
    let data = TempDir::new().unwrap();
    let rules = AddressRules {
        public: BucketRule::PUBLIC_READS,
        bootstrap: BucketRule::BOOTSTRAP,
        failures: BucketRule::FAILED_CREDENTIALS,
    };
    let world = World::with_rules(data.path(), Some(rules));
    let mut opened = 0;
    let refused = loop {
        match world.block_on(world.create(&auth(opened, 0))) {
            Ok(_) => opened += 1,
            Err(error) => break error,
        }
    };
    let ServiceError::Denied(Denied::TooOften { rule, .. }) = refused else {
        panic!("{refused}");
    };
    assert_eq!(rule, RateRule::Accounts);
    assert!(opened > 0 && world.service.account_count() == usize::from(opened));
    for nonce in 1..5 {
        world.block_on(world.create(&auth(0, nonce))).unwrap();
    }
    let refused = world.block_on(world.create(&auth(0, 5))).map(|_| ());
    assert_eq!(refused, Err(Rejection::KeyLimitExceeded { active_keys_max: 5 }.into()));
    let service = world.service.with_master_key(&[8; 32]);
    assert_eq!(service.map(|_| ()), Err(WrongMasterKey));
}

#[test]
fn without_a_master_key_no_wallet_calls() {
    let data = TempDir::new().unwrap();
    let mut world = World::open(data.path());
    let credentials = world.block_on(world.create(&auth(1, 0))).unwrap();
    world.service.master_key = None;
    let off = Denied::from(WalletError::Off);
    let refused = world.call(wallet(1), &credentials).map(|_| ());
    assert_eq!(refused, Err(off.clone()));
    let refused = world.block_on(world.create(&auth(1, 0))).map(|_| ());
    assert_eq!(refused, Err(off.into()));
}
