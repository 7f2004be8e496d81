use super::*;
use crate::http::operations::trade::tests::receipt;
use paperbourse_core::engine::order::order_state::{End, OrderState, Progress};
use paperbourse_core::engine::order::terms::{EndReason, OrderKind, Terms, TimeInForce};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::Side;
use paperbourse_core::money::{Price, Shares, Usd};

/// The receipt of a limit order for 25 shares at 0.53 that took ten or nothing when it was placed.
fn limit(time_in_force: TimeInForce, takes: bool, end: Option<EndReason>) -> OrderReceipt {
    let mut receipt = receipt();
    if !takes {
        receipt.fill.quantity = Shares::ZERO;
        receipt.fill.notional = Usd::ZERO;
        receipt.fill.fee = Usd::ZERO;
        receipt.level_count = 0;
        receipt.slippage_bps = Some(0);
    }
    let fill = &receipt.fill;
    let mut progress = Progress::default();
    if takes {
        progress = progress.after(fill.quantity, fill.notional, fill.fee, fill.at).unwrap();
    }
    receipt.order_state = Some(Box::new(OrderState {
        terms: Terms {
            kind: OrderKind::Limit,
            time_in_force,
            post_only: false,
            awaited_book: false,
            quantity: Shares::from_micros(25_000_000),
            price: Some(Price::from_micros(530_000)),
            delayed_ms: 0,
        },
        progress,
        end: end.map(|reason| End { reason, at: receipt.fill.at }),
        awaits_book: false,
        is_delayed: false,
    }));
    receipt
}

fn shown(receipt: &OrderReceipt, is_replay: bool) -> String {
    serde_json::to_string(&OrderAnswer::of(receipt, is_replay, Vec::new())).unwrap()
}

#[test]
fn an_order_is_shown_with_what_became_of_it() {
    let killed = Some(EndReason::FokNotFilled);
    let part = Some(EndReason::FakNotFilled);
    let mut awaiting = limit(TimeInForce::GoodTilCancelled, false, None);
    let order_state = awaiting.order_state.as_deref_mut().unwrap();
    (order_state.terms.awaited_book, order_state.awaits_book) = (true, true);
    let sale = OrderReceipt {
        side: Side::Sell,
        ..limit(TimeInForce::GoodTilDate(Timestamp::from_seconds(1)), true, None)
    };
    let rows = [
        ("filled", receipt()),
        ("rests", limit(TimeInForce::GoodTilCancelled, false, None)),
        ("awaits a book", awaiting),
        ("a sale, filled in part, rests", sale),
        ("killed", limit(TimeInForce::FillOrKill, false, killed)),
        ("filled in part, the rest killed", limit(TimeInForce::FillAndKill, true, part)),
    ];
    let rows = rows.map(|(what, receipt)| format!("# {what}\n{}\n", shown(&receipt, false)));
    insta::assert_snapshot!(rows.join("\n"));
}

#[test]
fn a_replay_is_the_first_answer_with_a_flag() {
    let flagged = |text: &str| format!("{},\"is_replay\":true}}", text.strip_suffix('}').unwrap());
    assert_eq!(shown(&receipt(), true), flagged(&shown(&receipt(), false)));
    let rested = limit(TimeInForce::GoodTilCancelled, true, None);
    let first = shown(&rested, false);
    let later = Timestamp::from_seconds(2_000_000_000);
    let change = |change: &dyn Fn(&mut OrderState)| {
        let mut receipt = rested.clone();
        change(receipt.order_state.as_deref_mut().unwrap());
        receipt
    };
    let filled = change(&|order_state| {
        let (quantity, notional) = (Shares::from_micros(15_000_000), Usd::from_micros(7_950_000));
        order_state.progress =
            order_state.progress.after(quantity, notional, Usd::ZERO, later).unwrap();
    });
    let ended = EndReason::ALL.into_iter().filter(|reason| !reason.is_at_placement());
    let ended = ended
        .map(|reason| change(&|order_state| order_state.end = Some(End { reason, at: later })));
    for receipt in ended.chain([filled]) {
        assert_eq!(shown(&receipt, true), flagged(&first), "{receipt:?}");
    }
    let mut awaiting = limit(TimeInForce::GoodTilCancelled, false, None);
    let order_state = awaiting.order_state.as_deref_mut().unwrap();
    (order_state.terms.awaited_book, order_state.awaits_book) = (true, true);
    let first = shown(&awaiting, false);
    awaiting.order_state.as_deref_mut().unwrap().awaits_book = false;
    assert_eq!(shown(&awaiting, true), flagged(&first));
}

/// Clients take an answer with one of these for a refusal.
#[test]
fn a_success_has_no_key_of_a_refusal() {
    let answer = serde_json::to_value(OrderAnswer::of(&receipt(), true, Vec::new())).unwrap();
    for key in ["error", "message", "detail", "success"] {
        assert!(answer.get(key).is_none(), "{key}");
    }
}
