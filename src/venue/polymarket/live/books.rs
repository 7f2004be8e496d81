//! What the book endpoint answers: it proves a book, mends it, or shows that its socket is silent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::catalogue::Urgent;
use super::clock::Stamp;
use super::{Asked, Live};
use crate::venue::follow::books::{Books as _, Finding};
use crate::venue::follow::freshness::Signal;
use crate::venue::follow::lag::Heard;
use crate::venue::polymarket::wire::UNTOLD;
use crate::venue::polymarket::wire::clob::{self, BookMessage};

/// After so many vain answers in a row the connection of a book that the book endpoint calls older
/// and different is given up: either changes come faster than answers and one was lost, or the
/// venue's clock was set back. Another connection begins with a whole book.
const VAIN_ANSWERS_MAX: u32 = 3;

impl Live {
    pub(super) fn take_books(
        &mut self,
        asked: Asked,
        asked_at: Duration,
        received: Stamp,
        body: Option<&Bytes>,
    ) {
        let rows = body.map(|body| clob::books(body));
        let mut told: HashMap<&str, BookMessage<'_>> = HashMap::new();
        let is_whole = match rows {
            Some(Ok(rows)) => {
                for row in rows {
                    match row {
                        Ok(book) => drop(told.insert(book.asset_id, book)),
                        Err(error) => tracing::warn!("a book is left out: {error}"),
                    }
                }
                true
            }
            Some(Err(error)) => {
                tracing::warn!("books: {error}");
                false
            }
            None => false,
        };
        for (token_id, connection) in asked {
            if !self.tracker.answered(&token_id, connection) {
                continue;
            }
            match told.remove(&*token_id) {
                Some(book) => self.take_book(&token_id, book, asked_at, received),
                None if is_whole => self.miss_book(&token_id),
                None => {}
            }
        }
    }

    /// The venue has no book of a token: its market is closed, or about to be.
    fn miss_book(&mut self, token_id: &str) {
        let now = self.now();
        self.signal(token_id, Signal::Expired, now);
        if let Some((_, token)) = self.tracker.get(token_id) {
            let _ = self.urgent.try_send(Urgent::Followed(token.condition_id.clone()));
        }
    }

    /// Takes a book of the book endpoint, which is of the moment when it was asked for, or later.
    fn take_book(
        &mut self,
        token_id: &Arc<str>,
        book: BookMessage<'_>,
        asked_at: Duration,
        received: Stamp,
    ) {
        let Some((_, token)) = self.tracker.get(token_id) else { return };
        let socket = token.socket;
        let at = match self.sockets[socket].lag.of(book.at, received.elapsed, received.time) {
            Heard::Late(_) => book.at,
            Heard::Ahead(ahead) => self.clamp(socket, ahead, received),
        };
        self.correct_grid(token_id, &book, at);
        let is_new = !self.feed.has_levels(token_id, &book.ladder);
        let event = self.dated(book.event(|_| token_id.clone()), received.time);
        let at = if at == UNTOLD { event.at } else { at };
        let findings = self.feed.apply_as_of(event, at);
        let finding = findings.iter().find(|(id, _)| id == token_id).map(|(_, finding)| *finding);
        if is_new && finding == Some(Finding::Proven) {
            self.counts.books_diverged += 1;
            let by = received.elapsed + self.timing.silence_patience;
            self.tracker.expect(token_id, at, by);
        }
        self.judge(&findings, asked_at);
        if finding == Some(Finding::Unproven)
            && self.tracker.vain_count(token_id) > VAIN_ANSWERS_MAX
            && let Some((_, token)) = self.tracker.get(token_id)
        {
            self.give_up(token.socket, "a book cannot be mended");
        }
    }
}
