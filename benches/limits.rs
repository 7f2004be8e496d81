//! The cost of one decision by a key's rate windows, which every authenticated request pays before
//! anything else.
//!
//! `one_key` measures the arithmetic: if it grows, a decision searches longer, divides more or
//! retries. `100k_keys` measures memory: each key has a log of 4 kB, so a decision for a key that
//! was not seen recently waits for cache lines; if only this grows, a decision touches more of
//! them. A refusal must not cost more than an admission, since floods are answered with refusals.
//!
//! `compare` compares whole decisions, including the lookup of the key: both windows as the server
//! has them; `governor`, whose single bucket per key implements neither window exactly; and an
//! exact log of admissions behind locks. The goal is to be no slower than `governor` with keys.

#[path = "limits/others.rs"]
mod others;

use std::hint::black_box;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

use others::{Governor, GovernorByKey, LogByKey, Windows};
use paperbourse::auth::api_key::KeyHash;
use paperbourse::limits::bucket::{AddressTable, BucketRule};
use paperbourse::limits::tier::{Tier, Tiers};
use paperbourse::limits::window::KeyLimiter;

const SECOND_NS: u64 = 1_000_000_000;

/// The steady rate of a free key: 5 per second, 300 per minute.
const PACE_NS: u64 = SECOND_NS / 5;

const KEYS: usize = 100_000;

/// Decides on one request of a key.
trait Decider: Sync {
    fn is_admitted(&self, key: &KeyHash, now_ns: u64) -> bool;
}

type Make = fn() -> Box<dyn Decider>;

/// A key that has sent at its full rate for more than a minute, and the time of its last request.
fn busy_key() -> (KeyLimiter, u64) {
    let limiter = KeyLimiter::new(Tiers::default().get(Tier::Free));
    let mut now_ns = 0;
    for _ in 0..400 {
        now_ns += PACE_NS;
        assert!(limiter.decide(now_ns).is_admitted);
    }
    (limiter, now_ns)
}

/// A walk over all keys that defeats the prefetcher, the same in every run.
fn next_key(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from((*state >> 33) % KEYS as u64).expect("an index of a key")
}

fn one_key(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one_key");
    group.throughput(Throughput::Elements(1));
    group.bench_function("admitted", |bencher| {
        let (limiter, mut now_ns) = busy_key();
        bencher.iter(|| {
            now_ns += PACE_NS;
            let decision = limiter.decide(black_box(now_ns));
            assert!(decision.is_admitted);
            decision
        });
    });
    group.bench_function("admitted_after_a_pause", |bencher| {
        // About half of the ring has left the window, the worst case for the search.
        let (limiter, mut now_ns) = busy_key();
        bencher.iter(|| {
            now_ns += 2 * PACE_NS;
            let decision = limiter.decide(black_box(now_ns));
            assert!(decision.is_admitted);
            decision
        });
    });
    group.bench_function("refused", |bencher| {
        let (limiter, now_ns) = busy_key();
        bencher.iter(|| {
            let decision = limiter.decide(black_box(now_ns));
            assert!(!decision.is_admitted);
            decision
        });
    });
    group.bench_function("peek", |bencher| {
        let (limiter, now_ns) = busy_key();
        bencher.iter(|| limiter.peek(black_box(now_ns)));
    });
    group.finish();
}

fn many_keys(criterion: &mut Criterion) {
    let (keys, starts_ns): (Vec<_>, Vec<_>) = (0..KEYS).map(|_| busy_key()).unzip();
    let start_ns = starts_ns[0];
    let mut group = criterion.benchmark_group("100k_keys");
    group.throughput(Throughput::Elements(1));
    group.bench_function("refused", |bencher| {
        let mut state = 1;
        bencher.iter(|| keys[next_key(&mut state)].decide(black_box(start_ns)));
    });
    group.bench_function("admitted", |bencher| {
        let (mut state, mut now_ns) = (1, start_ns);
        bencher.iter(|| {
            // A key is used every 40 s of this clock on average: few requests are in the window,
            // and the search for the oldest crosses the whole ring.
            now_ns += 2 * PACE_NS / 1000;
            keys[next_key(&mut state)].decide(black_box(now_ns))
        });
    });
    group.finish();
}

fn first_decision(criterion: &mut Criterion) {
    let tiers = Tiers::default();
    let mut group = criterion.benchmark_group("first_decision");
    for (tier, limits) in tiers.iter() {
        group.bench_function(tier.as_str(), |bencher| {
            bencher.iter_batched(
                || KeyLimiter::new(limits),
                |limiter| {
                    limiter.decide(1);
                    limiter
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn addresses(criterion: &mut Criterion) {
    let table = AddressTable::new(BucketRule::PUBLIC_READS, std::hash::RandomState::new());
    criterion.bench_function("address/10k", |bencher| {
        let (mut state, mut now_ns) = (1, 0);
        bencher.iter(|| {
            now_ns += 1_000;
            let address = u32::try_from(next_key(&mut state) / 10).expect("an address");
            table.draw(IpAddr::from(address.to_be_bytes()), black_box(now_ns))
        });
    });
}

/// The hashes of `count` keys.
fn hashes(count: usize) -> Vec<KeyHash> {
    let hash = |number: usize| {
        let mut bytes = [0x5a; 32];
        bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        KeyHash::from_bytes(bytes)
    };
    (0..count).map(hash).collect()
}

/// The time for these decisions on this many threads, measured once all have started. Together, the
/// keys send at their full rate by the clock, so that some requests are admitted and some are not.
fn time(
    decider: &dyn Decider,
    keys: &[KeyHash],
    threads: u64,
    count: u64,
    now_ns: u64,
) -> Duration {
    let step_ns = PACE_NS * threads / keys.len() as u64;
    let decide = |thread: u64| {
        let (mut state, mut now_ns) = (thread + 1, now_ns);
        for _ in 0..count.div_ceil(threads) {
            now_ns += step_ns;
            let key = &keys[next_key(&mut state) % keys.len()];
            black_box(decider.is_admitted(key, now_ns));
        }
    };
    let began = Instant::now();
    thread::scope(|scope| {
        for thread in 1..threads {
            scope.spawn(move || decide(thread));
        }
        decide(0);
    });
    began.elapsed()
}

fn compare(criterion: &mut Criterion) {
    let deciders: [(&str, Make); 5] = [
        ("windows", || Box::new(Windows::new(&hashes(KEYS)))),
        ("governor", || Box::new(Governor::new())),
        ("governor_by_key", || Box::new(GovernorByKey::new())),
        ("log_behind_one_lock", || Box::new(LogByKey::new(1))),
        ("log_behind_64_locks", || Box::new(LogByKey::new(64))),
    ];
    for key_count in [1, KEYS] {
        let keys = hashes(key_count);
        let mut group = criterion.benchmark_group(format!("compare/{key_count}_keys"));
        group.throughput(Throughput::Elements(1));
        for (name, make) in deciders {
            if key_count > 1 && name == "governor" {
                // It handles a single key.
                continue;
            }
            let decider = make();
            // More than a minute of the clock, until every key has a full log.
            let mut now_ns = SECOND_NS;
            let mut run = |threads, count: u64| {
                let elapsed = time(&*decider, &keys, threads, count, now_ns);
                now_ns += count.div_ceil(threads) * (PACE_NS * threads / keys.len() as u64);
                elapsed
            };
            run(1, 350 * key_count as u64);
            for threads in [1, 2] {
                group.bench_function(format!("{threads}_threads/{name}"), |bencher| {
                    bencher.iter_custom(|count| run(threads, count));
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, one_key, first_decision, addresses, many_keys, compare);
criterion_main!(benches);
