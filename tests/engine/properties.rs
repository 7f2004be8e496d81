//! Random sequences of commands, on which the engine and the naive shard must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use paperbourse::engine::command::{Command, CreateKey, OrderNames, Owner, Trade, TradeOrder};
use paperbourse::engine::event::{Event, Events, OrderFilled};
use paperbourse::engine::idempotency::NameHash;
use paperbourse::engine::key::{KeyGrant, Permissions};
use paperbourse::engine::{State, Verdict};
use paperbourse::ids::{AccountId, CommentId, KeyId, OrderId, OutcomeIndex, Timestamp};
use paperbourse::limits::tier::Tier;
use paperbourse::market::book::{Level, Side};
use paperbourse::market::catalogue::{Fees, MarketStatus};
use paperbourse::money::{FeeRate, Price, Shares, Usd};

use crate::naive::{Book, Fill, Market, Micros, Naive, Order, Outcome};
use crate::report;
use crate::world::World;

const ACCOUNTS: usize = 3;
/// One more than there are: the last is asked for in vain.
const MARKETS_ASKED: usize = 4;
const LABELS: [&[&str]; 3] = [&["Yes", "No"], &["Up", "Down"], &["Ann", "Bob", "Cid"]];
/// Small enough that some purchases are refused.
const STARTING_BALANCE: Micros = 60_000_000;

#[derive(Clone, Debug)]
enum Action {
    Trade(Order),
    /// Sends an order again that was sent so many orders before, under the same names or others.
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
        seconds: Option<i64>,
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
}

/// Up to eight levels, mostly a few cents from the middle and of fewer shares than an order asks
/// for, so that many orders take several.
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

/// A market and the name of an outcome, which seldom is none of its own.
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
        7 => (0..2_usize, any::<bool>(), prop::bool::weighted(0.2), 0..3_usize,
            prop::option::weighted(0.3, 1_i64..50))
            .prop_map(|(account, by_token, is_bootstrap, maker, seconds)| Action::Key {
                account, by_token, is_bootstrap, maker, seconds,
            }),
        1 => (0..2_usize, any_key, any::<bool>())
            .prop_map(|(account, key, descendants)| Action::Revoke { account, key, descendants }),
        1 => (0..ACCOUNTS, 0..12_usize)
            .prop_map(|(author, order)| Action::Comment { author, order }),
        1 => (0..ACCOUNTS, 0..4_usize)
            .prop_map(|(author, comment)| Action::DeleteComment { author, comment }),
        1 => (1_i64..30).prop_map(|seconds| Action::Pass { seconds }),
    ]
}

/// Books for the first outcomes, so that trading begins at once, then anything.
fn actions() -> impl Strategy<Value = Vec<Action>> {
    let books = (book(), book(), book(), book());
    (books, prop::collection::vec(action(), 1..120)).prop_map(|(books, actions)| {
        let first = [(0, 0, books.0), (1, 1, books.1), (2, 0, books.2), (2, 1, books.3)];
        let first = first.map(|(market, outcome, book)| Action::Book { market, outcome, book });
        first.into_iter().chain(actions).collect()
    })
}

/// The engine and the naive shard side by side.
struct Pair {
    world: World,
    naive: Naive,
    /// Every order that was sent, filled or not.
    sent: Vec<Order>,
}

impl Pair {
    fn new() -> Self {
        let mut world = World::new();
        world.rules.starting_balance = Usd::from_micros(narrow(STARTING_BALANCE));
        world.now = Timestamp::EPOCH;
        let markets = LABELS.map(|labels| Market {
            labels,
            is_open: true,
            fees: (0, 1),
            books: vec![None; labels.len()],
        });
        for (index, labels) in LABELS.iter().enumerate() {
            world.list(&market_id(index), labels);
        }
        Self { world, naive: Naive::new(STARTING_BALANCE, markets.to_vec()), sent: Vec::new() }
    }

    /// Does the same to both and compares; tells what a command led to.
    fn step(&mut self, action: &Action) -> Option<Outcome> {
        let (command, expected) = match action {
            Action::Book { market, outcome, book } => {
                let side = |side: &BTreeMap<Micros, Micros>| {
                    side.iter().map(|(&price, &size)| level(price, size)).collect()
                };
                let index = OutcomeIndex(u8::try_from(*outcome).expect("few outcomes"));
                let (bids, asks) = (side(&book.bids), side(&book.asks));
                self.world.publish(&market_id(*market), index, bids, asks, book.is_stale);
                self.naive.markets[*market].books[*outcome] = Some(book.clone());
                return None;
            }
            Action::Market { market, status, fees } => {
                self.world.describe(&market_id(*market), |info| {
                    info.status = *status;
                    info.fees = Fees::from_schedule(FeeRate::from_micros(narrow(fees.0)), fees.1);
                });
                self.naive.markets[*market].is_open = *status == MarketStatus::Open;
                self.naive.markets[*market].fees = *fees;
                return None;
            }
            Action::Pass { seconds } => {
                self.naive.now += seconds;
                self.world.now = Timestamp::from_seconds(self.naive.now);
                return None;
            }
            Action::Trade(order) => {
                self.sent.push(order.clone());
                (self.trade(order), self.naive.trade(order))
            }
            Action::Again { back, names } => {
                let index = self.sent.len().checked_sub(back + 1)?;
                let mut order = self.sent[index].clone();
                if let Some(names) = names {
                    order.names.clone_from(names);
                }
                (self.trade(&order), self.naive.trade(&order))
            }
            Action::Open { account } => (
                Command::OpenAccount(World::identity(&subject(*account))),
                self.naive.open(*account),
            ),
            Action::Key { account, by_token, is_bootstrap, maker, seconds } => {
                self.create_key(*account, *by_token, *is_bootstrap, *maker, *seconds)
            }
            Action::Revoke { account, key, descendants } => {
                let command = Command::RevokeKey {
                    account: self.account(*account),
                    key: self.id(*key, KeyId::new),
                    descendants: *descendants,
                };
                (command, self.naive.revoke(*account, *key, *descendants))
            }
            Action::Comment { author, order } => {
                let order_id = self.id(*order, OrderId::new);
                let author_id = self.account(*author);
                let content = "well done".into();
                let command = Command::Comment { order: order_id, author: author_id, content };
                (command, self.naive.comment(*author, *order))
            }
            Action::DeleteComment { author, comment } => {
                let comment_id = self.id(*comment, CommentId::new);
                let author_id = self.account(*author);
                let command = Command::DeleteComment { comment: comment_id, author: author_id };
                (command, self.naive.delete_comment(*author, *comment))
            }
        };
        let actual = match self.world.run(&command) {
            Err(rejection) => Outcome::Refused(report::code(&rejection)),
            Ok(Verdict::Already) => Outcome::Already,
            Ok(Verdict::Replay(order)) => Outcome::Replay(place(order.counter())),
            Ok(Verdict::Happens(events)) => happened(&self.world.state, &events),
        };
        assert_eq!(actual, expected, "{action:?}");
        self.check_sums();
        Some(actual)
    }

    fn trade(&self, order: &Order) -> Command {
        let hashes = order.names.iter().map(|name| NameHash::of_order(&name.to_string()));
        Command::Trade(Trade {
            owner: self.owner(order.account, order.by_token),
            order: TradeOrder {
                market_id: market_id(order.market).into(),
                outcome: order.label.into(),
                side: if order.is_buy { Side::Buy } else { Side::Sell },
                quantity: Shares::from_micros(narrow(order.quantity)),
                expected_price: order.expected_price.map(|price| Price::from_micros(narrow(price))),
                max_slippage_bps: order.max_slippage_bps,
            },
            names: OrderNames { hashes: hashes.collect(), client_order_id: None },
        })
    }

    fn create_key(
        &mut self,
        account: usize,
        by_token: bool,
        is_bootstrap: bool,
        maker: usize,
        seconds: Option<i64>,
    ) -> (Command, Outcome) {
        // A key is made with an active key of its own account, or with the token.
        let makers = self.naive.active_keys_of(account);
        let maker = if by_token { None } else { makers.get(maker).copied() };
        let expires_at = seconds.map(|seconds| self.naive.now + seconds);
        let command = Command::CreateKey(CreateKey {
            owner: self.owner(account, by_token),
            is_bootstrap,
            created_by: maker.map(|maker| self.id(maker, KeyId::new)),
            grant: KeyGrant {
                hash: [9; 32],
                prefix: "ps_live_01234567".into(),
                name: None,
                tier: Tier::Free,
                permissions: Permissions::DEFAULT,
                expires_at: expires_at.map(Timestamp::from_seconds),
            },
        });
        let expected = self.naive.create_key(account, by_token, is_bootstrap, maker, expires_at);
        (command, expected)
    }

    fn owner(&self, account: usize, by_token: bool) -> Owner {
        if by_token {
            Owner::Identity(World::identity(&subject(account)))
        } else {
            Owner::Account(self.account(account))
        }
    }

    /// The account's id; one that nobody has when it is not open.
    fn account(&self, account: usize) -> AccountId {
        let place = self.naive.accounts.iter().position(|&other| other == account);
        self.id(place.unwrap_or(ACCOUNTS + account), AccountId::new)
    }

    /// The id of the record at this place among those of its kind.
    fn id<T>(&self, place: usize, of: fn(paperbourse::ids::ShardId, u64) -> Option<T>) -> T {
        of(self.world.state.shard(), place as u64 + 1).expect("a small counter")
    }

    /// Money and shares of every account are what the list of fills sums up to.
    fn check_sums(&self) {
        let state = &self.world.state;
        assert_eq!(state.accounts().len(), self.naive.accounts.len());
        for (record, &account) in state.accounts().iter().zip(&self.naive.accounts) {
            let cash = record.ledger.cash();
            assert_eq!(Micros::from(cash.micros()), self.naive.cash(account));
            assert!(cash >= Usd::ZERO, "an account in debt");
            for position in &record.positions {
                let market_id = &*state.used_market(position.market).condition_id;
                let market =
                    (0..LABELS.len()).position(|index| market_id == self::market_id(index));
                let market = market.expect("one of the markets");
                let expected = self.naive.position(account, market, position.outcome.index());
                let actual = (position.shares.micros().into(), position.cost.micros().into());
                assert_eq!(actual, expected, "shares and cost");
                assert!(position.shares >= Shares::ZERO && position.cost >= Usd::ZERO);
                assert!(position.is_open() || position.cost == Usd::ZERO);
            }
        }
        let beyond = self.id(self.naive.order_count(), OrderId::new);
        assert_eq!(state.order(beyond), None, "no orders but those that filled");
    }
}

fn happened(state: &State, events: &Events) -> Outcome {
    let revoked: BTreeSet<usize> = events
        .iter()
        .filter_map(|event| match event {
            Event::KeyRevoked { key, .. } => Some(place(key.counter())),
            _ => None,
        })
        .collect();
    if !revoked.is_empty() {
        return Outcome::Revoked(revoked);
    }
    let opens_account = matches!(events[0], Event::AccountOpened { .. });
    match events.last() {
        Some(Event::OrderFilled(fill)) => {
            Outcome::Filled(Box::new(filled(state, fill, opens_account)))
        }
        _ => Outcome::Done,
    }
}

fn filled(state: &State, fill: &OrderFilled, opens_account: bool) -> Fill {
    let receipt = state.receipt(state.order(fill.order).expect("it has filled"));
    assert_eq!(fill.levels.iter().map(|level| level.size).sum::<Shares>(), receipt.quantity);
    Fill {
        opens_account,
        levels: fill
            .levels
            .iter()
            .map(|level| (level.price.micros().into(), level.size.micros().into()))
            .collect(),
        notional: receipt.notional.micros().into(),
        fee: receipt.fee.micros().into(),
        price: receipt.price().micros().into(),
        slippage_bps: receipt.slippage_bps.map(i128::from),
        cash: receipt.balance.micros().into(),
        shares: receipt.position_shares.micros().into(),
        cost: receipt.position_cost.micros().into(),
        average: receipt.average_entry_price().micros().into(),
    }
}

fn subject(account: usize) -> String {
    format!("trader-{account}")
}

fn market_id(index: usize) -> String {
    format!("0x{index}")
}

fn level(price: Micros, size: Micros) -> Level {
    Level { price: Price::from_micros(narrow(price)), size: Shares::from_micros(narrow(size)) }
}

fn narrow(micros: Micros) -> i64 {
    i64::try_from(micros).expect("small numbers")
}

fn place(counter: u64) -> usize {
    usize::try_from(counter - 1).expect("counters start at 1")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_agrees_with_the_naive_shard(actions in actions()) {
        let mut pair = Pair::new();
        for action in &actions {
            pair.step(action);
        }
    }
}

/// A property is worth what its cases reach: here they fill, walk, replay and are refused for every
/// reason that they can be.
#[test]
fn the_random_commands_reach_every_rule() {
    let mut runner = TestRunner::deterministic();
    let (mut trades, mut fills, mut walks) = (0, 0, 0);
    let mut reached = BTreeSet::new();
    for _ in 0..60 {
        let actions = actions().new_tree(&mut runner).expect("nothing is filtered").current();
        let mut pair = Pair::new();
        for action in &actions {
            let Some(outcome) = pair.step(action) else { continue };
            trades += usize::from(matches!(action, Action::Trade(_) | Action::Again { .. }));
            reached.insert(match outcome {
                Outcome::Filled(fill) => {
                    fills += 1;
                    walks += usize::from(fill.levels.len() > 1);
                    if fill.opens_account { "opens by trading" } else { "fills" }
                }
                Outcome::Refused(code) => code,
                Outcome::Replay(_) => "replays",
                Outcome::Already => "already so",
                Outcome::Revoked(keys) if keys.len() > 1 => "revokes a family",
                Outcome::Revoked(_) => "revokes",
                Outcome::Done => "done",
            });
        }
    }
    println!("{fills} of {trades} orders filled, {walks} over more than one level: {reached:?}");
    assert!(fills * 4 >= trades, "{fills} of {trades} orders filled");
    assert!(walks * 4 >= fills, "{walks} of {fills} fills took more than one level");
    for rule in [
        "ACCOUNT_NOT_FOUND",
        "BOOTSTRAP_NOT_ALLOWED",
        "COMMENT_NOT_FOUND",
        "COMMENT_NOT_OWN",
        "FEES_UNSUPPORTED",
        "IDEMPOTENCY_KEY_REUSE",
        "INSUFFICIENT_BALANCE",
        "INSUFFICIENT_LIQUIDITY",
        "INSUFFICIENT_POSITION",
        "KEY_NOT_FOUND",
        "MARKET_CLOSED",
        "MARKET_NOT_FOUND",
        "ORDER_NOT_FOUND",
        "OUTCOME_NOT_FOUND",
        "SLIPPAGE_EXCEEDED",
        "TIER_KEY_LIMIT_EXCEEDED",
        "VENUE_UNAVAILABLE",
        "already so",
        "done",
        "fills",
        "opens by trading",
        "replays",
        "revokes",
        "revokes a family",
    ] {
        assert!(reached.contains(rule), "no command led to: {rule}");
    }
}
