//! Orders whose answer did not come.

use std::collections::VecDeque;

use serde::Serialize;

use super::found::Found;
use super::{Example, Mistake};
use crate::trouble::{Act, ActKind, Kind, Met, OrderAct};

/// For how long an order without an answer is watched, in milliseconds.
const WATCHED_MS: u64 = 60_000;

/// Maximum number of orders of a wallet that are watched at a time.
const ORDERS_MAX: usize = 256;

/// What was done about orders whose answer did not come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Unanswered {
    /// Their number.
    pub count: u64,
    /// How many were sent again.
    pub repeated: u64,
    /// How many were followed by a request for orders or trades.
    pub looked_for: u64,
    /// How many were followed by a cancellation.
    pub cancelled: u64,
    /// How many were placed while a user socket was open.
    pub on_socket: u64,
}

/// The orders of a wallet whose answer did not come, and about which nothing was done yet.
#[derive(Debug, Default)]
pub(super) struct UnansweredOrders {
    orders: VecDeque<Watched>,
    /// The orders of the present millisecond. The line about a lost answer follows that of its
    /// order and has the same time.
    present: Vec<(u64, OrderAct)>,
    open_socket_count: u32,
    pub(super) done: Unanswered,
    pub(super) unjudged_count: u64,
}

#[derive(Debug)]
struct Watched {
    at_ms: u64,
    until_ms: u64,
    order: OrderAct,
    /// Whether an answer never came, rather than late.
    is_missing: bool,
}

impl UnansweredOrders {
    pub(super) fn act(&mut self, act: &Act, found: &mut Found) {
        self.expire(act.at_ms, found);
        match (&act.order, act.act) {
            (Some(order), _) => self.placed(act, order, found),
            (None, ActKind::Look) if succeeded(act) => self.done.looked_for += self.drop_all(),
            (None, ActKind::Cancel) if succeeded(act) => self.done.cancelled += self.drop_all(),
            (None, ActKind::UserSocket) => self.open_socket_count += 1,
            (None, ActKind::UserSocketEnd) => {
                self.open_socket_count = self.open_socket_count.saturating_sub(1);
            }
            _ => {}
        }
    }

    fn placed(&mut self, act: &Act, order: &OrderAct, found: &mut Found) {
        if let Some(at) = self.orders.iter().position(|it| it.order.salt == order.salt) {
            self.orders.remove(at);
            self.done.repeated += 1;
        } else if order.id.is_some()
            && let Some(at) = self.orders.iter().position(|it| it.is_doubled_by(act.at_ms, order))
        {
            self.orders.remove(at);
            found.add(Mistake::Doubled, || Example::of_order(act.at_ms, order));
        }
        if act.status == 0 {
            self.watch(act.at_ms, WATCHED_MS, order.clone(), true);
            return;
        }
        self.present.retain(|(at_ms, _)| *at_ms == act.at_ms);
        if self.present.len() < ORDERS_MAX {
            self.present.push((act.at_ms, order.clone()));
        }
    }

    pub(super) fn met(&mut self, met: &Met, found: &mut Found) {
        self.expire(met.at_ms, found);
        let (is_missing, length_ms) = match met.trouble {
            Kind::Lost => (true, WATCHED_MS),
            // Once the answer has come, another order with the same terms may be meant.
            Kind::Late => (false, WATCHED_MS.min(met.length_ms.into())),
            _ => return,
        };
        for id in &met.orders {
            let known = self
                .present
                .iter()
                .position(|(at_ms, order)| *at_ms == met.at_ms && order.id.as_ref() == Some(id));
            if let Some(at) = known {
                let (_, order) = self.present.swap_remove(at);
                self.watch(met.at_ms, length_ms, order, is_missing);
            }
        }
    }

    /// Judges the orders that are still watched at the end of the record.
    pub(super) fn end(&mut self, found: &mut Found) {
        self.expire(u64::MAX, found);
    }

    fn watch(&mut self, at_ms: u64, length_ms: u64, order: OrderAct, is_missing: bool) {
        self.done.count += 1;
        // Frames of the socket tell what becomes of the order.
        if self.open_socket_count > 0 {
            self.done.on_socket += 1;
            return;
        }
        if self.orders.len() == ORDERS_MAX {
            self.orders.pop_front();
            self.unjudged_count += 1;
        }
        let until_ms = at_ms.saturating_add(length_ms);
        self.orders.push_back(Watched { at_ms, until_ms, order, is_missing });
    }

    fn expire(&mut self, now_ms: u64, found: &mut Found) {
        self.orders.retain(|watched| {
            let is_over = watched.until_ms < now_ms;
            if is_over && watched.is_missing {
                let example = || Example::of_order(watched.at_ms, &watched.order);
                found.add(Mistake::NeverLookedFor, example);
            }
            !is_over
        });
    }

    fn drop_all(&mut self) -> u64 {
        self.orders.drain(..).count() as u64
    }
}

impl Watched {
    /// Whether another order does the same once more. The first one has to have been taken.
    fn is_doubled_by(&self, at_ms: u64, other: &OrderAct) -> bool {
        self.at_ms < at_ms && self.order.id.is_some() && has_same_terms(&self.order, other)
    }
}

/// Whether two orders buy or sell the same.
pub(super) fn has_same_terms(one: &OrderAct, other: &OrderAct) -> bool {
    let terms = |it: &OrderAct| (it.making_micros, it.taking_micros);
    terms(one) == terms(other) && one.side == other.side && one.token == other.token
}

/// Whether a request was carried out and answered.
pub(super) fn succeeded(act: &Act) -> bool {
    (200..300).contains(&act.status)
}
