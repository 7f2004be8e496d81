//! One recorded file: its rows, read into what they tell.

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

/// Arrays and envelopes in a file stand at most this deep in each other.
const DEPTH_MAX: usize = 4;

/// What a file told.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) descriptions: Vec<(Source, Description)>,
    pub(super) told: Vec<Told>,
    pub(super) malformed: Vec<(usize, String)>,
    pub(super) book_count: usize,
    pub(super) message_count: usize,
    pub(super) placeholder_count: usize,
    /// Why a row of it is not played: the first reason, or the one that condemns the file.
    not_playable: Option<NotPlayable>,
    /// Rows are the items of one value, and not lines.
    counts_items: bool,
    /// The newest time that the socket told: its order is the order of its frames.
    socket_time: Timestamp,
}

/// Something that was told at a time.
pub(super) struct Told {
    /// Where it stands on the tape.
    pub(super) order: Timestamp,
    /// The venue's own time of it.
    pub(super) at: Timestamp,
    pub(super) what: What,
}

/// What was told; what concerns descriptions is completed when all of them are known.
pub(super) enum What {
    Change(VenueChange),
    Tick { market: Arc<str>, tick: Price },
    Ended { market: Arc<str> },
    NewMarket(Box<Description>),
}

/// Names that occur many times, stored once.
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

/// Why a row cannot be read.
#[derive(Debug, thiserror::Error)]
enum RowError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Recorder(#[from] RecorderRowError),
    #[error("of no known form")]
    Unknown,
    #[error("arrays deeper than {DEPTH_MAX}")]
    TooDeep,
    #[error("{0}")]
    NotPlayable(NotPlayable),
}

impl Contents {
    /// Reads a file of one JSON value, or one of a JSON value a line.
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
        contents.judged()
    }

    /// Reads one value, which stands or falls alone.
    fn item(&mut self, row: usize, text: &str, depth: usize, names: &mut Names) {
        match self.value(row, text.trim(), depth, names) {
            Ok(()) => {}
            Err(RowError::NotPlayable(why)) => self.note_not_playable(row, why),
            Err(error) => self.malformed.push((row, error.to_string())),
        }
    }

    fn note_not_playable(&mut self, row: usize, why: NotPlayable) {
        self.malformed.push((row, why.to_string()));
        if self.not_playable.is_none() || why.condemns_its_file() {
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
                let (at, what) = (event.at, What::Change(event.change));
                self.told.push(Told { order: at, at, what });
            }
            Shape::Placeholder => self.placeholder_count += 1,
            Shape::SocketMessage => self.message(text, names)?,
            Shape::SocketWord => {}
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
        let (at, what) = match message {
            Message::TickSizeChange(change) => {
                let market = names.get(change.market);
                (change.at, Some(What::Tick { market, tick: change.tick }))
            }
            Message::MarketResolved(resolved) => {
                (resolved.at, Some(What::Ended { market: names.get(resolved.market) }))
            }
            Message::NewMarket(market) => {
                (market.at, Some(What::NewMarket(Box::new(market.description))))
            }
            Message::BestBidAsk(top) => (top.at, None),
            message => match message.event(|name| names.get(name)) {
                Some(event) => (event.at, Some(What::Change(event.change))),
                None => unreachable!("the other messages are matched above"),
            },
        };
        self.message_count += 1;
        self.socket_time = self.socket_time.max(at);
        if let Some(what) = what {
            self.told.push(Told { order: self.socket_time, at, what });
        }
        Ok(())
    }

    /// Decides whether the file is played.
    fn judged(self) -> Result<Self, NotPlayable> {
        let is_empty = self.descriptions.is_empty()
            && self.message_count == 0
            && self.book_count == 0
            && self.placeholder_count == 0;
        match self.not_playable {
            Some(why) if is_empty || why.condemns_its_file() => return Err(why),
            None if is_empty && !self.malformed.is_empty() => {
                return Err(NotPlayable::NothingReadable);
            }
            _ => {}
        }
        Ok(self)
    }
}
