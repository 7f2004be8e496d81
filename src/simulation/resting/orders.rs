//! The requests of the traders with resting orders.
//!
//! A server keeps only an account's newest finished orders and their names. It must not forget an
//! order before the auditor has seen how the order ended. So a trader places few orders during a
//! process, and none while earlier ones are unanswered. Then all orders that finish during two
//! processes are kept until the second ends.

use super::venue::{RESTING_MARKETS, Venue};
use crate::disk::simulated::random::Random;
use crate::engine::State;
use crate::engine::command::{OrderNames, Owner, PlaceOrder};
use crate::engine::order::idempotency::NameHash;
use crate::engine::order::payload::{NamedTimeInForce, NewOrder};
use crate::engine::order::receipt::OrderRow;
use crate::ids::{OrderId, Timestamp};
use crate::market::book::Side;
use crate::money::{Price, Shares};
use crate::simulation::clients::{Clients, RESTERS, Request};

/// Maximum number of open orders of an account.
pub(in crate::simulation) const OPEN_ORDERS_MAX: u32 = 4;

/// The trader whose account is reset. The holdings of all other accounts follow from their orders
/// alone.
const RESETTER: usize = RESTERS.end - 1;

/// Maximum number of orders that a trader places during a process.
const PLACED_PER_LIFE_MAX: usize = 4;

/// An order that may rest. Retries send it unchanged, byte for byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::simulation) struct RestingOrder {
    pub(in crate::simulation) trader: usize,
    pub(in crate::simulation) market: usize,
    /// The order as sent.
    pub(in crate::simulation) order: NewOrder,
    /// The hashes of the order's one or two names.
    pub(in crate::simulation) names: Vec<NameHash>,
    pub(in crate::simulation) is_answered: bool,
    /// Whether the order was refused permanently.
    pub(in crate::simulation) is_refused: bool,
    /// Whether a start recovered the order before it was answered.
    is_found: bool,
}

impl RestingOrder {
    /// Returns the state's row for the order, if the state has it.
    pub(in crate::simulation) fn row_in(
        &self,
        state: &State,
        digest: &[u8; 32],
    ) -> Option<OrderRow> {
        let account = state.account_of(digest)?.id();
        let order = self.names.iter().find_map(|&name| state.order_named(account, name))?;
        state.order_row(order.id())
    }
}

/// A trader's recent orders.
#[derive(Default)]
pub(in crate::simulation) struct Rester {
    /// Orders that the server is certain to keep, with their numbers.
    known: Vec<(OrderId, usize)>,
    /// The newest order that an answer reported.
    newest: Option<OrderId>,
    placed_count: usize,
}

#[derive(Default)]
pub(in crate::simulation) struct RestingClients {
    pub(in crate::simulation) orders: Vec<RestingOrder>,
    resters: [Rester; RESTERS.end - RESTERS.start],
}

impl RestingClients {
    fn rester(&mut self, trader: usize) -> &mut Rester {
        &mut self.resters[trader - RESTERS.start]
    }

    /// Records that an answer reported the order.
    pub(in crate::simulation) fn placed(&mut self, order: OrderId, number: usize) {
        let sent = &mut self.orders[number];
        sent.is_answered = true;
        let rester = &mut self.resters[sent.trader - RESTERS.start];
        if rester.known.iter().all(|(known, _)| *known != order) {
            rester.known.push((order, number));
        }
        rester.newest = rester.newest.max(Some(order));
    }

    /// Returns the number of the order with one of these names.
    pub(in crate::simulation) fn number_of(&self, names: &[NameHash]) -> Option<usize> {
        self.orders.iter().position(|order| order.names.iter().any(|name| names.contains(name)))
    }

    pub(in crate::simulation) fn command(&self, number: usize, owner: Owner) -> PlaceOrder {
        let RestingOrder { order, names, .. } = &self.orders[number];
        let client_order_id = number.is_multiple_of(2).then(|| format!("rests {number}").into());
        PlaceOrder::new(owner, order.clone(), OrderNames::new(names.clone(), client_order_id))
    }
}

impl Clients {
    /// Prepares the traders for a process that starts with these states.
    pub(in crate::simulation) fn begin_life(&mut self, states: &[&State]) {
        for trader in RESTERS {
            let state = states[self.traders[trader].shard().index()];
            let digest = self.traders[trader].identity.digest;
            let resting = &mut self.resting;
            let rester = &mut resting.resters[trader - RESTERS.start];
            // Open orders are kept at least until they finish, and for a while after that.
            rester
                .known
                .retain(|(order, _)| state.order_row(*order).is_some_and(|row| row.is_open()));
            self.traders[trader].unanswered.retain(|&number| {
                let sent = &mut resting.orders[number];
                // A delayed order is not decided yet, and may be placed again.
                let row = sent.row_in(state, &digest);
                let is_found = row.is_some_and(|row| row.delay.is_none());
                // Give the order up: the server may forget it later, and would then place it a
                // second time.
                let is_given_up = is_found && std::mem::replace(&mut sent.is_found, is_found);
                sent.is_answered |= is_given_up;
                !is_given_up
            });
            // Each unanswered order may be placed now.
            rester.placed_count = self.traders[trader].unanswered.len();
        }
    }

    /// Returns the next request of a random trader with resting orders, if any is due.
    pub(in crate::simulation) fn next_resting(
        &mut self,
        venue: &Venue,
        now: Timestamp,
        random: &mut Random,
    ) -> Option<Request> {
        let trader = RESTERS.start + random.below(RESTERS.len());
        if random.one_in(2) {
            return self
                .resend(trader, random)
                .or_else(|| self.new_resting(trader, venue, now, random));
        }
        let account = self.traders[trader].account;
        let rester = self.resting.rester(trader);
        let count = rester.known.len();
        let chosen = (count > 0).then(|| rester.known[random.below(count)]);
        let newest = rester.newest;
        account?;
        match random.below(12) {
            0..3 => chosen.map(|(order, _)| Request::ReadResting { trader, order }),
            3..6 => {
                let (_, number) = chosen?;
                self.traders[trader].in_flight += 1;
                Some(Request::Place(number))
            }
            6..9 => chosen.map(|(order, _)| Request::Cancel { trader, order }),
            9 => Some(Request::CancelAll { trader, newest }),
            10 if random.one_in(3) => Some(Request::Beat { trader }),
            11 if trader == RESETTER && random.one_in(2) => Some(Request::Reset { trader, newest }),
            _ => None,
        }
    }

    fn new_resting(
        &mut self,
        trader: usize,
        venue: &Venue,
        now: Timestamp,
        random: &mut Random,
    ) -> Option<Request> {
        let rester = self.resting.rester(trader);
        if rester.placed_count == PLACED_PER_LIFE_MAX {
            return None;
        }
        rester.placed_count += 1;
        let number = self.resting.orders.len();
        let market = random.below(RESTING_MARKETS.len());
        let side = if random.one_in(3) { Side::Sell } else { Side::Buy };
        let offset = i64::try_from(random.below(9)).expect("a few cents") - 4;
        let cents = venue.middle(market) + offset;
        let quantity = 5_000_000 + i64::try_from(random.below(60_000_000)).expect("few shares");
        let (time_in_force, expiration) = match random.below(5) {
            0 => (Some(NamedTimeInForce::Fak), None),
            1 => {
                let nanos = 1 + i64::try_from(random.below(20_000)).expect("seconds") * 1_000_000;
                let at = Timestamp::from_nanos(now.nanos() + nanos);
                (Some(NamedTimeInForce::Gtd), Some(at))
            }
            _ => (None, None),
        };
        let market_id = RESTING_MARKETS[market];
        let quantity = Shares::from_micros(quantity);
        let price = Price::from_micros(cents * 10_000);
        let order = NewOrder {
            time_in_force,
            expiration,
            post_only: time_in_force.is_none() && random.one_in(5),
            ..NewOrder::limit(market_id, "Yes", side, quantity, price)
        };
        let mut names = vec![NameHash::of_order(&format!("rests {number}"))];
        if number.is_multiple_of(3) {
            names.push(NameHash::of_batch_entry(&format!("rests {number}"), 1));
        }
        self.resting.orders.push(RestingOrder {
            trader,
            market,
            order,
            names,
            is_answered: false,
            is_refused: false,
            is_found: false,
        });
        self.traders[trader].in_flight += 1;
        Some(Request::Place(number))
    }
}
