//! Matching: open orders fill at their limits when the venue's book crosses them.
//!
//! A visit examines, in price-time priority, the orders that a book reaches, and writes a bounded
//! record. Each account uses each displayed size once: an order may take what the account's earlier
//! fills left of a level, plus the growth of the level since.

use smallvec::SmallVec;

use crate::engine::account::Account;
use crate::engine::account::extension::{
    NotedLevel, Seen, UsedLevel, UsedLevels, free_size, note_used,
};
use crate::engine::account::ledger::Ledger;
use crate::engine::account::position::Position;
use crate::engine::command::MatchOrders;
use crate::engine::contradiction::Flaw;
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{Event, Events, RestingFilled};
use crate::engine::fills::fill::Fill;
use crate::engine::fills::log::LoggedFill;
use crate::engine::order::cancel::ended;
use crate::engine::order::cost::Cost;
use crate::engine::order::open::{BookSide, BookVersion, Priority};
use crate::engine::order::order_state::OrderState;
use crate::engine::order::placed::audit;
use crate::engine::order::receipt::Order;
use crate::engine::order::terms::{EndReason, Reserve};
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::engine::state::overlay::Overlay;
use crate::ids::{Lsn, MarketIndex, OrderId, OutcomeIndex, Timestamp};
use crate::market::book::Side;
use crate::market::catalogue::Fees;
use crate::market::quote::{Quote, QuotedBook, QuotedBooks};
use crate::money::{FeeRate, Shares, Usd};

/// The maximum number of events that one visit writes.
pub const EVENTS_PER_VISIT_MAX: usize = 64;

/// The maximum number of orders that one visit examines, whether or not they fill.
pub const ORDERS_PER_VISIT_MAX: usize = 1_024;

/// The number of used levels after which a visit ends. The visit's last fill may exceed this number
/// by all levels of one side, which still keeps the record below its maximum size.
pub const LEVELS_PER_VISIT: usize = 256;

/// The result of a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matched {
    /// The number of orders that filled, in part or completely.
    pub fill_count: usize,
    /// The cursor for the next visit; `None` if this visit reached the end.
    pub next: Option<Priority>,
}

/// The result of a visit, and the used levels that the shard keeps without journaling them.
#[derive(Clone, PartialEq, Debug)]
pub struct MatchedSubject {
    matched: Matched,
    used: Overlay<(u32, BookSide), UsedLevels>,
}

impl Command for MatchOrders {
    type Subject = MatchedSubject;
    type Answer = Matched;

    fn market_id(&self) -> Option<&str> {
        Some(&self.market_id)
    }

    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<MatchedSubject>, Rejection> {
        let mut visit = Visit::new(state, given.now);
        if let Some((market, quote)) = matchable(state, given.quote, &self.market_id) {
            for (outcome, book) in self.books(quote) {
                for side in [Side::Buy, Side::Sell] {
                    let on = BookSide { market, outcome, side };
                    visit.side(on, &book, quote.fees, self.after)?;
                }
            }
        }
        let matched = Matched { fill_count: visit.fill_count, next: visit.next };
        let subject = MatchedSubject { matched, used: visit.used };
        Ok(Verdict::of(visit.events, subject))
    }

    fn answer(_: &State, subject: MatchedSubject, _: bool) -> Matched {
        subject.matched
    }

    fn remember(state: &mut State, subject: &MatchedSubject) {
        for ((slot, on), used) in subject.used.iter() {
            state.accounts[*slot].remember_used(*on, used.clone());
        }
    }

    fn depends_on(&self, _: &State) -> Lsn {
        Lsn::START
    }
}

impl MatchOrders {
    /// Returns the fresh books to match, by outcome.
    fn books<'b>(&'b self, quote: &'b Quote<'_>) -> QuotedBooks<'b> {
        let mut books = match &self.book {
            Some((outcome, book)) => quote.books_with(*outcome, book),
            None => quote.all_books(),
        };
        books.retain(|(_, quoted)| !quoted.book.stale);
        books
    }
}

/// Returns the index and quote of the market if its orders may fill now.
fn matchable<'a, 'q>(
    state: &State,
    quote: Option<&'a Quote<'q>>,
    market_id: &str,
) -> Option<(MarketIndex, &'a Quote<'q>)> {
    let market = state.market_named(market_id)?;
    let quote = quote?;
    let is_open = quote.status.is_tradable()
        && quote.fees != Fees::Unsupported
        && !state.is_settled(market)
        && state.used_market(market).is_still(quote.outcomes);
    is_open.then_some((market, quote))
}

/// The decision of one visit: its events, and the accounts' money, positions and used levels after
/// those events.
struct Visit<'s> {
    state: &'s State,
    now: Timestamp,
    events: Events,
    fill_count: usize,
    looked_at: usize,
    next: Option<Priority>,
    /// The number of levels that the fills have used.
    level_count: usize,
    /// The changed ledgers, by account slot.
    ledgers: Overlay<u32, Ledger>,
    positions: Overlay<(u32, OutcomeIndex), Position>,
    used: Overlay<(u32, BookSide), UsedLevels>,
}

impl<'s> Visit<'s> {
    fn new(state: &'s State, now: Timestamp) -> Self {
        Self {
            state,
            now,
            events: Events::new(),
            fill_count: 0,
            looked_at: 0,
            next: None,
            level_count: 0,
            ledgers: Overlay::default(),
            positions: Overlay::default(),
            used: Overlay::default(),
        }
    }

    /// Matches the orders on one side of a book.
    fn side(
        &mut self,
        on: BookSide,
        book: &QuotedBook<'_>,
        fees: Fees,
        after: Option<Priority>,
    ) -> Result<(), Rejection> {
        if self.next.is_some() {
            return Ok(());
        }
        let open = &self.state.open;
        // Orders that were accepted while the book was stale come first, since they are treated
        // like new orders.
        for (priority, slot) in open.awaiting(on) {
            if self.is_full() {
                // Admitted orders no longer wait, so the next visit starts over.
                self.next = Some(Priority::before(on));
                return Ok(());
            }
            self.admit(priority, slot, book, fees)?;
        }
        let Some(touch) = book.liquidity.touch(on.side) else {
            return Ok(());
        };
        let mut seen = after.filter(|after| after.on() == on).unwrap_or(Priority::before(on));
        for (priority, slot) in open.on_side(on, after) {
            let is_reached = match on.side {
                Side::Buy => priority.limit() >= touch,
                Side::Sell => priority.limit() <= touch,
            };
            if !is_reached {
                break;
            }
            if self.is_full() {
                self.next = Some(seen);
                break;
            }
            let order_state = self.order_state(slot);
            let placed_on = self.state.orders.placed_on(slot);
            // A command to match an older book may arrive after the order was placed on a newer
            // one.
            let may_fill = placed_on.is_none_or(|it| it.is_before(BookVersion::of(book)));
            if may_fill && !order_state.awaits_book && !order_state.is_due(self.now) {
                self.fill(on, slot, &order_state, book)?;
            }
            self.looked_at += 1;
            seen = priority;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        // Admitting an order takes up to two events.
        self.events.len() + 2 > EVENTS_PER_VISIT_MAX
            || self.looked_at >= ORDERS_PER_VISIT_MAX
            || self.level_count >= LEVELS_PER_VISIT
    }

    fn order_state(&self, slot: u32) -> OrderState {
        self.state.orders.order_state(slot).expect("an open order has an order state")
    }

    /// Matches an order with its first fresh book as if it arrived now: at the book's prices, with
    /// the taker's fee.
    fn admit(
        &mut self,
        priority: Priority,
        slot: u32,
        book: &QuotedBook<'_>,
        fees: Fees,
    ) -> Result<(), Rejection> {
        self.looked_at += 1;
        let (on, order, order_state) =
            (priority.on(), &self.state.orders[slot], self.order_state(slot));
        let account = self.slot_of(order);
        let ledger = self.ledger(account);
        let held_back = order_state.reserve(on.side).cash;
        // The account's ledger without this order's reserve.
        let own = Ledger { reserved: ledger.reserved - held_back, ..ledger };
        if order_state.is_due(self.now) {
            self.end(order.id(), account, own, EndReason::GtdExpired);
            return Ok(());
        }
        let limit = Some(order_state.limit());
        let walk = book.liquidity.walk_within(on.side, order_state.remaining(), limit);
        if walk.fills.is_empty() {
            self.events.push(Event::OrderAdmitted { order: order.id() });
            return Ok(());
        }
        if order_state.terms.post_only {
            self.end(order.id(), account, own, EndReason::PostOnlyWouldCross);
            return Ok(());
        }
        let cost = Cost::of(on.side, &walk, fees);
        let quantity = order_state.remaining() - walk.shortfall;
        let rest = Reserve::of(on.side, order_state.limit(), walk.shortfall);
        if cost.charge_with_reserve(on.side, own, rest.cash).is_err() {
            self.end(order.id(), account, own, EndReason::InsufficientBalance);
            return Ok(());
        }
        let Some(booked) = self.booked((on, slot, account), quantity, &cost) else {
            return Ok(());
        };
        // Before the fill, since an order that waits for a book cannot fill.
        self.events.push(Event::OrderAdmitted { order: order.id() });
        let mut taken = SmallVec::new();
        if walk.shortfall > Shares::ZERO {
            let mut used = self.used(account, on);
            for level in &walk.fills {
                let level = UsedLevel::whole(level);
                if note_left(&mut used, book, on.side, level) {
                    taken.push(level);
                }
            }
            self.used.set((account, on), used);
        }
        self.push_fill((slot, account), book, booked, (quantity, cost, taken))
    }

    /// Ends an order. `ledger` is the account's ledger once the order has ended.
    fn end(&mut self, order: OrderId, account: u32, ledger: Ledger, reason: EndReason) {
        self.ledgers.set(account, ledger);
        self.events.push(ended(order, reason, self.now));
    }

    /// Fills an order at its limit, up to the size that it may take from the levels within that
    /// limit.
    fn fill(
        &mut self,
        on: BookSide,
        slot: u32,
        order_state: &OrderState,
        book: &QuotedBook<'_>,
    ) -> Result<(), Rejection> {
        let account = self.slot_of(&self.state.orders[slot]);
        let mut used = None;
        let mut taken_levels = SmallVec::new();
        let mut quantity = Shares::ZERO;
        for level in book.liquidity.within(on.side, Some(order_state.limit())) {
            let left = order_state.remaining() - quantity;
            if left == Shares::ZERO {
                break;
            }
            let used = used.get_or_insert_with(|| self.used(account, on));
            let grown = book.grown(on.side, level.price);
            let free = free_size(used, level.price, level.size, grown, book.era());
            let taken = free.min(left);
            if taken > Shares::ZERO {
                let level = UsedLevel { price: level.price, shown: level.size, left: free - taken };
                if note_left(used, book, on.side, level) {
                    taken_levels.push(level);
                }
                quantity += taken;
            }
        }
        let Some(used) = used.filter(|_| quantity > Shares::ZERO) else { return Ok(()) };
        let notional = order_state.part_notional(on.side, quantity);
        let cost = Cost { notional, fee: Usd::ZERO, fee_rate: FeeRate::ZERO };
        let Some(booked) = self.booked((on, slot, account), quantity, &cost) else {
            return Ok(());
        };
        self.used.set((account, on), used);
        self.push_fill((slot, account), book, booked, (quantity, cost, taken_levels))
    }

    /// Returns the account's ledger and position after a fill. `None` if a sum would exceed its
    /// range. The order then does not fill, but other orders still can.
    fn booked(
        &self,
        (on, slot, account): (BookSide, u32, u32),
        quantity: Shares,
        cost: &Cost,
    ) -> Option<(Ledger, Position)> {
        let order_state = self.order_state(slot);
        let ledger = self.ledger(account).after_fill(on.side, cost.notional, cost.fee)?;
        let [before, after] = [order_state.remaining(), order_state.remaining() - quantity]
            .map(|left| Reserve::of(on.side, order_state.limit(), left).cash);
        let ledger = Ledger { reserved: ledger.reserved - (before - after), ..ledger };
        let position = self.position(account, on).after_fill(on.side, quantity, cost.notional)?;
        Some((ledger, position))
    }

    /// Adds the event of a fill, and updates the pending ledger and position of its account.
    fn push_fill(
        &mut self,
        (slot, account): (u32, u32),
        book: &QuotedBook<'_>,
        (ledger, position): (Ledger, Position),
        (quantity, cost, used): (Shares, Cost, SmallVec<[UsedLevel; 1]>),
    ) -> Result<(), Rejection> {
        let order = &self.state.orders[slot];
        audit(ledger.cash(), &position)?;
        self.ledgers.set(account, ledger);
        self.positions.set((account, position.outcome), position);
        let displayed = book.liquidity.taken_by(order.side()).next();
        self.level_count += used.len();
        self.events.push(Event::RestingFilled(Box::new(RestingFilled {
            order: order.id(),
            fill: Fill::of(quantity, &cost, ledger.cash(), &position, self.now),
            displayed: displayed.expect("an order fills only if a level reaches it"),
            book_sequence: book.book.sequence,
            used,
        })));
        self.fill_count += 1;
        Ok(())
    }

    fn slot_of(&self, order: &Order) -> u32 {
        self.state.account_slot(order.account()).expect("every order has an account")
    }

    fn account(&self, slot: u32) -> &'s Account {
        &self.state.accounts[slot]
    }

    fn ledger(&self, account: u32) -> Ledger {
        self.ledgers.get(&account).copied().unwrap_or_else(|| self.account(account).ledger())
    }

    fn position(&self, account: u32, on: BookSide) -> Position {
        if let Some(position) = self.positions.get(&(account, on.outcome)) {
            return *position;
        }
        self.account(account).holding(on.market, on.outcome)
    }

    fn used(&self, account: u32, on: BookSide) -> UsedLevels {
        let known = self.used.get(&(account, on)).cloned();
        known.unwrap_or_else(|| UsedLevels::from_slice(self.account(account).used_levels(on)))
    }
}

/// Records what is left of a level of this book after a fill; see [`note_used`].
fn note_left(used: &mut UsedLevels, book: &QuotedBook<'_>, side: Side, level: UsedLevel) -> bool {
    let seen = Seen { grown: book.grown(side, level.price), era: book.era() };
    note_used(used, NotedLevel { level, seen: Some(seen) })
}

impl State {
    pub(in crate::engine) fn admit_order(
        &mut self,
        id: OrderId,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let flaw = |flaw| Flaw::order(id, flaw);
        let slot = self.resting_slot(id)?;
        let priority = self.priority_of(slot);
        self.touch_order(slot, position_in_log);
        let admitted = self.change_order_state(slot, |order_state| {
            if !std::mem::replace(&mut order_state.awaits_book, false) {
                return Err("does not wait for a book");
            }
            Ok(())
        });
        admitted.map_err(flaw)?;
        self.open.admit(priority);
        Ok(())
    }

    pub(in crate::engine) fn fill_resting(
        &mut self,
        filled: &RestingFilled,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let RestingFilled { order: id, fill, used, .. } = filled;
        let flaw = |flaw| Flaw::order(*id, flaw);
        let slot = self.resting_slot(*id)?;
        let (priority, side) = (self.priority_of(slot), self.orders[slot].side());
        let before = self.orders.order_state(slot).expect("an open order has an order state");
        if before.awaits_book {
            return Err(flaw("fills before it has met a fresh book"));
        }
        if self.is_settled(priority.on().market) {
            return Err(flaw("is in a settled market"));
        }
        if fill.quantity <= Shares::ZERO || fill.quantity > before.remaining() {
            return Err(flaw("fills more than remains, or nothing"));
        }
        if !(0..=fill.quantity.micros()).contains(&fill.notional.micros()) || fill.fee < Usd::ZERO {
            return Err(flaw("costs less than nothing or more than a dollar a share"));
        }
        if !used.iter().all(UsedLevel::is_possible) {
            return Err(flaw("uses what no level displays"));
        }
        let account = self.touch_order(slot, position_in_log);
        let after = self.change_order_state(slot, |order_state| {
            let Fill { quantity, notional, fee, at, .. } = *fill;
            let after = order_state.progress.after(quantity, notional, fee, at);
            order_state.progress = after.ok_or("has sums out of range")?;
            Ok(())
        });
        let after = after.map_err(flaw)?;
        let finishes = !after.is_open();
        self.accounts[account].release(priority.on(), before.reserve(side), after.reserve(side));
        self.fill_position(account, priority.on(), fill, finishes, position_in_log)
            .map_err(flaw)?;
        let noted = used.iter().copied().map(NotedLevel::unseen);
        self.accounts[account].note_used(priority.on(), noted);
        if finishes {
            self.close_order(account, slot, priority, &after);
        } else {
            self.hash += self.accounts[account].count_part();
        }
        let (on, part) = (priority.on(), after.progress.fill_count);
        self.log_fill(account, || LoggedFill::new(*id, part, on, *fill));
        Ok(())
    }
}
