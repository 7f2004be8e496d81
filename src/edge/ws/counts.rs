//! The number of open sockets and exports of each account, and of price streams from each address;
//! and the times after which their clients should reconnect.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use paperbourse_core::ids::AccountId;
use paperbourse_core::limits::bucket::Origin;

/// The maximum number of holders with open connections.
pub const HOLDERS_MAX: usize = 65_536;

/// The minimum time before a client should reconnect.
const RETURN_AFTER_MIN: Duration = Duration::from_secs(1);

/// The interval between the times at which clients are told to reconnect if all connections end at
/// once.
const RETURN_INTERVAL: Duration = Duration::from_millis(1);

/// Number of intervals over which unannounced reconnects are spread, as after a crash.
const RETURNS_MAX: u32 = 4_000;

/// The number of open sockets of either kind, by account.
pub type SocketCounts = OpenCounts<AccountId>;

/// An open socket, counted for its account.
pub type OpenSocket = Open<AccountId>;

/// The number of exports being sent, by account.
pub type ExportCounts = OpenCounts<AccountId>;

/// An export being sent, counted for its account.
pub type OpenExport = Open<AccountId>;

/// The number of open price streams, by address.
pub type StreamCounts = OpenCounts<Origin>;

/// An open price stream, counted for its address.
pub type OpenStream = Open<Origin>;

/// The number of open sockets of clients of the venue, which bring no credential to the upgrade, by
/// address.
pub type AddressCounts = OpenCounts<Origin>;

/// An open socket, however it is counted.
pub enum CountedSocket {
    /// Counted for its account.
    OfAccount(OpenSocket),
    /// Counted for the address of its client.
    OfAddress(Open<Origin>),
    /// Counted for the address until it is known for which account it is.
    OfUser(UserSlot),
}

/// A socket that is counted for the address of its client, and later for an account.
pub struct UserSlot(Arc<Mutex<Option<CountedSocket>>>);

/// What moves a socket from its address to its account.
pub struct Recount(Arc<Mutex<Option<CountedSocket>>>);

impl UserSlot {
    /// Creates a slot with what moves it.
    pub fn new(open: Open<Origin>) -> (Self, Recount) {
        let slot = Arc::new(Mutex::new(Some(CountedSocket::OfAddress(open))));
        (Self(slot.clone()), Recount(slot))
    }
}

impl Recount {
    /// Counts the socket for an account from now on, unless it has ended.
    pub fn count_for(&self, open: OpenSocket) {
        let mut slot = self.0.lock();
        if slot.is_some() {
            *slot = Some(CountedSocket::OfAccount(open));
        }
    }
}

impl Drop for UserSlot {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

impl CountedSocket {
    /// See [`Open::call_back`].
    pub fn call_back(&self) -> Duration {
        match self {
            Self::OfAccount(open) => open.call_back(),
            Self::OfAddress(open) => open.call_back(),
            Self::OfUser(slot) => slot.0.lock().as_ref().map_or(RETURN_AFTER_MIN, Self::call_back),
        }
    }
}

/// The number of open connections of one kind, by holder. A holder without connections takes no
/// space.
pub struct OpenCounts<H> {
    open: Mutex<Counts<H>>,
}

struct Counts<H> {
    of: HashMap<H, u32, foldhash::fast::RandomState>,
    total: usize,
    /// Number of connections ever opened, modulo 2³².
    opened: u32,
    /// Number of clients that were told when to reconnect as the server shut down.
    called_back: u32,
}

/// An open connection, counted until it is dropped.
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
    /// Counts one more connection for the holder. `None` if the holder has `count_max` open, or if
    /// it has none open while [`HOLDERS_MAX`] other holders have some.
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

    /// Returns the number of connections that the holder has open.
    pub fn of(&self, holder: H) -> u32 {
        self.open.lock().of.get(&holder).copied().unwrap_or(0)
    }

    /// Returns the number of connections that all holders have open.
    pub fn total(&self) -> usize {
        self.open.lock().total
    }
}

impl<H: Copy + Eq + Hash> Open<H> {
    /// Returns the time after which the client should reconnect if the connection is lost. It
    /// differs between clients that connected one after the other, so that they do not all return
    /// at once.
    pub fn return_after(&self) -> Duration {
        RETURN_AFTER_MIN + RETURN_INTERVAL * (self.number % RETURNS_MAX)
    }

    /// Returns the time after which the client should reconnect now that the server ends all
    /// connections: a moment later than for the client before it.
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
        // The limit of the credential that opens the next socket applies.
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
