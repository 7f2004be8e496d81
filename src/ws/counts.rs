//! How many sockets of any kind each account has open.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ids::AccountId;

/// How many accounts may have open sockets at a time.
pub const ACCOUNTS_MAX: usize = 65_536;

/// The number of open sockets per account; accounts without one take no space.
#[derive(Default)]
pub struct SocketCounts {
    open: Mutex<HashMap<AccountId, u32, foldhash::fast::RandomState>>,
}

/// An open socket, counted until this is dropped.
pub struct OpenSocket {
    counts: Arc<SocketCounts>,
    account_id: AccountId,
}

impl SocketCounts {
    /// Counts one more socket for the account. `None` if the account has `socket_count_max` open,
    /// or if it has none and [`ACCOUNTS_MAX`] others do.
    pub fn try_open(
        self: &Arc<Self>,
        account_id: AccountId,
        socket_count_max: u32,
    ) -> Option<OpenSocket> {
        let mut open = self.open.lock();
        let count = open.get(&account_id).copied().unwrap_or(0);
        if count >= socket_count_max || (count == 0 && open.len() >= ACCOUNTS_MAX) {
            return None;
        }
        open.insert(account_id, count + 1);
        Some(OpenSocket { counts: self.clone(), account_id })
    }

    /// How many sockets the account has open.
    pub fn of(&self, account_id: AccountId) -> u32 {
        self.open.lock().get(&account_id).copied().unwrap_or(0)
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        let mut open = self.counts.open.lock();
        let count = open.get_mut(&self.account_id).expect("an open socket is counted");
        *count -= 1;
        if *count == 0 {
            open.remove(&self.account_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(number: u64) -> AccountId {
        AccountId::from_raw(64 + number).unwrap()
    }

    #[test]
    fn an_account_opens_no_more_sockets_than_its_tier_allows() {
        let counts = Arc::new(SocketCounts::default());
        let first = counts.try_open(account(1), 2).unwrap();
        let second = counts.try_open(account(1), 2).unwrap();
        assert!(counts.try_open(account(1), 2).is_none());
        assert!(counts.try_open(account(2), 2).is_some(), "accounts do not share a cap");
        // The cap of the credential that opens the next socket applies.
        let third = counts.try_open(account(1), 3).unwrap();
        assert!(counts.try_open(account(1), 2).is_none());
        drop(first);
        assert!(counts.try_open(account(1), 2).is_none());
        drop(third);
        assert!(counts.try_open(account(1), 2).is_some());
        drop(second);
        assert_eq!(counts.of(account(1)), 0);
        assert!(counts.open.lock().is_empty());
        assert!(counts.try_open(account(1), 0).is_none());
    }

    #[test]
    fn the_number_of_accounts_is_bounded() {
        let counts = Arc::new(SocketCounts::default());
        let open: Vec<_> = (0..ACCOUNTS_MAX as u64)
            .map(|number| counts.try_open(account(number), 1).unwrap())
            .collect();
        assert!(counts.try_open(account(ACCOUNTS_MAX as u64), 1).is_none());
        assert!(counts.try_open(account(0), 2).is_some(), "a counted account takes no more space");
        drop(open);
        assert!(counts.open.lock().is_empty());
    }
}
