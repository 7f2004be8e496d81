//! Heartbeats that name the one before them, as clients of the venue's interface send them.
//!
//! Two programs that trade with one account by mistake learn of each other this way: one of them
//! names a heartbeat that is no longer the newest. The names live in memory only, so that after a
//! restart, or at another node of a cluster, an account may begin with any.

use std::collections::HashMap;
use std::fmt;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use paperbourse_core::ids::{AccountId, Timestamp};

/// Maximum number of accounts whose newest heartbeat is kept. Beyond it, heartbeats of further
/// accounts may name any.
const ACCOUNTS_MAX: usize = 100_000;

/// Number of accounts below which nothing is removed.
const ACCOUNTS_MIN: usize = 64;

/// The name of a heartbeat. `Display` writes it as a UUID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeartbeatId(u128);

/// The newest heartbeat of each account, until the account counts as silent.
pub(super) struct HeartbeatChains(Mutex<Table>);

struct Table {
    newest: HashMap<AccountId, Newest, RandomState>,
    /// The number of accounts at which those that are silent are removed.
    sweep_at: usize,
}

struct Newest {
    id: HeartbeatId,
    silent_at: Timestamp,
}

impl HeartbeatId {
    /// Makes a name that no other heartbeat has.
    pub(super) fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self::of(bytes))
    }

    /// Returns the UUID of version 4 with these random bytes.
    const fn of(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for HeartbeatId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let [time, middle, version, variant] =
            [0..8, 8..12, 12..16, 16..20].map(|range| &digits[range]);
        write!(formatter, "{time}-{middle}-{version}-{variant}-{}", &digits[20..])
    }
}

impl Default for HeartbeatChains {
    fn default() -> Self {
        let newest = HashMap::default();
        Self(Mutex::new(Table { newest, sweep_at: ACCOUNTS_MIN }))
    }
}

impl HeartbeatChains {
    /// Returns the newest heartbeat of an account; `None` if there is none, or if the account
    /// counts as silent.
    pub(super) fn newest(&self, account: AccountId, now: Timestamp) -> Option<HeartbeatId> {
        self.0.lock().newest(account, now)
    }

    /// Makes `next` the newest heartbeat of an account that counts as silent from `silent_at`,
    /// unless another one came after `before`. Returns the newest.
    pub(super) fn advance(
        &self,
        account: AccountId,
        before: Option<HeartbeatId>,
        (next, silent_at): (HeartbeatId, Timestamp),
        now: Timestamp,
    ) -> HeartbeatId {
        let mut table = self.0.lock();
        if let Some(newest) = table.newest(account, now).filter(|it| Some(*it) != before) {
            return newest;
        }
        if table.has_room_for(account, now) {
            table.newest.insert(account, Newest { id: next, silent_at });
        }
        next
    }
}

impl Table {
    fn newest(&self, account: AccountId, now: Timestamp) -> Option<HeartbeatId> {
        self.newest.get(&account).filter(|it| now < it.silent_at).map(|it| it.id)
    }

    /// Whether the heartbeat of this account can be kept. Removes those of silent accounts once the
    /// table is twice as large as after the last removal.
    fn has_room_for(&mut self, account: AccountId, now: Timestamp) -> bool {
        if self.newest.len() >= self.sweep_at && !self.newest.contains_key(&account) {
            self.newest.retain(|_, newest| now < newest.silent_at);
            self.sweep_at = (2 * self.newest.len()).clamp(ACCOUNTS_MIN, ACCOUNTS_MAX);
            return self.newest.len() < ACCOUNTS_MAX;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::ids::ShardId;

    fn account(number: u64) -> AccountId {
        AccountId::new(ShardId::of_digest(0), number).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn id(byte: u8) -> HeartbeatId {
        HeartbeatId::of([byte; 16])
    }

    #[test]
    fn a_name_is_a_uuid_of_version_4() {
        assert_eq!(id(0xff).to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(id(0).to_string(), "00000000-0000-4000-8000-000000000000");
        assert_ne!(HeartbeatId::generate(), HeartbeatId::generate());
    }

    #[test]
    fn the_newest_is_kept_until_the_account_is_silent() {
        let chains = HeartbeatChains::default();
        let ann = account(1);
        assert_eq!(chains.newest(ann, at(0)), None);
        assert_eq!(chains.advance(ann, None, (id(1), at(10)), at(0)), id(1));
        assert_eq!(chains.newest(ann, at(9)), Some(id(1)));
        assert_eq!(chains.newest(account(2), at(9)), None);
        // Of two heartbeats that come after the same one, both get the name of the first.
        assert_eq!(chains.advance(ann, Some(id(1)), (id(2), at(11)), at(1)), id(2));
        assert_eq!(chains.advance(ann, Some(id(1)), (id(3), at(11)), at(1)), id(2));
        assert_eq!(chains.newest(ann, at(10)), Some(id(2)));
        assert_eq!(chains.newest(ann, at(11)), None);
        assert_eq!(chains.advance(ann, None, (id(4), at(30)), at(20)), id(4));
    }

    #[test]
    fn accounts_that_are_silent_leave() {
        let chains = HeartbeatChains::default();
        for number in 1..=1_000 {
            let now = i64::try_from(number).unwrap();
            chains.advance(account(number), None, (id(1), at(now + 10)), at(now));
        }
        assert!(chains.0.lock().newest.len() <= ACCOUNTS_MIN);
        assert_eq!(chains.newest(account(1_000), at(1_000)), Some(id(1)));
    }

    #[test]
    fn further_accounts_than_the_table_holds_have_no_newest() {
        let chains = HeartbeatChains::default();
        let max = ACCOUNTS_MAX as u64;
        for number in 1..=max + 1 {
            assert_eq!(chains.advance(account(number), None, (id(1), at(10)), at(0)), id(1));
        }
        assert_eq!(chains.newest(account(max), at(0)), Some(id(1)));
        assert_eq!(chains.newest(account(max + 1), at(0)), None);
        // Those that are in it go on.
        assert_eq!(chains.advance(account(1), Some(id(1)), (id(2), at(20)), at(9)), id(2));
        assert_eq!(chains.advance(account(max + 1), None, (id(2), at(20)), at(10)), id(2));
        assert_eq!(chains.0.lock().newest.len(), 2);
    }
}
