use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::*;
use crate::journal::RECORD_BYTES_MAX;
use paperbourse_core::engine::account::extension::UsedLevel;
use paperbourse_core::engine::admin::reset::ORDERS_PER_RECORD_MAX;
use paperbourse_core::engine::admin::standing::{Act, Operator};
use paperbourse_core::engine::command::Identity;
use paperbourse_core::engine::event::{
    AccountReset, FillUndone, OperatorActed, OrderDelayed, OrderFilled, OrderPlaced, RestingFilled,
};
use paperbourse_core::engine::fills::fill::{Fill, Placement};
use paperbourse_core::engine::key::{KeyGrant, Permissions, WalletGrant};
use paperbourse_core::engine::market::payout::{
    Decision, EVIDENCE_BYTES_MAX, PaidPosition, PositionsSettled,
};
use paperbourse_core::engine::order::delay::Delay;
use paperbourse_core::engine::order::idempotency::{Fingerprint, NameHash};
use paperbourse_core::engine::order::matching::{EVENTS_PER_VISIT_MAX, LEVELS_PER_VISIT};
use paperbourse_core::engine::order::terms::{EndReason, OrderKind, Reserve, Terms, TimeInForce};
use paperbourse_core::engine::state::hash::StateHash;
use paperbourse_core::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, OutcomeIndex};
use paperbourse_core::limits::tier::Tier;
use paperbourse_core::market::book::{LEVELS_PER_SIDE_MAX, Level, Side};
use paperbourse_core::market::catalogue::{ID_BYTES_MAX, LABEL_BYTES_MAX, OUTCOMES_PER_MARKET_MAX};
use paperbourse_core::money::{FeeRate, Price, Shares, Usd};

fn header() -> RecordHeader {
    RecordHeader {
        shard: ShardId::new(5).unwrap(),
        epoch: 3,
        sequence: 77,
        at: Timestamp::from_millis(1_784_578_686_071),
    }
}

fn grant(name: Option<&str>, expires_at: Option<Timestamp>) -> KeyGrant {
    KeyGrant {
        hash: [7; 32],
        prefix: "ps_live_01234567".into(),
        name: name.map(Into::into),
        tier: Tier::Pro,
        permissions: Permissions::DEFAULT,
        expires_at,
        wallet: None,
    }
}

/// One event of every kind, and of every optional field both forms.
pub(crate) fn every_kind() -> Vec<Event> {
    let account = AccountId::from_raw(69).unwrap();
    let key = KeyId::from_raw(133).unwrap();
    let order = OrderId::from_raw(197).unwrap();
    let comment = CommentId::from_raw(69).unwrap();
    let at = Timestamp::from_nanos(-5);
    let fill = OrderFilled {
        placement: Placement {
            order,
            account,
            market: MarketIndex(9),
            outcome: OutcomeIndex(1),
            side: Side::Sell,
            fingerprint: Fingerprint::from_bytes([1; 16]),
            names: smallvec![NameHash::from_bytes([2; 16]), NameHash::from_bytes([3; 16])],
            client_order_id: Some("mine".into()),
        },
        fill: Fill {
            quantity: Shares::from_micros(3),
            notional: Usd::from_micros(4),
            fee: Usd::from_micros(10),
            fee_rate: FeeRate::from_micros(70_000),
            balance: Usd::from_micros(6),
            position_shares: Shares::from_micros(7),
            position_cost: Usd::from_micros(8),
            at,
        },
        levels: smallvec![
            Level { price: Price::from_micros(530_000), size: Shares::from_micros(1) },
            Level { price: Price::from_micros(520_000), size: Shares::from_micros(2) },
        ],
        book_sequence: 11,
        slippage_bps: Some(12),
    };
    let plain_fill = OrderFilled {
        placement: Placement {
            side: Side::Buy,
            names: smallvec![],
            client_order_id: None,
            ..fill.placement.clone()
        },
        slippage_bps: None,
        ..fill.clone()
    };
    let mut events = vec![
        Event::AccountOpened {
            account,
            identity: Identity { digest: [9; 32], issuer: "i".into(), subject: "ß".into() },
            granted: Usd::from_micros(1_000_000_000),
            at,
        },
        Event::KeyCreated {
            key,
            account,
            grant: grant(Some("laptop"), Some(at)),
            created_by: Some(key),
            at,
        },
        Event::KeyCreated { key, account, grant: grant(None, None), created_by: None, at },
        Event::KeyRevoked { key, at },
        Event::MarketIntroduced {
            index: MarketIndex(2),
            condition_id: "0xab".into(),
            outcomes: vec![("Yes".into(), "1".into()), ("No".into(), "".into())],
        },
        Event::OrderFilled(Box::new(fill.clone())),
        Event::OrderFilled(Box::new(plain_fill.clone())),
        Event::CommentAdded { comment, order, author: account, content: "nice".into(), at },
        Event::CommentDeleted { comment },
        Event::StateChecked { hash: StateHash::from_u64(u64::MAX) },
        Event::OrderForgotten { order },
        Event::KeyForgotten { key },
        Event::KeyRenamed { key, name: Some("desk".into()) },
        Event::KeyRenamed { key, name: None },
        Event::KeyExpirySet { key, expires_at: at },
    ];
    events.extend(of_settlements(account, at));
    events.extend(of_resting_orders(&plain_fill, &fill));
    events.extend(of_operators(account, at));
    events.push(Event::FillLogBegun { account });
    let used = |cents: i64, left| UsedLevel {
        price: Price::from_micros(cents * 10_000),
        shown: Shares::from_micros(15),
        left: Shares::from_micros(left),
    };
    events.push(of_levels(&events[23], &[used(40, 0), used(41, 14)]));
    let wallet = Some(WalletGrant { address: [0xab; 20], nonce: u64::MAX - 1 });
    let grant = KeyGrant { wallet, ..grant(Some("wallet"), None) };
    events.push(Event::KeyCreated { key, account, grant, created_by: None, at });
    events.push(Event::FillUndone(Box::new(FillUndone {
        account,
        number: 21,
        order,
        part: 2,
        balance: Usd::from_micros(6),
        position_shares: Shares::from_micros(7),
        position_cost: Usd::from_micros(8),
        realised: Usd::from_micros(-9),
        at,
    })));
    events
}

/// The same fill of an open order, with the levels that it used.
fn of_levels(filled: &Event, used: &[UsedLevel]) -> Event {
    let Event::RestingFilled(filled) = filled else { panic!("a fill of an open order") };
    let used = used.into();
    Event::RestingFilled(Box::new(RestingFilled { used, ..(**filled).clone() }))
}

fn of_operators(account: AccountId, at: Timestamp) -> Vec<Event> {
    let users = [Some("deploy".into()), None].into_iter().cycle();
    let deposit = Act::Deposit { amount: Usd::from_micros(5), token: [6; 16] };
    let acts = [Act::Suspend, Act::Resume, deposit, Act::Reset, Act::Tier(Tier::Pro), Act::Erase];
    let acted = acts.into_iter().zip(users).map(|(act, user)| {
        let by = Operator { uid: 1000, user };
        Event::OperatorActed(Box::new(OperatorActed { account, act, by, reason: "ß".into(), at }))
    });
    acted.collect()
}

fn of_settlements(account: AccountId, at: Timestamp) -> [Event; 3] {
    [
        Event::SettlementDecided {
            decision: Arc::new(Decision {
                condition_id: "0xab".into(),
                payouts: vec![("1".into(), Price::ONE), ("ß".into(), Price::ZERO)],
                evidence: "the venue says so".into(),
            }),
            at,
        },
        Event::PositionsSettled(Box::new(PositionsSettled {
            market: MarketIndex(2),
            payouts: smallvec![Price::ZERO, Price::ONE],
            positions: vec![PaidPosition {
                account,
                outcome: OutcomeIndex(1),
                shares: Shares::from_micros(3),
                payout: Usd::from_micros(4),
                balance: Usd::from_micros(5),
            }],
            at,
        })),
        Event::MarketSettled {
            market: MarketIndex(2),
            payouts: smallvec![Price::ZERO, Price::ONE],
            at,
        },
    ]
}

/// The events of orders that may rest, with these two orders' placements and fills.
fn of_resting_orders(plain: &OrderFilled, named: &OrderFilled) -> Vec<Event> {
    let OrderFilled { placement, fill, levels, .. } = named.clone();
    let order = placement.order;
    let displayed = levels[0];
    let terms = Terms {
        kind: OrderKind::Limit,
        time_in_force: TimeInForce::GoodTilDate(Timestamp::from_seconds(7)),
        post_only: false,
        awaited_book: false,
        quantity: Shares::from_micros(9),
        price: Some(Price::from_micros(530_000)),
        delayed_ms: 0,
    };
    let placed = OrderPlaced {
        placement,
        terms,
        fill,
        levels,
        book_sequence: 11,
        slippage_bps: Some(12),
        end: None,
    };
    let waits = OrderPlaced {
        placement: plain.placement.clone(),
        terms: Terms {
            time_in_force: TimeInForce::GoodTilCancelled,
            post_only: true,
            awaited_book: true,
            ..terms
        },
        levels: smallvec![],
        book_sequence: 0,
        slippage_bps: None,
        ..placed.clone()
    };
    let killed = |kind, time_in_force, price, end| OrderPlaced {
        terms: Terms { kind, time_in_force, price, ..terms },
        end: Some(end),
        ..placed.clone()
    };
    let market = killed(OrderKind::Market, TimeInForce::FillAndKill, None, EndReason::FakNotFilled);
    let limit =
        killed(OrderKind::Limit, TimeInForce::FillOrKill, terms.price, EndReason::FokNotFilled);
    let waited = OrderPlaced { terms: Terms { delayed_ms: 250, ..terms }, ..placed.clone() };
    let waited = Event::OrderPlaced(Box::new(waited));
    let used = SmallVec::new();
    let resting = RestingFilled { order, fill, displayed, book_sequence: 13, used };
    let mut events: Vec<Event> = [placed, waits, market, limit]
        .map(|placed| Event::OrderPlaced(Box::new(placed)))
        .into_iter()
        .collect();
    events.push(Event::OrderAdmitted { order });
    events.push(Event::RestingFilled(Box::new(resting)));
    let at = fill.at;
    events.extend(EndReason::ALL.map(|reason| Event::OrderEnded { order, reason, at }));
    let account = AccountId::from_raw(69).unwrap();
    events.extend(
        [Some(10_000), None].map(|interval_ms| Event::HeartbeatSet { account, interval_ms }),
    );
    events
        .extend(delayed(plain, named, terms).map(|delayed| Event::OrderDelayed(Box::new(delayed))));
    events.extend([waited, Event::DelayedOrderDropped { order }]);
    events.push(Event::AccountReset(AccountReset {
        account,
        position_count: 2,
        cost: Usd::from_micros(5),
        granted: Usd::from_micros(-6),
        balance: Usd::from_micros(7),
        at,
    }));
    events
}

/// A delayed purchase for an amount, and a delayed sale of a quantity.
fn delayed(plain: &OrderFilled, named: &OrderFilled, terms: Terms) -> [OrderDelayed; 2] {
    let at = plain.fill.at;
    let buys = Delay {
        due: at.after_ms(250),
        reserve: Reserve { cash: Usd::from_micros(5), shares: Shares::ZERO },
        amount: Some(Usd::from_micros(4)),
        expected_price: Some(Price::from_micros(520_000)),
        max_slippage_bps: Some(500),
    };
    let market = Terms {
        kind: OrderKind::Market,
        time_in_force: TimeInForce::FillAndKill,
        price: None,
        ..terms
    };
    let sells = Delay {
        reserve: Reserve { cash: Usd::ZERO, shares: terms.quantity },
        amount: None,
        expected_price: None,
        max_slippage_bps: None,
        ..buys
    };
    let delayed = |placement: &Placement, terms, delay| OrderDelayed {
        placement: placement.clone(),
        terms,
        delay,
        at,
    };
    [delayed(&plain.placement, market, buys), delayed(&named.placement, terms, sells)]
}

fn encoded(events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(header(), events, &mut bytes);
    bytes
}

#[test]
fn every_kind_of_event_reads_back() {
    for event in every_kind() {
        let bytes = encoded(std::slice::from_ref(&event));
        assert_eq!(decode(&bytes), Ok((header(), Events::from_iter([event]))));
        assert_eq!(bytes.len() % ALIGNMENT_BYTES, 0);
    }
    assert_eq!(decode(&encoded(&every_kind())), Ok((header(), every_kind().into())));
    assert_eq!(decode(&encoded(&[])), Ok((header(), Events::new())));
}

/// The longest texts that callers and venues may bring: none is longer than this in bytes.
const TEXT: usize = 4 * 256;

/// The longest of everything, in one record: an account's first order, in a market that its shard
/// has not used yet, through one whole side of a book.
#[test]
fn the_longest_record_fits() {
    let long = |bytes: usize| "x".repeat(bytes);
    let every = every_kind();
    let Event::OrderFilled(fill) = every[5].clone() else { panic!("a fill") };
    let mut fill = *fill;
    fill.levels = std::iter::repeat_n(fill.levels[0], LEVELS_PER_SIDE_MAX).collect();
    fill.placement.client_order_id = Some(long(TEXT).into());
    let Event::AccountOpened { account, granted, at, .. } = every[0] else { panic!("an account") };
    let identity =
        Identity { digest: [9; 32], issuer: long(TEXT).into(), subject: long(TEXT).into() };
    let outcome = |_| (long(LABEL_BYTES_MAX).into(), long(ID_BYTES_MAX).into());
    let events = [
        every[9].clone(),
        Event::AccountOpened { account, identity, granted, at },
        every[10].clone(),
        every[10].clone(),
        Event::MarketIntroduced {
            index: MarketIndex(2),
            condition_id: long(ID_BYTES_MAX).into(),
            outcomes: (0..OUTCOMES_PER_MARKET_MAX).map(outcome).collect(),
        },
        Event::OrderFilled(Box::new(fill)),
    ];
    let bytes = encoded(&events).len();
    assert!(bytes <= RECORD_BYTES_MAX, "{bytes}");

    // The same order, of which a part rests.
    let Event::OrderPlaced(placed) = every[18].clone() else { panic!("an order") };
    let Event::OrderFilled(fill) = events[5].clone() else { panic!("a fill") };
    let OrderFilled { placement, levels, .. } = *fill;
    let mut events = events;
    events[5] = Event::OrderPlaced(Box::new(OrderPlaced { placement, levels, ..*placed }));
    let bytes = encoded(&events).len();
    assert!(bytes <= RECORD_BYTES_MAX, "{bytes}");

    // As many fills as one visit of a match writes, of as many levels.
    let used = UsedLevel { price: Price::ONE, shown: Shares::ZERO, left: Shares::ZERO };
    let brief = std::iter::repeat_n(every[23].clone(), EVENTS_PER_VISIT_MAX - 2);
    let of_many = [LEVELS_PER_VISIT - 1, LEVELS_PER_SIDE_MAX]
        .map(|level_count| of_levels(&every[23], &vec![used; level_count]));
    let fills = brief.chain(of_many);
    let events: Vec<Event> = std::iter::once(every[9].clone()).chain(fills).collect();
    let bytes = encoded(&events).len();
    assert!(bytes <= RECORD_BYTES_MAX, "{bytes}");

    // As many orders as one record of a reset ends.
    let ends = std::iter::repeat_n(every[24].clone(), ORDERS_PER_RECORD_MAX);
    let mut events: Vec<Event> = std::iter::once(every[9].clone()).chain(ends).collect();
    assert!(matches!(events[1], Event::OrderEnded { .. }));
    events.push(every[41].clone());
    let bytes = encoded(&events).len();
    assert!(bytes <= RECORD_BYTES_MAX, "{bytes}");

    // A suspension ends as many.
    let Event::OperatorActed(mut acted) = every[42].clone() else { panic!("an act") };
    acted.reason = long(TEXT).into();
    events.push(Event::OperatorActed(acted));
    let bytes = encoded(&events).len();
    assert!(bytes <= RECORD_BYTES_MAX, "{bytes}");

    let payout = |_| (long(ID_BYTES_MAX).into(), Price::ONE);
    let decision = Decision {
        condition_id: long(ID_BYTES_MAX).into(),
        payouts: (0..OUTCOMES_PER_MARKET_MAX).map(payout).collect(),
        evidence: long(EVIDENCE_BYTES_MAX).into(),
    };
    let events = [Event::SettlementDecided { decision: Arc::new(decision), at }];
    let bytes = encoded(&events).len();
    assert!(bytes <= RECORD_BYTES_MAX, "{bytes}");
}

/// The bytes are the format: a change of these numbers is a change of what is on disks.
#[test]
fn the_format_is_pinned() {
    let [first_version, key_life, settlement, resting, delays, reset, operators] =
        [0..12, 12..15, 15..18, 18..37, 37..41, 41..42, 42..48]
            .map(|range| encoded(&every_kind()[range]));
    let [fill_log, levels, wallet, undone] =
        [48..49, 49..50, 50..51, 51..52].map(|range| encoded(&every_kind()[range]));
    assert_eq!(every_kind().len(), 52);
    assert_eq!(crc32c::crc32c(&first_version), 4_139_319_612);
    assert_eq!(crc32c::crc32c(&key_life), 70_980_373);
    assert_eq!(crc32c::crc32c(&settlement), 563_179_161);
    assert_eq!(crc32c::crc32c(&resting), 443_241_761);
    assert_eq!(crc32c::crc32c(&delays), 3_582_886_227);
    assert_eq!(crc32c::crc32c(&reset), 1_394_756_656);
    assert_eq!(crc32c::crc32c(&operators), 304_436_284);
    assert_eq!(crc32c::crc32c(&fill_log), 2_150_584_763);
    assert_eq!(crc32c::crc32c(&levels), 3_501_901_076);
    assert_eq!(crc32c::crc32c(&wallet), 3_233_365_984);
    assert_eq!(crc32c::crc32c(&undone), 1_898_845_169);
}

#[test]
fn a_record_that_was_cut_is_an_error() {
    let bytes = encoded(&every_kind());
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "{length}");
    }
}

#[test]
fn what_is_left_over_is_an_error() {
    let mut bytes = encoded(&every_kind());
    bytes.push(0);
    let offset = bytes.len() - 1;
    assert_eq!(decode(&bytes), Err(RecordError::Invalid { offset, field: "end of the record" }));
}

#[test]
fn an_unknown_kind_names_itself() {
    let mut bytes = encoded(&every_kind()[3..4]);
    bytes[HEADER_BYTES] = 200;
    assert_eq!(decode(&bytes), Err(RecordError::UnknownKind { offset: 32, kind: 200 }));
}

#[test]
fn any_changed_byte_reads_as_something_else_or_not_at_all() {
    let bytes = encoded(&every_kind());
    for index in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[index] ^= 0x40;
        assert!(decode(&changed) != Ok((header(), every_kind().into())), "byte {index}");
    }
}
