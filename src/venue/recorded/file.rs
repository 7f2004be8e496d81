//! Parses the values in one recorded file.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;

use super::descriptions::{Described, RecorderRowError, Source, recorder_row};
use super::report::{MALFORMED_NAMED_MAX, NotPlayable};
use super::shape::Shape;
use super::{DESCRIPTIONS_MAX, ROWS_MAX};
use crate::VenueChange;
use crate::polymarket::wire::socket::{self, Message};
use crate::polymarket::wire::{Description, NO_TIMESTAMP, WireError, clob, gamma, lenient};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::catalogue::MarketStatus;
use paperbourse_core::money::Price;

/// Maximum nesting of arrays, envelopes and texts in a file.
const DEPTH_MAX: usize = 8;

/// Maximum number of characters shown from a row of unknown form.
const SHOWN_CHARACTERS_MAX: usize = 60;

/// Number of further rows and descriptions that the recording may have.
pub(super) struct Room {
    rows: usize,
    descriptions: usize,
    /// Whether the recording has exceeded a limit.
    pub(super) is_exceeded: bool,
}

impl Room {
    pub(super) const fn new() -> Self {
        Self { rows: ROWS_MAX, descriptions: DESCRIPTIONS_MAX, is_exceeded: false }
    }
}

/// The contents of a file.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) descriptions: Vec<Described>,
    pub(super) updates: Vec<TimedUpdate>,
    pub(super) malformed_count: usize,
    /// The row numbers and errors of the first [`MALFORMED_NAMED_MAX`] malformed rows.
    pub(super) malformed: Vec<(usize, String)>,
    pub(super) book_count: usize,
    pub(super) message_count: usize,
    pub(super) placeholder_count: usize,
    /// The first reason why a row is not playable, unless a later one makes the whole file useless.
    not_playable: Option<NotPlayable>,
    /// Whether rows are numbered as items of one value instead of lines.
    counts_items: bool,
    /// The newest timestamp of any frame so far. Sorting by it keeps frames in their order.
    socket_time: Timestamp,
    /// The newest timestamp of any frame or book so far, which dates rows that have none.
    newest: Timestamp,
}

/// An update and its time.
pub(super) struct TimedUpdate {
    /// The key by which updates are sorted.
    pub(super) order: Timestamp,
    /// The venue's own timestamp.
    pub(super) at: Timestamp,
    pub(super) update: Update,
}

/// An update. Updates of descriptions are completed once all descriptions are known.
pub(super) enum Update {
    Change(VenueChange),
    Tick { market: Arc<str>, tick: Price },
    Ended { market: Arc<str> },
    NewMarket(Box<Description>),
    Described(Source, Box<Description>),
}

/// Interned names.
#[derive(Default)]
pub(super) struct Names(HashSet<Arc<str>>);

impl Names {
    pub(super) fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.0.insert(name.clone());
        name
    }
}

/// An error in a row.
#[derive(Debug, thiserror::Error)]
enum RowError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Recorder(#[from] RecorderRowError),
    #[error("unknown form: {start}")]
    Unknown { start: String },
    #[error("nested deeper than {DEPTH_MAX}")]
    TooDeep,
    #[error("{0}")]
    NotPlayable(NotPlayable),
}

impl Contents {
    /// Creates the contents of a file that has not been read yet. `counts_items` says whether the
    /// file holds a single value, whose items are its rows.
    pub(super) fn new(counts_items: bool) -> Self {
        Self { counts_items, ..Self::default() }
    }

    /// Parses one row. An error affects only this row.
    pub(super) fn row(&mut self, row: usize, bytes: &[u8], names: &mut Names, room: &mut Room) {
        match str::from_utf8(bytes) {
            Ok(text) => self.item(row, text, 0, names, room),
            Err(_) => self.note_not_playable(row, NotPlayable::NotText),
        }
    }

    /// Records that this row and all rows after it cannot be read.
    pub(super) fn end_at(&mut self, row: usize, error: &str) {
        if self.malformed_count == 0 {
            self.not_playable = Some(NotPlayable::Unread { row, error: error.to_owned() });
        }
        self.note_malformed(row, format!("{error}; nothing from here on is read"));
    }

    /// Parses one value. An error affects only this value.
    fn item(&mut self, row: usize, text: &str, depth: usize, names: &mut Names, room: &mut Room) {
        match self.value(row, text, depth, names, room) {
            Ok(()) => {}
            Err(RowError::NotPlayable(why)) => self.note_not_playable(row, why),
            Err(error) => self.note_malformed(row, error.to_string()),
        }
    }

    fn note_malformed(&mut self, row: usize, error: String) {
        self.malformed_count += 1;
        if self.malformed.len() < MALFORMED_NAMED_MAX {
            self.malformed.push((row, error));
        }
    }

    fn note_not_playable(&mut self, row: usize, why: NotPlayable) {
        self.note_malformed(row, why.to_string());
        if self.not_playable.is_none() || why.spoils_its_file() {
            self.not_playable = Some(why);
        }
    }

    fn value(
        &mut self,
        row: usize,
        text: &str,
        depth: usize,
        names: &mut Names,
        room: &mut Room,
    ) -> Result<(), RowError> {
        if depth > DEPTH_MAX {
            return Err(RowError::TooDeep);
        }
        let Some(rows) = room.rows.checked_sub(1) else {
            room.is_exceeded = true;
            return Ok(());
        };
        room.rows = rows;
        // Concatenated files may have a byte order mark in the middle.
        let text = text.trim_start_matches('\u{feff}').trim();
        match Shape::of(text)? {
            Shape::Items(items) => {
                for (index, item) in items.0.into_iter().enumerate() {
                    let row = if self.counts_items { index + 1 } else { row };
                    self.item(row, item.get(), depth + 1, names, room);
                }
            }
            Shape::Inner(inner) => self.value(row, inner.get(), depth + 1, names, room)?,
            Shape::Text(inner) => self.value(row, &inner, depth + 1, names, room)?,
            Shape::GammaMarket => self.describe(Source::Gamma, gamma::market(text)?, room),
            Shape::GammaEvent => {
                for market in gamma::event(text)? {
                    match market {
                        Ok(description) => self.describe(Source::Gamma, description, room),
                        Err(error) => self.note_malformed(row, error.to_string()),
                    }
                }
            }
            Shape::RecorderMarket => self.describe(Source::Recorder, recorder_row(text)?, room),
            Shape::CompactMarket => {
                self.describe(Source::CompactMarket, clob::compact_market(text)?, room);
            }
            Shape::LongMarket => {
                self.describe(Source::LongMarket, clob::long_market(text)?, room);
            }
            Shape::Book => self.book(text, names)?,
            Shape::Placeholder => self.placeholder_count += 1,
            Shape::SocketMessage => self.message(text, names)?,
            Shape::SocketControl => {}
            Shape::NotPlayable(why) => return Err(RowError::NotPlayable(why)),
            Shape::Unknown => {
                let shown = text.chars().take(SHOWN_CHARACTERS_MAX);
                let start = shown.map(|it| if it.is_control() { ' ' } else { it }).collect();
                return Err(RowError::Unknown { start });
            }
        }
        Ok(())
    }

    fn describe(&mut self, source: Source, description: Description, room: &mut Room) {
        let Some(descriptions) = room.descriptions.checked_sub(1) else {
            room.is_exceeded = true;
            return;
        };
        room.descriptions = descriptions;
        // Only Gamma dates its descriptions. Any other takes effect at its place in its file.
        let place = Some(self.newest).filter(|&newest| newest != NO_TIMESTAMP);
        let at = description.updated_at.or(place);
        self.descriptions.push(Described { source, at, description });
    }

    fn book(&mut self, text: &str, names: &mut Names) -> Result<(), RowError> {
        let event = with_numbers_as_strings(text, |text| {
            clob::book(text).map(|book| book.event(|name| names.get(name)))
        })?;
        self.book_count += 1;
        self.newest = self.newest.max(event.at);
        let (at, update) = (event.at, Update::Change(event.change));
        self.updates.push(TimedUpdate { order: at, at, update });
        Ok(())
    }

    fn message(&mut self, text: &str, names: &mut Names) -> Result<(), RowError> {
        let read = |text: &str| match socket::message(text)? {
            Message::PriceChange(change) if !change.unreadable.is_empty() => {
                Err(WireError::Entry(change.unreadable[0].error.clone()))
            }
            message => Ok(update(message, text, names)),
        };
        let (at, update) = match with_numbers_as_strings(text, read) {
            Err(WireError::OldFormat) => {
                return Err(RowError::NotPlayable(NotPlayable::OldFormat));
            }
            read => read?,
        };
        self.message_count += 1;
        self.socket_time = self.socket_time.max(at);
        self.newest = self.newest.max(at);
        if let Some(update) = update {
            self.updates.push(TimedUpdate { order: self.socket_time, at, update });
        }
        Ok(())
    }

    /// Returns the contents if the file is playable, and otherwise the reason why it is not.
    pub(super) fn checked(mut self) -> Result<Self, NotPlayable> {
        let is_empty = self.descriptions.is_empty()
            && self.message_count == 0
            && self.book_count == 0
            && self.placeholder_count == 0;
        match self.not_playable.take() {
            Some(why) if is_empty || why.spoils_its_file() => Err(why),
            None if is_empty && !self.malformed.is_empty() => {
                let (row, error) = self.malformed.swap_remove(0);
                Err(NotPlayable::NothingReadable { row, error })
            }
            _ => Ok(self),
        }
    }
}

/// Parses a row as the venue writes it, or else with its numbers as strings. If both fail, returns
/// the first error, unless the second attempt got further.
fn with_numbers_as_strings<T>(
    text: &str,
    mut read: impl FnMut(&str) -> Result<T, WireError>,
) -> Result<T, WireError> {
    match read(text) {
        Err(error @ WireError::Json(_)) => match read(&lenient(text)) {
            Err(WireError::Json(_)) => Err(error),
            read => read,
        },
        read => read,
    }
}

/// Returns the time of a message and the update that it makes, if any.
fn update(message: Message<'_>, text: &str, names: &mut Names) -> (Timestamp, Option<Update>) {
    match message {
        Message::TickSizeChange(change) => {
            let market = names.get(change.market);
            (change.at, Some(Update::Tick { market, tick: change.tick }))
        }
        Message::MarketResolved(resolved) => {
            (resolved.at, Some(Update::Ended { market: names.get(resolved.market) }))
        }
        Message::NewMarket(market) => {
            let mut description = market.description;
            // The market may have no other description, so it is open unless the announcement says
            // it is inactive.
            if description.info.status == MarketStatus::Paused && !is_inactive(text) {
                description.info.status = MarketStatus::Open;
            }
            (market.at, Some(Update::NewMarket(Box::new(description))))
        }
        Message::BestBidAsk(top) => (top.at, None),
        message => match message.event(|name| names.get(name)) {
            Some(event) => (event.at, Some(Update::Change(event.change))),
            None => unreachable!("the other messages are matched above"),
        },
    }
}

/// Returns whether an announcement states that its market is not active.
fn is_inactive(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Announced {
        active: bool,
    }
    serde_json::from_str::<Announced>(text).is_ok_and(|announced| !announced.active)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_descriptions_have_a_limit() {
        for (text, rows, descriptions, is_exceeded) in [
            (r"[{}, {}]", 3, 0, false),
            (r"[{}, {}]", 2, 0, true),
            (r#"{"payload": {"payload": "{}"}}"#, 4, 0, false),
            (r#"{"payload": {"payload": "{}"}}"#, 3, 0, true),
            (r#"{"markets": [{"conditionId": "1"}, {"conditionId": "2"}]}"#, 1, 2, false),
            (r#"{"markets": [{"conditionId": "1"}, {"conditionId": "2"}]}"#, 1, 1, true),
        ] {
            let mut room = Room { rows, descriptions, is_exceeded: false };
            let mut contents = Contents::new(true);
            contents.row(1, text.as_bytes(), &mut Names::default(), &mut room);
            assert_eq!(room.is_exceeded, is_exceeded, "{text} in {rows} rows");
        }
    }
}
