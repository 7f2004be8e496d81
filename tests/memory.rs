//! The memory of a key's windows, counted at the allocator: the numbers in the guide.
//!
//! Runs without the test harness, which has a second thread that allocates as well.

#[path = "../perf/counts/allocator.rs"]
#[expect(dead_code, reason = "this test only reads the live bytes")]
mod allocator;

use paperbourse::limits::tier::{Tier, Tiers};
use paperbourse::limits::window::KeyLimiter;

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;
const KEYS: usize = 100;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

fn main() {
    an_idle_key_takes_24_bytes_and_a_busy_one_what_its_minute_holds();
    println!("an idle key takes 24 bytes, and a busy one what its minute holds");
}

fn an_idle_key_takes_24_bytes_and_a_busy_one_what_its_minute_holds() {
    let tiers = Tiers::default();
    // A thread's first key makes allocations that do not depend on the number of keys.
    let other = KeyLimiter::new(tiers.get(Tier::Free));
    (1..100).for_each(|number| assert!(other.decide(number * SECOND_NS).is_admitted));
    other.release(200 * SECOND_NS);
    drop(other);
    for (tier, a_minute, busy_bytes) in [
        (Tier::Free, 300, 512 * 8),
        (Tier::Pro, 1_200, 2_048 * 8),
        (Tier::Enterprise, 3_000, 4_096 * 8),
    ] {
        // Before the log's slots: the reference count, its counts, the number of slots.
        const LOG_BYTES: usize = 32;
        let before = allocator::live_bytes();
        let mut keys = Vec::with_capacity(KEYS);
        keys.resize_with(KEYS, || KeyLimiter::new(tiers.get(tier)));
        let bytes_each = || (allocator::live_bytes() - before) / KEYS;
        let check = |when: &str, expected: usize| {
            assert_eq!(bytes_each(), expected, "bytes of a {tier} key {when}");
        };
        check("that was never used", 24);
        let send = |now_ns| keys.iter().for_each(|key| assert!(key.decide(now_ns).is_admitted));
        send(0);
        check("after one request", 24 + LOG_BYTES + 8 * 8);
        let pace_ns = MINUTE_NS / a_minute;
        (1..2 * a_minute).for_each(|number| send(number * pace_ns));
        check("at its full pace", 24 + LOG_BYTES + busy_bytes);
        let last_ns = (2 * a_minute - 1) * pace_ns;
        let release = |now_ns| keys.iter().for_each(|key| key.release(now_ns));
        release(last_ns + MINUTE_NS - 1);
        check("within a minute of its last request", 24 + LOG_BYTES + busy_bytes);
        release(last_ns + MINUTE_NS);
        check("that was idle for a minute", 24);
        drop(keys);
    }
}
