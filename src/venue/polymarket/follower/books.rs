//! Processes the answers of the book endpoint. An answer either proves the book built from the
//! socket's changes, or makes the follower request that book from the socket again: the endpoint
//! has served books that never existed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::Follower;
use crate::event::VenueChange;
use crate::follow::Stamp;
use crate::follow::books::{Books, Finding};
use crate::follow::freshness::{Freshness, Signal};
use crate::follow::request::{BookRequest, Notice, Request};
use crate::polymarket::wire::clob::{self, BookMessage, UnreadableBook};
use crate::polymarket::wire::{self, NO_TIMESTAMP};

/// Maximum number of consecutive inconclusive answers about a book: answers that differ from the
/// book but are older, and so prove nothing. After more of them, it is likely that a change was
/// lost while changes kept arriving faster than answers, or that the venue's clock was set back.
/// The connection is then replaced, since a new one starts with a full book.
const INCONCLUSIVE_ANSWERS_MAX: u32 = 3;

type Rows<'a> = Result<Vec<Result<BookMessage<'a>, UnreadableBook<'a>>>, serde_json::Error>;

/// A parsed answer of the book endpoint.
#[derive(Default)]
struct Answer<'a> {
    books: HashMap<&'a str, BookMessage<'a>>,
    /// Tokens whose books cannot be parsed.
    unreadable: HashSet<&'a str>,
    unreadable_count: usize,
    first_error: Option<String>,
    /// Whether a token that is missing from the answer has no book. True if the answer was parsed
    /// and every row names a token.
    is_complete: bool,
}

impl<'a> Answer<'a> {
    fn add(&mut self, row: Result<BookMessage<'a>, UnreadableBook<'a>>) {
        match row {
            Ok(book) => {
                self.books.insert(book.asset_id, book);
            }
            Err(UnreadableBook { asset_id, error }) => {
                self.unreadable_count += 1;
                self.first_error.get_or_insert_with(|| error.to_string());
                self.unreadable.extend(asset_id);
                self.is_complete &= asset_id.is_some();
            }
        }
    }

    /// Returns whether the venue has no book for a requested token.
    fn lacks(&self, token_id: &str) -> bool {
        self.is_complete && !self.unreadable.contains(token_id)
    }
}

impl<B: Books> Follower<B> {
    /// Processes an answer, or `None` if the request failed. `asked_at` is the time of the request
    /// since the start: the answer shows the books as of that time or later.
    pub fn answer(
        &mut self,
        asked: &BookRequest,
        body: Option<&[u8]>,
        asked_at: Duration,
        received: Stamp,
    ) {
        // Text that is not UTF-8 is not JSON either, so it fails to parse.
        let text = body.map(String::from_utf8_lossy);
        let lenient;
        let mut rows = text.as_deref().map(clob::books);
        let is_odd = |rows: &Rows<'_>| match rows {
            Ok(rows) => rows.iter().any(Result::is_err),
            Err(_) => true,
        };
        if rows.as_ref().is_some_and(is_odd) {
            lenient = wire::lenient(text.as_deref().unwrap_or_default());
            rows = Some(clob::books(&lenient));
        }
        let mut answer = Answer::default();
        match rows {
            Some(Ok(rows)) => {
                answer.is_complete = true;
                for row in rows {
                    answer.add(row);
                }
                if let Some(first_error) = answer.first_error.take() {
                    let books = answer.unreadable_count;
                    self.trust.log(Notice::UnreadableBooks { books, first_error });
                }
            }
            Some(Err(error)) => {
                self.trust.log(Notice::UnreadableAnswer { error: error.to_string() });
            }
            None => {}
        }
        for (token_id, connection) in asked {
            if !self.trust.answered(token_id, *connection) {
                continue;
            }
            match answer.books.remove(&**token_id) {
                Some(book) => self.take_book(token_id, book, asked_at, received),
                None if answer.lacks(token_id) => self.miss_book(token_id, received),
                None => {}
            }
        }
    }

    /// Expires the book of a token for which the venue has none, and requests the description of
    /// its market, which is closed or about to close.
    fn miss_book(&mut self, token_id: &str, received: Stamp) {
        self.trust.signal(token_id, Signal::Expired, received);
        if let Some((_, token)) = self.trust.token(token_id) {
            let condition_id = token.condition_id.clone();
            self.trust.request(Request::Describe { condition_id, is_new: false });
        }
    }

    fn take_book(
        &mut self,
        token_id: &Arc<str>,
        book: BookMessage<'_>,
        asked_at: Duration,
        received: Stamp,
    ) {
        let Some((_, token)) = self.trust.token(token_id) else { return };
        let socket = token.socket;
        let at = self.trust.time_of(socket, book.at, received);
        self.correct_grid(token_id, &book, at, received);
        let mut event = self.dated(book.event(|_| token_id.clone()), received.time);
        if let VenueChange::Book(book) = &mut event.change {
            book.is_requested = true;
        }
        let at = if at == NO_TIMESTAMP { event.at } else { at };
        let findings = self.trust.books.apply_as_of(event, at);
        let finding = findings.iter().find(|(id, _)| id == token_id).map(|(_, finding)| *finding);
        let is_unconfirmed = finding == Some(Finding::Unconfirmed);
        self.trust.counts.books_diverged += u64::from(is_unconfirmed);
        let is_unsettled = matches!(finding, Some(Finding::Contradicted | Finding::Unproven))
            && self.trust.token(token_id).is_some_and(|(_, it)| it.state() != Freshness::Live);
        if is_unconfirmed || is_unsettled {
            self.trust.confirm(token_id, received);
        }
        // The answer may show the book as of the request, so the proof counts from that time.
        self.trust.judge(&findings, Stamp { elapsed: asked_at, ..received });
        if finding == Some(Finding::Unproven)
            && self.trust.unproven_answer_count(token_id) > INCONCLUSIVE_ANSWERS_MAX
            && let Some((_, token)) = self.trust.token(token_id)
        {
            self.trust.give_up(
                token.socket,
                "answers of the book endpoint settle nothing",
                received,
            );
        }
    }
}
