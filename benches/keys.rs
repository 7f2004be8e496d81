//! The cost of a credential on the path of a request, and of creating a key, with 1,000 and with
//! 1,000,000 keys. They must be equal except for cache misses.
//!
//! `keys/admit` covers everything from the header text to the decision of the key's limiter.
//! `keys/create` and `keys/rotate` are what a shard does for a key: decide, update the table,
//! apply. They leave out the disk and HTTP. If the larger size costs more than cache misses
//! explain, the work depends on the number of keys.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use paperbourse::auth::api_key::{KeyHash, RawKey};
use paperbourse::auth::key_table::KEYS_MAX;
use paperbourse::engine::command::{CreateKey, Identity, Owner, RotateKey};
use paperbourse::engine::key::{KeyGrant, OVERLAP_SECONDS_DEFAULT, Permissions};
use paperbourse::engine::{Command, Rules, State, Verdict};
use paperbourse::ids::{KeyId, Lsn, SHARD_COUNT, ShardId, Timestamp};
use paperbourse::limits::tier::{Tier, TierTable, Tiers};
use paperbourse::service::{Keys, key_observer};
use paperbourse::shard::Observer;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// Number of keys of every account, which then gets one more or a successor for its newest.
const KEYS_PER_ACCOUNT: usize = 4;

/// Number of keys presented in turn, so that the entries do not all fit in the cache.
const PRESENTED: usize = 65_536;

fn raw(number: usize) -> RawKey {
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&(number as u64).to_le_bytes());
    RawKey::from_secret(secret)
}

/// All shards and their key table.
struct Server {
    states: Vec<State>,
    keys: Arc<Keys>,
    observer: Observer,
    key_count: usize,
}

impl Server {
    fn new(key_count: usize) -> Self {
        let keys = Arc::new(Keys::new(KEYS_MAX));
        let states = ShardId::all().map(State::new).collect();
        let observer = key_observer(keys.clone(), Arc::new(TierTable::new(Tiers::default())));
        let mut server = Self { states, keys, observer, key_count: 0 };
        for number in 0..key_count {
            let command = server.create(number / KEYS_PER_ACCOUNT);
            server.run(number / KEYS_PER_ACCOUNT, &command);
        }
        server
    }

    fn next_raw(&mut self) -> RawKey {
        self.key_count += 1;
        raw(self.key_count - 1)
    }

    /// Creates another key of an account.
    fn create(&mut self, account: usize) -> CreateKey {
        let raw = self.next_raw();
        let mut digest = [0; 32];
        digest[0] = u8::try_from(account % SHARD_COUNT).expect("below 64");
        digest[8..16].copy_from_slice(&(account as u64).to_le_bytes());
        let identity = Identity { digest, issuer: "bench".into(), subject: "someone".into() };
        CreateKey {
            owner: Owner::Identity(identity),
            is_bootstrap: false,
            created_by: None,
            grant: KeyGrant {
                hash: *raw.hash().as_bytes(),
                prefix: raw.prefix().into(),
                name: Some("a bot".into()),
                tier: Tier::Free,
                permissions: Permissions::DEFAULT,
                expires_at: None,
                wallet: None,
            },
        }
    }

    /// Creates a successor for the newest key of an account.
    fn rotate(&mut self, account: usize) -> RotateKey {
        let state = &self.states[account % SHARD_COUNT];
        // A shard assigns its ids in the order in which its accounts got their keys.
        let newest = (account / SHARD_COUNT + 1) * KEYS_PER_ACCOUNT;
        let key = KeyId::new(state.shard(), newest as u64).expect("a small number");
        let account = state.key(key).expect("it was made").account;
        let raw = self.next_raw();
        RotateKey {
            account,
            key,
            caller_key: Some(key),
            overlap_seconds: OVERLAP_SECONDS_DEFAULT,
            hash: *raw.hash().as_bytes(),
            prefix: raw.prefix().into(),
        }
    }

    fn run<C: Command>(&mut self, account: usize, command: &C) {
        let state = &mut self.states[account % SHARD_COUNT];
        let verdict = state.decide(command, None, NOW, &Rules::default());
        let Ok(Verdict::Happens(events, _)) = verdict else { panic!("nothing happens") };
        for event in &events {
            (self.observer)(event, state);
        }
        state.apply(&events, Lsn::new(0, state.sequence() + 1));
    }
}

/// The time for `iterations` commands, one per account of a server with `key_count` keys, with a
/// new server after each round of all accounts.
fn commands<C: Command>(
    key_count: usize,
    iterations: u64,
    command: fn(&mut Server, usize) -> C,
) -> Duration {
    let account_count = key_count / KEYS_PER_ACCOUNT;
    let mut elapsed = Duration::ZERO;
    let mut rest = usize::try_from(iterations).expect("few iterations");
    while rest > 0 {
        let mut server = Server::new(key_count);
        // A stride coprime to both sizes visits the accounts in an order that defeats the
        // prefetcher.
        let turns = rest.min(account_count);
        let accounts = (0..turns).map(|turn| turn * 7919 % account_count);
        let commands: Vec<_> =
            accounts.map(|account| (account, command(&mut server, account))).collect();
        let start = Instant::now();
        for (account, command) in &commands {
            server.run(*account, command);
        }
        elapsed += start.elapsed();
        rest -= turns;
    }
    elapsed
}

fn keys(criterion: &mut Criterion) {
    for key_count in [1_000, 1_000_000] {
        let server = Server::new(key_count);
        let presented: Vec<_> = (0..PRESENTED).map(|index| raw(index * 7919 % key_count)).collect();
        let mut turns = presented.iter().cycle().zip(0_u64..);
        criterion.bench_function(&format!("keys/admit/{key_count}"), |bencher| {
            bencher.iter(|| {
                let (key, turn) = turns.next().expect("a cycle has no end");
                // One millisecond between requests, so each key is far below its limits.
                let text = black_box(key.expose().as_bytes());
                let hash = KeyHash::of_presented(text).expect("the text of a key");
                let admitted = server.keys.admit(hash, NOW, turn * 1_000_000);
                admitted.expect("a key of the table").1.is_admitted
            });
        });
        drop(server);
        criterion.bench_function(&format!("keys/create/{key_count}"), |bencher| {
            bencher.iter_custom(|iterations| commands(key_count, iterations, Server::create));
        });
        criterion.bench_function(&format!("keys/rotate/{key_count}"), |bencher| {
            bencher.iter_custom(|iterations| commands(key_count, iterations, Server::rotate));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2));
    targets = keys
}
criterion_main!(benches);
