//! Orders that wait before they are decided, and what an order's names lead to.

use super::*;

/// What a delayed purchase holds back: its amount, its quantity at its price, or what it would cost
/// now; and the fee of what it would take now. A sale holds back its shares.
pub(super) fn cash(
    sent: &Sent,
    quantity: Micros,
    taken: &[(Micros, Micros)],
    fees: (Micros, i64),
) -> Micros {
    let (notional, fee) = cost(sent, taken, fees);
    let most = match (sent.amount, sent.price) {
        (Some(amount), _) => amount,
        (None, Some(price)) => dollars(price, quantity).ceil(),
        (None, None) => notional,
    };
    if sent.is_buy { most + fee } else { 0 }
}

/// Whether two requests ask for the same. How they were sent does not matter.
fn is_same_request(one: &Sent, other: &Sent) -> bool {
    let size = |sent: &Sent| (sent.amount, sent.amount.is_none().then_some(sent.quantity));
    let what = |sent: &Sent| (sent.market, sent.outcome, sent.is_buy, sent.is_limit, sent.tif);
    let bounds = |sent: &Sent| (sent.price, sent.expected_price, sent.max_slippage_bps);
    what(one) == what(other)
        && size(one) == size(other)
        && bounds(one) == bounds(other)
        && one.post_only == other.post_only
}

impl Order {
    pub(super) const fn new(sent: Sent, quantity: Micros, came_ms: i64) -> Self {
        Self {
            sent,
            quantity,
            awaits: false,
            held: None,
            came_ms,
            delayed_ms: 0,
            names: Vec::new(),
            is_forgotten: false,
            end: None,
        }
    }
}

impl NaiveOrders {
    /// Whether an order is not known, or no longer.
    pub(crate) fn is_gone(&self, order: usize) -> bool {
        let order = self.orders.get(order);
        order.is_none_or(|order| order.is_forgotten || order.end == Some("dropped"))
    }

    /// Whether an order waits to be decided.
    pub(crate) fn is_delayed(&self, order: usize) -> bool {
        self.is_open(order) && self.orders[order].held.is_some()
    }

    /// The orders on the books.
    pub(super) fn resting(&self) -> impl Iterator<Item = usize> {
        self.open().filter(|&order| !self.is_delayed(order))
    }

    /// What the names of a request lead to.
    pub(super) fn known(&self, sent: &Sent, names: &[usize]) -> Option<Fact> {
        let mut known = Vec::new();
        for (index, order) in self.orders.iter().enumerate() {
            let is_named = names.iter().any(|name| order.names.contains(name));
            if order.sent.account == sent.account && is_named && !self.is_gone(index) {
                known.push(index);
            }
        }
        match *known {
            [] => None,
            [order]
                if is_same_request(&self.orders[order].sent, sent)
                    && names.iter().all(|name| self.orders[order].names.contains(name)) =>
            {
                Some(Fact::Replayed(order))
            }
            _ => Some(Fact::Refused("IDEMPOTENCY_KEY_REUSE")),
        }
    }

    /// Decides an order as if it came now. What is refused leaves nothing but a used id.
    pub(crate) fn decide(&mut self, order: usize) -> Vec<Fact> {
        if self.is_gone(order) {
            return vec![Fact::Refused("ORDER_NOT_FOUND")];
        }
        if !self.is_delayed(order) {
            return Vec::new();
        }
        let before = self.orders[order].clone();
        self.orders[order].end = Some("dropped");
        let facts = match self.placed(&before.sent, false) {
            Ok((decided, fill)) => {
                let delayed_ms = (self.now_ms - before.came_ms).max(1);
                self.orders[order] = Order { names: before.names, delayed_ms, ..decided };
                vec![self.note_placed(Fill { order, ..fill })]
            }
            Err(refusal) => vec![Fact::Dropped(order), Fact::Refused(code(refusal))],
        };
        self.forget_used();
        facts
    }

    /// The account has too many finished orders.
    pub(crate) fn forget(&mut self, order: usize) {
        assert!(!self.is_open(order) && !self.is_gone(order), "order {order} cannot be forgotten");
        self.orders[order].is_forgotten = true;
    }
}
