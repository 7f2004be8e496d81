//! Orders on books that a market socket no longer kept up to date.

use crate::trouble::{Act, ActKind, Kind, Met};

use super::unanswered::succeeded;

/// For how long a bot may take silence for a quiet market, in milliseconds.
const QUIET_MS: u64 = 10_000;

/// Maximum number of dead books of an address that are remembered at a time.
const BOOKS_MAX: usize = 1_000;

/// The books that are dead on the sockets of an address.
#[derive(Debug, Default)]
pub(super) struct DeadBooks(Vec<DeadBook>);

#[derive(Debug)]
struct DeadBook {
    /// `None` if all books of the socket are dead.
    token: Option<Box<str>>,
    /// From when on a bot should know, in milliseconds.
    from_ms: u64,
    until_ms: u64,
}

impl DeadBooks {
    /// Notes what a socket met. Returns whether there was room for it.
    pub(super) fn met(&mut self, met: &Met) -> bool {
        let quiet_ms = match met.trouble {
            Kind::Silence => QUIET_MS,
            Kind::Ghost => 0,
            _ => return true,
        };
        self.0.retain(|book| met.at_ms <= book.until_ms);
        let has_room = self.0.len() < BOOKS_MAX;
        if has_room {
            self.0.push(DeadBook {
                token: met.token.clone(),
                from_ms: met.at_ms.saturating_add(quiet_ms),
                until_ms: met.at_ms.saturating_add(met.length_ms.into()),
            });
        }
        has_room
    }

    /// Notes a request for books, which shows them as they are.
    pub(super) fn read(&mut self, act: &Act) {
        if act.act == ActKind::Book && succeeded(act) {
            self.0.retain(|book| !book.token.as_ref().is_some_and(|it| act.tokens.contains(it)));
        }
    }

    /// Whether an order is based on a dead book.
    pub(super) fn has_traded(&self, act: &Act) -> bool {
        let Some(order) = &act.order else { return false };
        self.0.iter().any(|book| {
            let is_dead = (book.from_ms..=book.until_ms).contains(&act.at_ms);
            is_dead && book.token.as_ref().is_none_or(|token| *token == order.token)
        })
    }
}
