//! Keys that share their windows.

use super::*;
use crate::limits::LIMIT_MAX;
use crate::limits::ring::{Ring, SLOTS_SPARE};

/// A line of `count` keys with these limits.
fn line(limits: &TierLimits, count: usize) -> Vec<KeyLimiter> {
    let first = KeyLimiter::new(limits);
    let mut line: Vec<KeyLimiter> = (1..count).map(|_| first.successor(limits)).collect();
    line.insert(0, first);
    line
}

/// The log in the limiter's place.
fn log_of(limiter: &KeyLimiter) -> Ring {
    limiter.place.load().as_ref().and_then(|windows| windows.log().cloned()).unwrap()
}

/// The limiter sends until its log has as many slots as it ever needs.
#[track_caller]
fn burst(limiter: &KeyLimiter, now_ns: &mut u64, slots_full: usize) {
    for _ in 0..310 {
        *now_ns += SECOND_NS / 5;
        limiter.decide(*now_ns);
    }
    assert_eq!(slots(limiter), slots_full);
}

#[test]
fn a_key_that_sends_nothing_follows_the_log_that_the_others_use() {
    for idle_is_first in [true, false] {
        let limits = tier("5", "300");
        let [idle, busy] = line(&limits, 2).try_into().ok().unwrap();
        let mut now_ns = 0;
        for cycle in 0..10 {
            burst(&busy, &mut now_ns, 302);
            now_ns += 61 * SECOND_NS;
            let (first, second) = if idle_is_first { (&idle, &busy) } else { (&busy, &idle) };
            first.release(now_ns);
            second.release(now_ns);
            assert!(Ring::ptr_eq(&log_of(&idle), &log_of(&busy)), "cycle {cycle}");
            assert_eq!(slots(&busy), CAPACITY_MIN);
        }
        // It also follows while the stamps still count.
        burst(&busy, &mut now_ns, 302);
        idle.release(now_ns);
        assert!(Ring::ptr_eq(&log_of(&idle), &log_of(&busy)));
    }
}

/// What happens to the keys of a line.
#[derive(Clone, Debug)]
enum Step {
    Request { key: usize, later_ns: u64 },
    Release { key: usize },
    Limits { key: usize, limits: (Limit, Limit) },
    Rotate { key: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let later = prop_oneof![
        4 => Just(0),
        4 => 1..SECOND_NS / 2,
        1 => SECOND_NS..MINUTE_NS,
        1 => Just(MINUTE_NS),
    ];
    let key = 0..4_usize;
    prop_oneof![
        12 => (key.clone(), later).prop_map(|(key, later_ns)| Step::Request { key, later_ns }),
        1 => key.clone().prop_map(|key| Step::Release { key }),
        2 => (key.clone(), (limit_up_to(12), limit_up_to(40)))
            .prop_map(|(key, limits)| Step::Limits { key, limits }),
        1 => key.prop_map(|key| Step::Rotate { key }),
    ]
}

fn limit_up_to(count_max: u32) -> impl Strategy<Value = Limit> {
    prop_oneof![
        3 => (1..=count_max).prop_map(|count| Limit::new(count).unwrap()),
        1 => Just(Limit::UNLIMITED),
    ]
}

proptest! {
    /// Each key is decided on by its own limits, and by everything that the line was admitted.
    #[test]
    fn keys_with_different_limits_count_all_that_their_line_was_admitted(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let limits = tier("3", "10");
        let mut line = line(&limits, 2);
        let mut limits_of_keys = vec![limits; line.len()];
        let (mut log, mut now_ns) = (Log::new(limits), 0);
        for step in steps {
            let key = match step {
                Step::Request { key, .. }
                | Step::Release { key }
                | Step::Limits { key, .. }
                | Step::Rotate { key } => key % line.len(),
            };
            log.limits = limits_of_keys[key];
            match step {
                Step::Request { later_ns, .. } => {
                    now_ns += later_ns;
                    check(&line[key], &mut log, now_ns);
                }
                Step::Release { .. } => line[key].release(now_ns),
                Step::Limits { limits: (requests_per_second, requests_per_minute), .. } => {
                    let limits =
                        TierLimits { requests_per_second, requests_per_minute, ..tier("1", "1") };
                    line[key].set_limits(&limits);
                    limits_of_keys[key] = limits;
                }
                Step::Rotate { .. } if line.len() < 4 => {
                    line.push(line[key].successor(&log.limits));
                    limits_of_keys.push(log.limits);
                }
                // The first key leaves the line.
                Step::Rotate { .. } if line.len() > 1 => {
                    line.remove(0);
                    limits_of_keys.remove(0);
                }
                Step::Rotate { .. } => {}
            }
        }
    }
}

#[test]
fn a_key_without_a_limit_per_minute_keeps_what_counts_for_others() {
    let (limited, free) = (tier("50", "100"), tier("50", "unlimited"));
    let line = [KeyLimiter::new(&limited)];
    let [limited, free] = [line[0].successor(&limited), line[0].successor(&free)];
    let mut now_ns = 0;
    for _ in 0..99 {
        now_ns += SECOND_NS / 50;
        assert!(limited.decide(now_ns).is_admitted);
    }
    // The free key needs only the stamps of its last second.
    for _ in 0..500 {
        now_ns += SECOND_NS / 50;
        assert!(free.decide(now_ns).is_admitted);
    }
    free.release(now_ns + 2 * SECOND_NS);
    let decision = limited.peek(now_ns);
    assert_eq!((decision.is_admitted, decision.per_minute.remaining), (false, 0));
}

/// Also by a key whose limits admit less than is in it.
#[test]
fn a_shared_log_is_replaced_few_times() {
    for (small, large, slots_max) in [
        ("5/unlimited", "100/3000", 6010),
        ("5/5", "100/3000", 3002),
        ("100/unlimited", "100/unlimited", 6002),
        ("5/300", "5/300", 302),
    ] {
        let [small_limits, large_limits] = [small, large].map(|limits| {
            let (per_second, per_minute) = limits.split_once('/').unwrap();
            tier(per_second, per_minute)
        });
        let small_key = KeyLimiter::new(&small_limits);
        let large_key = small_key.successor(&large_limits);
        let (mut log, mut replaced) = (log_of(&small_key), 0);
        for step in 0..18_000 {
            let now_ns = step * SECOND_NS / 100;
            if step % 6_000 < 3_100 {
                large_key.decide(now_ns);
            }
            if step % 20 == 0 {
                small_key.decide(now_ns);
            }
            let now_in_place = log_of(&small_key);
            replaced += usize::from(!Ring::ptr_eq(&now_in_place, &log));
            log = now_in_place;
        }
        let slots = log.slice.len();
        assert!(slots <= slots_max, "{small} and {large}: {slots} slots");
        assert!(replaced <= 14, "{small} and {large}: {replaced} logs");
    }
}

#[test]
fn the_memory_of_a_shared_log_is_counted_once() {
    let limits = tier("5", "300");
    let alone = KeyLimiter::new(&limits);
    let line = line(&limits, 5);
    let (mut now_ns, mut now_alone_ns) = (0, 0);
    burst(&line[0], &mut now_ns, 302);
    burst(&alone, &mut now_alone_ns, 302);
    let windows_bytes = |limiter: &KeyLimiter| {
        let held = limiter.place.load();
        size_of_val(&**held.as_ref().unwrap()) + 2 * size_of::<usize>()
    };
    // The other keys still hold the first log, and through it the rest of the chain.
    let bytes: usize = line.iter().map(KeyLimiter::owned_bytes).sum();
    let chain: usize = [8, 14, 26, 50, 98, 194, 302].map(|slots| 4 * slots + 24).iter().sum();
    let windows: usize = line.iter().map(windows_bytes).sum();
    let expected = windows + chain;
    assert!(bytes.abs_diff(expected) <= 100, "{bytes} for {expected} bytes");
    // Now all hold the newest one.
    for key in &line {
        key.release(now_ns);
    }
    let bytes: usize = line.iter().map(KeyLimiter::owned_bytes).sum();
    let expected = windows + alone.owned_bytes() - windows_bytes(&alone);
    assert!(bytes.abs_diff(expected) <= 100, "{bytes} for {expected} bytes");
}

#[test]
fn a_shared_log_has_no_more_slots_than_the_largest_limit_needs() {
    let [per_tick, requests] = [100, u64::from(LIMIT_MAX) * 5 / 4];
    let [first, second] =
        line(&tier(&LIMIT_MAX.to_string(), "unlimited"), 2).try_into().ok().unwrap();
    let spread_ns = 50 * SECOND_NS / (requests / per_tick);
    for number in 0..requests {
        assert!(first.decide(number / per_tick * spread_ns).is_admitted);
    }
    assert_eq!(slots(&first), LIMIT_MAX as usize + SLOTS_SPARE);
    second.set_limits(&tier("unlimited", &LIMIT_MAX.to_string()));
    let peek = second.peek(50 * SECOND_NS);
    assert_eq!((peek.is_admitted, peek.per_minute.remaining), (false, 0));
}
