//! Steps that decide or end orders.

use super::*;

impl Pair {
    /// Decides a delayed order, whenever it is due, or one that is not delayed.
    pub(super) fn decide(&mut self) {
        let delayed: Vec<usize> =
            (0..self.naive.orders.len()).filter(|&order| self.naive.is_delayed(order)).collect();
        let order = if self.random.once_in(16) {
            self.random.below(self.naive.orders.len() + 1)
        } else if delayed.is_empty() {
            return;
        } else {
            delayed[self.random.below(delayed.len())]
        };
        let market = self.naive.orders.get(order).map_or(0, |order| order.sent.market);
        let command = DecideDelayed { order: self.id(order), market_id: market_id(market).into() };
        let verdict = self.world.run(&command);
        let actual = match verdict {
            Ok(Verdict::Happens(events, DelayedSubject::Dropped(rejection))) => {
                let mut actual = facts(&events);
                actual.push(Fact::Refused(report::code(&rejection)));
                actual
            }
            Ok(Verdict::Happens(events, subject @ DelayedSubject::Kept(_))) => {
                let placed = DecideDelayed::answer(&self.world.state, subject, true);
                let receipt = placed.expect("it is kept").receipt;
                assert_eq!((receipt.order, receipt.is_delayed()), (command.order, false));
                facts(&events)
            }
            Ok(Verdict::Already(_)) => Vec::new(),
            Err(rejection) => vec![Fact::Refused(report::code(&rejection))],
        };
        let expected = self.naive.decide(order);
        self.agree(&format!("decide {order}"), &actual, &expected);
    }

    /// The facts of a command that no order's account may see refused.
    fn facts_of<C>(&mut self, command: &C) -> Vec<Fact>
    where
        C: Command<Subject: PartialEq + std::fmt::Debug>,
    {
        facts(&events_of(self.world.run(command)).expect("it is not refused"))
    }

    pub(super) fn cancel(&mut self) {
        let count = self.naive.orders.len();
        let order = self.random.below(count + 1);
        let account = match self.naive.orders.get(order) {
            Some(order) if !self.random.once_in(8) => order.sent.account,
            _ => self.random.below(ACCOUNTS),
        };
        let command =
            CancelOrder { account: account_id(&self.world, account), order: self.id(order) };
        let actual = match events_of(self.world.run(&command)) {
            Ok(events) => facts(&events),
            Err(code) => vec![Fact::Refused(code)],
        };
        let expected = self.naive.cancel(account, order);
        self.agree(&format!("cancel {account} {order}"), &actual, &expected);
    }

    pub(super) fn cancel_all(&mut self) {
        let account = self.random.below(ACCOUNTS);
        let market = Some(self.random.below(MARKETS)).filter(|_| self.random.once_in(2));
        let command = CancelOrders {
            account: account_id(&self.world, account),
            market_id: market.map(|market| market_id(market).into()),
            token_id: None,
            after: None,
        };
        let events = events_of(self.world.run(&command)).expect("an account");
        let expected = self.naive.cancel_all(account, market);
        self.agree(&format!("cancel all {account} {market:?}"), &facts(&events), &expected);
    }

    pub(super) fn reset(&mut self) {
        let account = self.random.below(ACCOUNTS);
        let actual = self.facts_of(&ResetAccount(account_id(&self.world, account)));
        let expected = self.naive.reset(account);
        self.agree(&format!("reset {account}"), &actual, &expected);
    }

    pub(super) fn expire(&mut self) {
        let events = events_of(self.world.run(&ExpireOrders)).expect("it is not refused");
        let expected = self.naive.expire();
        self.agree("expire", &facts(&events), &expected);
    }

    pub(super) fn beat(&mut self) {
        let account = self.random.below(ACCOUNTS);
        let interval_ms = if self.random.once_in(2) { 1_000 } else { 5_000 };
        let command = SetHeartbeat { account: account_id(&self.world, account), interval_ms };
        let actual = self.facts_of(&command);
        let expected = self.naive.beat(account, interval_ms.into());
        self.agree(&format!("beat {account} {interval_ms}"), &actual, &expected);
    }

    pub(super) fn end_silent(&mut self) {
        let verdict = self.world.run_unknown_to_rows(&CancelOnDisconnect);
        let actual = facts(&events_of(verdict).expect("it is not refused"));
        let expected = self.naive.end_silent();
        self.agree("end silent", &actual, &expected);
    }

    pub(super) fn clear_books(&mut self) {
        let market = self.random.below(MARKETS);
        let at_ms = self.naive.now_ms - if self.random.once_in(2) { 1_000 } else { 0 };
        let command = ClearBooks { market_id: market_id(market).into(), at: at(at_ms) };
        let actual = self.facts_of(&command);
        let expected = self.naive.clear_books(market, at_ms);
        self.agree(&format!("clear {market} {at_ms}"), &actual, &expected);
    }

    pub(super) fn restart(&mut self) {
        self.world.restart();
        self.naive.restart();
        self.steps.push("restart".to_owned());
    }

    pub(super) fn settle(&mut self) {
        let market = self.random.below(MARKETS);
        let payouts = match self.random.below(3) {
            0 => vec![1_000_000, 0],
            1 => vec![0, 1_000_000],
            _ => vec![333_333, 666_667],
        };
        let tokens = LABELS.iter().map(|label| format!("{}-{label}", market_id(market)).into());
        let decision = Decision {
            condition_id: market_id(market).into(),
            payouts: tokens.zip(payouts.iter().copied().map(price)).collect(),
            evidence: "the test".into(),
        };
        let command = Settle(decision.into());
        let mut actual = Vec::new();
        loop {
            let verdict = self.world.run(&command).expect("a market of the shard");
            let (Verdict::Happens(_, payment) | Verdict::Already(payment)) = &verdict;
            let is_whole = *payment == Payment::Whole;
            if let Verdict::Happens(events, _) = &verdict {
                actual.extend(facts(events));
            }
            if is_whole {
                break;
            }
        }
        let expected = self.naive.settle(market, payouts);
        self.agree(&format!("settle {market}"), &actual, &expected);
    }
}
