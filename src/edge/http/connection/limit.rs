//! Connection slots: the limits in total and per address, the choice of a connection to close when
//! room is needed, and the answer to refused connections.
//!
//! Bots keep their connections open. A connection is a *stranger* until it presents a valid
//! credential. While all slots are taken, a new connection gets the slot of the stranger with the
//! oldest last request. A request only moves its stranger behind idler ones, so strangers that all
//! keep sending requests still make room.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use paperbourse_core::limits::bucket::Origin;

/// The answer to a connection over the limit, whatever it requests.
pub const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\n\
    x-polysim-code: SERVER_BUSY\r\n\
    retry-after: 1\r\n\
    connection: close\r\n\
    x-content-type-options: nosniff\r\n\
    content-length: 136\r\n\
    \r\n\
    {\"detail\":\"The server is busy; nothing was done. Retry.\",\"error\":\"SERVER_BUSY\",\
    \"message\":\"The server is busy; nothing was done. Retry.\"}";

/// Maximum number of dismissed connections that are still open, in addition to the limit.
pub const LEAVING_MAX: usize = 64;

/// Limits the number of connections.
#[derive(Debug)]
pub struct ConnectionLimit {
    count_max: usize,
    per_address_max: usize,
    count: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default, Debug)]
struct Table {
    count: usize,
    /// Number of dismissed connections that are still open; they no longer count towards the limit.
    leaving: usize,
    by_origin: HashMap<Origin, usize>,
    /// The connections that were strangers when last checked, idlest first.
    strangers: BTreeMap<Listed, Arc<Slot>>,
    next_number: u64,
}

/// The time of a stranger's last known request, and the connection's number.
type Listed = (u64, u64);

#[derive(Default, Debug)]
struct Slot {
    /// When the last request arrived, in nanoseconds of the monotonic clock. Before the first
    /// request, when the connection arrived.
    asked_at_ns: AtomicU64,
    /// The time under which the slot is listed among the strangers; changes only with the table
    /// locked.
    listed_ns: AtomicU64,
    /// Whether a valid credential has been presented.
    is_known: AtomicBool,
    is_leaving: AtomicBool,
    leave: Notify,
    /// The origin that the connection counts towards; `None` for a trusted proxy or another node.
    origin: Option<Origin>,
}

/// Why a connection gets no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoSlot {
    /// All slots are taken, and no stranger can be dismissed.
    #[error("all connection slots are taken")]
    Full,
    /// The address has reached its limit.
    #[error("the address has reached its connection limit")]
    AddressFull,
}

/// A taken slot, freed when this is dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    limit: Arc<ConnectionLimit>,
    slot: Arc<Slot>,
    number: u64,
}

impl ConnectionLimit {
    /// Allows at most `count_max` connections, without a limit per address.
    pub fn new(count_max: usize) -> Arc<Self> {
        Self::with_address_cap(count_max, count_max)
    }

    /// Allows at most `count_max` connections in total and `per_address_max` per address. IPv6
    /// addresses count by their /64.
    pub fn with_address_cap(count_max: usize, per_address_max: usize) -> Arc<Self> {
        let (count, table) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { count_max, per_address_max, count, table })
    }

    /// Takes a free slot, or else the slot of the idlest stranger. `address` is `None` for a proxy,
    /// which serves many clients.
    pub fn admit(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        now_ns: u64,
    ) -> Result<ConnectionGuard, NoSlot> {
        let origin = address.map(Origin::of);
        let mut table = self.table.lock();
        let of_origin = origin.and_then(|origin| table.by_origin.get(&origin));
        if of_origin.is_some_and(|&count| count >= self.per_address_max) {
            return Err(NoSlot::AddressFull);
        }
        if table.count >= self.count_max && !table.dismiss_idlest() {
            return Err(NoSlot::Full);
        }
        table.count += 1;
        if let Some(origin) = origin {
            *table.by_origin.entry(origin).or_default() += 1;
        }
        let number = table.next_number;
        table.next_number += 1;
        let slot = Slot { asked_at_ns: now_ns.into(), origin, ..Slot::default() };
        let slot = Arc::new(slot);
        table.list(now_ns, number, slot.clone());
        self.count.store(table.count, Ordering::Relaxed);
        Ok(ConnectionGuard { limit: self.clone(), slot, number })
    }

    /// Returns the number of connections that count towards the limit.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Table {
    fn list(&mut self, at_ns: u64, number: u64, slot: Arc<Slot>) {
        slot.listed_ns.store(at_ns, Ordering::Relaxed);
        self.strangers.insert((at_ns, number), slot);
    }

    /// Dismisses the stranger that has been idle longest. Returns false if there is none, or while
    /// too many dismissed ones are still open.
    fn dismiss_idlest(&mut self) -> bool {
        if self.leaving >= LEAVING_MAX {
            return false;
        }
        // Bounds the loop, since strangers may send requests in the meantime.
        let mut relists_left = self.strangers.len();
        while let Some(((listed_ns, number), slot)) = self.strangers.pop_first() {
            // No longer a stranger: it stays off the list for good.
            if slot.is_known.load(Ordering::Relaxed) {
                continue;
            }
            let asked_at_ns = slot.asked_at_ns.load(Ordering::Relaxed);
            if asked_at_ns > listed_ns && relists_left > 0 {
                relists_left -= 1;
                self.list(asked_at_ns, number, slot);
                continue;
            }
            slot.is_leaving.store(true, Ordering::Relaxed);
            slot.leave.notify_one();
            self.leaving += 1;
            self.uncount(&slot);
            return true;
        }
        false
    }

    fn uncount(&mut self, slot: &Slot) {
        debug_assert!(self.count > 0, "a connection is counted once");
        debug_assert!(
            slot.origin.is_none_or(|origin| self.by_origin.get(&origin) > Some(&0)),
            "a connection is counted for its address"
        );
        self.count -= 1;
        if let Some(origin) = slot.origin
            && let Entry::Occupied(mut count) = self.by_origin.entry(origin)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl ConnectionGuard {
    /// Records that a request has arrived.
    pub fn note_request(&self, now_ns: u64) {
        self.slot.asked_at_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Records that a valid credential was presented: the connection is no longer a stranger.
    pub fn recognize(&self) {
        if !self.slot.is_known.load(Ordering::Relaxed) {
            self.slot.is_known.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a valid credential was presented.
    #[cfg(feature = "cluster")]
    pub fn is_recognized(&self) -> bool {
        self.slot.is_known.load(Ordering::Relaxed)
    }

    /// Has the connection end at once.
    pub fn cut(&self) {
        self.slot.leave.notify_one();
    }

    /// Resolves when the slot has been given to another connection, or was cut.
    pub async fn dismissed(&self) {
        self.slot.leave.notified().await;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut table = self.limit.table.lock();
        // Does nothing if the connection was already taken off the list.
        table.strangers.remove(&(self.slot.listed_ns.load(Ordering::Relaxed), self.number));
        if self.slot.is_leaving.load(Ordering::Relaxed) {
            debug_assert!(table.leaving > 0, "a dismissed connection is counted until it closes");
            table.leaving -= 1;
        } else {
            table.uncount(&self.slot);
        }
        self.limit.count.store(table.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::error::ApiError;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_dismissed(guard: &ConnectionGuard) -> bool {
        guard.slot.is_leaving.load(Ordering::Relaxed)
    }

    #[test]
    fn connections_per_address_are_capped() {
        let limit = ConnectionLimit::with_address_cap(100, 2);
        let admit = |text| limit.admit(Some(address(text)), 0);
        // Each group counts as one address.
        for group in [
            ["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"],
            ["192.0.2.2", "192.0.2.2", "192.0.2.2"],
            ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:0:0:1"],
            ["2001:db8:0:1::1", "2001:db8:0:1::1", "2001:db8:0:1::1"],
        ] {
            let [first, second, third] = group.map(admit);
            assert!(second.is_ok(), "{group:?}");
            assert_eq!(third.err(), Some(NoSlot::AddressFull), "{group:?}");
            drop(first);
            assert!(admit(group[2]).is_ok(), "{group:?}");
        }
        assert_eq!(limit.count(), 0);
        assert!(limit.table.lock().by_origin.is_empty());
        let of_proxy: Vec<_> = (0..100).map(|_| limit.admit(None, 0).unwrap()).collect();
        assert_eq!(limit.admit(None, 0).err(), None, "a stranger is dismissed");
        drop(of_proxy);
    }

    #[test]
    fn the_idlest_stranger_is_dismissed_and_known_clients_stay() {
        let limit = ConnectionLimit::new(3);
        let bot = limit.admit(None, 1).unwrap();
        let asks = limit.admit(None, 2).unwrap();
        let idle = limit.admit(None, 3).unwrap();
        bot.recognize();
        asks.note_request(4);
        let next = limit.admit(None, 5).unwrap();
        let gone = [&bot, &asks, &idle, &next].map(is_dismissed);
        assert_eq!(gone, [false, false, true, false]);
        // Its slot was already reassigned and must not be freed a second time.
        assert_eq!(limit.count(), 3);
        drop(idle);
        assert_eq!(limit.count(), 3);
        let last = limit.admit(None, 6).unwrap();
        assert!(is_dismissed(&asks) && !is_dismissed(&next));
        next.recognize();
        last.recognize();
        assert_eq!(limit.admit(None, 7).err(), Some(NoSlot::Full));
        drop(bot);
        limit.admit(None, 8).unwrap();
        drop((asks, next, last));
        assert_eq!(limit.count(), 0);
        assert!(limit.table.lock().strangers.is_empty());
    }

    /// However recent the strangers' requests are, one of the strangers is the idlest.
    #[test]
    fn strangers_that_all_sent_requests_make_room_at_once() {
        let limit = ConnectionLimit::new(3);
        let strangers = [1, 2, 3].map(|at_ns| limit.admit(None, at_ns).unwrap());
        for (stranger, asked_at_ns) in strangers.iter().zip([6, 4, 5]) {
            stranger.note_request(asked_at_ns);
        }
        assert_eq!(limit.admit(None, 7).err(), None);
        assert_eq!(strangers.each_ref().map(is_dismissed), [false, true, false]);
    }

    #[test]
    fn a_dismissed_connection_does_not_count_for_its_address() {
        let limit = ConnectionLimit::with_address_cap(2, 2);
        let [bot, other] = ["192.0.2.1", "192.0.2.2"].map(address);
        let before = [1, 2].map(|at_ns| limit.admit(Some(bot), at_ns).unwrap());
        let others = [3, 4].map(|at_ns| limit.admit(Some(other), at_ns).unwrap());
        assert_eq!(before.each_ref().map(is_dismissed), [true, true]);
        let again = limit.admit(Some(bot), 5).unwrap();
        // Dismissed connections must not be subtracted a second time.
        drop(before);
        let second = limit.admit(Some(bot), 6).unwrap();
        assert_eq!(limit.admit(Some(bot), 7).err(), Some(NoSlot::AddressFull));
        drop((others, again, second));
        assert_eq!(limit.count(), 0);
        assert!(limit.table.lock().by_origin.is_empty());
    }

    #[test]
    fn the_number_of_dismissed_connections_is_bounded() {
        let limit = ConnectionLimit::new(2);
        let mut guards: Vec<_> =
            (0..2 + LEAVING_MAX).map(|_| limit.admit(None, 0).unwrap()).collect();
        assert_eq!(limit.admit(None, 0).err(), Some(NoSlot::Full));
        assert_eq!(guards.iter().filter(|guard| is_dismissed(guard)).count(), LEAVING_MAX);
        drop(guards.remove(0));
        guards.push(limit.admit(None, 0).unwrap());
        assert_eq!(limit.count(), 2);
    }

    #[test]
    fn a_limit_of_zero_admits_nobody() {
        assert_eq!(ConnectionLimit::new(0).admit(None, 0).err(), Some(NoSlot::Full));
    }

    #[test]
    fn the_refusal_is_the_server_busy_error() {
        let text = std::str::from_utf8(REFUSAL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let error = ApiError::server_busy();
        assert_eq!(body.as_bytes(), error.body());
        for line in [
            format!("content-length: {}", body.len()),
            format!("x-polysim-code: {}", error.code),
            format!("retry-after: {}", error.retry_after_seconds.unwrap()),
            "x-content-type-options: nosniff".to_owned(),
        ] {
            assert!(head.lines().any(|header| header == line), "{line}");
        }
        assert!(head.starts_with("HTTP/1.1 503 "));
    }
}
