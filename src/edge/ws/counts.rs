//! How many sockets and exports each account has open, and how many price streams each address; and
//! when their clients may come back.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use paperbourse_core::ids::AccountId;
use paperbourse_core::limits::bucket::Origin;

/// How many holders may have something open at a time.
pub const HOLDERS_MAX: usize = 65_536;

/// How long a client waits at least before it connects again.
const RETURN_AFTER_MIN: Duration = Duration::from_secs(1);

/// How far apart clients are told to reconnect when all connections end at once.
const RETURN_INTERVAL: Duration = Duration::from_millis(1);

/// Over how many intervals unannounced returns are spread, as after a crash.
const RETURNS_MAX: u32 = 4_000;

/// The open sockets of each account, of any kind.
pub type SocketCounts = OpenCounts<AccountId>;

/// An open socket of an account.
pub type OpenSocket = Open<AccountId>;

/// The number of exports being sent, by account.
pub type ExportCounts = OpenCounts<AccountId>;

/// An export that is being sent.
pub type OpenExport = Open<AccountId>;

/// The open price streams of each address.
pub type StreamCounts = OpenCounts<Origin>;

/// An open price stream of an address.
pub type OpenStream = Open<Origin>;

/// How many connections of one kind each holder has open; holders without one take no space.
pub struct OpenCounts<H> {
    open: Mutex<Counts<H>>,
}

struct Counts<H> {
    of: HashMap<H, u32, foldhash::fast::RandomState>,
    total: usize,
    /// How many there have been.
    opened: u32,
    /// How many were told when to come back as the server ended.
    called_back: u32,
}

/// An open connection, counted until this is dropped.
pub struct Open<H: Copy + Eq + Hash> {
    counts: Arc<OpenCounts<H>>,
    holder: H,
    number: u32,
}

impl<H> Default for OpenCounts<H> {
    fn default() -> Self {
        let counts = Counts { of: HashMap::default(), total: 0, opened: 0, called_back: 0 };
        Self { open: Mutex::new(counts) }
    }
}

impl<H: Copy + Eq + Hash> OpenCounts<H> {
    /// Counts one more for the holder. `None` if the holder has `count_max` open, or if it has none
    /// and [`HOLDERS_MAX`] others do.
    pub fn try_open(self: &Arc<Self>, holder: H, count_max: u32) -> Option<Open<H>> {
        let mut open = self.open.lock();
        let count = open.of.get(&holder).copied().unwrap_or(0);
        if count >= count_max || (count == 0 && open.of.len() >= HOLDERS_MAX) {
            return None;
        }
        open.of.insert(holder, count + 1);
        open.total += 1;
        open.opened = open.opened.wrapping_add(1);
        Some(Open { counts: self.clone(), holder, number: open.opened })
    }

    /// How many the holder has open.
    pub fn of(&self, holder: H) -> u32 {
        self.open.lock().of.get(&holder).copied().unwrap_or(0)
    }

    /// How many all holders have open.
    pub fn total(&self) -> usize {
        self.open.lock().total
    }
}

impl<H: Copy + Eq + Hash> Open<H> {
    /// After which time the client should connect again, should the connection be lost. It differs
    /// from that of the clients before and after, so that they do not all come at once.
    pub fn return_after(&self) -> Duration {
        RETURN_AFTER_MIN + RETURN_INTERVAL * (self.number % RETURNS_MAX)
    }

    /// After which time the client should connect again, now that the server ends all connections:
    /// a moment later than the one told to the client before it.
    pub fn call_back(&self) -> Duration {
        let mut open = self.counts.open.lock();
        open.called_back += 1;
        RETURN_AFTER_MIN + RETURN_INTERVAL * open.called_back
    }
}

impl<H: Copy + Eq + Hash> Drop for Open<H> {
    fn drop(&mut self) {
        let mut open = self.counts.open.lock();
        let count = open.of.get_mut(&self.holder).expect("what is open is counted");
        *count -= 1;
        if *count == 0 {
            open.of.remove(&self.holder);
        }
        open.total -= 1;
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
        assert_eq!(counts.total(), 2);
        // The cap of the credential that opens the next socket applies.
        let third = counts.try_open(account(1), 3).unwrap();
        assert!(counts.try_open(account(1), 2).is_none());
        drop(first);
        assert!(counts.try_open(account(1), 2).is_none());
        drop(third);
        assert!(counts.try_open(account(1), 2).is_some());
        drop(second);
        assert_eq!((counts.of(account(1)), counts.total()), (0, 0));
        assert!(counts.open.lock().of.is_empty());
        assert!(counts.try_open(account(1), 0).is_none());
    }

    #[test]
    fn clients_return_one_after_the_other() {
        let counts = Arc::new(SocketCounts::default());
        let count = 10_000;
        let open: Vec<_> =
            (0..count).map(|number| counts.try_open(account(number), 1).unwrap()).collect();
        let lost = open.iter().map(Open::return_after);
        assert!(lost.clone().all(|after| (1_000..5_000).contains(&after.as_millis())));
        let mut counts_at: HashMap<Duration, usize> = HashMap::new();
        for after in lost {
            *counts_at.entry(after).or_default() += 1;
        }
        assert!(counts_at.values().all(|&count| count <= 3), "{counts_at:?}");
        let returns: Vec<_> = open.iter().map(|open| open.call_back().as_millis()).collect();
        let expected: Vec<_> = (0..u128::from(count)).map(|number| 1_001 + number).collect();
        assert_eq!(returns, expected);
    }

    #[test]
    fn the_number_of_accounts_is_bounded() {
        let counts = Arc::new(SocketCounts::default());
        let open: Vec<_> = (0..HOLDERS_MAX as u64)
            .map(|number| counts.try_open(account(number), 1).unwrap())
            .collect();
        assert!(counts.try_open(account(HOLDERS_MAX as u64), 1).is_none());
        assert!(counts.try_open(account(0), 2).is_some(), "a counted account takes no more space");
        drop(open);
        assert!(counts.open.lock().of.is_empty());
    }
}
