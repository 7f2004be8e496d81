//! A preview says exactly what placing the order then does.

use std::fmt::Debug;

use paperbourse::engine::order::order_state::OrderState;
use paperbourse::engine::order::preview::{Preview, PreviewOrder};
use paperbourse::engine::order::receipt::OrderRow;

use super::*;

impl Pair {
    /// Previews an order, and places it. Both agree, unless its names make it another order.
    pub(super) fn place_previewed(
        &mut self,
        owner: Owner,
        order: NewOrder,
        names: OrderNames,
    ) -> Result<Verdict<PlacedSubject>, Rejection> {
        let previewed = self.world.run(&PreviewOrder::new(owner.clone(), order.clone()));
        let placed = self.world.run(&PlaceOrder::new(owner, order, names));
        match (previewed, &placed) {
            // The names are those of another order.
            (
                _,
                Ok(Verdict::Already(_))
                | Err(Rejection::NameReused { .. } | Rejection::NameAdded { .. }),
            ) => {}
            (Err(previewed), Err(placed)) => same("refusal", &previewed, placed),
            // It would be refused on this book, and may be filled on the one after the delay.
            (Err(_), Ok(Verdict::Happens(events, _))) if is_delayed(events) => {}
            (Ok(Verdict::Already(preview)), Ok(Verdict::Happens(events, subject))) => {
                let order = self.world.state.order_row(subject.order).expect("it was just placed");
                let is_delayed = is_delayed(events);
                same("whether it is delayed", &(preview.delay_ms > 0), &is_delayed);
                if !is_delayed {
                    self.check_preview(&preview, &order);
                }
            }
            (previewed, placed) => panic!("{previewed:?}, but {placed:?}"),
        }
        placed
    }

    fn check_preview(&self, preview: &Preview, order: &OrderRow) {
        same("fill", &preview.fill, &order.fill);
        same("levels", &preview.level_count, &usize::from(order.level_count));
        same("slippage", &preview.slippage_bps, &order.slippage_bps);
        let order_state = order.order_state.filter(OrderState::is_open);
        let reserve =
            order_state.map_or_else(Reserve::default, |it| it.reserve(order.placement.side));
        same("reserve", &preview.reserve, &reserve);
        let end = order.order_state.and_then(|order_state| order_state.end).map(|end| end.reason);
        same("end", &preview.end, &end);
        let quantity =
            order.order_state.map_or(order.fill.quantity, |order_state| order_state.terms.quantity);
        same("quantity", &preview.terms.quantity, &quantity);
        let account = self.world.state.accounts().find(|it| it.id == order.placement.account);
        let available = account.expect("an account with an order").ledger.available();
        same("available", &preview.available, &available);
    }
}

fn is_delayed(events: &Events) -> bool {
    matches!(events.last(), Some(Event::OrderDelayed(_)))
}

#[track_caller]
fn same<T: PartialEq + Debug>(what: &str, previewed: &T, placed: &T) {
    assert_eq!(previewed, placed, "the {what} of a preview differs");
}
