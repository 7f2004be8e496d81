//! What is known of every followed token but its book: how far it can be trusted, since when, and
//! when it is to be asked for. Pure: time comes in, as the time since the start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::freshness::{self, Freshness, Signal, StateCounts};
use super::timing::Timing;
use crate::ids::Timestamp;

/// Every followed token.
#[derive(Default)]
pub(crate) struct Tracker {
    tokens: HashMap<Arc<str>, Tracked, foldhash::fast::RandomState>,
}

/// A followed token.
pub(crate) struct Tracked {
    /// Its market.
    pub(crate) condition_id: Arc<str>,
    /// Which socket tells of it.
    pub(crate) socket: usize,
    state: Freshness,
    /// When it came to this state.
    since: Duration,
    /// When its book was last proven, or found to agree.
    verified_at: Duration,
    /// Whether its socket is open.
    is_connected: bool,
    /// Rises when its socket opens or is lost: an answer to a question of before says nothing.
    connection: u32,
    /// When the venue was asked for its book, while the answer is awaited or fresh.
    asked_at: Option<Duration>,
    is_asking: bool,
    /// Questions in a row that settled nothing.
    vain_count: u32,
    /// The venue's time of the newest thing that its socket told.
    told_at: Timestamp,
    /// What its socket must have told, since the book endpoint did.
    expected: Option<Expected>,
}

/// Something that a socket is to tell.
#[derive(Clone, Copy)]
struct Expected {
    /// The venue's time of it.
    at: Timestamp,
    by: Duration,
    /// A sweep has found it missing. The next one decides: where we were late ourselves, it may
    /// wait to be read.
    is_overdue: bool,
}

/// What a sweep found.
#[derive(Default, Debug, PartialEq)]
pub(crate) struct Sweep {
    /// Tokens whose proof is too old.
    pub(crate) expired: Vec<Arc<str>>,
    /// Tokens to be asked for, with their connection.
    pub(crate) due: Vec<(Arc<str>, u32)>,
    /// Sockets that did not tell what the book endpoint did.
    pub(crate) silent_sockets: Vec<usize>,
}

impl Tracker {
    /// Follows a token from now on. It is stale until its socket opens.
    pub(crate) fn follow(&mut self, token_id: Arc<str>, market: Arc<str>, socket: usize) {
        self.tokens.insert(
            token_id,
            Tracked {
                condition_id: market,
                socket,
                state: Freshness::Stale,
                since: Duration::ZERO,
                verified_at: Duration::ZERO,
                is_connected: false,
                connection: 0,
                asked_at: None,
                is_asking: false,
                vain_count: 0,
                told_at: Timestamp::EPOCH,
                expected: None,
            },
        );
    }

    /// Forgets a token.
    pub(crate) fn unfollow(&mut self, token_id: &str) -> Option<Tracked> {
        self.tokens.remove(token_id)
    }

    /// Has another socket tell of a token.
    pub(crate) fn move_to(&mut self, token_id: &str, socket: usize) {
        if let Some(token) = self.tokens.get_mut(token_id) {
            token.socket = socket;
        }
    }

    /// The token as it is stored, with what is known of it.
    pub(crate) fn get(&self, token_id: &str) -> Option<(&Arc<str>, &Tracked)> {
        self.tokens.get_key_value(token_id)
    }

    /// Takes note of the venue's time of something that the token's socket told.
    pub(crate) fn told(&mut self, token_id: &str, at: Timestamp) {
        if let Some(token) = self.tokens.get_mut(token_id) {
            token.told_at = token.told_at.max(at);
            if token.expected.is_some_and(|expected| expected.at <= token.told_at) {
                token.expected = None;
            }
        }
    }

    /// Takes note of a book that only the book endpoint told: the socket is to tell it soon.
    pub(crate) fn expect(&mut self, token_id: &str, at: Timestamp, by: Duration) {
        if let Some(token) = self.tokens.get_mut(token_id)
            && token.told_at < at
        {
            token.expected = Some(Expected { at, by, is_overdue: false });
        }
    }

    /// What a signal makes of a token: the states before and after.
    pub(crate) fn signal(
        &mut self,
        token_id: &str,
        signal: Signal,
        now: Duration,
    ) -> Option<(Freshness, Freshness)> {
        let token = self.tokens.get_mut(token_id)?;
        let before = token.state;
        token.state = before.after(signal);
        if token.state != before {
            token.since = now;
        }
        match signal {
            Signal::Opened | Signal::Lost => {
                token.is_connected = signal == Signal::Opened;
                token.connection += 1;
                (token.is_asking, token.asked_at, token.expected) = (false, None, None);
            }
            Signal::Proven => {
                (token.verified_at, token.vain_count) = (token.verified_at.max(now), 0);
            }
            Signal::Agreed if token.state == Freshness::Live => {
                token.verified_at = token.verified_at.max(now);
            }
            _ => {}
        }
        Some((before, token.state))
    }

    /// An answer of the book endpoint came, or will not come. Tells whether it is about the
    /// connection of now.
    pub(crate) fn answered(&mut self, token_id: &str, connection: u32) -> bool {
        let Some(token) = self.tokens.get_mut(token_id) else { return false };
        if token.connection != connection || token.state == Freshness::Closed {
            return false;
        }
        token.is_asking = false;
        token.vain_count = token.vain_count.saturating_add(1);
        true
    }

    /// Whether this is the token's connection of now, and it is of use to ask for its book.
    pub(crate) fn is_current(&self, token_id: &str, connection: u32) -> bool {
        self.tokens
            .get(token_id)
            .is_some_and(|token| token.connection == connection && token.state != Freshness::Closed)
    }

    /// How many questions in a row have settled nothing.
    pub(crate) fn vain_count(&self, token_id: &str) -> u32 {
        self.tokens.get(token_id).map_or(0, |token| token.vain_count)
    }

    /// Looks at every token. What sockets told up to `heard_until` has been taken: one is silent
    /// that did not tell something by then, whatever still waits for us.
    pub(crate) fn sweep(&mut self, now: Duration, heard_until: Duration, timing: &Timing) -> Sweep {
        let mut sweep = Sweep::default();
        for (token_id, token) in &mut self.tokens {
            if !token.is_connected || token.state == Freshness::Closed {
                continue;
            }
            if token.state != Freshness::Syncing
                && token.state != Freshness::Stale
                && now.saturating_sub(token.verified_at) > timing.verified_max
            {
                sweep.expired.push(token_id.clone());
            }
            if token.is_due(now, timing) {
                (token.is_asking, token.asked_at) = (true, Some(now));
                sweep.due.push((token_id.clone(), token.connection));
            }
            match &mut token.expected {
                Some(expected) if heard_until > expected.by && expected.is_overdue => {
                    token.expected = None;
                    if !sweep.silent_sockets.contains(&token.socket) {
                        sweep.silent_sockets.push(token.socket);
                    }
                }
                Some(expected) => expected.is_overdue = heard_until > expected.by,
                None => {}
            }
        }
        sweep
    }

    /// How many tokens are in each state.
    pub(crate) fn counts(&self) -> StateCounts {
        freshness::count(self.tokens.values().map(|token| token.state))
    }
}

impl Tracked {
    /// How far its book can be trusted.
    pub(crate) const fn state(&self) -> Freshness {
        self.state
    }

    /// Which of its socket's connections and losses it has seen: an answer is about one of them.
    pub(crate) const fn connection(&self) -> u32 {
        self.connection
    }

    /// Whether the venue is to be asked for its book.
    fn is_due(&self, now: Duration, timing: &Timing) -> bool {
        // What settles nothing is asked for ever more seldom, down to once in a minute or so.
        let pause = timing.ask_pause.saturating_mul(1 << self.vain_count.min(5));
        if self.is_asking || self.asked_at.is_some_and(|at| now.saturating_sub(at) < pause) {
            return false;
        }
        match self.state {
            Freshness::Live => now.saturating_sub(self.verified_at) >= timing.check_after,
            Freshness::Suspect => now.saturating_sub(self.since) >= timing.suspect_grace,
            Freshness::Syncing => now.saturating_sub(self.since) >= timing.sync_patience,
            Freshness::Stale => true,
            Freshness::Closed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        verified_max: Duration::from_mins(2),
        check_after: Duration::from_mins(1),
        suspect_grace: Duration::from_millis(500),
        sync_patience: Duration::from_secs(5),
        ask_pause: Duration::from_secs(2),
        ..Timing::VENUE
    };

    fn tracker() -> Tracker {
        let mut tracker = Tracker::default();
        tracker.follow("1".into(), "0xa".into(), 0);
        tracker
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A sweep when all that sockets told has been taken.
    fn look(tracker: &mut Tracker, millis: u64) -> Sweep {
        tracker.sweep(at(millis), at(millis), &TIMING)
    }

    /// Signals with their times, then when the token is first due and when it expires, looked for
    /// every 100 ms.
    #[test]
    fn a_token_is_asked_for_in_time_and_expires_without_a_proof() {
        for (signals, due_ms, expired_ms) in [
            (&[][..], None, None),
            (&[(0, Signal::Opened)], Some(5_000), None),
            (&[(0, Signal::Opened), (1_000, Signal::Proven)], Some(61_000), Some(121_100)),
            (
                &[(0, Signal::Opened), (0, Signal::Proven), (30_000, Signal::Agreed)],
                Some(90_000),
                Some(150_100),
            ),
            (
                &[(0, Signal::Opened), (0, Signal::Proven), (1_000, Signal::Contradicted)],
                Some(1_500),
                Some(120_100),
            ),
            (&[(0, Signal::Opened), (0, Signal::Proven), (1_000, Signal::Lost)], None, None),
            (&[(0, Signal::Opened), (0, Signal::Proven), (1_000, Signal::Ended)], None, None),
            // What agrees heals nothing.
            (
                &[
                    (0, Signal::Opened),
                    (0, Signal::Proven),
                    (1_000, Signal::Contradicted),
                    (1_100, Signal::Agreed),
                ],
                Some(1_500),
                Some(120_100),
            ),
        ] {
            let mut tracker = tracker();
            let (mut due, mut expired) = (None, None);
            let mut signals_left = signals.iter().peekable();
            for millis in (0..200_000).step_by(100) {
                while let Some((_, signal)) = signals_left.next_if(|(when, _)| *when <= millis) {
                    tracker.signal("1", *signal, at(millis));
                }
                let sweep = look(&mut tracker, millis);
                due = due.or((!sweep.due.is_empty()).then_some(millis));
                expired = expired.or((!sweep.expired.is_empty()).then_some(millis));
            }
            assert_eq!((due, expired), (due_ms, expired_ms), "{signals:?}");
        }
    }

    #[test]
    fn what_settles_nothing_is_asked_for_ever_more_seldom() {
        let mut tracker = tracker();
        tracker.signal("1", Signal::Opened, at(0));
        let mut asked = Vec::new();
        for second in 0..150 {
            for (_, connection) in look(&mut tracker, second * 1_000).due {
                asked.push(second);
                assert!(tracker.answered("1", connection));
            }
        }
        assert_eq!(asked, [5, 9, 17, 33, 65, 129]);
        tracker.signal("1", Signal::Proven, at(150_000));
        assert_eq!(tracker.vain_count("1"), 0);
    }

    #[test]
    fn an_answer_to_a_lost_connection_says_nothing() {
        let mut tracker = tracker();
        tracker.signal("1", Signal::Opened, at(0));
        let (_, connection) = look(&mut tracker, 5_000).due[0];
        tracker.signal("1", Signal::Lost, at(5_100));
        tracker.signal("1", Signal::Opened, at(5_200));
        assert!(!tracker.answered("1", connection));
        assert!(!tracker.answered("2", 0));
    }

    #[test]
    fn a_socket_that_does_not_tell_what_the_books_tell_is_silent() {
        let time = Timestamp::from_millis;
        for (told_at, is_silent) in [(None, true), (Some(9), true), (Some(10), false)] {
            let mut tracker = tracker();
            tracker.signal("1", Signal::Opened, at(0));
            tracker.expect("1", time(10), at(3_000));
            if let Some(millis) = told_at {
                tracker.told("1", time(millis));
            }
            assert_eq!(look(&mut tracker, 3_000).silent_sockets, [0; 0]);
            // We may be late ourselves: what was told may wait to be read.
            assert_eq!(look(&mut tracker, 9_000).silent_sockets, [0; 0]);
            let silent = look(&mut tracker, 9_001).silent_sockets;
            assert_eq!(!silent.is_empty(), is_silent, "{told_at:?}");
            assert!(look(&mut tracker, 9_002).silent_sockets.is_empty(), "once");
        }
        let mut tracker = tracker();
        tracker.told("1", time(10));
        tracker.signal("1", Signal::Opened, at(0));
        tracker.expect("1", time(10), at(3_000));
        for millis in [4_000, 4_001] {
            let silent = look(&mut tracker, millis).silent_sockets;
            assert!(silent.is_empty(), "it was told before");
        }
    }

    /// A process that was busy elsewhere has not read yet what would prove the socket right.
    #[test]
    fn a_socket_is_not_silent_while_its_messages_wait_for_us() {
        for (heard_until, is_silent) in [(2_999, false), (3_000, false), (3_001, true)] {
            let mut tracker = tracker();
            tracker.signal("1", Signal::Opened, at(0));
            tracker.expect("1", Timestamp::from_millis(10), at(3_000));
            let mut sweep = |millis| tracker.sweep(at(millis), at(heard_until), &TIMING);
            let silent = [sweep(20_000), sweep(20_250)].map(|sweep| sweep.silent_sockets.len());
            assert_eq!(silent, [0, usize::from(is_silent)], "{heard_until}");
        }
    }

    #[test]
    fn tokens_are_counted_by_state() {
        let mut tracker = tracker();
        tracker.follow("2".into(), "0xa".into(), 0);
        tracker.signal("2", Signal::Opened, at(0));
        assert_eq!(tracker.counts(), [1, 0, 0, 1, 0]);
        tracker.unfollow("1");
        assert_eq!(tracker.counts(), [1, 0, 0, 0, 0]);
    }
}
