use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use proptest::prelude::*;

use super::*;

type FixedHasher = BuildHasherDefault<DefaultHasher>;

fn table(rule: BucketRule, set_count: usize) -> AddressTable<FixedHasher> {
    AddressTable(BucketTable::new(rule, FixedHasher::default(), set_count))
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A bucket by definition: tokens measured in nanoseconds, refilled as time passes.
struct Tokens {
    rule: BucketRule,
    held_ns: u64,
    filled_at_ns: u64,
}

impl Tokens {
    fn new(rule: BucketRule) -> Self {
        Self { rule, held_ns: rule.capacity_ns, filled_at_ns: 0 }
    }

    fn draw(&mut self, now_ns: u64) -> (bool, u64) {
        self.held_ns += now_ns - self.filled_at_ns;
        self.held_ns = self.held_ns.min(self.rule.capacity_ns);
        self.filled_at_ns = now_ns;
        let is_admitted = self.held_ns >= self.rule.interval_ns;
        if is_admitted {
            self.held_ns -= self.rule.interval_ns;
        }
        (is_admitted, self.held_ns / self.rule.interval_ns)
    }
}

#[track_caller]
fn check(draw: Draw, tokens: &mut Tokens, now_ns: u64) {
    let (is_admitted, remaining) = tokens.draw(now_ns);
    assert_eq!((draw.is_admitted, u64::from(draw.remaining)), (is_admitted, remaining), "{now_ns}");
    let wait_ns = tokens.rule.interval_ns.saturating_sub(tokens.held_ns);
    assert_eq!(draw.wait_ns, wait_ns, "at {now_ns}");
}

#[test]
fn the_presets_are_the_documented_ones() {
    for (rule, burst, interval_ns) in [
        (BucketRule::PUBLIC_READS, 20, SECOND_NS / 10),
        (BucketRule::BOOTSTRAP, 5, MINUTE_NS),
        (BucketRule::FAILED_CREDENTIALS, 50, SECOND_NS / 10),
        (BucketRule::KEYS, 10, MINUTE_NS / 10),
        (BucketRule::SOCKETS, 100, SECOND_NS / 5),
        (BucketRule::SOCKET_FRAMES, 50, SECOND_NS / 20),
    ] {
        let mut bucket = TokenBucket::new(rule);
        for remaining in (0..burst).rev() {
            let wait_ns = if remaining == 0 { interval_ns } else { 0 };
            assert_eq!(bucket.draw(0), Draw { is_admitted: true, remaining, wait_ns });
        }
        let refused = |wait_ns| Draw { is_admitted: false, remaining: 0, wait_ns };
        assert_eq!(bucket.draw(0), refused(interval_ns));
        assert_eq!(bucket.draw(interval_ns - 1), refused(1));
        assert!(bucket.draw(interval_ns).is_admitted);
        assert_eq!(bucket.draw(interval_ns), refused(interval_ns));
        let idle = bucket.draw(interval_ns * 10_000);
        assert_eq!(idle, Draw { is_admitted: true, remaining: burst - 1, wait_ns: 0 });
    }
}

#[test]
fn a_rule_out_of_range_is_refused() {
    assert!(BucketRule::per_second(LIMIT_MAX, LIMIT_MAX).is_ok());
    assert!(BucketRule::per_minute(1, LIMIT_MAX).is_ok());
    for (rate, burst) in [(0, 1), (1, 0), (LIMIT_MAX + 1, 1), (1, LIMIT_MAX + 1)] {
        assert_eq!(BucketRule::per_second(rate, burst), Err(BucketRuleError { rate, burst }));
    }
    let thirds = BucketRule::per_second(3, 1).unwrap();
    assert_eq!(thirds.interval_ns * 3, SECOND_NS + 2, "never faster than asked");
}

#[test]
fn a_rule_is_parsed_from_rate_and_burst() {
    for (text, expected) in [
        ("10/20", Some((10, 20))),
        ("1/1000000", Some((1, LIMIT_MAX))),
        ("1000001/1", None),
        ("0/1", None),
        ("1/0", None),
        ("10", None),
        ("10/", None),
        ("/20", None),
        ("10/20/5", None),
        ("+10/20", None),
        ("10 / 20", None),
        ("1.5/20", None),
        ("unlimited/20", None),
    ] {
        let rule = |new: fn(u32, u32) -> Result<BucketRule, BucketRuleError>| {
            expected.map(|(rate, burst)| new(rate, burst).unwrap()).ok_or(BucketRuleTextError)
        };
        let second = BucketRule::per_second_from_text(text);
        assert_eq!(second, rule(BucketRule::per_second), "{text:?}");
        let minute = BucketRule::per_minute_from_text(text);
        assert_eq!(minute, rule(BucketRule::per_minute), "{text:?}");
    }
}

#[test]
fn accounts_have_their_own_buckets_or_none() {
    let account = |number: u64| AccountId::from_raw(64 + number).unwrap();
    let rule = BucketRule::per_minute(1, 2).unwrap();
    let table = AccountTable::new(Rate::Limited(rule), RandomState::new());
    for number in 0..100 {
        for is_admitted in [true, true, false] {
            assert_eq!(table.draw(account(number), 0).unwrap().is_admitted, is_admitted);
        }
    }
    assert!(table.draw(account(0), MINUTE_NS).unwrap().is_admitted);
    assert!(AccountTable::new(Rate::Unlimited, RandomState::new()).draw(account(0), 0).is_none());
}

#[test]
fn a_rate_is_a_rule_or_unlimited() {
    assert_eq!(Rate::per_second_from_text("unlimited"), Ok(Rate::Unlimited));
    assert_eq!(Rate::per_minute_from_text("unlimited"), Ok(Rate::Unlimited));
    let (second, minute) = (BucketRule::per_second(3, 4), BucketRule::per_minute(3, 4));
    assert_eq!(Rate::per_second_from_text("3/4"), Ok(Rate::Limited(second.unwrap())));
    assert_eq!(Rate::per_minute_from_text("3/4"), Ok(Rate::Limited(minute.unwrap())));
    for text in ["", "Unlimited", "3", "unlimited/4"] {
        assert_eq!(Rate::per_second_from_text(text), Err(BucketRuleTextError), "{text}");
    }
}

#[test]
fn buckets_are_exact_at_both_ends_of_the_clock() {
    let mut bucket = TokenBucket::new(BucketRule::per_minute(1, LIMIT_MAX).unwrap());
    assert!(bucket.draw(0).is_admitted);
    assert_eq!(bucket.draw(u64::MAX).remaining, LIMIT_MAX - 1);
    assert_eq!(bucket.draw(u64::MAX).remaining, LIMIT_MAX - 2);
}

#[test]
fn an_origin_is_an_ipv4_address_or_an_ipv6_network() {
    for (left, right, is_same) in [
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.2", false),
        ("192.0.2.1", "::ffff:192.0.2.1", true),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
        ("2001:db8:1:2::1", "2001:db8::2:0:0:0:1", false),
        ("::1", "0.0.0.0", false),
    ] {
        let table = table(BucketRule::BOOTSTRAP, 1);
        for _ in 0..5 {
            assert!(table.draw(address(left), 0).is_admitted);
        }
        let draw = table.draw(address(right), 0);
        assert_eq!(!draw.is_admitted, is_same, "{left} and {right}");
    }
}

#[test]
fn a_full_set_shares_one_bucket_and_evicts_nobody() {
    let rule = BucketRule::BOOTSTRAP;
    let table = table(rule, 1);
    let nth = |index: u8| IpAddr::from([192, 0, 2, index]);
    let limited = nth(0);
    for _ in 0..5 {
        assert!(table.draw(limited, 0).is_admitted);
    }
    // Seven more get entries; all the others share the burst of one bucket.
    let admitted: Vec<u8> = (1..=255).filter(|&n| table.draw(nth(n), 0).is_admitted).collect();
    assert_eq!(admitted, (1..=7 + 5).collect::<Vec<_>>());
    assert!(!table.draw(limited, 0).is_admitted, "crowding an address out must not help it");

    // The seven took one token each: after a minute their entries are free again.
    let later_ns = MINUTE_NS;
    for n in 20..27 {
        for remaining in (0..5).rev() {
            assert_eq!(table.draw(nth(n), later_ns).remaining, remaining, "a bucket of its own");
        }
    }
    let draw = table.draw(limited, later_ns);
    assert_eq!((draw.is_admitted, draw.remaining), (true, 0), "one minute, one token");
    assert_eq!(draw.wait_ns, MINUTE_NS);
}

#[test]
fn a_table_has_a_fixed_size_and_spreads_addresses() {
    let table = AddressTable::new(BucketRule::BOOTSTRAP, FixedHasher::default());
    assert_eq!(table.0.sets.len() * SET_ENTRIES, ADDRESSES_MAX);
    for index in 0..u32::try_from(ADDRESSES_MAX / 4).unwrap() {
        let address = IpAddr::from(index.to_be_bytes());
        assert_eq!(table.draw(address, 0).remaining, 4, "{address} has a bucket of its own");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn buckets_refill_as_defined(
        rate in 1..40_u32,
        burst in 1..6_u32,
        draws in prop::collection::vec((0..SET_ENTRIES, 0..4_u64, 0..3_u64), 1..200),
    ) {
        let rule = BucketRule::per_second(rate, burst).unwrap();
        let table = table(rule, 2);
        let mut alone = TokenBucket::new(rule);
        let mut tokens_alone = Tokens::new(rule);
        let mut tokens_of: HashMap<IpAddr, Tokens> = HashMap::new();
        let mut now_ns = 0;
        for (index, intervals, beside_ns) in draws {
            let later_ns = now_ns + intervals * rule.interval_ns + beside_ns;
            now_ns = later_ns.saturating_sub(1).max(now_ns);
            let address = IpAddr::from([10, 0, 0, u8::try_from(index).unwrap()]);
            let tokens = tokens_of.entry(address).or_insert_with(|| Tokens::new(rule));
            check(table.draw(address, now_ns), tokens, now_ns);
            check(alone.draw(now_ns), &mut tokens_alone, now_ns);
        }
    }
}

#[test]
fn what_a_bucket_lacks_stays_missing_when_its_rule_changes() {
    let rule = |rate, burst| BucketRule::per_second(rate, burst).unwrap();
    let client = address("192.0.2.1");
    // Drawn at once from a bucket of 10, then what a bucket of the new rule still has.
    for (drawn, new, expected) in [
        (4, rule(1, 10), 6),
        (4, rule(1_000, 10), 6),
        (4, rule(1, 20), 16),
        (4, rule(1, 5), 1),
        (10, rule(1, 5), 0),
        (0, rule(7, 3), 3),
    ] {
        let table = table(rule(1, 10), 4);
        (0..drawn).for_each(|_| assert!(table.draw(client, 0).is_admitted));
        table.set_rule(new, 0);
        let left = (0..100).take_while(|_| table.draw(client, 0).is_admitted).count();
        assert_eq!(left, expected, "{drawn} drawn, then {new:?}");
        let wait_ns = table.draw(client, 0).wait_ns;
        assert!(wait_ns <= new.interval_ns, "{wait_ns} for a token of {new:?}");
        assert!(table.draw(client, wait_ns).is_admitted);
    }
}

#[test]
fn accounts_can_be_limited_later_and_no_longer() {
    let account = AccountId::from_raw(64).unwrap();
    let rule = BucketRule::per_minute(1, 2).unwrap();
    let table = AccountTable::new(Rate::Unlimited, RandomState::new());
    assert!(table.draw(account, 0).is_none());
    table.set_rate(Rate::Limited(rule), 0);
    for is_admitted in [true, true, false] {
        assert_eq!(table.draw(account, 0).unwrap().is_admitted, is_admitted);
    }
    table.set_rate(Rate::Unlimited, 0);
    assert!(table.draw(account, 0).is_none());
    table.set_rate(Rate::Limited(rule), 0);
    assert!(!table.draw(account, 0).unwrap().is_admitted);
}
