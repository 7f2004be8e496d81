//! The cost of one decision by a key's rate windows, which every authenticated request pays before
//! anything else.
//!
//! `one_key` measures the arithmetic: if it grows, a decision searches longer, divides more or
//! retries. `100k_keys` measures memory: each key has a log of 1.2 kB, so a decision for a key that
//! was not seen recently waits for cache lines; if only this grows, a decision touches more of
//! them. A refusal must not cost more than an admission, since floods are answered with refusals.
//!
//! `cargo bench --bench limits compare` compares whole decisions, including the lookup of the key,
//! in turns: both windows as the server has them, and as they were before; `governor`, whose single
//! bucket per key implements neither window exactly; and exact windows behind locks. The goal is no
//! more than 1.5 times the time of `governor` with one key, and 5 times among 100,000, and no more
//! than behind a lock. Names after `compare` choose among them.

#[path = "../tests/windows/former.rs"]
#[expect(dead_code, reason = "memory is not released here")]
mod former;
#[path = "limits/others.rs"]
mod others;

use std::hint::black_box;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group};

use others::{Former, Governor, GovernorByKey, Locked, LogByKey, Windows};
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

/// That of the server: where it puts small blocks decides how many pages a decision touches.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Make = fn(&[KeyHash]) -> Box<dyn Decider>;

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

/// Rounds in which every limiter has one slice of time.
const ROUNDS: usize = 31;

/// Decisions in a slice.
const SLICE: u32 = 200_000;

/// One limiter, with the time that its decisions have reached.
struct Candidate {
    name: &'static str,
    decider: Box<dyn Decider>,
    now_ns: u64,
    /// Nanoseconds per decision, slice by slice.
    slices: Vec<f64>,
}

impl Candidate {
    fn run(&mut self, keys: &[KeyHash], threads: u64, count: u64) -> Duration {
        let elapsed = time(&*self.decider, keys, threads, count, self.now_ns);
        self.now_ns += count.div_ceil(threads) * (PACE_NS * threads / keys.len() as u64);
        elapsed
    }
}

/// Compares whole decisions in turns, since the speed of a machine changes within seconds: the
/// ratios are of slices of the same round.
fn compare() {
    // Only those that are named, and the first.
    let names: Vec<String> = std::env::args().skip_while(|it| it != "compare").skip(1).collect();
    for key_count in [1, KEYS] {
        let keys = hashes(key_count);
        let mut makers: Vec<(&str, Make)> = vec![
            ("governor_by_key", |_| Box::new(GovernorByKey::new())),
            ("windows", |keys| Box::new(Windows::new(keys))),
            ("former_windows", |keys| Box::new(Former::new(keys))),
            ("windows_behind_a_lock_each", |keys| Box::new(Locked::new(keys))),
        ];
        if key_count == 1 {
            makers.push(("governor", |_| Box::new(Governor::new())));
            makers.push(("log_behind_one_lock", |_| Box::new(LogByKey::new(1))));
        } else {
            makers.push(("log_behind_64_locks", |_| Box::new(LogByKey::new(64))));
        }
        let is_named = |name: &str| names.is_empty() || names.iter().any(|it| it == name);
        let mut candidates: Vec<_> = makers
            .into_iter()
            .filter(|&(name, _)| name == "governor_by_key" || is_named(name))
            .map(|(name, make)| {
                let decider = make(&keys);
                Candidate { name, decider, now_ns: SECOND_NS, slices: Vec::new() }
            })
            .collect();
        // More than a minute of the clock, until every key has a full log.
        for candidate in &mut candidates {
            candidate.run(&keys, 1, 350 * key_count as u64);
        }
        for threads in [1, 2, 8] {
            println!("\n{key_count} keys, {threads} threads: ns, ratio to governor_by_key");
            for candidate in &mut candidates {
                candidate.slices.clear();
            }
            for _ in 0..ROUNDS {
                for candidate in &mut candidates {
                    let elapsed = candidate.run(&keys, threads, u64::from(SLICE)).as_secs_f64();
                    candidate.slices.push(elapsed * 1e9 / f64::from(SLICE));
                }
            }
            let peer = candidates[0].slices.clone();
            for candidate in &mut candidates {
                let ratios = candidate.slices.iter().zip(&peer).map(|(own, peer)| own / peer);
                let [low, middle, high] = quartiles(ratios.collect());
                let [_, ns, _] = quartiles(candidate.slices.clone());
                let name = candidate.name;
                println!("{name:28} {ns:7.1}   {middle:5.2} ({low:.2} to {high:.2})");
            }
        }
    }
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

criterion_group!(benches, one_key, first_decision, addresses, many_keys);

fn main() {
    if std::env::args().any(|argument| argument == "compare") {
        return compare();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
