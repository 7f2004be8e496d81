//! The cost of checking a credential, with 1,000 and with 1,000,000 keys.
//!
//! `check` is on the path of every request: above a microsecond it would show in the latency of a
//! trade. At the larger size each takes three to four times as long, because of cache misses. A
//! larger factor would mean that the work depends on the number of keys.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use paperbourse::auth::api_key::RawKey;
use paperbourse::auth::identity::embedded::EmbeddedIssuer;
use paperbourse::auth::key_table::{KEYS_MAX, KeyEntry, KeyFacts, KeyTable};
use paperbourse::auth::ws_token::{WsHolder, WsTokens};
use paperbourse::engine::key::Permissions;
use paperbourse::ids::{AccountId, KeyId, Timestamp};
use paperbourse::limits::tier::{Tier, Tiers};

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// Number of keys presented in turn, so that the entries do not all fit in the cache.
const PRESENTED: u64 = 65_536;

fn raw(number: u64) -> RawKey {
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&number.to_le_bytes());
    RawKey::from_secret(secret)
}

fn entry(number: u64) -> KeyEntry {
    let facts = KeyFacts {
        key_id: KeyId::from_raw(64 + number).expect("a small number"),
        account_id: AccountId::from_raw(64 + number / 5).expect("a small number"),
        tier: Tier::Free,
        permissions: Permissions::DEFAULT,
    };
    KeyEntry::new(facts, Tiers::default().get(Tier::Free))
}

fn table(key_count: u64) -> KeyTable {
    let table = KeyTable::new(KEYS_MAX);
    for number in 0..key_count {
        table.insert(raw(number).hash(), entry(number), None).expect("all keys differ");
    }
    table
}

fn keys(criterion: &mut Criterion) {
    for key_count in [1_000, 1_000_000] {
        let table = table(key_count);
        // A stride coprime to both sizes visits the keys in an order that defeats the prefetcher.
        let presented: Vec<_> = (0..PRESENTED).map(|index| raw(index * 7919 % key_count)).collect();
        let mut turn = presented.iter().cycle();
        criterion.bench_function(&format!("auth/check/{key_count}"), |bencher| {
            bencher.iter(|| {
                let key = turn.next().expect("a cycle has no end");
                table.authenticate(black_box(key.expose().as_bytes()), NOW).is_ok()
            });
        });
        criterion.bench_function(&format!("auth/check_unknown/{key_count}"), |bencher| {
            let unknown = raw(u64::MAX);
            bencher
                .iter(|| table.authenticate(black_box(unknown.expose().as_bytes()), NOW).is_ok());
        });
        criterion.bench_function(&format!("auth/insert/{key_count}"), |bencher| {
            bencher.iter_custom(|iterations| insert(key_count, iterations));
        });
    }
}

/// The time for `iterations` insertions. Measures whole rounds from `key_count` keys to twice as
/// many and scales the result, so that both sizes include exactly one growth of the table.
fn insert(key_count: u64, iterations: u64) -> Duration {
    let rounds = iterations.div_ceil(key_count);
    let mut elapsed = Duration::ZERO;
    for _ in 0..rounds {
        let table = table(key_count);
        let new = (key_count..2 * key_count).map(|number| (raw(number).hash(), entry(number)));
        let new: Vec<_> = new.collect();
        let start = Instant::now();
        for (hash, entry) in new {
            black_box(table.insert(hash, entry, None).is_ok());
        }
        elapsed += start.elapsed();
    }
    let insertions = rounds * key_count;
    Duration::from_nanos_u128(elapsed.as_nanos() * u128::from(iterations) / u128::from(insertions))
}

fn tokens(criterion: &mut Criterion) {
    let issuer = EmbeddedIssuer::in_memory().expect("the operating system gives randomness");
    let token = issuer.mint("ada", None, 600, NOW).expect("a short name");
    criterion.bench_function("auth/access_token", |bencher| {
        bencher.iter(|| issuer.verify(black_box(&token), NOW).is_ok());
    });
    let tokens = WsTokens::from_secret([7; 32]);
    let account_id = AccountId::from_raw(64).expect("the first id");
    let holder = WsHolder::AccessToken { ends_at: NOW };
    let token = tokens.mint(account_id, holder, Tier::Free, NOW);
    criterion.bench_function("auth/ws_token", |bencher| {
        bencher.iter(|| tokens.verify(black_box(&token), NOW).is_ok());
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2));
    targets = keys, tokens
}
criterion_main!(benches);
