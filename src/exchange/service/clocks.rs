//! Tests that rate limits follow the monotonic clock and expiries the wall clock, despite jumps of
//! the wall clock.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::{Caller, Denied, Moment, NewKeyRequest, Parts, RequestContext, Service, ServiceError};
use crate::auth::identity::TokenError;
use crate::auth::identity::embedded::EmbeddedIssuer;
use crate::auth::key_table::KeyError;
use crate::auth::presented::Presented;
use paperbourse_core::engine::key::Permissions;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::bucket::{AccountRates, AddressRules, BucketRule, Rate};
use paperbourse_core::limits::tier::Tier;
use paperbourse_store::journal::Waiters;

const START_SECONDS: i64 = 1_800_000_000;
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SECOND_NS: u64 = 1_000_000_000;

/// Jumps of the wall clock, in seconds.
const JUMPS: [i64; 6] = [0, -1, 3_600, -3_600, 40_000_000, -1_700_000_000];

struct World {
    service: Service,
    wall: Arc<AtomicI64>,
    waiters: Arc<Waiters>,
    token: String,
}

impl World {
    fn new() -> Self {
        let issuer = EmbeddedIssuer::in_memory().unwrap();
        let start = Timestamp::from_seconds(START_SECONDS);
        let token = issuer.mint("someone", None, 3_600, start).unwrap();
        let wall = Arc::new(AtomicI64::new(start.nanos()));
        let (parts, journal) = Parts::in_memory(issuer, wall.clone());
        let service = Service::new(Parts {
            address_rules: Some(AddressRules {
                public: BucketRule::PUBLIC_READS,
                bootstrap: BucketRule::BOOTSTRAP,
                failures: BucketRule::FAILED_CREDENTIALS,
            }),
            account_rates: AccountRates {
                keys: Rate::Limited(BucketRule::KEYS),
                sockets: Rate::Unlimited,
            },
            ..parts
        });
        Self { service, wall, waiters: journal.register(), token }
    }

    /// Sets the wall clock to `seconds` after the start.
    fn moment(&self, seconds: i64, monotonic_ns: u64) -> Moment {
        let now = Timestamp::from_seconds(START_SECONDS + seconds);
        self.wall.store(now.nanos(), Ordering::Relaxed);
        Moment { now, monotonic_ns }
    }

    fn context(&self, moment: Moment) -> RequestContext<'_> {
        RequestContext { moment, address: ADDRESS, waiters: &self.waiters }
    }

    async fn by_token(&self, moment: Moment) -> Result<Caller, Denied> {
        self.service.identify(&Presented::Token(&self.token), ADDRESS, moment).await
    }

    async fn by_key(&self, raw: &str, moment: Moment) -> Result<Caller, Denied> {
        self.service.identify(&Presented::Key(raw.as_bytes()), ADDRESS, moment).await
    }

    /// Creates a key. Returns its raw text and a caller authenticated with it.
    async fn key(&self) -> (String, Caller) {
        let moment = self.moment(0, 0);
        let owner = self.by_token(moment).await.unwrap_or_else(|denied| panic!("{denied}"));
        let permissions = Permissions::ALL;
        let request = NewKeyRequest { name: None, tier: Tier::Free, permissions };
        let new = self.service.create_key(&owner, request, true, self.context(moment)).await;
        let new = new.unwrap_or_else(|error| panic!("{error}"));
        let raw = new.raw.expose().to_owned();
        let caller = self.by_key(&raw, moment).await.unwrap_or_else(|denied| panic!("{denied}"));
        (raw, caller)
    }

    fn is_admitted(&self, caller: &Caller, moment: Moment) -> bool {
        self.service.admit(caller, ADDRESS, moment).0.is_ok()
    }
}

/// A jump of the wall clock affects no rate limit, whether of a key, of an access token or of an
/// address.
#[tokio::test]
async fn rate_limits_follow_the_monotonic_clock() {
    let world = World::new();
    let (_, key) = world.key().await;
    let token =
        world.by_token(world.moment(0, 0)).await.unwrap_or_else(|denied| panic!("{denied}"));
    // The free tier allows five a second. An anonymous caller has a burst of twenty, then ten a
    // second.
    for (caller, burst, next_ns) in
        [(key, 5, SECOND_NS), (token, 5, SECOND_NS), (Caller::Anonymous, 20, SECOND_NS / 10)]
    {
        let mut monotonic_ns = 0;
        for (jump, next_jump) in JUMPS.into_iter().zip(JUMPS.into_iter().cycle().skip(1)) {
            for number in 0..burst {
                let jump = if number % 2 == 0 { jump } else { next_jump };
                let moment = world.moment(jump, monotonic_ns);
                assert!(world.is_admitted(&caller, moment), "{number} at {jump}");
            }
            for jump in JUMPS {
                for wait_ns in [0, next_ns - 1] {
                    let moment = world.moment(jump, monotonic_ns + wait_ns);
                    assert!(!world.is_admitted(&caller, moment), "{jump} after {wait_ns} ns");
                }
            }
            // An empty address bucket is full again after two seconds.
            monotonic_ns += 2 * SECOND_NS;
        }
    }
}

/// A credential expires by the wall clock, and is valid again when the wall clock is set back,
/// however much time has passed.
#[tokio::test]
async fn expiry_follows_the_wall_clock() {
    let world = World::new();
    let (raw, caller) = world.key().await;
    let moment = world.moment(0, 0);
    let context = world.context(moment);
    let socket_token = world.service.mint_ws_token(&caller, moment);
    let socket_token = socket_token.unwrap_or_else(|error| panic!("{error}"));
    let rotated = world.service.rotate_key(&caller, caller.key_id(), 600, context).await;
    let successor = rotated.unwrap_or_else(|error| panic!("{error}")).raw.expose().to_owned();
    let expires_at = Timestamp::from_seconds(START_SECONDS + 600);
    let walk = [0, 59, 60, 0, 599, 600, 100_000, 599, 3_659, 3_661, 0, -59, -61, 0];
    for (monotonic_ns, seconds) in (0..).step_by(7).zip(walk) {
        let moment = world.moment(seconds, monotonic_ns);
        let by_key = world.by_key(&raw, moment).await.map(|_| ());
        let ended = Err(Denied::Key(KeyError::Expired { expires_at }));
        assert_eq!(by_key, if seconds < 600 { Ok(()) } else { ended }, "key at {seconds}");
        assert!(world.by_key(&successor, moment).await.is_ok());

        let by_token = world.by_token(moment).await.map(|_| ());
        match seconds {
            // With a leeway of one minute.
            -60..3_660 => assert_eq!(by_token, Ok(()), "token at {seconds}"),
            3_660.. => assert!(matches!(by_token, Err(Denied::Token(TokenError::Expired { .. })))),
            _ => assert!(matches!(by_token, Err(Denied::Token(TokenError::Invalid(_))))),
        }

        let context = world.context(moment);
        let socket =
            world.service.identify_socket(Some(&socket_token), &Presented::Nothing, context);
        let is_open = socket.await.map(|_| ());
        let refused = Err(ServiceError::Denied(Denied::SocketToken));
        assert_eq!(is_open, if seconds < 60 { Ok(()) } else { refused }, "socket at {seconds}");
    }
}

/// A key that was rotated while the clock was far ahead is refused once the clock is right again.
/// Otherwise its overlap would last until that distant year.
#[tokio::test]
async fn an_overlap_does_not_outlive_a_jump() {
    const TO_2100: i64 = 2_300_000_000;
    let world = World::new();
    let (raw, caller) = world.key().await;
    let then = world.moment(TO_2100, 0);
    let context = world.context(then);
    let rotated = world.service.rotate_key(&caller, caller.key_id(), 600, context).await;
    let successor = rotated.unwrap_or_else(|error| panic!("{error}")).raw.expose().to_owned();
    let socket_token = world.service.mint_ws_token(&caller, context.moment);
    let socket_token = socket_token.unwrap_or_else(|error| panic!("{error}"));
    assert!(world.by_key(&raw, then).await.is_ok());

    let now = world.moment(1, 1);
    let by_old = world.by_key(&raw, now).await.map(|_| ());
    assert_eq!(by_old, Err(Denied::Key(KeyError::Revoked)));
    let context = world.context(now);
    let socket = world.service.identify_socket(Some(&socket_token), &Presented::Nothing, context);
    let is_open = socket.await.map(|_| ());
    assert_eq!(is_open, Err(ServiceError::Denied(Denied::SocketToken)));

    let successor = world.by_key(&successor, now).await.unwrap_or_else(|denied| panic!("{denied}"));
    let permissions = Permissions::DEFAULT;
    let request = NewKeyRequest { name: None, tier: Tier::Free, permissions };
    let new = world.service.create_key(&successor, request, false, context).await;
    let new = new.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(new.key.created_at, now.now);
    let keys = world.service.list_keys(&successor, context).await;
    let keys = keys.unwrap_or_else(|error| panic!("{error}"));
    let active: Vec<_> = keys.iter().map(|listing| listing.key.is_active(now.now)).collect();
    assert_eq!(active.iter().filter(|&&is_active| is_active).count(), 2, "{active:?}");
}
