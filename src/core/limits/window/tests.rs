mod shared;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::limits::ring::View;
use crate::limits::tier::MarketsMax;
use crate::limits::{CLOCK_NS_MAX, Limit, MINUTE_NS, SECOND_NS, TICK_NS, UNLIMITED_SHOWN};

/// An exact log of admissions, scanned in full each time.
struct Log {
    limits: TierLimits,
    stamps: Vec<u64>,
    /// The lowest possible stamp, set when memory was freed.
    floor_ns: u64,
}

impl Log {
    fn new(limits: TierLimits) -> Self {
        Self { limits, stamps: Vec::new(), floor_ns: 0 }
    }

    fn windows(&self) -> [(Option<u32>, u64); 2] {
        [
            (self.limits.requests_per_second.get(), SECOND_NS),
            (self.limits.requests_per_minute.get(), MINUTE_NS),
        ]
    }

    fn stamp_at(&self, now_ns: u64) -> u64 {
        let now_ns = now_ns.min(CLOCK_NS_MAX) / TICK_NS * TICK_NS;
        self.stamps.last().map_or(now_ns, |&last| last.max(now_ns)).max(self.floor_ns)
    }

    /// What is left of each window for a request that comes now.
    fn remaining(&self, now_ns: u64) -> [u32; 2] {
        let end_ns = self.stamp_at(now_ns);
        self.windows().map(|(limit, length_ns)| {
            let inside = self.stamps.iter().filter(|&&stamp| end_ns - stamp < length_ns).count();
            limit.map_or(UNLIMITED_SHOWN, |limit| {
                // There may be more, from before the limit was lowered.
                limit.saturating_sub(u32::try_from(inside).unwrap())
            })
        })
    }

    /// How long a stamp counts.
    fn retention_ns(&self) -> u64 {
        let limited = self.windows().into_iter().filter(|(limit, _)| limit.is_some());
        limited.map(|(_, length_ns)| length_ns).max().unwrap_or(0)
    }

    fn would_admit(&self, now_ns: u64) -> bool {
        self.remaining(now_ns).iter().all(|&remaining| remaining > 0)
    }

    fn decide(&mut self, now_ns: u64) -> bool {
        let is_admitted = self.would_admit(now_ns);
        // An unlimited key keeps no stamps.
        if is_admitted && self.windows().iter().any(|(limit, _)| limit.is_some()) {
            self.stamps.push(self.stamp_at(now_ns));
        }
        is_admitted
    }

    /// The property itself, by definition: every relevant trailing window ends with an admission.
    #[track_caller]
    fn assert_within_limits(&self) {
        assert!(self.stamps.is_sorted());
        for (limit, length_ns) in self.windows() {
            let Some(limit) = limit else { continue };
            for (index, &end_ns) in self.stamps.iter().enumerate() {
                let inside =
                    self.stamps[..=index].iter().filter(|&&stamp| end_ns - stamp < length_ns);
                assert!(inside.count() as u64 <= u64::from(limit), "window that ends at {end_ns}");
            }
        }
    }
}

fn tier(per_second: &str, per_minute: &str) -> TierLimits {
    let [requests_per_second, requests_per_minute] =
        [per_second, per_minute].map(|limit| limit.parse().unwrap());
    TierLimits {
        requests_per_second,
        requests_per_minute,
        sockets_max: 1,
        batch_max: 1,
        socket_markets_max: MarketsMax::All,
    }
}

/// Peeks and decides, and compares every field with the log.
#[track_caller]
fn check(limiter: &KeyLimiter, log: &mut Log, now_ns: u64) -> Decision {
    check_peek(limiter, log, now_ns);
    let stamp_ns = log.stamp_at(now_ns);
    let expected = log.decide(now_ns);
    let decision = limiter.decide(now_ns);
    assert_eq!((decision.is_admitted, decision.stamp_ns), (expected, stamp_ns), "at {now_ns}");
    let remaining = [decision.per_second.remaining, decision.per_minute.remaining];
    assert_eq!(remaining, log.remaining(now_ns), "at {now_ns}");
    let after = check_peek(limiter, log, now_ns);
    assert_eq!(after.wait_ns, decision.wait_ns, "at {now_ns}");
    decision
}

#[track_caller]
fn check_peek(limiter: &KeyLimiter, log: &Log, now_ns: u64) -> Decision {
    let peek = limiter.peek(now_ns);
    assert_eq!(peek.is_admitted, log.would_admit(now_ns), "at {now_ns}");
    assert_eq!(
        [peek.per_second.remaining, peek.per_minute.remaining],
        log.remaining(now_ns),
        "at {now_ns}"
    );
    if peek.wait_ns == 0 {
        assert!(peek.is_admitted, "no wait at {now_ns}");
    } else {
        assert!(log.would_admit(now_ns + peek.wait_ns), "{} after {now_ns}", peek.wait_ns);
        assert!(!log.would_admit(now_ns + peek.wait_ns - 1), "{} after {now_ns}", peek.wait_ns);
    }
    peek
}

#[test]
fn a_burst_at_clock_zero_counts_for_exactly_one_second() {
    let limiter = KeyLimiter::new(&tier("2", "3"));
    let mut log = Log::new(tier("2", "3"));
    for (now_ns, is_admitted, remaining, wait_ns) in [
        (0, true, [1, 2], 0),
        (0, true, [0, 1], SECOND_NS),
        (0, false, [0, 1], SECOND_NS),
        (SECOND_NS - 1, false, [0, 1], 1),
        (SECOND_NS, true, [1, 0], 59 * SECOND_NS),
        (SECOND_NS, false, [1, 0], 59 * SECOND_NS),
        (MINUTE_NS - 1, false, [2, 0], 1),
        (MINUTE_NS, true, [1, 1], 0),
        (MINUTE_NS, true, [0, 0], SECOND_NS),
        (MINUTE_NS, false, [0, 0], SECOND_NS),
    ] {
        let decision = check(&limiter, &mut log, now_ns);
        let left = [decision.per_second.remaining, decision.per_minute.remaining];
        assert_eq!(
            (decision.is_admitted, left, decision.wait_ns),
            (is_admitted, remaining, wait_ns),
            "at {now_ns}"
        );
    }
}

#[test]
fn an_earlier_clock_reading_counts_as_the_newest_stamp() {
    let limiter = KeyLimiter::new(&tier("1", "unlimited"));
    let mut log = Log::new(tier("1", "unlimited"));
    assert!(check(&limiter, &mut log, 5 * SECOND_NS).is_admitted);
    let early = check(&limiter, &mut log, 2 * SECOND_NS);
    assert_eq!((early.is_admitted, early.wait_ns), (false, 4 * SECOND_NS));
    assert_eq!(early.retry_after_seconds(), 4);
    assert!(check(&limiter, &mut log, 6 * SECOND_NS).is_admitted);
}

#[test]
fn an_unlimited_key_is_always_admitted_and_allocates_nothing() {
    let limiter = KeyLimiter::new(&tier("unlimited", "unlimited"));
    let allowance = Allowance { limit: UNLIMITED_SHOWN, remaining: UNLIMITED_SHOWN };
    for now_ns in [0, 0, 7, 3, u64::MAX] {
        let expected = Decision {
            is_admitted: true,
            per_second: allowance,
            per_minute: allowance,
            wait_ns: 0,
            stamp_ns: now_ns.min(CLOCK_NS_MAX) / TICK_NS * TICK_NS,
        };
        assert_eq!(limiter.decide(now_ns), expected);
        assert_eq!(limiter.peek(now_ns), expected);
    }
    assert_eq!(slots(&limiter), 0);
}

#[test]
fn peeking_at_an_unused_key_allocates_nothing() {
    let limiter = KeyLimiter::new(&tier("5", "300"));
    let peek = limiter.peek(9);
    assert!(peek.is_admitted);
    assert_eq!(peek.per_second, Allowance { limit: 5, remaining: 5 });
    assert_eq!(peek.per_minute, Allowance { limit: 300, remaining: 300 });
    assert_eq!(slots(&limiter), 0);
}

#[test]
fn windows_are_exact_at_the_end_of_the_clock() {
    let limiter = KeyLimiter::new(&tier("1", "2"));
    let mut log = Log::new(tier("1", "2"));
    let start_ns = CLOCK_NS_MAX - 61 * SECOND_NS;
    for offset_ns in [0, 1, SECOND_NS, 2 * SECOND_NS, MINUTE_NS - 1, MINUTE_NS] {
        check(&limiter, &mut log, start_ns + offset_ns);
    }
    log.assert_within_limits();
    assert!(limiter.decide(u64::MAX).stamp_ns <= CLOCK_NS_MAX);
}

/// How many slots the limiter's log has.
fn slots(limiter: &KeyLimiter) -> usize {
    let held = limiter.place.load();
    let log = held.as_ref().and_then(|windows| windows.log());
    log.map_or(0, |ring| ring.slice.len())
}

/// When the next request comes, relative to the last one.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    /// A multiple of a step, give or take a few nanoseconds.
    After { steps: u64, step_ns: u64, beside_ns: i64 },
    /// When the last decision said one would be admitted, give or take a few nanoseconds.
    AsTold { beside_ns: i64 },
    /// No request: this long after the last one, memory is released, and the clock does not move.
    Release { after_ns: u64 },
}

fn arrivals(count_max: usize) -> impl Strategy<Value = Vec<Arrival>> {
    let steps =
        prop_oneof![Just(0), Just(1), Just(SECOND_NS / 5), Just(SECOND_NS), Just(MINUTE_NS)];
    let arrival = prop_oneof![
        3 => (0..3_u64, steps, -2..=2_i64)
            .prop_map(|(steps, step_ns, beside_ns)| Arrival::After { steps, step_ns, beside_ns }),
        2 => (-1..=1_i64).prop_map(|beside_ns| Arrival::AsTold { beside_ns }),
        1 => prop_oneof![Just(0), Just(SECOND_NS - 1), Just(SECOND_NS), Just(MINUTE_NS)]
            .prop_map(|after_ns| Arrival::Release { after_ns }),
    ];
    prop::collection::vec(arrival, 1..count_max)
}

/// Releases memory and expects all or nothing of it to go, depending on whether a stamp still
/// counts.
#[track_caller]
fn release(limiter: &KeyLimiter, log: &mut Log, now_ns: u64) {
    let had_log = slots(limiter) > 0;
    limiter.release(now_ns);
    let retention_ns = log.retention_ns();
    let end_ns = log.stamps.last().map_or(0, |last_ns| last_ns + retention_ns);
    let is_released = end_ns <= now_ns;
    if had_log && is_released {
        log.floor_ns = log.floor_ns.max(end_ns);
    }
    assert_eq!(slots(limiter) > 0, had_log && !is_released, "released at {now_ns}");
}

fn run(limits: TierLimits, arrivals: &[Arrival]) {
    let limiter = KeyLimiter::new(&limits);
    let mut log = Log::new(limits);
    let (mut now_ns, mut wait_ns) = (0_u64, 0);
    for &arrival in arrivals {
        let (step_ns, beside_ns) = match arrival {
            Arrival::After { steps, step_ns, beside_ns } => (steps * step_ns, beside_ns),
            Arrival::AsTold { beside_ns } => (wait_ns, beside_ns),
            Arrival::Release { after_ns } => {
                release(&limiter, &mut log, now_ns + after_ns);
                continue;
            }
        };
        now_ns = (now_ns + step_ns).saturating_add_signed(beside_ns);
        wait_ns = check(&limiter, &mut log, now_ns).wait_ns;
    }
    log.assert_within_limits();
}

fn small_limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        6 => (1..=6_u32).prop_map(|count| Limit::new(count).unwrap()),
        1 => Just(Limit::UNLIMITED),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn small_windows_agree_with_an_exact_log(
        requests_per_second in small_limit(),
        requests_per_minute in small_limit(),
        arrivals in arrivals(120),
    ) {
        let limits = TierLimits { requests_per_second, requests_per_minute, ..tier("1", "1") };
        run(limits, &arrivals);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn tier_windows_agree_with_an_exact_log(arrivals in arrivals(1500)) {
        for limits in ["5/300", "20/1200", "20/30", "unlimited/300"] {
            let (per_second, per_minute) = limits.split_once('/').unwrap();
            run(tier(per_second, per_minute), &arrivals);
        }
    }
}

#[test]
fn a_log_grows_as_needed_and_is_freed_once_no_stamp_counts() {
    for (per_second, per_minute, capacity_max) in
        [("5", "300", 302), ("50", "3000", 3002), ("50", "6", 8), ("50", "unlimited", 52)]
    {
        let limits = tier(per_second, per_minute);
        let (limiter, mut log) = (KeyLimiter::new(&limits), Log::new(limits));
        assert_eq!(slots(&limiter), 0);
        let mut now_ns = 0;
        for number in 0..5000_usize {
            // Bursts of ten, so that both windows fill up repeatedly.
            now_ns += if number % 10 == 0 { SECOND_NS / 5 } else { 0 };
            let (is_admitted, wait_ns) = (log.decide(now_ns), limiter.decide(now_ns).wait_ns);
            assert_eq!(limiter.peek(now_ns).wait_ns, wait_ns);
            let doubled = (2 * log.stamps.len()).max(CAPACITY_MIN);
            assert!(slots(&limiter) <= doubled.min(capacity_max), "{number} {is_admitted}");
        }
        assert_eq!(slots(&limiter), capacity_max, "{per_second}/{per_minute}");
        let end_ns = log.stamps.last().unwrap() + log.retention_ns();
        release(&limiter, &mut log, end_ns - 1);
        assert_eq!(slots(&limiter), capacity_max);
        release(&limiter, &mut log, end_ns);
        assert_eq!(slots(&limiter), 0);
        // A thread with an earlier clock finds empty windows, but not before they are empty.
        let decision = check(&limiter, &mut log, end_ns - 5);
        assert_eq!((decision.is_admitted, decision.stamp_ns), (true, end_ns));
        assert_eq!(slots(&limiter), CAPACITY_MIN);
        log.assert_within_limits();
    }
}

const THREADS: usize = 4;

/// All requests of a round share one time, so the order of the threads makes no difference.
#[test]
fn concurrent_requests_are_admitted_as_often_as_by_an_exact_log() {
    for (per_second, per_minute) in [("1", "3"), ("3", "7"), ("5", "unlimited"), ("9", "4")] {
        let limits = tier(per_second, per_minute);
        let (limiter, barrier) = (KeyLimiter::new(&limits), Barrier::new(THREADS));
        let moments_ns: Vec<u64> = (0..200).map(|round| round * SECOND_NS * 3 / 4).collect();
        let sent_each = 5;
        let counts = thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| {
                scope.spawn(|| {
                    let mut admitted_counts = Vec::new();
                    for &now_ns in &moments_ns {
                        barrier.wait();
                        let decisions = (0..sent_each).map(|_| limiter.decide(now_ns));
                        admitted_counts.push(decisions.filter(|it| it.is_admitted).count());
                        barrier.wait();
                    }
                    admitted_counts
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        let mut log = Log::new(limits);
        for (round, &now_ns) in moments_ns.iter().enumerate() {
            let expected = (0..THREADS * sent_each).filter(|_| log.decide(now_ns)).count();
            let admitted: usize = counts.iter().map(|of_thread| of_thread[round]).sum();
            assert_eq!(admitted, expected, "{per_second}/{per_minute} at {now_ns}");
        }
        log.assert_within_limits();
    }
}

/// The threads share a clock but act on their readings in any order.
#[test]
fn threads_on_a_running_clock_never_exceed_a_window_nor_are_refused_wrongly() {
    for (per_second, per_minute, tick_ns) in
        [("1", "unlimited", SECOND_NS / 3), ("3", "40", SECOND_NS / 50), ("50", "300", 1_000_000)]
    {
        let limits = tier(per_second, per_minute);
        let (limiter, clock) = (KeyLimiter::new(&limits), AtomicU64::new(0));
        let decisions: Vec<Decision> = thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| {
                scope.spawn(|| {
                    let tick = |_| limiter.decide(clock.fetch_add(tick_ns, Ordering::Relaxed));
                    (0..5_000).map(tick).collect::<Vec<_>>()
                })
            });
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });

        let mut log = Log::new(limits);
        let admitted = decisions.iter().filter(|decision| decision.is_admitted);
        log.stamps = admitted.map(|decision| decision.stamp_ns).collect();
        log.stamps.sort_unstable();
        log.assert_within_limits();
        for refused in decisions.iter().filter(|decision| !decision.is_admitted) {
            let is_full = log.windows().iter().any(|&(limit, length_ns)| {
                let until = log.stamps.partition_point(|&stamp| stamp <= refused.stamp_ns);
                let from =
                    log.stamps.partition_point(|&stamp| stamp + length_ns <= refused.stamp_ns);
                limit.is_some_and(|limit| (until - from) as u64 == u64::from(limit))
            });
            assert!(is_full, "refused at {} with room in both windows", refused.stamp_ns);
        }

        let held = limiter.place.load();
        let ring = held.as_ref().unwrap().log().unwrap();
        let view = View::of(ring, 0);
        let stamps = (1..=view.len_max()).rev().map(|age| view.stamp(age));
        let ns = |stamp| (ring.header.since + u64::from(stamp) - 1) * TICK_NS;
        let recorded: Vec<u64> = stamps.filter(|&stamp| stamp > 0).map(ns).collect();
        assert_eq!(recorded, log.stamps[log.stamps.len() - recorded.len()..]);
    }
}

/// What happens to a key whose limits may change.
#[derive(Clone, Debug)]
enum Step {
    Request { later_ns: u64 },
    Release,
    Limits(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let later = prop_oneof![Just(0), 1..SECOND_NS, SECOND_NS..MINUTE_NS, Just(MINUTE_NS)];
    prop_oneof![
        8 => later.prop_map(|later_ns| Step::Request { later_ns }),
        1 => Just(Step::Release),
        2 => (1..8_u32, 1..24_u32).prop_map(|(second, minute)| Step::Limits(second, minute)),
    ]
}

proptest! {
    #[test]
    fn what_was_admitted_stays_counted_when_limits_change(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let limits = tier("3", "10");
        let (limiter, mut log, mut now_ns) = (KeyLimiter::new(&limits), Log::new(limits), 0);
        for step in steps {
            match step {
                Step::Request { later_ns } => {
                    now_ns += later_ns;
                    check(&limiter, &mut log, now_ns);
                }
                Step::Release => release(&limiter, &mut log, now_ns),
                Step::Limits(second, minute) => {
                    log.limits = tier(&second.to_string(), &minute.to_string());
                    limiter.set_limits(&log.limits);
                    check_peek(&limiter, &log, now_ns);
                }
            }
        }
    }
}

#[test]
fn an_unlimited_key_that_becomes_limited_has_what_it_had_before_in_its_windows() {
    let limiter = KeyLimiter::new(&tier("5", "5"));
    let is_admitted = |now_ns| limiter.decide(now_ns).is_admitted;
    assert!((0..5).all(is_admitted));
    assert!(!is_admitted(5));
    limiter.set_limits(&tier("unlimited", "unlimited"));
    assert!((6..100).all(is_admitted));
    limiter.release(100);
    limiter.set_limits(&tier("unlimited", "6"));
    assert!(is_admitted(100) && !is_admitted(101));
    // An unlimited key frees its log like any other.
    limiter.set_limits(&tier("unlimited", "unlimited"));
    limiter.release(2 * MINUTE_NS);
    assert_eq!(slots(&limiter), 0);
}
