//! The windows of keys against an exact log, arrival by arrival: at random, and where a mistake
//! would be most likely.
//!
//! `PAPERBOURSE_WINDOW_ARRIVALS=10000000 cargo test --profile simulation --test windows` sends so
//! many arrivals in all; without it a few hundred thousand.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use paperbourse::limits::tier::TierLimits;
use paperbourse::limits::window::{Decision, KeyLimiter};
use paperbourse::limits::{CLOCK_NS_MAX, Limit, UNLIMITED_SHOWN};

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

const ARRIVALS_DEFAULT: u64 = 400_000;
const THREADS: u64 = 4;

/// Limits of the tiers, and some at which windows and logs are most often full or change size.
const LIMITS: [&str; 9] = [
    "5/300",
    "20/1200",
    "50/3000",
    "1/1",
    "1/60",
    "9/8",
    "17/unlimited",
    "unlimited/33",
    "unlimited/unlimited",
];

/// How arrivals follow each other.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// At random, about as many as the limits allow.
    Random,
    /// At random, many times as many.
    Flood,
    /// Bursts at the edges of windows that end with earlier arrivals, a nanosecond to either side.
    Edges,
    /// As soon as the last answer promised, or a nanosecond too early.
    AsTold,
    /// Long pauses between bursts, in which memory is given back: logs shrink and grow again.
    Pauses,
}

const PATTERNS: [Pattern; 5] =
    [Pattern::Random, Pattern::Flood, Pattern::Edges, Pattern::AsTold, Pattern::Pauses];

/// Numbers that only depend on where they began.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// An exact log: the admissions that a window can still hold, the oldest first.
struct Log {
    windows: [(Option<u32>, u64); 2],
    stamps: VecDeque<u64>,
    floor_ns: u64,
}

impl Log {
    fn new(limits: &TierLimits) -> Self {
        let windows = [
            (limits.requests_per_second.get(), SECOND_NS),
            (limits.requests_per_minute.get(), MINUTE_NS),
        ];
        Self { windows, stamps: VecDeque::new(), floor_ns: 0 }
    }

    fn stamp_at(&self, now_ns: u64) -> u64 {
        let newest_ns = self.stamps.back().copied().unwrap_or(0);
        now_ns.min(CLOCK_NS_MAX).max(newest_ns).max(self.floor_ns)
    }

    fn remaining(&self, end_ns: u64) -> [u32; 2] {
        self.windows.map(|(limit, length_ns)| {
            let Some(limit) = limit else { return UNLIMITED_SHOWN };
            let outside = self.stamps.partition_point(|&stamp| end_ns - stamp >= length_ns);
            limit - u32::try_from(self.stamps.len() - outside).unwrap()
        })
    }

    fn decide(&mut self, now_ns: u64) -> (bool, u64, [u32; 2]) {
        let stamp_ns = self.stamp_at(now_ns);
        let is_admitted = self.remaining(stamp_ns).iter().all(|&remaining| remaining > 0);
        if is_admitted && self.windows.iter().any(|(limit, _)| limit.is_some()) {
            self.stamps.push_back(stamp_ns);
            // No later stamp is lower. Those of refusals may be: they do not count.
            while self.stamps.front().is_some_and(|&oldest| stamp_ns - oldest >= MINUTE_NS) {
                self.stamps.pop_front();
            }
        }
        (is_admitted, stamp_ns, self.remaining(stamp_ns))
    }

    /// What giving back memory at this time means for the stamps to come.
    fn release(&mut self, now_ns: u64) {
        let limited = self.windows.iter().filter(|(limit, _)| limit.is_some());
        let retention_ns = limited.map(|&(_, length_ns)| length_ns).max();
        if let (Some(retention_ns), Some(&newest_ns)) = (retention_ns, self.stamps.back())
            && newest_ns + retention_ns <= now_ns
        {
            self.floor_ns = self.floor_ns.max(newest_ns + retention_ns);
        }
    }
}

fn limits(text: &str) -> TierLimits {
    let (second, minute) = text.split_once('/').unwrap();
    let [requests_per_second, requests_per_minute] =
        [second, minute].map(|limit| limit.parse::<Limit>().unwrap());
    TierLimits { requests_per_second, requests_per_minute, sockets_max: 1, batch_max: 1 }
}

/// The time between requests at which the longest window is just full.
fn pace_ns(limits: &TierLimits) -> u64 {
    match (limits.requests_per_second.get(), limits.requests_per_minute.get()) {
        (_, Some(minute)) => MINUTE_NS / u64::from(minute),
        (Some(second), None) => SECOND_NS / u64::from(second),
        (None, None) => SECOND_NS,
    }
}

/// Arrivals of one pattern, one after the other.
struct Arrivals {
    random: Random,
    pattern: Pattern,
    pace_ns: u64,
    now_ns: u64,
    wait_ns: u64,
    left_in_burst: u64,
}

impl Arrivals {
    fn new(pattern: Pattern, limits: &TierLimits, start_ns: u64, seed: u64) -> Self {
        let pace_ns = pace_ns(limits);
        let random = Random(seed);
        Self { random, pattern, pace_ns, now_ns: start_ns, wait_ns: 0, left_in_burst: 0 }
    }

    fn next_ns(&mut self) -> u64 {
        let random = &mut self.random;
        let beside_ns = random.below(3);
        let step_ns = match self.pattern {
            Pattern::Random => random.below(2 * self.pace_ns),
            Pattern::Flood => random.below(self.pace_ns / 8 + 2),
            Pattern::AsTold => (self.wait_ns + beside_ns).saturating_sub(1),
            Pattern::Edges if self.left_in_burst > 0 => random.below(2),
            Pattern::Edges => {
                self.left_in_burst = random.below(40);
                let edge_ns = [SECOND_NS, MINUTE_NS, self.wait_ns, SECOND_NS / 5];
                let edge_ns = edge_ns[usize::try_from(random.below(4)).unwrap()];
                (edge_ns + beside_ns).saturating_sub(1)
            }
            Pattern::Pauses if self.left_in_burst > 0 => random.below(self.pace_ns / 4 + 2),
            Pattern::Pauses => {
                self.left_in_burst = random.below(400);
                (MINUTE_NS + beside_ns).saturating_sub(1)
            }
        };
        self.left_in_burst = self.left_in_burst.saturating_sub(1);
        // The clock of one thread may be behind that of another.
        self.now_ns = (self.now_ns + step_ns).min(CLOCK_NS_MAX);
        self.now_ns.saturating_sub(if random.below(50) == 0 { random.below(1_000) } else { 0 })
    }
}

fn arrival_count() -> u64 {
    let told = std::env::var("PAPERBOURSE_WINDOW_ARRIVALS").ok();
    told.map_or(ARRIVALS_DEFAULT, |text| text.parse().expect("a number of arrivals"))
}

/// Every combination of limits, pattern and place on the clock, with its share of so many arrivals.
fn for_each_case(total: u64, mut run: impl FnMut(&str, Pattern, u64, u64)) {
    // At the zero of the clock, far from both ends, and so that the run meets its last moment.
    let starts_ns = [0, 1 << 61, CLOCK_NS_MAX - 3 * MINUTE_NS];
    let case_count = (LIMITS.len() * PATTERNS.len() * starts_ns.len()) as u64;
    for text in LIMITS {
        for pattern in PATTERNS {
            for start_ns in starts_ns {
                run(text, pattern, start_ns, total.div_ceil(case_count));
            }
        }
    }
}

#[test]
fn one_thread_gets_the_answers_of_an_exact_log() {
    let (mut arrived, mut admitted) = (0, 0);
    for_each_case(arrival_count(), |text, pattern, start_ns, count| {
        let limits = limits(text);
        let (limiter, mut log) = (KeyLimiter::new(&limits), Log::new(&limits));
        let mut arrivals = Arrivals::new(pattern, &limits, start_ns, count);
        for number in 0..count {
            let now_ns = arrivals.next_ns();
            if arrivals.left_in_burst == 0 && number % 3 == 0 {
                limiter.release(now_ns);
                log.release(now_ns);
            }
            let (is_admitted, stamp_ns, remaining) = log.decide(now_ns);
            let decision = limiter.decide(now_ns);
            let told = [decision.per_second.remaining, decision.per_minute.remaining];
            assert_eq!(
                (decision.is_admitted, decision.stamp_ns, told),
                (is_admitted, stamp_ns, remaining),
                "{text}, {pattern:?}, arrival {number} at {now_ns}"
            );
            arrivals.wait_ns = decision.wait_ns;
            arrived += 1;
            admitted += u64::from(is_admitted);
        }
    });
    println!("one thread: {arrived} arrivals, {admitted} admitted");
    assert!(admitted * 20 > arrived && admitted * 20 < arrived * 19, "both answers are common");
}

/// What four threads are told about arrivals of one clock.
fn race(
    limiter: &KeyLimiter,
    pattern: Pattern,
    limits: &TierLimits,
    start_ns: u64,
    count: u64,
) -> Vec<Decision> {
    // Whoever is due next takes the next time; whoever is slow acts on an old one.
    let mut arrivals = Arrivals::new(pattern, limits, start_ns, count);
    let times: Vec<u64> = (0..count)
        .map(|_| {
            arrivals.wait_ns = arrivals.random.below(2 * SECOND_NS);
            arrivals.next_ns()
        })
        .collect();
    let (next, barrier) = (AtomicU64::new(0), Barrier::new(usize::try_from(THREADS).unwrap()));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let mut decisions = Vec::new();
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(&now_ns) = times.get(usize::try_from(index).unwrap()) else {
                            return decisions;
                        };
                        if index.is_multiple_of(7) {
                            limiter.release(now_ns);
                        }
                        decisions.push(limiter.decide(now_ns));
                    }
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn four_threads_never_break_a_window_and_are_never_refused_in_vain() {
    let (mut arrived, mut admitted) = (0, 0);
    for_each_case(arrival_count(), |text, pattern, start_ns, count| {
        let limits = limits(text);
        let decisions = race(&KeyLimiter::new(&limits), pattern, &limits, start_ns, count);
        let of = |is_admitted| {
            let chosen = decisions.iter().filter(|decision| decision.is_admitted == is_admitted);
            let mut stamps: Vec<u64> = chosen.map(|decision| decision.stamp_ns).collect();
            stamps.sort_unstable();
            stamps
        };
        let (stamps, refused) = (of(true), of(false));
        let windows = Log::new(&limits).windows;
        for (limit, length_ns) in windows {
            let Some(limit) = limit else { continue };
            for (index, &end_ns) in stamps.iter().enumerate() {
                let before = index.checked_sub(usize::try_from(limit).unwrap());
                let is_inside = |index: usize| end_ns - stamps[index] < length_ns;
                assert!(!before.is_some_and(is_inside), "{text}, {pattern:?}, at {end_ns}");
            }
        }
        for &end_ns in &refused {
            let until = stamps.partition_point(|&stamp| stamp <= end_ns);
            let is_full = windows.iter().any(|&(limit, length_ns)| {
                let from = stamps.partition_point(|&stamp| stamp + length_ns <= end_ns);
                limit.is_some_and(|limit| until - from == usize::try_from(limit).unwrap())
            });
            assert!(is_full, "{text}, {pattern:?}: refused at {end_ns} with room in both windows");
        }
        arrived += decisions.len();
        admitted += stamps.len();
    });
    println!("four threads: {arrived} arrivals, {admitted} admitted");
    assert!(admitted * 20 > arrived && admitted * 20 < arrived * 19, "both answers are common");
}
