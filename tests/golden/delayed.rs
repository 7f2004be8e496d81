//! Writes data with orders that are delayed.

use super::resting::{limit, part};
use super::*;

/// The kinds of events in the life of orders that are delayed.
const DELAYED_KINDS: [&str; 10] = [
    "account opened",
    "held order dropped",
    "key created",
    "market introduced",
    "market settled",
    "order ended",
    "order held",
    "order placed",
    "positions settled",
    "state checked",
];

/// Delays orders, decides and drops them, and ends one with its market, before and after a
/// snapshot.
pub(super) fn write_delayed(data: &Path) {
    write_with(data, false);
}

/// The same, by an account that logs its fills from its first delayed order on.
pub(super) fn write_logged(data: &Path) {
    write_with(data, true);
}

fn write_with(data: &Path, logs_fills: bool) {
    let Opened { journal, recovered, folder, .. } = open(data);
    let mut state = recovered.into_shards().swap_remove(usize::from(SHARD)).state;
    let journal = Arc::new(journal);
    happen(&mut state, &journal, opening());
    if logs_fills {
        happen(&mut state, &journal, vec![Event::FillLogBegun { account: account() }]);
    }
    let mut waits = Vec::new();
    for half in 0..2 {
        // One of each kind waits while the snapshot is taken.
        for order in [resting_buy(), buy_for_amount(), buy_at_any_price()] {
            waits.push(delay(&mut state, &journal, MarketIndex(0), order));
        }
        if half == 0 {
            let rests = delay(&mut state, &journal, MarketIndex(0), resting_buy());
            let spends = delay(&mut state, &journal, MarketIndex(0), buy_for_amount());
            decide(&mut state, &journal, &spends, (8, 3_200_000));
            decide(&mut state, &journal, &rests, (0, 0));
        }
        waits.push(delay(&mut state, &journal, MarketIndex(0), sale()));
        end_with_market(&mut state, &journal, MarketIndex(half + 1));
        if half == 0 {
            let mut count = 0;
            while count < 2 || journal.segment() == Some(1) {
                count += 1;
                let delayed = delay(&mut state, &journal, MarketIndex(0), buy_at_any_price());
                drop_order(&mut state, &journal, &delayed);
            }
            take_snapshot(&folder, &journal);
        }
    }
    for delayed in &waits[..4] {
        match delayed.terms.price {
            _ if delayed.placement.side == Side::Sell => drop_order(&mut state, &journal, delayed),
            Some(_) => decide(&mut state, &journal, delayed, (4, 1_560_000)),
            None => decide(&mut state, &journal, delayed, (5, 2_000_000)),
        }
    }
}

fn usd(micros: i64) -> Usd {
    Usd::from_micros(micros)
}

/// How long each order waits, in milliseconds.
const DELAY_MS: u32 = 250;

fn delayed_for(reserve: Reserve) -> Delay {
    let due = at(40).after_ms(DELAY_MS);
    Delay { due, reserve, amount: None, expected_price: None, max_slippage_bps: None }
}

/// A limit order for ten shares at 40 cents, with a fee of 7 cents.
fn resting_buy() -> (Side, Terms, Delay) {
    let terms = Terms { post_only: false, ..limit(40, 10, TimeInForce::GoodTilDate(at(5_000))) };
    let reserve = Reserve { cash: usd(4_070_000), shares: Shares::ZERO };
    (Side::Buy, terms, delayed_for(reserve))
}

/// Five dollars at the market, within bounds.
fn buy_for_amount() -> (Side, Terms, Delay) {
    let terms = Terms { kind: OrderKind::Market, ..limit(60, 9, TimeInForce::FillAndKill) };
    let reserve = Reserve { cash: usd(5_000_000), shares: Shares::ZERO };
    let delay = Delay {
        amount: Some(usd(5_000_000)),
        expected_price: Some(Price::from_micros(550_000)),
        max_slippage_bps: Some(250),
        ..delayed_for(reserve)
    };
    (Side::Buy, terms, delay)
}

pub(super) fn buy_at_any_price() -> (Side, Terms, Delay) {
    let kind = OrderKind::Market;
    let terms = Terms { kind, price: None, ..limit(0, 5, TimeInForce::FillOrKill) };
    let reserve = Reserve { cash: usd(2_500_001), shares: Shares::ZERO };
    (Side::Buy, terms, delayed_for(reserve))
}

fn sale() -> (Side, Terms, Delay) {
    let terms = Terms { post_only: false, ..limit(60, 3, TimeInForce::GoodTilCancelled) };
    (Side::Sell, terms, delayed_for(Reserve { cash: Usd::ZERO, shares: terms.quantity }))
}

pub(super) fn delay(
    state: &mut State,
    journal: &Journal,
    market: MarketIndex,
    (side, terms, delay): (Side, Terms, Delay),
) -> OrderDelayed {
    let number = state.head().orders_ever + 1;
    let delayed = OrderDelayed {
        placement: Placement {
            order: OrderId::new(shard(), number).unwrap(),
            account: account(),
            market,
            outcome: OutcomeIndex(0),
            side,
            fingerprint: Fingerprint::from_bytes([u8::try_from(number % 256).unwrap(); 16]),
            names: smallvec![NameHash::of_order(&format!("order {number}"))],
            client_order_id: number.is_multiple_of(2).then(|| format!("body {number}").into()),
        },
        terms,
        delay,
        at: at(40),
    };
    happen(state, journal, vec![Event::OrderDelayed(Box::new(delayed.clone()))]);
    delayed
}

/// Decides a delayed order. It takes this many shares for this many micro-dollars.
fn decide(
    state: &mut State,
    journal: &Journal,
    delayed: &OrderDelayed,
    (shares, dollars): (i64, i64),
) {
    let OrderDelayed { placement, terms, .. } = delayed.clone();
    let fill = part(state, placement.side, shares, dollars);
    let level = Level {
        price: Price::from_micros(if shares > 0 { dollars / shares } else { 0 }),
        size: fill.quantity,
    };
    let placed = OrderPlaced {
        placement,
        terms: Terms { delayed_ms: DELAY_MS + 1, ..terms },
        fill,
        levels: if shares > 0 { smallvec![level] } else { smallvec![] },
        book_sequence: 17,
        slippage_bps: Some(3),
        end: (terms.time_in_force == TimeInForce::FillAndKill && fill.quantity < terms.quantity)
            .then_some(EndReason::FakNotFilled),
    };
    happen(state, journal, vec![Event::OrderPlaced(Box::new(placed))]);
}

fn drop_order(state: &mut State, journal: &Journal, delayed: &OrderDelayed) {
    let order = delayed.placement.order;
    happen(state, journal, vec![Event::DelayedOrderDropped { order }]);
}

/// Resolves a market while an order in it is delayed.
fn end_with_market(state: &mut State, journal: &Journal, market: MarketIndex) {
    let condition_id: Arc<str> = SETTLED[market.0 as usize - 1].into();
    let outcomes = ["Ja", "Nein"].map(|it| (it.into(), format!("{condition_id} {it}").into()));
    let outcomes = outcomes.to_vec();
    let introduced = Event::MarketIntroduced { index: market, condition_id, outcomes };
    happen(state, journal, vec![introduced]);
    let delayed = delay(state, journal, market, buy_at_any_price());
    let payouts: Payouts = smallvec![Price::ONE, Price::ZERO];
    let closed =
        PositionsSettled { market, payouts: payouts.clone(), positions: vec![], at: at(70) };
    let (order, reason) = (delayed.placement.order, EndReason::Resolved);
    let ended = Event::OrderEnded { order, reason, at: at(70) };
    happen(state, journal, vec![Event::PositionsSettled(Box::new(closed)), ended]);
    happen(state, journal, vec![Event::MarketSettled { market, payouts, at: at(71) }]);
}

#[test]
fn orders_that_are_delayed_are_read() {
    check_read("held", &DELAYED_KINDS, "held");
}

#[test]
fn orders_that_are_delayed_written_today_read_the_same() {
    check_written("held", write_delayed, "held");
}

#[test]
fn fills_that_are_logged_from_the_first_delayed_order_on_are_read() {
    let kinds: Vec<_> = DELAYED_KINDS.into_iter().chain(["fill log begun"]).collect();
    check_read("held_logged", &kinds, "held_logged");
}

#[test]
fn fills_that_are_logged_written_today_read_the_same() {
    check_written("held_logged", write_logged, "held_logged");
}
