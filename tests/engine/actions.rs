//! Random sequences of commands and venue changes.
//!
//! They are chosen so that a third of the orders fill and a third of those take several levels:
//! few accounts and markets, prices a few cents apart, balances that run out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;

use paperbourse::market::catalogue::MarketStatus;

use crate::naive::{Book, Micros, Order};

pub(crate) const ACCOUNTS: usize = 3;
/// One more than exist, so that the last is never found.
const MARKETS_ASKED: usize = 4;
pub(crate) const LABELS: [&[&str]; 3] = [&["Yes", "No"], &["Up", "Down"], &["Ann", "Bob", "Cid"]];
/// Small enough that some purchases are refused.
pub(crate) const STARTING_BALANCE: Micros = 60_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Trade(Order),
    /// Repeats the order sent this many orders before, under the same names or others.
    Again {
        back: usize,
        names: Option<BTreeSet<usize>>,
    },
    Book {
        market: usize,
        outcome: usize,
        book: Book,
    },
    Market {
        market: usize,
        status: MarketStatus,
        fees: (Micros, i64),
    },
    Open {
        account: usize,
    },
    Key {
        account: usize,
        by_token: bool,
        is_bootstrap: bool,
        maker: usize,
    },
    Rename {
        account: usize,
        key: usize,
        /// An active key of the account, or else its token.
        with: usize,
        name: Option<usize>,
    },
    Rotate {
        account: usize,
        key: usize,
        with: usize,
        overlap_seconds: u32,
    },
    Revoke {
        account: usize,
        key: usize,
        descendants: bool,
    },
    Comment {
        author: usize,
        order: usize,
    },
    DeleteComment {
        author: usize,
        comment: usize,
    },
    Pass {
        seconds: i64,
    },
    /// Resolves a market with one of a few results.
    Settle {
        market: usize,
        result: usize,
    },
}

/// Up to eight levels, mostly a few cents from the middle and smaller than an order, so that many
/// orders take several.
fn side(
    near: Range<Micros>,
    far: Range<Micros>,
) -> impl Strategy<Value = BTreeMap<Micros, Micros>> {
    let price = prop_oneof![
        6 => near.clone().prop_map(|price| price / 10_000 * 10_000),
        2 => near.prop_map(|price| price / 100 * 100),
        1 => far.prop_map(|price| price / 100 * 100),
    ];
    let size = prop_oneof![
        3 => (1_i128..20).prop_map(|size| size * 1_000_000),
        1 => 1_i128..20_000_000,
    ];
    prop::collection::btree_map(price, size, 0..8)
}

fn book() -> impl Strategy<Value = Book> {
    let bids = side(420_000..500_000, 100..500_000);
    let asks = side(500_000..580_000, 500_000..1_000_000);
    (bids, asks, prop::bool::weighted(0.03)).prop_map(|(bids, asks, is_stale)| Book {
        bids,
        asks,
        is_stale,
    })
}

/// A market and an outcome label, which rarely belongs to another market.
fn market_and_label() -> impl Strategy<Value = (usize, &'static str)> {
    let binary = prop_oneof![
        4 => Just("yes"),
        3 => Just("No"),
        1 => Just("UP"),
        1 => Just("down"),
    ];
    let of_three =
        prop_oneof![4 => Just("ANN"), 4 => Just("bob"), 1 => Just("Cid"), 1 => Just("no")];
    prop_oneof![
        24 => (0..2_usize, binary),
        12 => (Just(2_usize), of_three),
        1 => (Just(MARKETS_ASKED - 1), Just("yes")),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    let quantity = |shares: Micros| {
        prop_oneof![
            4 => (1..shares).prop_map(|size| size * 1_000_000),
            3 => 1..shares * 1_000_000,
            1 => 1_i128..40,
        ]
    };
    let side_and_quantity = prop_oneof![
        3 => (Just(true), quantity(25)),
        2 => (Just(false), quantity(8)),
    ];
    let expected = prop::option::weighted(
        0.4,
        prop_oneof![1 => Just(0), 19 => (40_i128..65).prop_map(|cents| cents * 10_000)],
    );
    let bound = prop::option::weighted(0.3, prop_oneof![0_u16..300, 0_u16..=10_000]);
    let names = prop_oneof![2 => Just(BTreeSet::new()), 1 => names()];
    (
        0..ACCOUNTS,
        prop::bool::weighted(0.7),
        market_and_label(),
        side_and_quantity,
        expected,
        bound,
        names,
    )
        .prop_map(
            |(account, by_token, (market, label), (is_buy, quantity), expected, bound, names)| {
                Order {
                    account,
                    by_token,
                    market,
                    label,
                    is_buy,
                    quantity,
                    expected_price: expected,
                    max_slippage_bps: bound,
                    names,
                }
            },
        )
}

fn names() -> impl Strategy<Value = BTreeSet<usize>> {
    prop::collection::btree_set(0..200_usize, 1..3)
}

fn action() -> impl Strategy<Value = Action> {
    let fees = prop_oneof![
        4 => Just((0, 1)),
        8 => (1_i128..=100_000, 1_i64..=2),
        2 => (1_i128..=1_000_000, 1_i64..=2),
        1 => Just((70_000, 3)),
    ];
    let status = prop_oneof![16 => Just(MarketStatus::Open), 1 => Just(MarketStatus::Closed),
        1 => Just(MarketStatus::Paused)];
    let any_key = 0..8_usize;
    prop_oneof![
        30 => order().prop_map(Action::Trade),
        4 => (0..8_usize, prop::option::weighted(0.3, names()))
            .prop_map(|(back, names)| Action::Again { back, names }),
        6 => (0..LABELS.len(), 0..3_usize, book()).prop_map(|(market, outcome, book)| {
            Action::Book { market, outcome: outcome % LABELS[market].len(), book }
        }),
        2 => (0..LABELS.len(), status, fees)
            .prop_map(|(market, status, fees)| Action::Market { market, status, fees }),
        1 => (0..ACCOUNTS).prop_map(|account| Action::Open { account }),
        7 => (0..2_usize, any::<bool>(), prop::bool::weighted(0.2), 0..3_usize)
            .prop_map(|(account, by_token, is_bootstrap, maker)| Action::Key {
                account, by_token, is_bootstrap, maker,
            }),
        1 => (0..2_usize, any_key.clone(), 0..5_usize, prop::option::weighted(0.7, 0..3_usize))
            .prop_map(|(account, key, with, name)| Action::Rename { account, key, with, name }),
        3 => (0..2_usize, 0..4_usize, 0..5_usize, prop_oneof![Just(0_u32), 1..50_u32])
            .prop_map(|(account, key, with, overlap_seconds)| Action::Rotate {
                account, key, with, overlap_seconds,
            }),
        1 => (0..2_usize, any_key, any::<bool>())
            .prop_map(|(account, key, descendants)| Action::Revoke { account, key, descendants }),
        1 => (0..ACCOUNTS, 0..12_usize)
            .prop_map(|(author, order)| Action::Comment { author, order }),
        1 => (0..ACCOUNTS, 0..4_usize)
            .prop_map(|(author, comment)| Action::DeleteComment { author, comment }),
        2 => (1_i64..30).prop_map(|seconds| Action::Pass { seconds }),
    ]
}

/// Settles a market. Rare, because a settled market cannot be traded.
fn settle() -> impl Strategy<Value = Action> {
    (0..LABELS.len(), 0..4_usize).prop_map(|(market, result)| Action::Settle { market, result })
}

/// Books for the first outcomes, so that orders can fill at once, then random actions.
pub(crate) fn actions() -> impl Strategy<Value = Vec<Action>> {
    let books = (book(), book(), book(), book());
    (books, prop::collection::vec(prop_oneof![150 => action(), 1 => settle()], 1..120)).prop_map(
        |(books, actions)| {
            let first = [(0, 0, books.0), (1, 1, books.1), (2, 0, books.2), (2, 1, books.3)];
            let first = first.map(|(market, outcome, book)| Action::Book { market, outcome, book });
            first.into_iter().chain(actions).collect()
        },
    )
}
