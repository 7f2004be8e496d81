//! Applies events, which is the only way to change the journaled part of a state.

use crate::engine::comment::Comment;
use crate::engine::contradiction::{Contradiction, Flaw};
use crate::engine::event::Event;
use crate::engine::key::Key;
use crate::engine::market::payout::Decision;
use crate::engine::state::State;
use crate::ids::Lsn;

impl State {
    /// Applies the events of the next record, which this process has just decided. `lsn` is the
    /// record's LSN.
    ///
    /// # Panics
    ///
    /// If an event contradicts the state. One of the two is wrong, so the process must not
    /// continue.
    pub fn apply(&mut self, events: &[Event], lsn: Lsn) {
        if let Err(contradiction) = self.replay(events, lsn) {
            panic!("{contradiction}");
        }
    }

    /// Applies the events of the next record, read from disk and therefore not trusted. After an
    /// error the state is undefined and must not be used.
    pub fn replay(&mut self, events: &[Event], lsn: Lsn) -> Result<(), Contradiction> {
        // Reaching the maximum would take a shard centuries of writing.
        self.sequence = self.sequence.saturating_add(1);
        self.log = lsn.log;
        events
            .iter()
            .try_for_each(|event| self.apply_event(event, lsn.position))
            .map_err(|flaw| Contradiction { shard: self.shard, sequence: self.sequence, flaw })
    }

    /// Reads the memory that orders among these events change, and returns a number that depends on
    /// everything read, so that the compiler keeps the reads. Prefetching for several events before
    /// applying the first lets their cache misses overlap.
    pub fn prefetch<'e>(&self, events: impl Iterator<Item = &'e Event> + Clone) -> i64 {
        let placements = events.filter_map(|event| match event {
            Event::OrderFilled(filled) => Some(&filled.placement),
            Event::OrderPlaced(placed) => Some(&placed.placement),
            _ => None,
        });
        let accounts: Vec<_> =
            placements.clone().filter_map(|placement| self.account(placement.account)).collect();
        // Each step follows one more pointer of every account: the reads of one account wait for
        // each other, and a processor looks ahead only so far.
        let counts = accounts.iter().map(|account| account.order_count_ever().cast_signed());
        let counts = counts.fold(0, |all, count| all ^ count);
        let rest = accounts.iter().fold(counts, |all, account| all ^ account.prefetch());
        placements.fold(rest, |all, placement| {
            all ^ self.orders.prefetch(placement.account, &placement.names)
        })
    }

    fn apply_event(&mut self, event: &Event, position_in_log: u64) -> Result<(), Flaw> {
        match event {
            Event::AccountOpened { account, identity, granted, at } => {
                self.open_account(*account, identity, *granted, *at, position_in_log)
            }
            Event::KeyCreated { key, account, grant, created_by, at } => {
                let key = Key {
                    id: *key,
                    account: *account,
                    grant: grant.clone(),
                    created_by: *created_by,
                    kept_maker: *created_by,
                    created_at: *at,
                    revoked_at: None,
                };
                self.add_key(key, position_in_log)
            }
            Event::KeyRenamed { key, name } => self.change_key(*key, position_in_log, |row| {
                row.rename(name.clone());
                Some(())
            }),
            Event::KeyExpirySet { key, expires_at } => {
                self.change_key(*key, position_in_log, |row| row.set_expiry(*expires_at))
            }
            Event::KeyRevoked { key, at } => self.change_key(*key, position_in_log, |row| {
                row.revoke(*at);
                Some(())
            }),
            Event::KeyForgotten { key } => self.forget_key(*key, position_in_log),
            Event::MarketIntroduced { index, condition_id, outcomes } => {
                self.introduce_market(*index, condition_id, outcomes, position_in_log)
            }
            Event::OrderFilled(fill) => self.fill_order(fill, position_in_log),
            Event::OrderPlaced(placed) => self.place_new_order(placed, position_in_log),
            Event::OrderDelayed(delayed) => self.delay_order(delayed, position_in_log),
            Event::DelayedOrderDropped { order } => {
                self.drop_delayed_order(*order, position_in_log)
            }
            Event::OrderAdmitted { order } => self.admit_order(*order, position_in_log),
            Event::RestingFilled(filled) => self.fill_resting(filled, position_in_log),
            Event::FillUndone(undone) => self.undo_fill(undone, position_in_log),
            Event::OrderEnded { order, reason, at } => {
                self.end_order(*order, *reason, *at, position_in_log)
            }
            Event::AccountReset(reset) => self.reset_account(reset, position_in_log),
            Event::OperatorActed(acted) => self.operator_acted(acted, position_in_log),
            Event::HeartbeatSet { account, interval_ms } => {
                self.set_heartbeat(*account, *interval_ms, position_in_log)
            }
            Event::FillLogBegun { account } => self.log_fills_from_now(*account, position_in_log),
            Event::OrderForgotten { order } => self.forget_order(*order, position_in_log),
            Event::CommentAdded { comment, order, author, content, at } => {
                let comment = Comment {
                    id: *comment,
                    order: *order,
                    author: *author,
                    content: content.clone(),
                    at: *at,
                };
                self.add_comment(comment, position_in_log)
            }
            Event::CommentDeleted { comment } => self.delete_comment(*comment, position_in_log),
            Event::SettlementDecided { decision, at } => {
                let made = self.add_decision(decision, *at, position_in_log);
                made.map_err(|flaw| Flaw::decision(Decision::home(&decision.condition_id), flaw))
            }
            Event::PositionsSettled(settled) => self.settle_positions(settled, position_in_log),
            Event::MarketSettled { market, payouts, at: _ } => {
                self.settle_market(*market, payouts, true, position_in_log)
            }
            Event::StateChecked { hash } if *hash == self.hash => Ok(()),
            Event::StateChecked { hash } => Err(Flaw::hash(*hash, self.hash)),
        }
    }
}
