//! Who has a place: how many connections there may be in all and for each address, which of them
//! goes when there is no room for another, and what the one too many is told.
//!
//! Bots keep their connections. A connection is a *stranger's* until a valid credential has come on
//! it, and while every place is taken a newcomer gets the place of the stranger whose last request
//! is the longest ago. What a stranger has to do to stay is to ask, and that has limits of its own.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::bucket::Origin;

/// What a connection past the limit gets before it is closed, whatever it asks.
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

/// Connections that were told to go and are still there, at most: so many may exist beyond the
/// limit.
pub const LEAVING_MAX: usize = 64;

/// How many connections there are, and how many there may be.
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
    /// Told to go, and not counted any more.
    leaving: usize,
    by_origin: HashMap<Origin, usize>,
    /// Those that were strangers when they were last looked at, the idlest first.
    strangers: BTreeMap<Listed, Arc<Place>>,
    next_number: u64,
}

/// When a stranger was last known to ask, and its number.
type Listed = (u64, u64);

/// What is known of one connection.
#[derive(Default, Debug)]
struct Place {
    /// When the newest request came, or the connection, in nanoseconds of the monotonic clock.
    asked_at_ns: AtomicU64,
    /// Under which time it stands among the strangers; changed with the table locked.
    listed_ns: AtomicU64,
    /// A valid credential has come.
    is_known: AtomicBool,
    is_leaving: AtomicBool,
    leave: Notify,
}

/// Why there is no place for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoPlace {
    /// Every place is taken, and by no stranger.
    #[error("all places are taken")]
    Full,
    /// The address has as many as it may.
    #[error("the address has as many connections as it may")]
    AddressFull,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    limit: Arc<ConnectionLimit>,
    place: Arc<Place>,
    number: u64,
    origin: Option<Origin>,
}

impl ConnectionLimit {
    /// At most so many at a time, and of one address no fewer.
    pub fn new(count_max: usize) -> Arc<Self> {
        Self::with_address_cap(count_max, count_max)
    }

    /// At most so many at a time, and so many of one address; IPv6 addresses count by their /64.
    pub fn with_address_cap(count_max: usize, per_address_max: usize) -> Arc<Self> {
        let (count, table) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { count_max, per_address_max, count, table })
    }

    /// Takes a place, at the cost of the idlest stranger when there is none. `address` is `None`
    /// for a proxy, which has many clients behind it.
    pub fn admit(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        now_ns: u64,
    ) -> Result<ConnectionGuard, NoPlace> {
        let origin = address.map(Origin::of);
        let mut table = self.table.lock();
        let of_origin = origin.and_then(|origin| table.by_origin.get(&origin));
        if of_origin.is_some_and(|&count| count >= self.per_address_max) {
            return Err(NoPlace::AddressFull);
        }
        if table.count >= self.count_max && !table.dismiss_idlest() {
            return Err(NoPlace::Full);
        }
        table.count += 1;
        if let Some(origin) = origin {
            *table.by_origin.entry(origin).or_default() += 1;
        }
        let number = table.next_number;
        table.next_number += 1;
        let place = Arc::new(Place::default());
        place.asked_at_ns.store(now_ns, Ordering::Relaxed);
        table.list(now_ns, number, place.clone());
        self.count.store(table.count, Ordering::Relaxed);
        Ok(ConnectionGuard { limit: self.clone(), place, number, origin })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Table {
    fn list(&mut self, at_ns: u64, number: u64, place: Arc<Place>) {
        place.listed_ns.store(at_ns, Ordering::Relaxed);
        self.strangers.insert((at_ns, number), place);
    }

    /// Tells the stranger to go that has not asked for the longest time. False when there is none,
    /// and while many are still on their way out.
    fn dismiss_idlest(&mut self) -> bool {
        if self.leaving >= LEAVING_MAX {
            return false;
        }
        // Each is looked at once at most: one that asks again and again meanwhile may stay.
        for _ in 0..self.strangers.len() {
            let Some(((listed_ns, number), place)) = self.strangers.pop_first() else { break };
            if place.is_known.load(Ordering::Relaxed) {
                continue;
            }
            let asked_at_ns = place.asked_at_ns.load(Ordering::Relaxed);
            if asked_at_ns > listed_ns {
                self.list(asked_at_ns, number, place);
                continue;
            }
            place.is_leaving.store(true, Ordering::Relaxed);
            place.leave.notify_one();
            self.leaving += 1;
            self.count -= 1;
            return true;
        }
        false
    }
}

impl ConnectionGuard {
    /// A request has come.
    pub fn note_request(&self, now_ns: u64) {
        self.place.asked_at_ns.store(now_ns, Ordering::Relaxed);
    }

    /// A valid credential has come: the connection is no stranger's any more.
    pub fn recognize(&self) {
        if !self.place.is_known.load(Ordering::Relaxed) {
            self.place.is_known.store(true, Ordering::Relaxed);
        }
    }

    /// Resolves when the place was given to somebody else.
    pub async fn dismissed(&self) {
        self.place.leave.notified().await;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut table = self.limit.table.lock();
        table.strangers.remove(&(self.place.listed_ns.load(Ordering::Relaxed), self.number));
        if let Some(origin) = self.origin
            && let Entry::Occupied(mut count) = table.by_origin.entry(origin)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if self.place.is_leaving.load(Ordering::Relaxed) {
            table.leaving -= 1;
        } else {
            table.count -= 1;
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
        guard.place.is_leaving.load(Ordering::Relaxed)
    }

    #[test]
    fn an_address_has_its_cap() {
        let limit = ConnectionLimit::with_address_cap(100, 2);
        let admit = |text| limit.admit(Some(address(text)), 0);
        // Each group is one address to us.
        for group in [
            ["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"],
            ["192.0.2.2", "192.0.2.2", "192.0.2.2"],
            ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:0:0:1"],
            ["2001:db8:0:1::1", "2001:db8:0:1::1", "2001:db8:0:1::1"],
        ] {
            let [first, second, third] = group.map(admit);
            assert!(second.is_ok(), "{group:?}");
            assert_eq!(third.err(), Some(NoPlace::AddressFull), "{group:?}");
            drop(first);
            assert!(admit(group[2]).is_ok(), "{group:?}");
        }
        assert_eq!(limit.count(), 0);
        assert!(limit.table.lock().by_origin.is_empty());
        let of_proxy: Vec<_> = (0..100).map(|_| limit.admit(None, 0).unwrap()).collect();
        assert_eq!(limit.admit(None, 0).err(), None, "a stranger goes");
        drop(of_proxy);
    }

    #[test]
    fn the_idlest_stranger_goes_and_whoever_is_known_stays() {
        let limit = ConnectionLimit::new(3);
        let bot = limit.admit(None, 1).unwrap();
        let asks = limit.admit(None, 2).unwrap();
        let idle = limit.admit(None, 3).unwrap();
        bot.recognize();
        asks.note_request(4);
        let next = limit.admit(None, 5).unwrap();
        let gone = [&bot, &asks, &idle, &next].map(is_dismissed);
        assert_eq!(gone, [false, false, true, false]);
        // Its place is taken already, and not given up a second time.
        assert_eq!(limit.count(), 3);
        drop(idle);
        assert_eq!(limit.count(), 3);
        let last = limit.admit(None, 6).unwrap();
        assert!(is_dismissed(&asks) && !is_dismissed(&next));
        next.recognize();
        last.recognize();
        assert_eq!(limit.admit(None, 7).err(), Some(NoPlace::Full));
        drop(bot);
        limit.admit(None, 8).unwrap();
        drop((asks, next, last));
        assert_eq!(limit.count(), 0);
        assert!(limit.table.lock().strangers.is_empty());
    }

    #[test]
    fn few_are_on_their_way_out_at_a_time() {
        let limit = ConnectionLimit::new(2);
        let mut guards: Vec<_> =
            (0..2 + LEAVING_MAX).map(|_| limit.admit(None, 0).unwrap()).collect();
        assert_eq!(limit.admit(None, 0).err(), Some(NoPlace::Full));
        assert_eq!(guards.iter().filter(|guard| is_dismissed(guard)).count(), LEAVING_MAX);
        drop(guards.remove(0));
        guards.push(limit.admit(None, 0).unwrap());
        assert_eq!(limit.count(), 2);
    }

    #[test]
    fn nobody_gets_a_place_where_there_is_none() {
        assert_eq!(ConnectionLimit::new(0).admit(None, 0).err(), Some(NoPlace::Full));
    }

    #[test]
    fn the_refusal_is_the_error_that_everybody_gets() {
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
