//! Memory, counted at the allocator: that of a key's windows, with the numbers in the guide; that
//! of a shard's state, which must be what the state itself counts; and that of an idle socket.
//!
//! Runs without the test harness, which has a second thread that allocates as well.

#[path = "../perf/counts/allocator.rs"]
#[expect(dead_code, reason = "this test only reads the live bytes")]
mod allocator;
#[path = "memory/sockets.rs"]
mod sockets;

use paperbourse::engine::admin::acts::OperatorCommand;
use paperbourse::engine::admin::standing::{Act, Operator};
use paperbourse::engine::command::{
    CreateKey, Identity, OpenAccount, OrderNames, Owner, PlaceOrder, Trade, TradeOrder,
    WriteComment,
};
use paperbourse::engine::comment::Written;
use paperbourse::engine::key::{KeyGrant, Permissions};
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::engine::order::payload::NewOrder;
use paperbourse::engine::state::footprint::Footprint;
use paperbourse::engine::{Command, Rules, State, Verdict};
use paperbourse::ids::{AccountId, Lsn, OrderId, ShardId, Timestamp};
use paperbourse::limits::tier::{Tier, Tiers};
use paperbourse::limits::window::KeyLimiter;
use paperbourse::market::book::{Book, Ladder, Level, Side};
use paperbourse::market::catalogue::{MarketInfo, Outcome};
use paperbourse::market::quote::Quote;
use paperbourse::money::{Price, Shares};

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;
const KEYS: usize = 100;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

fn main() {
    a_key_takes_what_its_minute_holds();
    println!("a key takes what its minute holds");
    a_state_counts_what_it_allocated();
    println!("a state counts what it allocated");
    // Last: the server of this process lasts until its end.
    sockets::an_idle_socket_is_small();
    println!("an idle socket is small");
}

fn a_key_takes_what_its_minute_holds() {
    let tiers = Tiers::default();
    // A thread's first key makes allocations that do not depend on the number of keys.
    let other = KeyLimiter::new(tiers.get(Tier::Free));
    (1..100).for_each(|number| assert!(other.decide(number * SECOND_NS).is_admitted));
    other.release(200 * SECOND_NS);
    drop(other);
    for (tier, a_minute) in [(Tier::Free, 300), (Tier::Pro, 1_200), (Tier::Enterprise, 3_000)] {
        // The limits and the place of the windows.
        const UNUSED_BYTES: usize = 16;
        // The windows, counted. They are part of the table for a key.
        const IDLE_BYTES: usize = UNUSED_BYTES + 48;
        // Before the log's slots: the reference count and its facts.
        const LOG_BYTES: usize = IDLE_BYTES + 32;
        // For a minute's stamps, and two to spare.
        let busy_bytes = LOG_BYTES + 4 * (a_minute + 2);
        let a_minute = a_minute as u64;
        let before = allocator::live_bytes();
        let mut keys = Vec::with_capacity(KEYS);
        keys.resize_with(KEYS, || KeyLimiter::new(tiers.get(tier)));
        let bytes_each = || (allocator::live_bytes() - before) / KEYS;
        let check = |when: &str, expected: usize| {
            assert_eq!(bytes_each(), expected, "bytes of a {tier} key {when}");
        };
        check("that was never used", UNUSED_BYTES);
        let send = |now_ns| keys.iter().for_each(|key| assert!(key.decide(now_ns).is_admitted));
        send(0);
        check("after one request", LOG_BYTES + 8 * 4);
        let pace_ns = MINUTE_NS / a_minute;
        (1..2 * a_minute).for_each(|number| send(number * pace_ns));
        check("at its full pace", busy_bytes);
        let last_ns = (2 * a_minute - 1) * pace_ns;
        let release = |now_ns| keys.iter().for_each(|key| key.release(now_ns));
        release(last_ns + MINUTE_NS - 1);
        check("within a minute of its last request", busy_bytes);
        release(last_ns + MINUTE_NS);
        check("that was idle for a minute", IDLE_BYTES);
        drop(keys);
    }
}

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// Enough that the tables have grown a few times.
const ACCOUNTS: u64 = 3_000;

/// The state of a shard with a market.
struct Shard {
    state: State,
    market: MarketInfo,
    book: Book,
}

impl Shard {
    fn new() -> Self {
        let outcomes =
            ["Yes", "No"].map(|label| Outcome { label: label.into(), token_id: label.into() });
        let ask =
            Level { price: Price::from_micros(500_000), size: Shares::from_micros(1_000_000_000) };
        let ladder = Ladder::from_levels(vec![], vec![ask]).expect("one level");
        Self {
            state: State::new(ShardId::new(0).expect("the first shard")),
            market: MarketInfo::bare("0xa", outcomes),
            book: Book::new(ladder, NOW),
        }
    }

    fn footprint(&self) -> Footprint {
        let (mut total, mut next) = self.state.footprint_from(0);
        while let Some(slot) = next {
            let (part, rest) = self.state.footprint_from(slot);
            total += part;
            next = rest;
        }
        total
    }

    /// Has each account do this, and compares what the state counts with what was allocated.
    #[track_caller]
    fn check<C: Command>(
        &mut self,
        what: &str,
        counted: fn(&Footprint) -> usize,
        command: impl Fn(u64) -> C,
    ) {
        let (live_before, before) = (allocator::live_bytes(), self.footprint());
        for number in 0..ACCOUNTS {
            let quote = Quote::new(&self.market, [Some(&self.book), None]);
            let command = command(number);
            let verdict = self.state.decide(&command, Some(&quote), NOW, &Rules::default());
            let Ok(Verdict::Happens(events, _)) = verdict else { panic!("{what}: refused") };
            self.state.apply(&events, Lsn::new(0, self.state.sequence() + 1));
        }
        let (live, after) = (allocator::live_bytes() - live_before, self.footprint());
        let grown = counted(&after) - counted(&before);
        let percent = grown * 100 / live;
        println!("{what}: {grown} bytes counted, {live} allocated, {percent} %");
        assert!((85..=115).contains(&percent), "{what}: {before:?} became {after:?}");
    }

    /// Erases all accounts, as an operator does.
    fn erase_all(&mut self) {
        for number in 1..=ACCOUNTS {
            let command = OperatorCommand {
                account: AccountId::new(self.state.shard(), number).expect("an account"),
                act: Act::Erase,
                by: Operator { uid: 0, user: None },
                reason: "a test".into(),
            };
            while let Ok(Verdict::Happens(events, acted)) =
                self.state.decide(&command, None, NOW, &Rules::default())
            {
                self.state.apply(&events, Lsn::new(0, self.state.sequence() + 1));
                if !acted.has_more {
                    break;
                }
            }
        }
    }
}

fn identity(number: u64) -> Identity {
    let mut digest = [0; 32];
    digest[8..16].copy_from_slice(&number.to_le_bytes());
    let subject = format!("trader-{number}");
    Identity { digest, issuer: "https://issuer.example".into(), subject: subject.into() }
}

fn owner(number: u64) -> Owner {
    Owner::Identity(identity(number))
}

fn market_order(number: u64, text: &str) -> Trade {
    let name = format!("{text}-{number}");
    Trade::new(
        owner(number),
        TradeOrder {
            market_id: "0xa".into(),
            outcome: "yes".into(),
            side: Side::Buy,
            quantity: Shares::from_micros(1_000_000),
            expected_price: None,
            max_slippage_bps: None,
        },
        OrderNames::new([NameHash::of_order(&name)], Some(name.into())),
    )
}

fn resting_order(number: u64, price_micros: i64) -> PlaceOrder {
    let (quantity, price) = (Shares::from_micros(5_000_000), Price::from_micros(price_micros));
    let order = NewOrder::limit("0xa", "yes", Side::Buy, quantity, price);
    PlaceOrder::new(owner(number), order, OrderNames::default())
}

fn a_state_counts_what_it_allocated() {
    let empty_bytes = allocator::live_bytes();
    let mut shard = Shard::new();
    shard.check("accounts", |it| it.accounts, |number| OpenAccount(identity(number)));
    shard.check(
        "keys",
        |it| it.keys,
        |number| CreateKey {
            owner: owner(number),
            is_bootstrap: true,
            created_by: None,
            grant: KeyGrant {
                hash: [7; 32],
                prefix: "ps_live_01234567".into(),
                name: Some("the name of this key".into()),
                tier: Tier::Free,
                permissions: Permissions::DEFAULT,
                expires_at: None,
                wallet: None,
            },
        },
    );
    let of_orders = |it: &Footprint| it.accounts + it.orders;
    shard.check("first trades", of_orders, |number| market_order(number, "first"));
    shard.check("more trades", of_orders, |number| market_order(number, "another-long-name"));
    let open = |it: &Footprint| it.accounts + it.orders + it.open_orders + it.fills;
    shard.check("first orders at rest", open, |number| resting_order(number, 100_000));
    shard.check("more orders at rest", open, |number| resting_order(number, 200_000));
    shard.check("logged fills", open, |number| market_order(number, "logged"));
    let first = ShardId::new(0).expect("the first shard");
    shard.check(
        "comments",
        |it| it.comments,
        |number| WriteComment {
            order: OrderId::new(first, number + 1).expect("an order"),
            author: AccountId::new(first, number + 1).expect("an account"),
            content: "a comment of some length".into(),
            elsewhere: Written::default(),
        },
    );
    let full_bytes = allocator::live_bytes() - empty_bytes;
    shard.erase_all();
    let left_bytes = allocator::live_bytes() - empty_bytes;
    let Footprint { orders, open_orders, fills, keys, .. } = shard.footprint();
    println!("erased accounts leave {left_bytes} of {full_bytes} bytes");
    assert!(left_bytes < full_bytes / 4, "{left_bytes} of {full_bytes} bytes");
    let counted = orders + open_orders + fills + keys;
    assert!(counted < full_bytes / 20, "{:?}", shard.footprint());
}
