//! The heap memory of one account, beyond its row.

use super::Account;
use crate::engine::account::position::Position;
use crate::engine::state::heap::{queue_bytes, text_bytes, tree_bytes};

impl Account {
    /// Returns the account's heap memory in bytes, without its orders and logged fills.
    pub(in crate::engine) fn owned_bytes(&self) -> usize {
        let subject = text_bytes(self.subject.len());
        self.activity.as_ref().map_or(subject, |activity| subject + activity.bytes())
    }

    /// Returns the heap memory of the logged fills, in bytes.
    pub(in crate::engine) fn fill_log_bytes(&self) -> usize {
        self.fill_log().map_or(0, |log| queue_bytes(&log.fills))
    }
}

impl super::Activity {
    fn bytes(&self) -> usize {
        let positions = if self.positions.spilled() {
            self.positions.capacity() * size_of::<Position>()
        } else {
            0
        };
        let index = self.position_of.as_deref();
        let index = index.map_or(0, |index| size_of_val(index) + index.allocation_size());
        let settlements = self.settlements.as_deref();
        let settlements = settlements.map_or(0, |it| size_of_val(it) + tree_bytes(it));
        let extension = self.extension.as_ref().map_or(0, |extension| extension.bytes());
        size_of::<Self>()
            + queue_bytes(&self.finished)
            + positions
            + index
            + settlements
            + extension
    }
}
