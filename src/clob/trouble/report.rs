//! What a bot did in trouble that would have cost money at the venue, from the record of it.
//!
//! [`Reader`] takes the lines of a record and makes a [`Report`]. Each rule is a file in this
//! folder and needs little memory, however long the record is.

mod dead_books;
mod failed;
mod found;
mod pauses;
mod reader;
#[cfg(test)]
mod tests;
mod unanswered;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

pub use found::{Example, Finding};
pub use reader::{PARTIES_MAX, Reader};
pub use unanswered::Unanswered;

macro_rules! mistakes {
    ($($(#[$doc:meta])* $mistake:ident $name:literal: $title:literal, $advice:literal;)*) => {
        /// Something that a bot should not do.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mistake {
            $($(#[$doc])* $mistake,)*
        }

        impl Mistake {
            /// All mistakes, in the order in which reports list them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$mistake),*];

            /// The name for programs.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$mistake => $name,)*
                }
            }

            /// The name for people.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$mistake => $title,)*
                }
            }

            /// What to do instead, as a sentence.
            pub const fn advice(self) -> &'static str {
                match self {
                    $(Self::$mistake => $advice,)*
                }
            }
        }
    };
}

mistakes! {
    /// After an answer that did not come, an order with the same terms was signed and placed, and
    /// both were taken.
    Doubled "orders-doubled": "orders doubled",
        "After an answer that does not come, send the same signed order again, or read your orders \
         and trades before you sign another.";
    /// Nobody asked what became of an order whose answer did not come.
    NeverLookedFor "orders-never-looked-for": "orders never looked for",
        "An order without an answer may have been taken: send it again as it is, or read your \
         orders and trades.";
    /// Shares were sold before the trade that bought them was settled.
    Unsettled "unsettled-sales": "sales of unsettled shares",
        "Wait until the trade that bought the shares is CONFIRMED before you sell them.";
    /// Orders were based on a book that the market socket no longer kept up to date.
    DeadBook "dead-book-trades": "trades on a dead book",
        "A socket that answers PING may still be silent or wrong: read the book by a request when \
         nothing has changed for some seconds, or when it is empty.";
    /// A request that was refused came again without a pause.
    NoPause "retries-without-pause": "retries without a pause",
        "Wait before you try again: as long as Retry-After says, and longer after each refusal.";
    /// Shares of a trade that had failed were sold.
    FailedIgnored "failed-trades-ignored": "failed trades ignored",
        "Undo what you noted of a trade that has FAILED, and read your balance before you sell.";
}

impl Serialize for Mistake {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What a record tells.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Report {
    /// Whether no mistake was found.
    pub is_clean: bool,
    /// The time of the first line, in milliseconds since 1970; `None` if there is none.
    pub from_ms: Option<u64>,
    /// The time of the last line.
    pub until_ms: Option<u64>,
    /// Number of lines that were read.
    pub line_count: u64,
    /// Number of lines and orders that were not judged, because there were too many at a time.
    pub unjudged_count: u64,
    /// Those who met trouble or made a mistake, by wallet, then by address.
    pub parties: Vec<Party>,
}

/// What one wallet met and did, or one address without a wallet.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Party {
    /// The wallet, in lower case; `None` for requests and sockets without one.
    pub wallet: Option<Box<str>>,
    /// The address of those without a wallet.
    pub address: Option<Box<str>>,
    /// Number of requests.
    pub request_count: u64,
    /// How often each kind of trouble was met.
    pub met: BTreeMap<&'static str, u64>,
    /// What was done about orders whose answer did not come.
    pub unanswered_orders: Unanswered,
    /// The mistakes.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Removes what was done wrong, so that only what was met remains.
    pub fn without_findings(mut self) -> Self {
        for party in &mut self.parties {
            party.findings.clear();
        }
        self.parties.retain(|party| !party.met.is_empty());
        self
    }
}
