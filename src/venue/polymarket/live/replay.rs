//! Replays a tape into a [`Follower`]. The follower receives the same input as when the tape was
//! recorded, in the same order and at the same times, and so makes the same decisions. Decisions
//! that depended on the clock are on the tape. The follower's own requests are not executed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::follower;
use super::log::log;
use super::rest::{COMPACT_PATH, read_events, read_page};
use crate::feed::Feed;
use crate::follow::Stamp;
use crate::follow::request::{BookRequest, Request};
use crate::follow::timing::Timing;
use crate::polymarket::filter::{MARKETS_WANTED_MAX, MarketFilter};
use crate::polymarket::follower::{Described, Follower};
use crate::polymarket::unstated_delay;
use crate::polymarket::wire::{Description, WireError, clob, data, gamma};
use crate::tape::{Line, VERSION};
use paperbourse_core::ids::{Timestamp, condition};

/// Maximum number of sockets on a tape.
const SOCKETS_MAX: usize = 1_024;

/// Maximum number of requests for books that wait for their answers.
const ASKED_MAX: usize = 64;

/// Maximum number of descriptions kept until the tape states which are used. The longest list has
/// half as many.
const DESCRIPTIONS_MAX: usize = 20_000;

/// A player of tapes recorded from live sessions.
pub struct Replay {
    follower: Follower<Feed>,
    /// The time at which the session began.
    began: Timestamp,
    /// The newest time of any line so far.
    now: Timestamp,
    /// Whether the first line of the session has been played.
    has_begun: bool,
    /// Gamma's descriptions, by the wide form of the condition id.
    descriptions: HashMap<Arc<str>, Description>,
    /// The CLOB service's long descriptions, by the wide form of the condition id.
    clob_descriptions: HashMap<Arc<str>, Description>,
    /// The CLOB service's compact descriptions, by the wide form of the condition id.
    compact_descriptions: HashMap<Arc<str>, Description>,
    /// Answers of the data API, by the wide form of the condition id in the request.
    data_answers: HashMap<Arc<str>, String>,
    asked: HashMap<u64, BookRequest>,
    counts: ReplayCounts,
}

/// Counters of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReplayCounts {
    /// Frames received from sockets.
    pub frames: u64,
    /// Answers of services, including failed requests.
    pub answers: u64,
    /// Gaps in the tape, where lines are missing or were never written.
    pub gaps: u64,
    /// Lines skipped because the first line of their session is missing or has an unknown version.
    pub unbegun: u64,
    /// Lines of an unknown kind.
    pub unknown: u64,
    /// Lines that cannot be parsed, or lack a field that their kind requires.
    pub unusable: u64,
}

impl Replay {
    /// Creates a replay that publishes to this feed.
    pub fn new(feed: Feed) -> Self {
        Self {
            follower: follower(feed, MarketFilter::default(), Timing::VENUE),
            began: Timestamp::EPOCH,
            now: Timestamp::EPOCH,
            has_begun: false,
            descriptions: HashMap::new(),
            clob_descriptions: HashMap::new(),
            compact_descriptions: HashMap::new(),
            data_answers: HashMap::new(),
            asked: HashMap::new(),
            counts: ReplayCounts::default(),
        }
    }

    /// Returns the feed that the replay publishes to.
    pub fn feed(&self) -> &Feed {
        self.follower.books()
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> ReplayCounts {
        self.counts
    }

    /// Records missing lines. No socket can be trusted until it is opened again.
    pub fn miss(&mut self, count: u64) {
        tracing::warn!(lines = count, "gap in the tape, all books are stale until sent again");
        self.counts.gaps += 1;
        self.follower.lost_all(self.stamp(self.now));
    }

    /// Counts a line that cannot be parsed.
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
        let markets = self.follower.books().markets();
        markets.set_unstated_delay(unstated_delay::ms_at(self.now));
        let taken = match &*line.kind {
            "answer" => self.answer(line),
            "listed" => self.listed(line),
            "described" => self.described(line),
            "delay" => self.delay(line),
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

    fn stamp(&self, time: Timestamp) -> Stamp {
        let nanos = time.nanos().saturating_sub(self.began.nanos());
        Stamp { elapsed: Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)), time }
    }

    /// Returns the time at which the current line is processed.
    fn now(&self) -> Stamp {
        self.stamp(self.now)
    }

    /// Returns the time at which a line was received, which may be earlier than that of the lines
    /// before it.
    fn received(&self, line: &Line<'_>) -> Stamp {
        self.stamp(Timestamp::from_nanos(line.ns))
    }

    /// Starts a session. Nothing from the previous session can be relied on.
    fn begin(&mut self, line: &Line<'_>, now: Timestamp) {
        let market_count = line.markets_max.unwrap_or(MARKETS_WANTED_MAX);
        let filter = MarketFilter {
            count_max: market_count.min(MARKETS_WANTED_MAX),
            ..MarketFilter::default()
        };
        let lag_max = line.lag_max_ms.map_or(Duration::MAX, Duration::from_millis);
        self.follower.restart(filter, lag_max, self.now());
        (self.began, self.now) = (now, now);
        (self.descriptions, self.clob_descriptions) = Default::default();
        (self.compact_descriptions, self.data_answers, self.asked) = Default::default();
        self.has_begun = line.version == Some(VERSION);
        if !self.has_begun {
            let advice = match line.version {
                Some(version) if version > VERSION => "play it with a newer paperbourse",
                Some(_) => "play it with the paperbourse that recorded it",
                None => "it was not recorded by paperbourse",
            };
            tracing::warn!(
                version = line.version,
                supported = VERSION,
                advice,
                "tape session of an unsupported version skipped"
            );
            self.counts.unbegun += 1;
        }
    }

    /// Keeps the answer of a service until the tape states how it was used.
    fn answer(&mut self, line: &Line<'_>) -> Option<()> {
        self.counts.answers += 1;
        // A failed request has no payload, only an error message.
        let Some(body) = line.payload().ok()? else { return Some(()) };
        let get = line.get.as_deref()?;
        let body = str::from_utf8(&body).ok()?;
        if get.starts_with("/markets/keyset") {
            keep(&mut self.descriptions, read_page(body.as_bytes()).ok()?.markets.into_iter());
        } else if get.starts_with("/events/keyset") {
            keep(&mut self.descriptions, read_events(body.as_bytes()).ok()?.markets.into_iter());
        } else if get.starts_with("/markets?") {
            // Tapes from before the keyset pages use this form.
            let rows: Vec<&RawValue> = serde_json::from_str(body).ok()?;
            keep(&mut self.descriptions, rows.iter().map(|row| gamma::market(row.get())));
        } else if get.starts_with(COMPACT_PATH) {
            keep(&mut self.compact_descriptions, std::iter::once(clob::compact_market(body)));
        } else if let Some((_, id)) = get.split_once("?condition=") {
            if self.data_answers.len() == DESCRIPTIONS_MAX {
                self.data_answers.clear();
            }
            self.data_answers.insert(condition::wide(id).into(), body.to_owned());
        } else {
            keep(&mut self.clob_descriptions, std::iter::once(clob::long_market(body)));
        }
        Some(())
    }

    fn listed(&mut self, line: &Line<'_>) -> Option<()> {
        let ids = line.ids.as_ref()?;
        let listed =
            ids.iter().filter_map(|id| self.descriptions.get(&*condition::wide(id)).cloned());
        let listed = listed.collect();
        // Most markets on a page are not followed, and the next list has them again. Below this
        // limit they are kept, because a `described` line may still refer to them.
        if self.descriptions.len() > DESCRIPTIONS_MAX / 2 {
            self.descriptions.clear();
        }
        self.follower.listed(listed, self.now());
        Some(())
    }

    fn described(&mut self, line: &Line<'_>) -> Option<()> {
        let (ids, second) = (line.ids.as_ref()?, line.second.as_ref()?);
        let described = ids.iter().filter_map(|id| {
            // Gamma's condition ids may be shorter than those of the other services.
            let wide = condition::wide(id);
            let gamma = self.descriptions.remove(&*wide)?;
            let has_clob = second.contains(id);
            let clob = if has_clob { self.clob_descriptions.remove(&*wide) } else { None };
            let answer = self.data_answers.remove(&*wide);
            let answer = answer.filter(|_| line.third.as_ref().is_some_and(|it| it.contains(id)));
            let data = answer.and_then(|body| data::resolution(&body, &gamma).ok().flatten());
            Some(Described { gamma, clob, data })
        });
        let described = described.collect();
        self.follower.described(described, self.now());
        Some(())
    }

    fn delay(&mut self, line: &Line<'_>) -> Option<()> {
        for id in line.ids.as_ref()? {
            if let Some(description) = self.compact_descriptions.remove(&*condition::wide(id)) {
                self.follower.delay_described(&description, self.now());
            }
        }
        Some(())
    }

    /// Assigns tokens to the socket that carried them when the tape was recorded, which may differ
    /// from the socket that today's code would choose.
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
        // The request may be in a gap of the tape.
        let Some(asked) = self.asked.remove(&line.ask?) else { return Some(()) };
        let body = line.payload().ok()?;
        // The time of the request matters only for expiries, which are on the tape.
        let asked_at = self.now().elapsed;
        self.follower.answer(&asked, body.as_deref(), asked_at, self.received(line));
        Some(())
    }

    /// Returns the socket of a line, created if necessary.
    fn socket(&mut self, line: &Line<'_>) -> Option<usize> {
        let socket = line.socket.filter(|&socket| socket < SOCKETS_MAX)?;
        self.follower.ensure_socket(socket);
        Some(socket)
    }
}

/// Keeps the readable descriptions while there is room.
fn keep(
    kept: &mut HashMap<Arc<str>, Description>,
    descriptions: impl Iterator<Item = Result<Description, WireError>>,
) {
    for description in descriptions.flatten() {
        let id: Arc<str> = condition::wide(&description.info.condition_id).into();
        if kept.len() < DESCRIPTIONS_MAX || kept.contains_key(&id) {
            kept.insert(id, description);
        }
    }
}

/// Formats the counters as one line of text.
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
