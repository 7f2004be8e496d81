//! Model checks of every interleaving of a few threads that decide requests of one key. Run by
//! `.ci/models`.

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use super::tier::{MarketsMax, TierLimits};
use super::window::{Decision, KeyLimiter};
use super::{Limit, MINUTE_NS, SECOND_NS, TICK_NS};

/// A few ticks after the start.
const T5: u64 = 5 * TICK_NS;

/// Each thread sends requests at its own times. Afterwards, the admissions must respect the
/// windows, and a window must have been full at every refusal. `preemptions_max` bounds involuntary
/// preemptions per run (`None`: every interleaving); `LOOM_MAX_PREEMPTIONS` overrides it.
#[track_caller]
fn check(
    limits: (Limit, Limit),
    sent_before: &[u64],
    sent: &'static [&[u64]],
    preemptions_max: Option<usize>,
) {
    check_released(limits, sent_before, sent, None, preemptions_max);
}

/// Like [`check`], with one more thread that releases the key's memory if no stamp counts at that
/// time.
#[track_caller]
fn check_released(
    limits: (Limit, Limit),
    sent_before: &[u64],
    sent: &'static [&[u64]],
    released_at: Option<u64>,
    preemptions_max: Option<usize>,
) {
    let limits = tier(limits);
    let sent_before = sent_before.to_vec();
    let mut model = Builder::new();
    model.preemption_bound = model.preemption_bound.or(preemptions_max);
    model.check(move || {
        let limiter = Arc::new(KeyLimiter::new(&limits));
        let mut decisions = decide(&limiter, &sent_before);
        let (here, elsewhere) = sent.split_first().expect("some thread sends");
        let threads: Vec<_> = elsewhere
            .iter()
            .map(|&times| {
                let limiter = Arc::clone(&limiter);
                thread::spawn(move || decide(&limiter, times))
            })
            .collect();
        let release = released_at.map(|now_ns| {
            let limiter = Arc::clone(&limiter);
            thread::spawn(move || limiter.release(now_ns))
        });
        decisions.extend(decide(&limiter, here));
        for thread in threads {
            decisions.extend(thread.join().unwrap());
        }
        if let Some(release) = release {
            release.join().unwrap();
        }
        assert_exact(&limits, &decisions);
    });
}

/// Returns a tier with these limits per second and per minute.
fn tier((per_second, per_minute): (Limit, Limit)) -> TierLimits {
    TierLimits {
        requests_per_second: per_second,
        requests_per_minute: per_minute,
        sockets_max: 1,
        batch_max: 1,
        socket_markets_max: MarketsMax::All,
    }
}

fn decide(limiter: &KeyLimiter, times: &[u64]) -> Vec<Decision> {
    times.iter().map(|&now_ns| limiter.decide(now_ns)).collect()
}

fn assert_exact(limits: &TierLimits, decisions: &[Decision]) {
    let windows =
        [(limits.requests_per_second, SECOND_NS), (limits.requests_per_minute, MINUTE_NS)];
    for decision in decisions {
        let is_full = windows.iter().any(|&(limit, length_ns)| {
            let inside = decisions.iter().filter(|other| {
                other.is_admitted
                    && other.stamp_ns <= decision.stamp_ns
                    && decision.stamp_ns < other.stamp_ns + length_ns
            });
            let count = u32::try_from(inside.count()).unwrap();
            assert!(count <= limit.shown(), "one too many: {decisions:?}");
            count == limit.shown()
        });
        assert!(decision.is_admitted || is_full, "wrongly refused: {decisions:?}");
    }
}

fn a_second(count: u32) -> (Limit, Limit) {
    (Limit::new(count).unwrap(), Limit::UNLIMITED)
}

#[test]
fn two_threads_at_one_moment() {
    check(a_second(1), &[0], &[&[SECOND_NS], &[SECOND_NS]], None);
    check(a_second(2), &[0], &[&[T5], &[T5]], Some(3));
}

#[test]
fn two_threads_with_several_requests() {
    check(a_second(2), &[0], &[&[T5, T5], &[T5, T5]], Some(4));
}

/// Slots are overwritten repeatedly. A thread that lags behind finds a stamp of a later lap in a
/// slot, and must not mistake it for one of the lap before its own.
#[test]
fn two_threads_and_several_laps() {
    let sent: &[&[u64]] = &[&[SECOND_NS], &[2 * SECOND_NS, 3 * SECOND_NS, 4 * SECOND_NS]];
    check(a_second(1), &[0], sent, Some(4));
    let sent: &[&[u64]] = &[&[5 * SECOND_NS / 2], &[SECOND_NS, SECOND_NS, 2 * SECOND_NS]];
    check(a_second(2), &[0, 0], sent, Some(4));
}

#[test]
fn two_threads_and_both_windows() {
    let limits = (Limit::new(1).unwrap(), Limit::new(2).unwrap());
    let sent: &[&[u64]] = &[&[SECOND_NS], &[2 * SECOND_NS, MINUTE_NS]];
    check(limits, &[0], sent, Some(4));
}

/// The newest stamp decides, but it is not in the slot that is being claimed.
#[test]
fn two_threads_and_a_stamp_that_must_be_seen() {
    let limits = (Limit::new(1).unwrap(), Limit::new(3).unwrap());
    check(limits, &[0], &[&[SECOND_NS], &[3 * SECOND_NS / 2]], Some(3));
}

#[test]
fn three_threads() {
    check(a_second(1), &[0], &[&[SECOND_NS], &[SECOND_NS], &[2 * SECOND_NS]], Some(2));
    check(a_second(2), &[0], &[&[SECOND_NS], &[SECOND_NS], &[SECOND_NS]], Some(2));
}

#[test]
fn two_threads_that_find_no_log() {
    check(a_second(1), &[], &[&[T5], &[T5]], Some(4));
    check(a_second(2), &[], &[&[T5], &[T5, T5]], Some(3));
}

/// A log is sealed to be replaced by a larger one while other threads append to it, are refused by
/// it, or replace it as well.
#[test]
fn two_threads_whose_log_grows() {
    check(a_second(3), &[0], &[&[T5], &[T5]], Some(3));
    check(a_second(3), &[0], &[&[T5, T5], &[T5]], Some(2));
    check(a_second(2), &[0], &[&[T5, SECOND_NS], &[T5, SECOND_NS]], Some(2));
    check((Limit::new(2).unwrap(), Limit::new(3).unwrap()), &[0], &[&[T5], &[SECOND_NS]], Some(3));
}

/// Two threads send with two keys that share their windows. If `is_rotating`, the second key is
/// created while the first one sends.
#[track_caller]
fn check_shared(
    limits: (Limit, Limit),
    sent_before: &'static [u64],
    [first, second]: [&'static [u64]; 2],
    is_rotating: bool,
    preemptions_max: usize,
) {
    let limits = tier(limits);
    let mut model = Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(preemptions_max));
    model.check(move || {
        let limiter = Arc::new(KeyLimiter::new(&limits));
        let mut decisions = decide(&limiter, sent_before);
        let successor = (!is_rotating).then(|| limiter.successor(&limits));
        let old = Arc::clone(&limiter);
        let thread = thread::spawn(move || {
            let successor = successor.unwrap_or_else(|| old.successor(&limits));
            decide(&successor, second)
        });
        decisions.extend(decide(&limiter, first));
        decisions.extend(thread.join().unwrap());
        assert_exact(&limits, &decisions);
    });
}

#[test]
fn two_keys_that_share_their_windows() {
    check_shared(a_second(1), &[], [&[T5], &[T5]], false, 3);
    check_shared(a_second(2), &[0], [&[T5, SECOND_NS], &[T5]], false, 3);
    // The log grows.
    check_shared(a_second(3), &[0], [&[T5, T5], &[T5, T5]], false, 2);
}

#[test]
fn a_key_that_is_rotated_while_it_sends() {
    check_shared(a_second(1), &[], [&[T5], &[T5]], true, 3);
    check_shared(a_second(2), &[0], [&[T5, T5], &[T5]], true, 3);
    check_shared(a_second(2), &[0], [&[T5, SECOND_NS], &[T5, SECOND_NS]], true, 2);
}

/// The log is too old to hold new stamps, so it is replaced while other threads are sending. Their
/// clocks may be behind.
#[test]
fn two_threads_whose_log_ends() {
    const END_NS: u64 = TICK_NS << 31;
    check(a_second(1), &[0], &[&[END_NS], &[END_NS]], Some(3));
    check(a_second(1), &[0], &[&[END_NS - SECOND_NS], &[END_NS, END_NS + SECOND_NS]], Some(3));
    let minute = (Limit::UNLIMITED, Limit::new(2).unwrap());
    check(minute, &[0, END_NS - SECOND_NS], &[&[END_NS], &[END_NS + SECOND_NS]], Some(3));
}

/// Releasing the log must not admit a request twice, whether a thread read its clock before or
/// after the release.
#[test]
fn two_threads_and_a_released_log() {
    let early_and_late: &[&[u64]] = &[&[SECOND_NS], &[SECOND_NS - TICK_NS]];
    check_released(a_second(1), &[0], early_and_late, Some(SECOND_NS), Some(2));
    check_released(a_second(1), &[0], &[&[T5, SECOND_NS]], Some(SECOND_NS), Some(3));
    check_released(a_second(2), &[0, 0], &[&[T5, SECOND_NS]], Some(SECOND_NS), Some(3));
    let minute = (Limit::UNLIMITED, Limit::new(1).unwrap());
    check_released(minute, &[0], &[&[MINUTE_NS - TICK_NS, MINUTE_NS]], Some(MINUTE_NS), Some(3));
}
