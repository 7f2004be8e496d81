//! What a credential costs, at 1,000 keys and at 1,000,000.
//!
//! `check` stands on the way of every request: beyond a microsecond it would show in the latency of
//! a trade. `insert` at the two sizes must not drift apart: creating a key would then depend on how
//! many there are.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use paperbourse::auth::api_key::{KeyHash, RawKey};
use paperbourse::auth::identity::embedded::EmbeddedIssuer;
use paperbourse::auth::key_table::{KEYS_MAX, KeyEntry, KeyFacts, KeyTable};
use paperbourse::auth::ws_token::WsTokens;
use paperbourse::engine::key::Permissions;
use paperbourse::ids::{AccountId, KeyId, Timestamp};
use paperbourse::limits::tier::Tier;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// As many as keys that are presented in turn, so that the entries are not all in the cache.
const PRESENTED: usize = 65_536;

fn raw(number: u64) -> RawKey {
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&number.to_le_bytes());
    RawKey::from_secret(secret)
}

fn entry(number: u64) -> KeyEntry<()> {
    let facts = KeyFacts {
        key_id: KeyId::from_raw(64 + number).expect("a small number"),
        account_id: AccountId::from_raw(64 + number / 5).expect("a small number"),
        tier: Tier::Free,
        permissions: Permissions::DEFAULT,
        created_at: NOW,
        expires_at: None,
    };
    KeyEntry::new(facts, ())
}

fn table(key_count: u64) -> KeyTable<()> {
    let table = KeyTable::new(KEYS_MAX);
    for number in 0..key_count {
        table.insert(raw(number).hash(), entry(number)).expect("all keys differ");
    }
    table
}

fn keys(criterion: &mut Criterion) {
    for key_count in [1_000, 1_000_000] {
        let table = table(key_count);
        // A stride that is prime to both sizes visits the keys in an order that no cache foresees.
        let mut presented =
            (0..PRESENTED as u64).map(|index| raw(index * 7919 % key_count)).collect::<Vec<_>>();
        presented.dedup_by(|left, right| left.expose() == right.expose());
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
        let mut number = key_count;
        criterion.bench_function(&format!("auth/insert/{key_count}"), |bencher| {
            bencher.iter_batched(
                || {
                    number += 1;
                    (raw(number).hash(), entry(number))
                },
                |(hash, entry): (KeyHash, _)| table.insert(hash, entry).is_ok(),
                BatchSize::SmallInput,
            );
        });
    }
}

fn tokens(criterion: &mut Criterion) {
    let issuer = EmbeddedIssuer::in_memory().expect("the operating system gives randomness");
    let token = issuer.mint("ada", None, 600, NOW).expect("a short name");
    criterion.bench_function("auth/access_token", |bencher| {
        bencher.iter(|| issuer.verify(black_box(&token), NOW).is_ok());
    });
    let tokens = WsTokens::from_secret([7; 32]);
    let account_id = AccountId::from_raw(64).expect("the first id");
    let token = tokens.mint(account_id, None, Tier::Free, NOW);
    criterion.bench_function("auth/ws_token", |bencher| {
        bencher.iter(|| tokens.verify(black_box(&token), NOW).is_ok());
    });
}

criterion_group!(benches, keys, tokens);
criterion_main!(benches);
