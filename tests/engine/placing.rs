//! The lines of a scenario that are about orders that may rest.
//!
//! ```text
//! place A1 M1 yes buy limit 10 0.5 tif=GTC post_only name=a   -> pending O1 taken 0 remaining 10
//! place A1 M1 yes buy market 10 0.55 tif=FAK                  -> filled O2 taken 4
//! place A1 M1 yes buy market $5                               -> filled 9.8039
//! place A1 M1 yes sell limit 10 0.5 tif=GTD until=60          60 seconds from now
//! due O1                         the wait of a delayed order is over  -> filled 10
//! match M1                       the newest books  -> fill O1:10:5:0
//! match M1 yes                   one outcome's     -> already
//! cancel A1 O1                                     -> ended O1 USER
//! cancel-all A1 market=M1 token=M1-Yes after=O0    -> ended O1 USER ended O2 USER
//! expire                                           -> ended O1 GTD_EXPIRED
//! show A1 M1 yes        -> has cash 10 reserved 5 available 5 held 3 free 2 open O1:10:PENDING
//! restart                        what is not journaled is lost
//! ```
//!
//! A fill of an open order is `order:quantity:notional:fee`.

use std::fmt::Write as _;

use paperbourse::engine::command::{
    CancelOrder, CancelOrders, ExpireOrders, MatchOrders, OrderNames, PlaceOrder,
};
use paperbourse::engine::event::Events;
use paperbourse::engine::fills::undo::UndoFill;
use paperbourse::engine::order::delayed::DecideDelayed;
use paperbourse::engine::order::order_state::{OrderState, Progress};
use paperbourse::engine::order::payload::{NamedTimeInForce, NewOrder};
use paperbourse::engine::order::place::PlacedSubject;
use paperbourse::engine::order::receipt::OrderReceipt;
use paperbourse::engine::order::terms::{OrderKind, OrderStatus};
use paperbourse::engine::{Command, State, Verdict};
use paperbourse::ids::{OrderId, Timestamp};
use paperbourse::market::book::Side;
use paperbourse::money::{Rounding, Shares, Usd};

use crate::report;
use crate::script::{Run, counter, name_hash, price, usd};

impl Run {
    #[track_caller]
    pub(crate) fn place(&mut self, words: &[&str]) -> String {
        let [owner, order @ ..] = words else { panic!("an order has an owner") };
        let (order, names) = new_order(order, self.world.now);
        let command = PlaceOrder::new(self.owner(owner), order, names);
        let verdict = self.world.run(&command);
        let state = &self.world.state;
        match verdict {
            Ok(Verdict::Happens(events, subject)) => {
                let receipt = answered(state, subject);
                let shown = report::happened(state, &events);
                self.receipts.insert(receipt.order, receipt);
                shown
            }
            Ok(Verdict::Already(subject)) => {
                let receipt = answered(state, subject);
                let order = receipt.order;
                assert_eq!(first_answer(receipt), first_answer(self.receipts[&order].clone()));
                format!("replay of O{}", order.counter())
            }
            Err(rejection) => report::refusal(&rejection),
        }
    }

    /// Decides a delayed order, and remembers the answer to it.
    #[track_caller]
    pub(crate) fn decide_delayed(&mut self, order: &str) -> String {
        let order = OrderId::new(self.world.state.shard(), counter(order)).expect("an id");
        let delayed = self.world.state.order(order).expect("a kept order");
        let market_id = self.world.state.receipt(delayed).market_id;
        let verdict = self.world.run(&DecideDelayed { order, market_id });
        let state = &self.world.state;
        let (shown, subject) = match verdict {
            Ok(Verdict::Happens(events, subject)) => (report::happened(state, &events), subject),
            Ok(Verdict::Already(subject)) => ("already".to_owned(), subject),
            Err(rejection) => return report::refusal(&rejection),
        };
        match DecideDelayed::answer(state, subject, true) {
            Ok(placed) => {
                self.receipts.insert(order, placed.receipt);
                shown
            }
            Err(rejection) => format!("{} {shown}", report::refusal(&rejection)),
        }
    }

    #[track_caller]
    pub(crate) fn match_orders(&mut self, words: &[&str]) -> String {
        let [market, outcome @ ..] = words else { panic!("a match is in a market") };
        let listed = self.world.markets.by_condition(market).expect("a listed market");
        let book = outcome.first().map(|label| {
            let outcome = listed.info().outcome(label).expect("an outcome of the market");
            (outcome, listed.book(outcome).clone().expect("a book"))
        });
        let command = MatchOrders { market_id: (*market).into(), book, after: None };
        let visits = self.world.run_match(command);
        let told = |events: &Events| report::happened(&self.world.state, events);
        if visits.is_empty() {
            "already".to_owned()
        } else {
            visits.iter().map(told).collect::<Vec<_>>().join(" ")
        }
    }

    #[track_caller]
    pub(crate) fn cancel(&mut self, account: &str, order: &str) -> String {
        let order = OrderId::new(self.world.state.shard(), counter(order)).expect("an id");
        self.outcome(&CancelOrder { account: self.account(account), order })
    }

    #[track_caller]
    pub(crate) fn undo(&mut self, account: &str, order: &str, part: &str) -> String {
        let order = OrderId::new(self.world.state.shard(), counter(order)).expect("an id");
        let part = part.parse().expect("the number of a fill");
        self.outcome(&UndoFill { account: self.account(account), order, part })
    }

    #[track_caller]
    pub(crate) fn cancel_all(&mut self, account: &str, options: &[&str]) -> String {
        let wanted = |name: &str| {
            let mut values = options.iter().filter_map(|option| option.split_once('='));
            values.find(|(other, _)| *other == name).map(|(_, value)| value.into())
        };
        let (market_id, token_id) = (wanted("market"), wanted("token"));
        let after = options.iter().find_map(|option| option.strip_prefix("after="));
        let after = after.and_then(|order| OrderId::new(self.world.state.shard(), counter(order)));
        let account = self.account(account);
        self.outcome(&CancelOrders { account, market_id, token_id, after })
    }

    pub(crate) fn expire(&mut self) -> String {
        self.outcome(&ExpireOrders)
    }

    /// What an account has and what its open orders hold back, added up from the orders.
    #[track_caller]
    pub(crate) fn show(&self, account: &str, market: &str, outcome: &str) -> String {
        let state = &self.world.state;
        let account = state.account(self.account(account)).expect("an account");
        let ledger = account.ledger();
        let mut text = format!(
            "has cash {} baseline {} reserved {} available {}",
            ledger.cash(),
            account.baseline(),
            ledger.reserved,
            ledger.available()
        );
        let listed = self.world.markets.by_condition(market).expect("a listed market");
        let outcome = listed.info().outcome(outcome).expect("an outcome of the market");
        let used = state.used_markets().iter().position(|used| *used.condition_id == *market);
        let on = |index: u32| used.is_some_and(|used| used == index as usize);
        let held = account.positions().iter().find(|it| on(it.market.0) && it.outcome == outcome);
        let held = held.map_or(Shares::ZERO, |held| held.shares);
        let (mut free, mut open) = (held, String::new());
        for row in state.open_orders().filter(|row| row.placement.account == account.id()) {
            let order_state = row.order_state.expect("an open order has an order state");
            let placement = &row.placement;
            if on(placement.market.0) && placement.outcome == outcome {
                let held_back = order_state.reserve(placement.side).shares;
                free -= row.delay.map_or(held_back, |delay| delay.reserve.shares);
            }
            let waits = match order_state {
                OrderState { awaits_book: true, .. } => ":AWAITS",
                OrderState { is_delayed: true, .. } => ":DELAYED",
                _ => "",
            };
            write!(open, " O{}:{}{waits}", placement.order.counter(), order_state.remaining())
                .expect("a string grows");
        }
        write!(text, " held {held} free {free} open{open}").expect("a string grows");
        text
    }
}

fn answered(state: &State, subject: PlacedSubject) -> OrderReceipt {
    PlaceOrder::answer(state, subject, true).receipt
}

/// A receipt as far as the first answer shows it: of the order state, only the terms and the status
/// that the order had when it was placed.
pub(crate) fn first_answer(mut receipt: OrderReceipt) -> (OrderReceipt, OrderStatus) {
    let Some(order_state) = &mut receipt.order_state else { return (receipt, OrderStatus::Filled) };
    let end = order_state.end.map(|end| end.reason).filter(|reason| reason.is_at_placement());
    let status = OrderStatus::of(receipt.fill.quantity, order_state.terms.quantity, end);
    order_state.progress = Progress::default();
    order_state.end = None;
    order_state.awaits_book = false;
    (receipt, status)
}

/// The order of a line, without its owner.
#[track_caller]
fn new_order(words: &[&str], now: Timestamp) -> (NewOrder, OrderNames) {
    let [market_id, outcome, side, kind, size, options @ ..] = words else {
        panic!("an order is: market, outcome, side, kind, size; not {}", words.join(" "));
    };
    let shares = |text: &str| Shares::from_text(text, Rounding::Exact).expect("shares");
    let amount: Option<Usd> = size.strip_prefix('$').map(usd);
    let mut order = NewOrder {
        market_id: (*market_id).into(),
        outcome: (*outcome).into(),
        side: match *side {
            "buy" => Side::Buy,
            "sell" => Side::Sell,
            side => panic!("no such side: {side}"),
        },
        kind: match *kind {
            "market" => OrderKind::Market,
            "limit" => OrderKind::Limit,
            kind => panic!("no such kind: {kind}"),
        },
        quantity: amount.is_none().then(|| shares(size)),
        amount,
        price: None,
        time_in_force: None,
        expiration: None,
        post_only: false,
        expected_price: None,
        max_slippage_bps: None,
    };
    let mut names = OrderNames::default();
    for option in options {
        match option.split_once('=') {
            None if *option == "post_only" => order.post_only = true,
            None => order.price = Some(price(option)),
            Some(("tif", name)) => order.time_in_force = Some(time_in_force(name)),
            Some(("until", seconds)) => {
                let seconds: i64 = seconds.parse().expect("seconds");
                let at = now.nanos() + seconds * 1_000_000_000;
                order.expiration = Some(Timestamp::from_nanos(at));
            }
            Some(("at", seconds)) => {
                let seconds = seconds.parse().expect("seconds");
                order.expiration = Some(Timestamp::from_seconds(seconds));
            }
            Some(("amount", text)) => order.amount = Some(usd(text)),
            Some(("expected", text)) => order.expected_price = Some(price(text)),
            Some(("max_bps", text)) => order.max_slippage_bps = Some(text.parse().expect("bps")),
            Some(("name", list)) => {
                names = OrderNames::new(list.split(',').map(name_hash), None);
            }
            _ => panic!("no such option: {option}"),
        }
    }
    (order, names)
}

fn time_in_force(name: &str) -> NamedTimeInForce {
    match name {
        "GTC" => NamedTimeInForce::Gtc,
        "GTD" => NamedTimeInForce::Gtd,
        "FOK" => NamedTimeInForce::Fok,
        "FAK" | "IOC" => NamedTimeInForce::Fak,
        name => panic!("no such time in force: {name}"),
    }
}
