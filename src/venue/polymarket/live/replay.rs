//! Plays a tape to a [`Follower`]: it hears what one heard when the tape was made, in that order
//! and at those times, and so decides what that one did. What was decided by the clock is on the
//! tape as well; what is asked for, nobody carries.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::follower;
use super::log::log;
use super::rest::{read_events, read_page};
use crate::ids::Timestamp;
use crate::venue::feed::Feed;
use crate::venue::follow::Stamp;
use crate::venue::follow::request::{BookRequest, Request};
use crate::venue::follow::timing::Timing;
use crate::venue::polymarket::filter::{MARKETS_WANTED_MAX, MarketFilter};
use crate::venue::polymarket::follower::{Described, Follower};
use crate::venue::polymarket::wire::{Description, WireError, clob, data, gamma};
use crate::venue::tape::{Line, VERSION};

/// A tape tells of at most this many sockets.
const SOCKETS_MAX: usize = 1_024;

/// Questions of which the answer may still come.
const ASKED_MAX: usize = 64;

/// Descriptions are kept of at most this many markets, until the tape says which are followed. The
/// longest list has half as many.
const DESCRIPTIONS_MAX: usize = 20_000;

/// Plays a tape.
pub struct Replay {
    follower: Follower<Feed>,
    /// When the session began, and the newest time of a line.
    began: Timestamp,
    now: Timestamp,
    /// Whether the session's first line was played.
    has_begun: bool,
    /// What Gamma told of markets, and what the CLOB service did.
    told: HashMap<Arc<str>, Description>,
    told_second: HashMap<Arc<str>, Description>,
    /// What the data API answered, by the markets that the requests name.
    told_third: HashMap<Arc<str>, String>,
    asked: HashMap<u64, BookRequest>,
    counts: ReplayCounts,
}

/// What was played so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReplayCounts {
    /// Frames of sockets.
    pub frames: u64,
    /// Answers of services.
    pub answers: u64,
    /// Times that lines are missing, or were never written.
    pub gaps: u64,
    /// Lines that are not played: the first of their session is missing, or it is of a version
    /// that is not known.
    pub unbegun: u64,
    /// Lines of a kind that is not known.
    pub unknown: u64,
    /// Lines that do not hold what their kind needs.
    pub unusable: u64,
}

impl Replay {
    /// Publishes through this feed.
    pub fn new(feed: Feed) -> Self {
        Self {
            follower: follower(feed, MarketFilter::default(), Timing::VENUE),
            began: Timestamp::EPOCH,
            now: Timestamp::EPOCH,
            has_begun: false,
            told: HashMap::new(),
            told_second: HashMap::new(),
            told_third: HashMap::new(),
            asked: HashMap::new(),
            counts: ReplayCounts::default(),
        }
    }

    /// The feed that it plays to.
    pub fn feed(&self) -> &Feed {
        self.follower.books()
    }

    /// What was played so far.
    pub fn counts(&self) -> ReplayCounts {
        self.counts
    }

    /// Lines are missing: nothing that a socket tells can be trusted before it is opened again.
    pub fn miss(&mut self, count: u64) {
        tracing::warn!(lines = count, "the tape has a gap: all books are stale until they come");
        self.counts.gaps += 1;
        self.follower.lost_all(self.stamp(self.now));
    }

    /// A line cannot be read.
    pub fn note_unusable(&mut self) {
        self.counts.unusable += 1;
    }

    /// Plays a line.
    pub fn take(&mut self, line: &Line<'_>) {
        let now = Timestamp::from_nanos(line.ns);
        if line.kind == "begin" {
            self.begin(line, now);
            return;
        }
        if !self.has_begun {
            self.counts.unbegun += 1;
            return;
        }
        self.now = self.now.max(now);
        let taken = match &*line.kind {
            "answer" => self.answer(line),
            "listed" => self.listed(line),
            "described" => self.described(line),
            "follow" => self.follow(line),
            "open" => self.open(line),
            "frame" => self.frame(line),
            "lost" | "given_up" => self.lost(line),
            "expired" => self.expired(line),
            "ask" => self.ask(line),
            "books" => self.books(line),
            "gap" => {
                self.miss(line.lines.unwrap_or(0));
                Some(())
            }
            "end" => Some(()),
            _ => {
                self.counts.unknown += 1;
                Some(())
            }
        };
        self.counts.unusable += u64::from(taken.is_none());
        for request in self.follower.take_requests() {
            if let Request::Log(notice) = request {
                log(&notice);
            }
        }
    }

    /// A time of the tape.
    fn stamp(&self, time: Timestamp) -> Stamp {
        let nanos = time.nanos().saturating_sub(self.began.nanos());
        Stamp { elapsed: Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)), time }
    }

    /// The newest time, at which a line is taken.
    fn now(&self) -> Stamp {
        self.stamp(self.now)
    }

    /// When a line came, also where it waited for one that is later.
    fn received(&self, line: &Line<'_>) -> Stamp {
        self.stamp(Timestamp::from_nanos(line.ns))
    }

    /// A session begins: of what the one before it told, nothing is known to be so still.
    fn begin(&mut self, line: &Line<'_>, now: Timestamp) {
        let market_count = line.markets_max.unwrap_or(MARKETS_WANTED_MAX);
        let filter = MarketFilter {
            count_max: market_count.min(MARKETS_WANTED_MAX),
            ..MarketFilter::default()
        };
        let lag_max = line.lag_max_ms.map_or(Duration::MAX, Duration::from_millis);
        self.follower.restart(filter, lag_max, self.now());
        (self.began, self.now) = (now, now);
        (self.told, self.told_second, self.told_third, self.asked) = Default::default();
        self.has_begun = line.version == Some(VERSION);
        if !self.has_begun {
            let advice = match line.version {
                Some(version) if version > VERSION => "play it with a newer paperbourse",
                Some(_) => "play it with the paperbourse that recorded it",
                None => "it names none, so no paperbourse has recorded it",
            };
            tracing::warn!(
                version = line.version,
                supported = VERSION,
                "skipping a session of a tape, for this version cannot be played: {advice}"
            );
            self.counts.unbegun += 1;
        }
    }

    /// Keeps what a service told of markets, until the tape says what became of it.
    fn answer(&mut self, line: &Line<'_>) -> Option<()> {
        self.counts.answers += 1;
        // A failure, of which the reason is for people, has told nothing.
        let Some(body) = line.payload().ok()? else { return Some(()) };
        let get = line.get.as_deref()?;
        let body = str::from_utf8(&body).ok()?;
        if get.starts_with("/markets/keyset") {
            keep(&mut self.told, read_page(body.as_bytes()).ok()?.markets.into_iter());
        } else if get.starts_with("/events/keyset") {
            keep(&mut self.told, read_events(body.as_bytes()).ok()?.markets.into_iter());
        } else if get.starts_with("/markets?") {
            // As tapes of before the keyset pages have it.
            let rows: Vec<&RawValue> = serde_json::from_str(body).ok()?;
            keep(&mut self.told, rows.iter().map(|row| gamma::market(row.get())));
        } else if let Some((_, id)) = get.split_once("?condition=") {
            if self.told_third.len() == DESCRIPTIONS_MAX {
                self.told_third.clear();
            }
            self.told_third.insert(id.into(), body.to_owned());
        } else {
            keep(&mut self.told_second, std::iter::once(clob::long_market(body)));
        }
        Some(())
    }

    fn listed(&mut self, line: &Line<'_>) -> Option<()> {
        let ids = line.ids.as_ref()?;
        let listed = ids.iter().filter_map(|id| self.told.get(&**id).cloned()).collect();
        // Most of a page are not followed, and the next list tells of them anew. Those that are
        // asked for by name may have been told already.
        if self.told.len() > DESCRIPTIONS_MAX / 2 {
            self.told.clear();
        }
        self.follower.listed(listed, self.now());
        Some(())
    }

    fn described(&mut self, line: &Line<'_>) -> Option<()> {
        let (ids, second) = (line.ids.as_ref()?, line.second.as_ref()?);
        let described = ids.iter().filter_map(|id| {
            let told = self.told.remove(&**id)?;
            let is_second = second.contains(id);
            let clob = if is_second { self.told_second.remove(&**id) } else { None };
            let third = self.told_third.remove(&**id);
            let data = third.filter(|_| line.third.as_ref().is_some_and(|it| it.contains(id)));
            let data = data.and_then(|body| data::resolution(&body, &told).ok().flatten());
            Some(Described { gamma: told, clob, data })
        });
        let described = described.collect();
        self.follower.described(described, self.now());
        Some(())
    }

    /// The socket that tells of a token is the one that did, also if today's choice would be
    /// another.
    fn follow(&mut self, line: &Line<'_>) -> Option<()> {
        let socket = self.socket(line)?;
        self.follower.assign(socket, line.tokens.as_ref()?, self.now());
        Some(())
    }

    fn open(&mut self, line: &Line<'_>) -> Option<()> {
        let socket = self.socket(line)?;
        self.follower.opened(socket, line.connection?, self.now());
        Some(())
    }

    fn frame(&mut self, line: &Line<'_>) -> Option<()> {
        self.counts.frames += 1;
        let socket = self.socket(line)?;
        let payload = line.payload().ok()??;
        self.follower.frame(socket, str::from_utf8(&payload).ok()?, self.received(line));
        Some(())
    }

    fn lost(&mut self, line: &Line<'_>) -> Option<()> {
        let socket = self.socket(line)?;
        self.follower.lost(socket, self.now());
        Some(())
    }

    fn expired(&mut self, line: &Line<'_>) -> Option<()> {
        self.follower.expired(line.tokens.as_ref()?, self.now());
        Some(())
    }

    fn ask(&mut self, line: &Line<'_>) -> Option<()> {
        let asked = self.follower.ask(line.tokens.as_ref()?);
        if self.asked.len() == ASKED_MAX {
            self.asked.clear();
        }
        self.asked.insert(line.ask?, asked);
        Some(())
    }

    fn books(&mut self, line: &Line<'_>) -> Option<()> {
        self.counts.answers += 1;
        // What was asked may be on a part of the tape that is missing.
        let Some(asked) = self.asked.remove(&line.ask?) else { return Some(()) };
        let body = line.payload().ok()?;
        // When they were asked for would say when they expire, which the tape does.
        let asked_at = self.now().elapsed;
        self.follower.answer(&asked, body.as_deref(), asked_at, self.received(line));
        Some(())
    }

    /// The socket of a line, which is there from then on.
    fn socket(&mut self, line: &Line<'_>) -> Option<usize> {
        let socket = line.socket.filter(|&socket| socket < SOCKETS_MAX)?;
        self.follower.ensure_socket(socket);
        Some(socket)
    }
}

/// Keeps what can be read, as long as there is room.
fn keep(
    kept: &mut HashMap<Arc<str>, Description>,
    told: impl Iterator<Item = Result<Description, WireError>>,
) {
    for told in told.flatten() {
        if kept.len() < DESCRIPTIONS_MAX || kept.contains_key(&told.info.condition_id) {
            kept.insert(told.info.condition_id.clone(), told);
        }
    }
}

/// One line.
impl fmt::Display for ReplayCounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, answers, gaps, unbegun, unknown, unusable } = self;
        write!(
            formatter,
            "{frames} frames, {answers} answers, {gaps} gaps; left out {unbegun} lines without a \
             beginning, {unknown} of unknown kinds, {unusable} unusable ones",
        )
    }
}

#[cfg(test)]
mod tests;
