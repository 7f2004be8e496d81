//! Compares the rate-limit windows of keys with an exact log and with their former implementation,
//! arrival by arrival: at random times, and at those where a mistake is most likely.
//!
//! `PAPERBOURSE_WINDOW_ARRIVALS=10000000 cargo test --profile simulation --test windows` sets
//! the total number of arrivals, a few hundred thousand by default.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "windows/former.rs"]
mod former;

use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use paperbourse::limits::tier::{MarketsMax, TierLimits};
use paperbourse::limits::window::{Decision, KeyLimiter};
use paperbourse::limits::{CLOCK_NS_MAX, Limit, TICK_NS, UNLIMITED_SHOWN};

use former::FormerLimiter;

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

const ARRIVALS_DEFAULT: u64 = 400_000;
const THREADS: u64 = 4;

/// The limits of the tiers, and others that often fill windows or resize their logs.
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

/// The pattern of arrival times.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// Random, at about the rate that the limits allow.
    Random,
    /// Random, at many times that rate.
    Flood,
    /// Bursts at the edges of windows after earlier arrivals, give or take a nanosecond.
    Edges,
    /// As soon as the last answer allowed a retry, or a nanosecond too early.
    Retries,
    /// Bursts with long pauses, which release memory: logs shrink and grow again.
    Pauses,
    /// Bursts with pauses about as long as a log's stamps last, and many times that long, without a
    /// release.
    Returns,
}

const PATTERNS: [Pattern; 6] = [
    Pattern::Random,
    Pattern::Flood,
    Pattern::Edges,
    Pattern::Retries,
    Pattern::Pauses,
    Pattern::Returns,
];

/// How long a log lasts, in nanoseconds: its stamps have 31 bits.
const LOG_NS: u64 = TICK_NS << 31;

/// A splitmix64 generator: the same seed gives the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// An exact log: the admissions that may still be in a window, oldest first.
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
        floor(now_ns.min(CLOCK_NS_MAX)).max(newest_ns).max(self.floor_ns)
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
            // Later admissions have no lower stamps. Refusals may, but they do not count.
            while self.stamps.front().is_some_and(|&oldest| stamp_ns - oldest >= MINUTE_NS) {
                self.stamps.pop_front();
            }
        }
        (is_admitted, stamp_ns, self.remaining(stamp_ns))
    }

    /// The effect of releasing memory at this time on later stamps.
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

/// A time rounded down to a tick.
fn floor(now_ns: u64) -> u64 {
    now_ns / TICK_NS * TICK_NS
}

fn limits(text: &str) -> TierLimits {
    let (second, minute) = text.split_once('/').unwrap();
    let [requests_per_second, requests_per_minute] =
        [second, minute].map(|limit| limit.parse::<Limit>().unwrap());
    TierLimits {
        requests_per_second,
        requests_per_minute,
        sockets_max: 1,
        batch_max: 1,
        socket_markets_max: MarketsMax::All,
    }
}

/// The time between requests that just fills the longest window.
fn pace_ns(limits: &TierLimits) -> u64 {
    match (limits.requests_per_second.get(), limits.requests_per_minute.get()) {
        (_, Some(minute)) => MINUTE_NS / u64::from(minute),
        (Some(second), None) => SECOND_NS / u64::from(second),
        (None, None) => SECOND_NS,
    }
}

/// Generates the arrivals of one pattern.
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
        // Of a nanosecond or of a tick.
        let beside_ns = random.below(3) * [1, TICK_NS][usize::from(random.below(2) == 0)];
        let step_ns = match self.pattern {
            Pattern::Random => random.below(2 * self.pace_ns),
            Pattern::Flood => random.below(self.pace_ns / 8 + 2),
            Pattern::Retries => (self.wait_ns + beside_ns).saturating_sub(1),
            Pattern::Pauses | Pattern::Returns if self.left_in_burst > 0 => {
                random.below(self.pace_ns / 4 + 2)
            }
            Pattern::Returns => {
                self.left_in_burst = random.below(12);
                // Just before, at or after the end of a log, or so much later that its stamps
                // would look like new ones if they wrapped around.
                let seconds = [0, 59, 60, 61][usize::try_from(random.below(4)).unwrap()];
                let laps = [0, 1, 1, 2, 1 << 20][usize::try_from(random.below(5)).unwrap()];
                (laps * LOG_NS + seconds * SECOND_NS + beside_ns).saturating_sub(1)
            }
            Pattern::Edges if self.left_in_burst > 0 => random.below(2),
            Pattern::Edges => {
                self.left_in_burst = random.below(40);
                let edge_ns = [SECOND_NS, MINUTE_NS, self.wait_ns, SECOND_NS / 5];
                let edge_ns = edge_ns[usize::try_from(random.below(4)).unwrap()];
                (edge_ns + beside_ns).saturating_sub(1)
            }
            Pattern::Pauses => {
                self.left_in_burst = random.below(400);
                (MINUTE_NS + beside_ns).saturating_sub(1)
            }
        };
        self.left_in_burst = self.left_in_burst.saturating_sub(1);
        // One thread's clock may be behind another's.
        self.now_ns = (self.now_ns + step_ns).min(CLOCK_NS_MAX);
        self.now_ns.saturating_sub(if random.below(50) == 0 { random.below(1_000) } else { 0 })
    }
}

fn arrival_count() -> u64 {
    let text = std::env::var("PAPERBOURSE_WINDOW_ARRIVALS").ok();
    text.map_or(ARRIVALS_DEFAULT, |text| text.parse().expect("a number of arrivals"))
}

/// Runs every combination of limits, pattern and start time with an equal share of the arrivals.
fn for_each_case(total: u64, mut run: impl FnMut(&str, Pattern, u64, u64)) {
    // At the clock's zero, far from both ends, and close enough to its end to reach it.
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
        let former = FormerLimiter::new(&limits);
        let mut arrivals = Arrivals::new(pattern, &limits, start_ns, count);
        for number in 0..count {
            let now_ns = arrivals.next_ns();
            let releases = !matches!(pattern, Pattern::Returns) && number % 3 == 0;
            if releases && arrivals.left_in_burst == 0 {
                limiter.release(now_ns);
                former.release(floor(now_ns));
                log.release(now_ns);
            }
            let (is_admitted, stamp_ns, remaining) = log.decide(now_ns);
            let decision = limiter.decide(now_ns);
            let shown = [decision.per_second.remaining, decision.per_minute.remaining];
            assert_eq!(
                (decision.is_admitted, decision.stamp_ns, shown),
                (is_admitted, stamp_ns, remaining),
                "{text}, {pattern:?}, arrival {number} at {now_ns}"
            );
            let mut of_former = former.decide(floor(now_ns));
            // It counts from the tick, not from the time itself.
            of_former.wait_ns = of_former.wait_ns.saturating_sub(now_ns - floor(now_ns));
            assert_eq!(decision, of_former, "{text}, {pattern:?}, arrival {number} at {now_ns}");
            arrivals.wait_ns = decision.wait_ns;
            arrived += 1;
            admitted += u64::from(is_admitted);
        }
    });
    println!("one thread: {arrived} arrivals, {admitted} admitted");
    assert!(admitted * 20 > arrived && admitted * 20 < arrived * 19, "both answers are common");
}

/// The decisions that four threads get about arrivals on one clock.
fn race(
    limiter: &KeyLimiter,
    pattern: Pattern,
    limits: &TierLimits,
    start_ns: u64,
    count: u64,
) -> Vec<Decision> {
    // Each thread takes the next time, so a slow thread acts on an old one.
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
fn four_threads_never_overfill_a_window_nor_are_refused_too_early() {
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
