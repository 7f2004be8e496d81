//! Parses one recorded file.

use std::collections::HashSet;
use std::sync::Arc;

use super::descriptions::{RecorderRowError, Source, recorder_row};
use super::report::NotPlayable;
use super::shape::Shape;
use crate::ids::Timestamp;
use crate::money::Price;
use crate::venue::VenueChange;
use crate::venue::polymarket::wire::socket::{self, Message};
use crate::venue::polymarket::wire::{Description, WireError, clob, gamma};

/// The deepest nesting of arrays and envelopes in a file.
const DEPTH_MAX: usize = 4;

/// The contents of a file.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) descriptions: Vec<(Source, Description)>,
    pub(super) updates: Vec<TimedUpdate>,
    pub(super) malformed: Vec<(usize, String)>,
    pub(super) book_count: usize,
    pub(super) message_count: usize,
    pub(super) placeholder_count: usize,
    /// Why a row is not playable: the first reason, or one that makes the whole file useless.
    not_playable: Option<NotPlayable>,
    /// Whether rows are counted as items of one value instead of lines.
    counts_items: bool,
    /// The newest timestamp of a frame so far, by which frames keep their order.
    socket_time: Timestamp,
}

/// An update and its time.
pub(super) struct TimedUpdate {
    /// The key by which updates are sorted.
    pub(super) order: Timestamp,
    /// The venue's own timestamp.
    pub(super) at: Timestamp,
    pub(super) update: Update,
}

/// An update. Those that concern descriptions are completed when all descriptions are known.
pub(super) enum Update {
    Change(VenueChange),
    Tick { market: Arc<str>, tick: Price },
    Ended { market: Arc<str> },
    NewMarket(Box<Description>),
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

/// Why a row is malformed.
#[derive(Debug, thiserror::Error)]
enum RowError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Recorder(#[from] RecorderRowError),
    #[error("unknown form")]
    Unknown,
    #[error("nested deeper than {DEPTH_MAX}")]
    TooDeep,
    #[error("{0}")]
    NotPlayable(NotPlayable),
}

impl Contents {
    /// Parses a file of one JSON value, or of one JSON value per line.
    pub(super) fn read(text: &str, is_lines: bool, names: &mut Names) -> Result<Self, NotPlayable> {
        let mut contents = Self::default();
        if is_lines {
            for (index, line) in text.lines().enumerate() {
                contents.item(index + 1, line, 0, names);
            }
        } else {
            contents.counts_items = true;
            contents.item(1, text, 0, names);
        }
        contents.checked()
    }

    /// Parses one value. An error affects only this value.
    fn item(&mut self, row: usize, text: &str, depth: usize, names: &mut Names) {
        match self.value(row, text.trim(), depth, names) {
            Ok(()) => {}
            Err(RowError::NotPlayable(why)) => self.note_not_playable(row, why),
            Err(error) => self.malformed.push((row, error.to_string())),
        }
    }

    fn note_not_playable(&mut self, row: usize, why: NotPlayable) {
        self.malformed.push((row, why.to_string()));
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
    ) -> Result<(), RowError> {
        if depth > DEPTH_MAX {
            return Err(RowError::TooDeep);
        }
        match Shape::of(text)? {
            Shape::Items(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    let row = if self.counts_items { index + 1 } else { row };
                    self.item(row, item.get(), depth + 1, names);
                }
            }
            Shape::Inner(inner) => self.value(row, inner.get(), depth + 1, names)?,
            Shape::GammaMarket => self.describe(Source::Gamma, gamma::market(text)?),
            Shape::GammaEvent => {
                for market in gamma::event(text)? {
                    match market {
                        Ok(description) => self.describe(Source::Gamma, description),
                        Err(error) => self.malformed.push((row, error.to_string())),
                    }
                }
            }
            Shape::RecorderMarket => self.describe(Source::Recorder, recorder_row(text)?),
            Shape::CompactMarket => {
                self.describe(Source::CompactMarket, clob::compact_market(text)?);
            }
            Shape::LongMarket => self.describe(Source::LongMarket, clob::long_market(text)?),
            Shape::Book => {
                let event = clob::book(text)?.event(|name| names.get(name));
                self.book_count += 1;
                let (at, update) = (event.at, Update::Change(event.change));
                self.updates.push(TimedUpdate { order: at, at, update });
            }
            Shape::Placeholder => self.placeholder_count += 1,
            Shape::SocketMessage => self.message(text, names)?,
            Shape::SocketControl => {}
            Shape::NotPlayable(why) => return Err(RowError::NotPlayable(why)),
            Shape::Unknown => return Err(RowError::Unknown),
        }
        Ok(())
    }

    fn describe(&mut self, source: Source, description: Description) {
        self.descriptions.push((source, description));
    }

    fn message(&mut self, text: &str, names: &mut Names) -> Result<(), RowError> {
        let message = match socket::message(text) {
            Ok(message) => message,
            Err(WireError::OldFormat) => {
                return Err(RowError::NotPlayable(NotPlayable::OldFormat));
            }
            Err(error) => return Err(error.into()),
        };
        let (at, update) = match message {
            Message::TickSizeChange(change) => {
                let market = names.get(change.market);
                (change.at, Some(Update::Tick { market, tick: change.tick }))
            }
            Message::MarketResolved(resolved) => {
                (resolved.at, Some(Update::Ended { market: names.get(resolved.market) }))
            }
            Message::NewMarket(market) => {
                (market.at, Some(Update::NewMarket(Box::new(market.description))))
            }
            Message::BestBidAsk(top) => (top.at, None),
            message => match message.event(|name| names.get(name)) {
                Some(event) => (event.at, Some(Update::Change(event.change))),
                None => unreachable!("the other messages are matched above"),
            },
        };
        self.message_count += 1;
        self.socket_time = self.socket_time.max(at);
        if let Some(update) = update {
            self.updates.push(TimedUpdate { order: self.socket_time, at, update });
        }
        Ok(())
    }

    /// Returns the contents if the file is playable.
    fn checked(self) -> Result<Self, NotPlayable> {
        let is_empty = self.descriptions.is_empty()
            && self.message_count == 0
            && self.book_count == 0
            && self.placeholder_count == 0;
        match self.not_playable {
            Some(why) if is_empty || why.spoils_its_file() => return Err(why),
            None if is_empty && !self.malformed.is_empty() => {
                return Err(NotPlayable::NothingReadable);
            }
            _ => {}
        }
        Ok(self)
    }
}
