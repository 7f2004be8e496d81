//! From the engine's terms to those of the naive matcher, and back.

use super::*;

/// What the events say, in order.
pub(super) fn facts(events: &Events) -> Vec<Fact> {
    let fill_of = |order: OrderId, fill: &paperbourse::engine::fills::fill::Fill| Fill {
        order: place(order),
        quantity: fill.quantity.micros().into(),
        notional: fill.notional.micros().into(),
        fee: fill.fee.micros().into(),
    };
    let fact = |event: &Event| {
        Some(match event {
            Event::OrderFilled(it) => {
                Fact::Placed(fill_of(it.placement.order, &it.fill), None, false)
            }
            Event::OrderPlaced(it) => Fact::Placed(
                fill_of(it.placement.order, &it.fill),
                it.end.map(paperbourse::engine::order::terms::EndReason::as_str),
                it.terms.awaited_book,
            ),
            Event::OrderDelayed(it) => {
                let Reserve { cash, shares } = it.delay.reserve;
                let order = place(it.placement.order);
                Fact::Delayed(order, cash.micros().into(), shares.micros().into())
            }
            Event::DelayedOrderDropped { order } => Fact::Dropped(place(*order)),
            Event::HeartbeatSet { account, interval_ms } => {
                let account = usize::try_from(account.counter() - 1).expect("a small counter");
                Fact::Heartbeat(account, interval_ms.map(i64::from))
            }
            Event::AccountReset(reset) => Fact::Reset {
                account: usize::try_from(reset.account.counter() - 1).expect("a small counter"),
                position_count: reset.position_count as usize,
                cost: reset.cost.micros().into(),
                granted: reset.granted.micros().into(),
            },
            Event::OrderAdmitted { order } => Fact::Admitted(place(*order)),
            Event::RestingFilled(it) => Fact::Filled(fill_of(it.order, &it.fill)),
            Event::FillUndone(it) => {
                let FillUndone { balance, position_shares, position_cost, realised, .. } = **it;
                let sums = [balance.micros(), position_shares.micros(), position_cost.micros()];
                let [cash, shares, cost] = sums.map(Micros::from);
                let left = [cash, shares, cost, realised.micros().into()];
                Fact::Undone(place(it.order), it.part as usize, left)
            }
            Event::OrderEnded { order, reason, .. } => Fact::Ended(place(*order), reason.as_str()),
            _ => return None,
        })
    };
    events.iter().filter_map(fact).collect()
}

pub(super) fn events_of<S>(
    verdict: Result<Verdict<S>, paperbourse::engine::rejection::Rejection>,
) -> Result<Events, &'static str> {
    match verdict {
        Ok(Verdict::Happens(events, _)) => Ok(events),
        Ok(Verdict::Already(_)) => Ok(Events::new()),
        Err(rejection) => Err(report::code(&rejection)),
    }
}

pub(super) fn placed_facts(verdict: Result<Verdict<PlacedSubject>, Rejection>) -> Vec<Fact> {
    match verdict {
        Ok(Verdict::Happens(events, _)) => facts(&events),
        Ok(Verdict::Already(subject)) => vec![Fact::Replayed(place(subject.order))],
        Err(rejection) => vec![Fact::Refused(report::code(&rejection))],
    }
}

pub(super) fn name_hashes(names: &[usize]) -> Vec<NameHash> {
    names.iter().map(|name| NameHash::of_order(&name.to_string())).collect()
}

pub(super) fn new_order(sent: &Sent) -> NewOrder {
    let (time_in_force, expiration) = match sent.tif {
        Tif::Gtc => (NamedTimeInForce::Gtc, None),
        Tif::Gtd(until) => (NamedTimeInForce::Gtd, Some(at(until))),
        Tif::Fok => (NamedTimeInForce::Fok, None),
        Tif::Fak => (NamedTimeInForce::Fak, None),
    };
    let quantity = Shares::from_micros(narrow(sent.quantity));
    NewOrder {
        market_id: market_id(sent.market).into(),
        outcome: LABELS[sent.outcome].into(),
        side: side(sent.is_buy),
        kind: if sent.is_limit { OrderKind::Limit } else { OrderKind::Market },
        quantity: sent.amount.is_none().then_some(quantity),
        amount: sent.amount.map(|amount| Usd::from_micros(narrow(amount))),
        price: sent.price.map(price),
        time_in_force: Some(time_in_force),
        expiration,
        post_only: sent.post_only,
        expected_price: sent.expected_price.map(price),
        max_slippage_bps: sent.max_slippage_bps,
    }
}

pub(super) const fn side(is_buy: bool) -> Side {
    if is_buy { Side::Buy } else { Side::Sell }
}

pub(super) fn subject(account: usize) -> String {
    format!("trader-{account}")
}

pub(super) fn account_id(world: &World, account: usize) -> AccountId {
    AccountId::new(world.state.shard(), account as u64 + 1).expect("a small counter")
}

pub(super) fn market_id(market: usize) -> String {
    format!("0x{market}")
}

pub(super) fn index(outcome: usize) -> OutcomeIndex {
    OutcomeIndex(u8::try_from(outcome).expect("few outcomes"))
}

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn price(micros: Micros) -> Price {
    Price::from_micros(narrow(micros))
}

pub(super) fn level(at: Micros, size: Micros) -> Level {
    Level { price: price(at), size: Shares::from_micros(narrow(size)) }
}

pub(super) fn narrow(micros: Micros) -> i64 {
    i64::try_from(micros).expect("small numbers")
}

pub(super) fn place(order: OrderId) -> usize {
    usize::try_from(order.counter() - 1).expect("counters start at 1")
}
