//! The auditor's books of resting orders, in plain integers. They hold what answers showed and what
//! starts recovered, and neither may change later.

use std::collections::{BTreeMap, BTreeSet};

use super::orders::{OPEN_ORDERS_MAX, RestingClients, RestingOrder};
use super::venue::{RESTING_MARKETS, Venue, resting_payout_micros};
use crate::engine::State;
use crate::engine::account::Account;
use crate::engine::account::ledger::Resets;
use crate::engine::admin::reset::Reset;
use crate::engine::order::cancel::{Cancelled, CancelledOrders};
use crate::engine::order::order_state::{End, OrderState};
use crate::engine::order::receipt::OrderReceipt;
use crate::engine::order::terms::{EndReason, OrderStatus, Reserve};
use crate::ids::{AccountId, OrderId};
use crate::market::book::Side;
use crate::money::{Price, Shares, Usd};
use crate::simulation::clients::{Clients, KEPT_ORDERS_MAX, RESTERS, START_MICROS};
use crate::simulation::totals::Totals;

/// An order, as far as the answers have shown it.
struct Known {
    number: usize,
    /// The newest receipt shown for the order.
    receipt: OrderReceipt,
}

/// The auditor's record of one trader.
#[derive(Default)]
struct Book {
    account: Option<AccountId>,
    orders: BTreeMap<OrderId, Known>,
    id_of: BTreeMap<usize, OrderId>,
    /// The orders whose end is already counted in the totals.
    counted: BTreeSet<OrderId>,
    /// Orders that an answer reported as ended, with their final status.
    ended: BTreeMap<OrderId, OrderStatus>,
    /// Orders that the trader asked to cancel.
    cancels: BTreeSet<OrderId>,
    /// Whether the trader ever asked to cancel all orders.
    has_cancelled_all: bool,
    /// Whether the trader ever sent a heartbeat.
    has_beaten: bool,
    /// Number of resets that the trader requested, and number of resets that an answer confirmed.
    resets_asked: u32,
    resets_seen: u32,
    /// Every order up to this one, even if it was delayed, had ended by the time of a reset.
    reset_up_to: Option<OrderId>,
    /// Every order up to this one has ended.
    ended_up_to: Option<OrderId>,
}

#[derive(Default)]
pub(in crate::simulation) struct RestingBooks {
    books: [Book; RESTERS.end - RESTERS.start],
}

impl RestingBooks {
    fn book(&mut self, trader: usize) -> &mut Book {
        &mut self.books[trader - RESTERS.start]
    }

    pub(in crate::simulation) fn asked_to_cancel(&mut self, trader: usize, order: OrderId) {
        self.book(trader).cancels.insert(order);
    }

    pub(in crate::simulation) fn asked_to_cancel_all(&mut self, trader: usize) {
        self.book(trader).has_cancelled_all = true;
    }

    pub(in crate::simulation) fn asked_to_beat(&mut self, trader: usize) {
        self.book(trader).has_beaten = true;
    }

    pub(in crate::simulation) fn asked_to_reset(&mut self, trader: usize) {
        self.book(trader).resets_asked += 1;
    }

    /// Records that an answer reported a reset of the account, or that there was nothing to reset.
    pub(in crate::simulation) fn saw_reset(
        &mut self,
        trader: usize,
        newest: Option<OrderId>,
        reset: &Reset,
        is_write: bool,
    ) -> Result<(), String> {
        let book = self.book(trader);
        let is_whole = reset.balance.map(Usd::micros) == Some(START_MICROS);
        let is_empty = reset.order_count == 0 && reset.position_count == 0;
        ensure!(is_whole && (is_write || is_empty), "a reset was answered {reset:?}");
        book.resets_seen += u32::from(is_write);
        book.reset_up_to = book.reset_up_to.max(newest);
        Ok(())
    }

    /// Records an order that an answer showed, for the first time or again.
    pub(in crate::simulation) fn saw(
        &mut self,
        number: usize,
        receipt: &OrderReceipt,
        resting: &RestingClients,
        venue: &Venue,
    ) -> Result<(), String> {
        let sent = &resting.orders[number];
        self.book(sent.trader).note(number, receipt, sent, venue).map(|_| ())
    }

    /// Records that an order was refused. Returns whether it had been known as delayed.
    pub(in crate::simulation) fn saw_refused(
        &mut self,
        trader: usize,
        number: usize,
    ) -> Result<bool, String> {
        self.book(trader).forget_delayed(number)
    }

    /// Records an order returned by a read.
    pub(in crate::simulation) fn saw_reread(
        &mut self,
        trader: usize,
        receipt: &OrderReceipt,
        resting: &RestingClients,
        venue: &Venue,
    ) -> Result<(), String> {
        let known = self.book(trader).orders.get(&receipt.order);
        let number = known.ok_or_else(|| format!("{receipt:?} is unknown"))?.number;
        self.saw(number, receipt, resting, venue)
    }

    pub(in crate::simulation) fn saw_cancelled(
        &mut self,
        trader: usize,
        cancelled: &Cancelled,
        resting: &RestingClients,
        venue: &Venue,
    ) -> Result<(), String> {
        let Cancelled { receipt, released } = cancelled;
        self.saw_reread(trader, receipt, resting, venue)?;
        let order_state = order_state(receipt)?;
        let before = OrderState { end: None, ..*order_state };
        ensure!(
            order_state.end.is_some_and(|end| end.reason == EndReason::User)
                && (released.cash.micros(), released.shares.micros())
                    == held_back(receipt.side, &before),
            "a cancel was answered {cancelled:?}"
        );
        let again = self.book(trader).ended.insert(receipt.order, OrderStatus::Cancelled);
        ensure!(again.is_none(), "order {} was cancelled after it had ended", receipt.order);
        Ok(())
    }

    /// Records that all open orders up to `newest` were cancelled.
    pub(in crate::simulation) fn saw_all_cancelled(
        &mut self,
        trader: usize,
        newest: Option<OrderId>,
        cancelled: &CancelledOrders,
    ) -> Result<(), String> {
        let book = self.book(trader);
        ensure!(!cancelled.has_more, "a few orders took several records to cancel");
        for &order in &cancelled.orders {
            let again = book.ended.insert(order, OrderStatus::Cancelled);
            ensure!(again.is_none(), "order {order} was cancelled after it had ended");
        }
        book.ended_up_to = book.ended_up_to.max(newest);
        Ok(())
    }

    /// Records that a cancel found the order already ended.
    pub(in crate::simulation) fn saw_ended(
        &mut self,
        trader: usize,
        order: OrderId,
        status: OrderStatus,
    ) -> Result<(), String> {
        ensure!(status != OrderStatus::Pending, "an open order cannot be cancelled");
        let before = self.book(trader).ended.insert(order, status);
        ensure!(
            before.is_none_or(|before| before == status),
            "order {order} ended as {before:?} and as {status:?}"
        );
        Ok(())
    }

    /// Checks the states that a start recovered: every order ever shown must be present, in the
    /// state shown or a later one, and every account must equal the sum of its orders. Returns the
    /// number of orders compared.
    pub(in crate::simulation) fn recovered(
        &mut self,
        states: &[&State],
        clients: &Clients,
        venue: &Venue,
        totals: &mut Totals,
    ) -> Result<u64, String> {
        let mut compared = 0;
        for (trader, book) in RESTERS.zip(&mut self.books) {
            let state = states[clients.traders[trader].shard().index()];
            let checked = book.recovered(trader, state, clients, venue, totals);
            compared += checked.map_err(|error| format!("trader {trader}: {error}"))?;
        }
        Ok(compared)
    }
}

impl Book {
    /// Checks a receipt against the known one, and keeps the newer of the two. Returns whether the
    /// given receipt is at least as new.
    fn note(
        &mut self,
        number: usize,
        receipt: &OrderReceipt,
        sent: &RestingOrder,
        venue: &Venue,
    ) -> Result<bool, String> {
        let order = receipt.order;
        ensure!(!sent.is_refused, "order {number} was refused, and is {receipt:?}");
        let account = *self.account.get_or_insert(receipt.account);
        ensure!(receipt.account == account, "{receipt:?} is of another account");
        self.check_alone(receipt, sent, venue)?;
        if self.id_of.get(&number).is_some_and(|&before| before < order) {
            // The order was delayed, dropped, and sent again.
            self.forget_delayed(number)?;
        }
        let id = *self.id_of.entry(number).or_insert(order);
        ensure!(id == order, "order {number} is {id} and {order}");
        let Some(known) = self.orders.get_mut(&order) else {
            self.orders.insert(order, Known { number, receipt: receipt.clone() });
            return Ok(true);
        };
        ensure!(known.number == number, "order {order} is {} and {number}", known.number);
        if known.receipt.is_delayed() && !receipt.is_delayed() {
            known.receipt = receipt.clone();
            return Ok(true);
        }
        let is_newer = age(receipt) >= age(&known.receipt);
        let (older, newer) =
            if is_newer { (&known.receipt, receipt) } else { (receipt, &known.receipt) };
        ensure!(continues(older, newer)?, "order {order} was {older:?} and is {newer:?}");
        if is_newer {
            known.receipt = receipt.clone();
        }
        Ok(is_newer)
    }

    /// Forgets the order with this number, which was delayed and has been dropped. Returns whether
    /// it was known.
    fn forget_delayed(&mut self, number: usize) -> Result<bool, String> {
        let Some(order) = self.id_of.remove(&number) else { return Ok(false) };
        let known = self.orders.remove(&order).expect("both know the order");
        ensure!(
            known.receipt.is_delayed(),
            "order {number} is gone, last seen as {:?}",
            known.receipt
        );
        Ok(true)
    }

    /// Checks a receipt on its own, apart from earlier ones.
    fn check_alone(
        &self,
        receipt: &OrderReceipt,
        sent: &RestingOrder,
        venue: &Venue,
    ) -> Result<(), String> {
        let order_state = order_state(receipt)?;
        let OrderState { terms, progress, end, .. } = order_state;
        let asked = &sent.order;
        ensure!(
            *receipt.market_id == *asked.market_id
                && receipt.side == asked.side
                && Some(terms.quantity) == asked.quantity
                && terms.price == asked.price
                && terms.time_in_force.expires_at() == asked.expiration,
            "{asked:?} became {receipt:?}"
        );
        let filled = progress.filled.micros();
        let is_late = |at| progress.fill_count > 0 && progress.filled_at >= at;
        ensure!(!terms.time_in_force.expires_at().is_some_and(is_late), "filled late: {receipt:?}");
        if !terms.awaited_book {
            // A resting order fills at its own limit and without a fee, except for the part taken
            // at placement. The parts add up to the whole, to the micro-dollar.
            let rested = terms.quantity.micros() - receipt.fill.quantity.micros();
            let left = terms.quantity.micros() - filled;
            let [rested, left] = [rested, left].map(|it| at_limit(receipt.side, order_state, it));
            ensure!(
                progress.notional.micros() == receipt.fill.notional.micros() + rested - left
                    && progress.fee == receipt.fill.fee,
                "filled beside its limit: {receipt:?}"
            );
        }
        // The part taken at placement was rounded separately.
        let sign = if receipt.side == Side::Buy { 1 } else { -1 };
        let beyond =
            sign * (progress.notional.micros() - at_limit(receipt.side, order_state, filled));
        ensure!(beyond <= 1, "beyond its limit: {receipt:?}");
        let order = receipt.order;
        let is_allowed = match end.map(|end| end.reason) {
            None => true,
            Some(EndReason::User) => self.has_cancelled_all || self.cancels.contains(&order),
            Some(EndReason::Heartbeat) => self.has_beaten,
            Some(EndReason::Reset) => self.resets_asked > 0,
            Some(EndReason::GtdExpired) => {
                let expires_at = terms.time_in_force.expires_at();
                expires_at.is_some_and(|at| end.is_some_and(|end| end.at >= at))
            }
            Some(EndReason::FakNotFilled) => !terms.time_in_force.may_rest(),
            Some(EndReason::PostOnlyWouldCross | EndReason::InsufficientBalance) => {
                terms.awaited_book
            }
            Some(EndReason::Resolved) => venue.is_resolved(sent.market),
            Some(_) => false,
        };
        ensure!(is_allowed, "ended without a reason: {receipt:?}");
        let ended_as = self.ended.get(&order);
        if let (Some(status), false) = (ended_as, order_state.is_open()) {
            ensure!(order_state.status() == *status, "ended as {status:?}: {receipt:?}");
        }
        Ok(())
    }

    fn recovered(
        &mut self,
        trader: usize,
        state: &State,
        clients: &Clients,
        venue: &Venue,
        totals: &mut Totals,
    ) -> Result<u64, String> {
        let Some(account) = state.account_of(&clients.traders[trader].identity.digest) else {
            ensure!(self.orders.is_empty() && self.ended.is_empty(), "the account is lost");
            return Ok(0);
        };
        let finished = state.orders_of(account.id());
        let open = state.open_orders().filter(|row| row.placement.account == account.id());
        let rows: Vec<_> = finished.chain(open).collect();
        let fills_before = self.fill_count();
        for row in &rows {
            let order = row.placement.order;
            let number = clients.resting.number_of(&row.placement.names);
            let number = number.ok_or_else(|| format!("order {order} was never sent: {row:?}"))?;
            let receipt = state.receipt(state.order(order).expect("its row was just read"));
            let sent = &clients.resting.orders[number];
            totals.found_unanswered += u64::from(!self.orders.contains_key(&order));
            let is_as_new = self.note(number, &receipt, sent, venue)?;
            ensure!(is_as_new, "order {order} has lost what was shown of it: {receipt:?}");
            // Cancelling all orders leaves delayed orders open.
            let was_delayed = receipt
                .order_state
                .as_ref()
                .is_some_and(|order_state| order_state.terms.delayed_ms > 0);
            let ended_up_to = self.ended_up_to.filter(|_| !was_delayed && !receipt.is_delayed());
            let must_have_ended = self.ended.contains_key(&order)
                || ended_up_to.is_some_and(|newest| order <= newest)
                || self.reset_up_to.is_some_and(|newest| order <= newest);
            ensure!(!(row.is_open() && must_have_ended), "order {order} is open again");
        }
        totals.found_delayed += rows.iter().filter(|row| row.delay.is_some()).count() as u64;
        let found: BTreeSet<OrderId> = rows.iter().map(|row| row.placement.order).collect();
        let delayed = self.orders.iter().filter(|(_, known)| known.receipt.is_delayed());
        let dropped: Vec<usize> = delayed
            .filter(|(order, _)| !found.contains(order))
            .map(|(_, known)| known.number)
            .collect();
        for number in dropped {
            totals.dropped += u64::from(self.forget_delayed(number)?);
        }
        for (order, known) in self.orders.iter().filter(|(order, _)| !found.contains(order)) {
            let has_ended = !order_state(&known.receipt)?.is_open();
            ensure!(has_ended, "order {order} is lost, last seen as {:?}", known.receipt);
        }
        totals.forgotten |= u64::from(found.len() < self.orders.len());
        let kept = rows.iter().filter(|row| !row.is_open()).count();
        ensure!(
            kept == self.orders.len() - (rows.len() - kept) || kept >= KEPT_ORDERS_MAX as usize - 1,
            "only {kept} finished orders are kept"
        );
        ensure!(rows.len() - kept <= OPEN_ORDERS_MAX as usize, "too many orders are open");
        totals.filled_later += self.fill_count() - fills_before;
        self.count_ends(totals)?;
        let delays = rows.iter().filter_map(|row| Some((row.placement.order, row.delay?.reserve)));
        self.check_sums(account, state, &delays.collect())?;
        Ok(rows.len() as u64)
    }

    /// Adds the ends that are not yet counted to the totals.
    fn count_ends(&mut self, totals: &mut Totals) -> Result<(), String> {
        for (order, known) in &self.orders {
            let order_state = order_state(&known.receipt)?;
            if order_state.is_open() || !self.counted.insert(*order) {
                continue;
            }
            match order_state.end.map(|end| end.reason) {
                Some(EndReason::GtdExpired) => totals.expired += 1,
                Some(EndReason::Heartbeat) => totals.silent += 1,
                Some(EndReason::Reset) => totals.ended_by_reset += 1,
                Some(EndReason::Resolved) => totals.ended_with_market += 1,
                Some(EndReason::PostOnlyWouldCross) => totals.crossed_fresh_book += 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the number of fills after placement.
    fn fill_count(&self) -> u64 {
        let fills = self.orders.values().map(|known| {
            let count = known
                .receipt
                .order_state
                .as_ref()
                .map_or(0, |order_state| order_state.progress.fill_count);
            u64::from(count) - u64::from(known.receipt.fill.quantity.micros() > 0)
        });
        fills.sum()
    }

    /// Checks the number of resets and the balance they restored. Returns the account's resets.
    fn check_resets(&self, account: &Account) -> Result<Option<Resets>, String> {
        let resets = account.resets();
        let count = resets.map_or(0, |resets| resets.count);
        ensure!(
            (self.resets_seen..=self.resets_asked).contains(&count),
            "the account was reset {count} times, not {} of {} times",
            self.resets_seen,
            self.resets_asked
        );
        let is_from_start = account.baseline().micros() == START_MICROS;
        ensure!(is_from_start, "the account was reset to {}", account.baseline());
        Ok(resets)
    }

    /// Checks that the account equals the sum of its orders. All orders are known here: those that
    /// the server has forgotten are counted in their final state.
    fn check_sums(
        &self,
        account: &Account,
        state: &State,
        delays: &BTreeMap<OrderId, Reserve>,
    ) -> Result<(), String> {
        let (mut purchases, mut sales, mut fees, mut reserved) = (0, 0, 0, 0);
        let (mut finished, mut fills) = (0, 0);
        let mut net = [0; RESTING_MARKETS.len()];
        let mut for_sale = [0; RESTING_MARKETS.len()];
        let mut is_open = [false; RESTING_MARKETS.len()];
        for (order, known) in &self.orders {
            let order_state = order_state(&known.receipt)?;
            let market = market_index(&known.receipt.market_id);
            let (notional, filled) =
                (order_state.progress.notional.micros(), order_state.progress.filled.micros());
            let is_buy = known.receipt.side == Side::Buy;
            *(if is_buy { &mut purchases } else { &mut sales }) += notional;
            net[market] += if is_buy { filled } else { -filled };
            fees += order_state.progress.fee.micros();
            let (mut cash, shares) = held_back(known.receipt.side, order_state);
            if let Some(delay) = delays.get(order) {
                let fee = delay.cash.micros() - cash;
                let fee_max = if is_buy { fee_max(order_state.terms.quantity) } else { 0 };
                ensure!(
                    (0..=fee_max).contains(&fee) && delay.shares.micros() == shares,
                    "delayed with {delay:?}: {:?}",
                    known.receipt
                );
                cash += fee;
            }
            (reserved, for_sale[market]) = (reserved + cash, for_sale[market] + shares);
            is_open[market] |= order_state.is_open();
            finished += u64::from(!order_state.is_open());
            fills += u64::from(order_state.progress.fill_count);
        }
        let resets = self.check_resets(account)?;
        let (mut payouts, mut paid) = (0, [None; RESTING_MARKETS.len()]);
        for (_, number, row) in state.settlements().filter(|(id, ..)| *id == account.id()) {
            let position = &account.positions()[number as usize];
            let market = market_index(&state.used_market(position.market).condition_id);
            payouts += row.payout.micros();
            paid[market] = Some((row.shares.micros(), row.payout.micros()));
        }
        for (market, paid) in paid.iter().enumerate() {
            let Some(paid) = *paid else { continue };
            // An earlier reset may have closed part of the position.
            let shares = if resets.is_some() { paid.0.min(net[market]) } else { net[market] };
            let owed = shares * resting_payout_micros(market) / 1_000_000;
            ensure!(paid == (shares, owed), "paid {paid:?} for {} shares", net[market]);
            ensure!(!is_open[market], "paid while orders are open in market {market}");
            net[market] = 0;
        }
        for (market, settled) in state.settled_markets() {
            let id = &state.used_market(market).condition_id;
            let Some(index) = RESTING_MARKETS.iter().position(|market| **market == **id) else {
                continue;
            };
            ensure!(!(settled.is_paid && is_open[index]), "orders are open in settled {id}");
        }
        let ledger = account.ledger();
        // The amount granted by a reset makes up for everything before it.
        let granted = if resets.is_some() { ledger.granted.micros() } else { START_MICROS };
        let found = [
            ledger.granted,
            ledger.purchases,
            ledger.sales,
            ledger.fees,
            ledger.payouts,
            ledger.reserved,
        ];
        let found = found.map(Usd::micros);
        let expected = [granted, purchases, sales, fees, payouts, reserved];
        ensure!(found == expected, "the account has {found:?}, its orders add up to {expected:?}");
        let cash = granted + sales + payouts - purchases - fees;
        ensure!(
            ledger.cash().micros() == cash && ledger.available().micros() == cash - reserved,
            "{cash} less {reserved} became {ledger:?}"
        );
        let mut held = [0; RESTING_MARKETS.len()];
        for position in account.positions() {
            let id = &state.used_market(position.market).condition_id;
            held[market_index(id)] += position.shares.micros();
        }
        let is_accounted = |held: i64, net: i64| held == net || resets.is_some() && held < net;
        let is_accounted = held.iter().zip(net).all(|(&held, net)| is_accounted(held, net));
        ensure!(is_accounted, "the account holds {held:?}, its orders add up to {net:?}");
        let is_covered = held.iter().zip(for_sale).all(|(&held, for_sale)| held >= for_sale);
        ensure!(is_covered, "the account holds {held:?} and offers {for_sale:?}");
        ensure!(
            (account.order_count_ever(), account.fill_count_ever()) == (finished, fills),
            "the account counts {} orders and {} fills, not {finished} and {fills}",
            account.order_count_ever(),
            account.fill_count_ever()
        );
        Ok(())
    }
}

fn order_state(receipt: &OrderReceipt) -> Result<&OrderState, String> {
    receipt
        .order_state
        .as_deref()
        .ok_or_else(|| format!("a limit order has no order state: {receipt:?}"))
}

/// Returns a sort key for the receipts of one order, from oldest to newest.
fn age(receipt: &OrderReceipt) -> (u32, bool, bool) {
    receipt.order_state.as_ref().map_or((0, false, false), |order_state| {
        (order_state.progress.fill_count, order_state.end.is_some(), !order_state.awaits_book)
    })
}

/// Whether `newer` may be a later receipt of the order in `older`. The state at placement never
/// changes, so every replay repeats the first answer.
fn continues(older: &OrderReceipt, newer: &OrderReceipt) -> Result<bool, String> {
    let (before, after) = (*order_state(older)?, *order_state(newer)?);
    let at_first = |receipt: &OrderReceipt| OrderReceipt { order_state: None, ..receipt.clone() };
    let is_at_placement = |end: Option<End>| end.filter(|end| end.reason.is_at_placement());
    let has_grown = if before.progress.fill_count == after.progress.fill_count {
        before.progress == after.progress
    } else {
        before.progress.filled < after.progress.filled
            && before.progress.notional <= after.progress.notional
            && before.progress.fee <= after.progress.fee
            && before.end.is_none()
    };
    Ok(at_first(older) == at_first(newer)
        && before.terms == after.terms
        && is_at_placement(before.end) == is_at_placement(after.end)
        && (before.end.is_none() || before.end == after.end)
        && (before.awaits_book || !after.awaits_book)
        && has_grown)
}

/// Returns an upper bound of the fee for this many shares in any of the markets, in micro-dollars.
const fn fee_max(quantity: Shares) -> i64 {
    quantity.micros() / 50 + 100
}

/// Returns the micro-dollars and micro-shares that an order reserves, not counting the fee that a
/// delayed order also reserves.
fn held_back(side: Side, order_state: &OrderState) -> (i64, i64) {
    if !order_state.is_open() {
        return (0, 0);
    }
    let left = order_state.terms.quantity.micros() - order_state.progress.filled.micros();
    match side {
        Side::Buy => (at_limit(side, order_state, left), 0),
        Side::Sell => (0, left),
    }
}

/// Returns the cost or the proceeds of this many micro-shares at the limit, in micro-dollars,
/// rounded in the venue's favour.
fn at_limit(side: Side, order_state: &OrderState, micro_shares: i64) -> i64 {
    let price = order_state.terms.price.map_or(0, Price::micros);
    let picos = i128::from(price) * i128::from(micro_shares);
    let micros = if side == Side::Buy { (picos + 999_999) / 1_000_000 } else { picos / 1_000_000 };
    i64::try_from(micros).expect("less than the largest amount")
}

fn market_index(id: &str) -> usize {
    RESTING_MARKETS.iter().position(|market| *market == id).expect("one of the traded markets")
}
