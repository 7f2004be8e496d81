//! Random orders that reach every rule. The same seed and answers give the same orders.

use std::collections::BTreeMap;

use paperbourse::money::{Price, Rounding, Shares};
use serde::Serialize;

use crate::script::{Outcome, Row};

/// An order as both the server and the script accept it.
#[derive(Clone, Serialize, Debug)]
pub(crate) struct Order {
    pub(crate) market_id: String,
    pub(crate) outcome: String,
    pub(crate) side: &'static str,
    pub(crate) quantity: String,
}

/// Levels as (price, size), in millionths, best first.
type Levels = Vec<(i64, i64)>;

struct Book {
    market_id: String,
    label: String,
    asks: Levels,
}

/// Generates orders, guided by the answers to the earlier ones.
pub(crate) struct Orders {
    random: u64,
    books: Vec<Book>,
    /// Known markets that cannot be traded, with an outcome of each.
    closed: Vec<(String, String)>,
    /// Shares held, by the index of the book.
    held: BTreeMap<usize, i64>,
    cash: i64,
    /// The index of the last order's book.
    last: Option<usize>,
}

/// What an order is meant to test. Only the server and the script decide its outcome.
enum Aim {
    Buy,
    Sell,
    Close,
    SellMoreThanHeld,
    DeeperThanTheBook,
    MoreThanTheCash,
    UnknownMarket,
    UnknownOutcome,
    ClosedMarket,
}

/// The share of each aim, in percent.
const AIMS: [(u64, Aim); 9] = [
    (52, Aim::Buy),
    (16, Aim::Sell),
    (10, Aim::Close),
    (4, Aim::SellMoreThanHeld),
    (4, Aim::DeeperThanTheBook),
    (4, Aim::MoreThanTheCash),
    (3, Aim::UnknownMarket),
    (3, Aim::UnknownOutcome),
    (4, Aim::ClosedMarket),
];

/// The most levels that an order takes, so that a few orders do not spend all the cash.
const LEVELS_MAX: u64 = 6;

/// The largest quantity that passes validation, in micro-shares.
const QUANTITY_MAX: i64 = 1_000_000_000_000;

/// An order that would cost more than a twentieth of the cash is cut to this, in micro-shares.
const MODEST: i64 = 100_000_000;

impl Orders {
    /// Orders over these books for an account with this balance.
    pub(crate) fn new(
        seed: u64,
        rows: &[Row],
        closed: Vec<(String, String)>,
        balance: &str,
    ) -> Self {
        let books = rows
            .iter()
            .map(|row| Book {
                market_id: row.market_id.clone(),
                label: row.outcome.clone(),
                asks: levels(&row.asks),
            })
            .collect();
        Self {
            random: seed,
            books,
            closed,
            held: BTreeMap::new(),
            cash: micros(balance),
            last: None,
        }
    }

    pub(crate) fn next(&mut self) -> Order {
        let mut drawn = self.below(AIMS.iter().map(|(share, _)| share).sum());
        let mut aim = &Aim::Buy;
        for (share, candidate) in &AIMS {
            aim = candidate;
            if drawn < *share {
                break;
            }
            drawn -= share;
        }
        self.aimed(aim)
    }

    fn aimed(&mut self, aim: &Aim) -> Order {
        match aim {
            Aim::Buy => self.buy(),
            Aim::Sell | Aim::Close => {
                let holding: Vec<_> = self.held.iter().map(|(&book, &held)| (book, held)).collect();
                if holding.is_empty() {
                    return self.buy();
                }
                let (book, held) = holding[self.index(holding.len())];
                let part = if matches!(aim, Aim::Close) { held } else { self.part_of(held) };
                self.order(book, "SELL", part)
            }
            Aim::SellMoreThanHeld => {
                let book = self.index(self.books.len());
                let held = self.held.get(&book).copied().unwrap_or(0);
                let more = 1 + i64::try_from(self.below(1_000_000)).unwrap();
                self.order(book, "SELL", held + more)
            }
            Aim::DeeperThanTheBook => {
                let shallow = |book: &Book| depth(&book.asks) < QUANTITY_MAX;
                match self.any_book(shallow) {
                    Some(book) => self.order(book, "BUY", depth(&self.books[book].asks) + 1),
                    None => self.buy(),
                }
            }
            Aim::MoreThanTheCash => {
                let cash = self.cash;
                let most = |book: &Book| depth(&book.asks).min(QUANTITY_MAX);
                match self.any_book(|book| cost(&book.asks, most(book)) > cash) {
                    Some(book) => self.order(book, "BUY", most(&self.books[book])),
                    None => self.buy(),
                }
            }
            Aim::UnknownMarket => Order { market_id: "0xunknown".into(), ..self.buy() },
            Aim::UnknownOutcome => Order { outcome: "Perhaps".into(), ..self.buy() },
            Aim::ClosedMarket => {
                let chosen = self.index(self.closed.len());
                let (market_id, outcome) = self.closed[chosen].clone();
                Order { market_id, outcome, ..self.buy() }
            }
        }
    }

    /// Updates cash and holdings with the outcome of the last order.
    pub(crate) fn learn(&mut self, outcome: &Outcome) {
        let Outcome::Filled(fill) = outcome else { return };
        let book = self.last.expect("what fills was an order for a book");
        self.cash = micros(&fill.balance);
        match micros(&fill.position_quantity) {
            0 => self.held.remove(&book),
            held => self.held.insert(book, held),
        };
    }

    /// Takes a few levels completely and a part of the next one.
    fn buy(&mut self) -> Order {
        let book = self.index(self.books.len());
        let level_count = self.books[book].asks.len() as u64;
        if level_count == 0 {
            return self.order(book, "BUY", 1_000_000);
        }
        let whole = usize::try_from(self.below(level_count.min(LEVELS_MAX))).unwrap();
        let asks = &self.books[book].asks;
        let before = depth(&asks[..whole]);
        let (_, size) = asks[whole];
        let quantity = (before + self.part_of(size)).min(QUANTITY_MAX);
        let is_dear = cost(&self.books[book].asks, quantity) > self.cash / 20;
        let quantity = if is_dear { self.part_of(quantity.min(MODEST)) } else { quantity };
        self.order(book, "BUY", quantity)
    }

    /// A random book among those wanted.
    fn any_book(&mut self, is_wanted: impl Fn(&Book) -> bool) -> Option<usize> {
        let wanted: Vec<usize> =
            (0..self.books.len()).filter(|&book| is_wanted(&self.books[book])).collect();
        (!wanted.is_empty()).then(|| wanted[self.index(wanted.len())])
    }

    fn order(&mut self, book: usize, side: &'static str, quantity: i64) -> Order {
        self.last = Some(book);
        let Book { market_id, label, .. } = &self.books[book];
        let (market_id, outcome) = (market_id.clone(), label.clone());
        // The server ignores the case of outcomes.
        let outcome = if self.below(4) == 0 { outcome.to_uppercase() } else { outcome };
        let quantity = Shares::from_micros(quantity).to_string();
        Order { market_id, outcome, side, quantity }
    }

    /// A random part, from a millionth to the whole; half of the time in whole shares.
    fn part_of(&mut self, whole: i64) -> i64 {
        let part = 1 + i64::try_from(self.below(whole.unsigned_abs())).unwrap();
        let is_rounded = self.below(2) == 0 && part > 1_000_000;
        if is_rounded { part / 1_000_000 * 1_000_000 } else { part }
    }

    fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    /// A random number below `end`: splitmix64, whose modulo bias does not matter here.
    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// The total size of these levels.
pub(crate) fn depth(levels: &[(i64, i64)]) -> i64 {
    levels.iter().map(|(_, size)| size).sum()
}

/// The cost of this many shares, without a fee.
fn cost(asks: &[(i64, i64)], quantity: i64) -> i64 {
    let (mut exact, mut left) = (0, quantity);
    for &(price, size) in asks {
        let taken = size.min(left);
        exact += i128::from(price) * i128::from(taken);
        left -= taken;
    }
    i64::try_from(exact / 1_000_000).unwrap()
}

/// Parses one side of a row.
pub(crate) fn levels(side: &[(String, String)]) -> Levels {
    side.iter()
        .map(|(price, size)| {
            (Price::from_text(price, Rounding::Exact).unwrap().micros(), micros(size))
        })
        .collect()
}

/// Parses decimal text into millionths.
pub(crate) fn micros(text: &str) -> i64 {
    Shares::from_text(text, Rounding::Exact).unwrap().micros()
}
