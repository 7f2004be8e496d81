//! Takes the answers of the book endpoint. An answer proves a book, repairs it, or shows that its
//! socket is silent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Follower;
use crate::venue::follow::Stamp;
use crate::venue::follow::books::{Books, Finding};
use crate::venue::follow::freshness::Signal;
use crate::venue::follow::request::{BookRequest, Notice, Request};
use crate::venue::polymarket::wire::clob::{self, BookMessage};
use crate::venue::polymarket::wire::{NO_TIMESTAMP, split};

/// How many answers in a row may settle nothing about a book, because they are older than it and
/// different. Then either changes come faster than answers and one was lost, or the venue's clock
/// was set back, so the connection is replaced: a new one starts with a full book.
const INCONCLUSIVE_ANSWERS_MAX: u32 = 3;

impl<B: Books> Follower<B> {
    /// Takes an answer, or `None` if the request failed. `asked_at` is the time of the request
    /// since the start: the answer shows the books as of then or later.
    pub fn answer(
        &mut self,
        asked: &BookRequest,
        body: Option<&[u8]>,
        asked_at: Duration,
        received: Stamp,
    ) {
        let mut books: HashMap<&str, BookMessage<'_>> = HashMap::new();
        let is_answered = match body.map(clob::books) {
            Some(Ok(rows)) => {
                let (rows, unreadable) = split(rows);
                books.extend(rows.into_iter().map(|book| (book.asset_id, book)));
                if let Some(error) = unreadable.first() {
                    let (books, first_error) = (unreadable.len(), error.to_string());
                    self.trust.log(Notice::UnreadableBooks { books, first_error });
                }
                true
            }
            Some(Err(error)) => {
                self.trust.log(Notice::UnreadableAnswer { error: error.to_string() });
                false
            }
            None => false,
        };
        for (token_id, connection) in asked {
            if !self.trust.answered(token_id, *connection) {
                continue;
            }
            match books.remove(&**token_id) {
                Some(book) => self.take_book(token_id, book, asked_at, received),
                None if is_answered => self.miss_book(token_id, received),
                None => {}
            }
        }
    }

    /// The venue has no book for a token: its market is closed or about to close.
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
        let is_new = !self.trust.books.has_levels(token_id, &book.ladder);
        let event = self.dated(book.event(|_| token_id.clone()), received.time);
        let at = if at == NO_TIMESTAMP { event.at } else { at };
        let findings = self.trust.books.apply_as_of(event, at);
        let finding = findings.iter().find(|(id, _)| id == token_id).map(|(_, finding)| *finding);
        if is_new && finding == Some(Finding::Proven) {
            self.trust.counts.books_diverged += 1;
            self.trust.expect(token_id, at, received);
        }
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
