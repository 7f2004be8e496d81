//! Writes data with orders that rest.

use super::*;

/// Places orders that rest, fill in parts and end, before and after a snapshot.
pub(super) fn write_resting(data: &Path) {
    let Opened { journal, recovered, folder, .. } = open(data);
    let mut state = recovered.into_shards().swap_remove(usize::from(SHARD)).state;
    let journal = Arc::new(journal);
    happen(&mut state, &journal, opening());
    for half in 0..2 {
        let interval_ms = (half == 0).then_some(12_345);
        let beat = Event::HeartbeatSet { account: account(), interval_ms };
        happen(&mut state, &journal, vec![beat]);
        // Ten shares at 40 cents, of which four are bought at once for less.
        let buy = limit(40, 10, TimeInForce::GoodTilCancelled);
        let bought = place(&mut state, &journal, (Side::Buy, buy), (4, 1_560_000), None);
        fill_open(&mut state, &journal, bought, (2, 800_000));
        let until = TimeInForce::GoodTilDate(at(5_000));
        let sale = Terms { awaited_book: true, ..limit(60, 3, until) };
        let sold = place(&mut state, &journal, (Side::Sell, sale), (0, 0), None);
        happen(&mut state, &journal, vec![Event::OrderAdmitted { order: sold }]);
        fill_open(&mut state, &journal, sold, (1, 600_000));
        let market =
            Terms { kind: OrderKind::Market, price: None, ..limit(0, 5, TimeInForce::FillAndKill) };
        let part = (Side::Buy, market);
        place(&mut state, &journal, part, (1, 410_000), Some(EndReason::FakNotFilled));
        let (reason, at) =
            if half == 0 { (EndReason::GtdExpired, at(5_000)) } else { (EndReason::User, at(90)) };
        happen(&mut state, &journal, vec![Event::OrderEnded { order: sold, reason, at }]);
        if half == 1 {
            let first = OrderId::new(shard(), 1).unwrap();
            fill_open(&mut state, &journal, first, (4, 1_600_000));
        }
        while journal.segment() == Some(1) {
            let killed = limit(30, 7, TimeInForce::FillOrKill);
            let killed = (Side::Buy, killed);
            place(&mut state, &journal, killed, (0, 0), Some(EndReason::FokNotFilled));
        }
        if half == 0 {
            take_snapshot(&folder, &journal);
        }
    }
}

/// A limit order for this many shares.
pub(super) fn limit(cents: i64, shares: i64, time_in_force: TimeInForce) -> Terms {
    Terms {
        kind: OrderKind::Limit,
        time_in_force,
        post_only: time_in_force == TimeInForce::GoodTilCancelled,
        awaited_book: false,
        quantity: Shares::from_micros(shares * 1_000_000),
        price: Some(Price::from_micros(cents * 10_000)),
        delayed_ms: 0,
    }
}

/// Places an order in the first outcome of the first market. It takes this many shares for this
/// many micro-dollars at once.
pub(super) fn place(
    state: &mut State,
    journal: &Journal,
    (side, terms): (Side, Terms),
    (shares, dollars): (i64, i64),
    end: Option<EndReason>,
) -> OrderId {
    let number = state.head().orders_ever + 1;
    let order = OrderId::new(shard(), number).unwrap();
    let level = Level {
        price: Price::from_micros(if shares > 0 { dollars / shares } else { 0 }),
        size: Shares::from_micros(shares * 1_000_000),
    };
    let placed = OrderPlaced {
        placement: Placement {
            order,
            account: account(),
            market: MarketIndex(0),
            outcome: OutcomeIndex(0),
            side,
            fingerprint: Fingerprint::from_bytes([u8::try_from(number % 256).unwrap(); 16]),
            names: smallvec![NameHash::of_order(&format!("order {number}"))],
            client_order_id: number.is_multiple_of(2).then(|| format!("body {number}").into()),
        },
        terms,
        fill: part(state, side, shares, dollars),
        levels: if shares > 0 { smallvec![level] } else { smallvec![] },
        book_sequence: number * 7,
        slippage_bps: Some(3),
        end,
    };
    happen(state, journal, vec![Event::OrderPlaced(Box::new(placed))]);
    order
}

/// Fills this many shares of an open order for this many micro-dollars.
fn fill_open(state: &mut State, journal: &Journal, order: OrderId, sums: (i64, i64)) {
    fill_levels(state, journal, order, sums, smallvec![]);
}

/// Fills this many shares of an open order for this many micro-dollars, and says what it used of
/// which levels.
pub(super) fn fill_levels(
    state: &mut State,
    journal: &Journal,
    order: OrderId,
    (shares, dollars): (i64, i64),
    used: SmallVec<[UsedLevel; 1]>,
) {
    let side = state.order_row(order).unwrap().placement.side;
    let size = Shares::from_micros(shares * 1_000_000);
    let filled = RestingFilled {
        order,
        fill: part(state, side, shares, dollars),
        displayed: Level { price: Price::from_micros(390_000), size },
        book_sequence: 99,
        used,
    };
    happen(state, journal, vec![Event::RestingFilled(Box::new(filled))]);
}

/// A fill without a fee, and what the account has then.
pub(super) fn part(state: &State, side: Side, shares: i64, dollars: i64) -> Fill {
    let row = state.accounts().next().unwrap();
    let (market, outcome) = (MarketIndex(0), OutcomeIndex(0));
    let held = row.positions.iter().find(|it| it.market == market && it.outcome == outcome);
    let held = held.copied().unwrap_or(Position::empty(market, outcome));
    let (quantity, notional) = (Shares::from_micros(shares * 1_000_000), Usd::from_micros(dollars));
    let after = if shares > 0 { held.after_fill(side, quantity, notional).unwrap() } else { held };
    let ledger = row.ledger.after_fill(side, notional, Usd::ZERO).unwrap();
    Fill {
        quantity,
        notional,
        fee: Usd::ZERO,
        fee_rate: FeeRate::ZERO,
        balance: ledger.cash(),
        position_shares: after.shares,
        position_cost: after.cost,
        at: at(20 + i64::try_from(state.sequence()).unwrap()),
    }
}
