//! Fills that are undone.

use super::*;
use paperbourse::engine::fills::undone::UndoFlaw;

impl Pair {
    /// Undoes one of the newest fills, or one of the newest sales, or tries to.
    pub(super) fn undo(&mut self) {
        let is_sale = self.random.once_in(2);
        let mut places: Vec<usize> = (0..self.naive.fills.len()).rev().collect();
        let is_again = self.random.once_in(8);
        places.retain(|place| {
            let sent = &self.naive.orders[self.naive.fills[*place].order].sent;
            (!is_sale || !sent.is_buy) && (is_again || !self.naive.undone.contains(place))
        });
        places.truncate(12);
        if places.is_empty() {
            return;
        }
        let place = places[self.random.below(places.len())];
        let order = self.naive.fills[place].order;
        let owner = self.naive.orders[order].sent.account;
        let account = if self.random.once_in(12) { self.random.below(ACCOUNTS) } else { owner };
        let command = UndoFill {
            account: account_id(&self.world, account),
            order: self.id(order),
            part: u32::try_from(self.naive.part(place)).expect("few fills"),
        };
        let verdict = self.world.run(&command);
        let before = self.naive.undone.clone();
        let mut expected = self.naive.undo(account, place);
        if let Err(Rejection::FillNotUndone(flaw)) = verdict
            && self.is_only_forgotten(flaw, owner, place)
        {
            self.naive.undone = before;
            expected = vec![Fact::Refused(report::code(&flaw.into()))];
        }
        let actual = match events_of(verdict) {
            Ok(events) => facts(&events),
            Err(code) => vec![Fact::Refused(code)],
        };
        self.agree(&format!("undo {account} {place}"), &actual, &expected);
        let is_undone = self.naive.undone.contains(&place);
        let owner = account_id(&self.world, owner);
        let at = self.world.state.fill_undone_at(owner, command.order, command.part);
        assert_eq!(at.is_some(), is_undone);
    }

    /// Whether the engine may refuse for what the naive matcher never forgets.
    fn is_only_forgotten(&self, flaw: UndoFlaw, owner: usize, place: usize) -> bool {
        let account = account_id(&self.world, owner);
        let page = self.world.state.observe_fills(account, 0, 200).value.expect("an account");
        let own = |fill: &&Fill| self.naive.orders[fill.order].sent.account == owner;
        let number = self.naive.fills[..=place].iter().filter(own).count() as u64;
        match flaw {
            UndoFlaw::NotKept => number < page.oldest,
            UndoFlaw::CostUnknown => page.oldest > 1,
            // A fill at the very time of the reset may have been before it.
            UndoFlaw::AccountReset => {
                let row = page.rows.iter().find(|row| row.number == number);
                let resets = self.world.state.account(account).expect("an account").resets();
                row.map(|row| row.fill.at) == resets.map(|resets| resets.at)
            }
            _ => false,
        }
    }
}
