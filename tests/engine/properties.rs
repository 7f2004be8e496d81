//! Random sequences of commands, for which the engine and the naive shard must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use paperbourse::engine::command::{
    CreateKey, DeleteComment, OpenAccount, OrderNames, Owner, RenameKey, RevokeKey, RotateKey,
    Settle, Trade, TradeOrder, WriteComment,
};
use paperbourse::engine::comment::Written;
use paperbourse::engine::event::{Event, Events, OrderFilled};
use paperbourse::engine::key::{KeyGrant, Permissions};
use paperbourse::engine::market::payout::Decision;
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::engine::{Command, State, Verdict};
use paperbourse::ids::{
    AccountId, CommentId, KeyId, MarketIndex, OrderId, OutcomeIndex, ShardId, Timestamp,
};
use paperbourse::journal::record;
use paperbourse::limits::tier::Tier;
use paperbourse::market::book::{Level, Side};
use paperbourse::market::catalogue::{Fees, MarketStatus};
use paperbourse::money::{FeeRate, Price, Shares, Usd};

use crate::actions::{ACCOUNTS, Action, LABELS, STARTING_BALANCE, actions};
use crate::naive::{Fill, KEPT_ORDERS_MAX, Market, Micros, Naive, Order, Outcome};
use crate::report;
use crate::world::World;

/// The engine and the naive shard side by side.
pub(crate) struct Pair {
    world: World,
    naive: Naive,
    /// Every order sent, filled or not.
    sent: Vec<Order>,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let mut world = World::new();
        world.rules.starting_balance = Usd::from_micros(narrow(STARTING_BALANCE));
        world.rules.kept_orders_max = KEPT_ORDERS_MAX;
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

    /// Applies the action to both and compares. Returns the result of a command.
    pub(crate) fn step(&mut self, action: &Action) -> Option<Outcome> {
        let (actual, expected) = self.outcomes(action)?;
        assert_eq!(actual, expected, "{action:?}");
        self.check_sums();
        self.check_settled();
        self.check_keys();
        Some(actual)
    }

    pub(crate) fn into_world(self) -> World {
        self.world
    }

    /// Runs a command and returns its result.
    fn run<C>(&mut self, command: &C) -> Outcome
    where
        C: Command<Subject: PartialEq + Debug>,
    {
        match self.world.run(command) {
            Err(rejection) => Outcome::Refused(report::code(&rejection)),
            Ok(Verdict::Already(_)) => Outcome::Already,
            Ok(Verdict::Happens(events, _)) => happened(&self.world.state, &events),
        }
    }

    /// The results of the action in the engine and in the naive shard. An action that changes the
    /// world is applied to both and returns `None`.
    fn outcomes(&mut self, action: &Action) -> Option<(Outcome, Outcome)> {
        Some(match action {
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
                self.trade(order)
            }
            Action::Again { back, names } => {
                let index = self.sent.len().checked_sub(back + 1)?;
                let mut order = self.sent[index].clone();
                if let Some(names) = names {
                    order.names.clone_from(names);
                }
                self.trade(&order)
            }
            Action::Open { account } => {
                let command = OpenAccount(World::identity(&subject(*account)));
                (self.run(&command), self.naive.open(*account))
            }
            Action::Key { account, by_token, is_bootstrap, maker } => {
                self.create_key(*account, *by_token, *is_bootstrap, *maker)
            }
            Action::Rename { account, key, with, name } => {
                let with = self.naive.active_keys_of(*account).get(*with).copied();
                let command = RenameKey {
                    account: self.account(*account),
                    key: self.id(*key, KeyId::new),
                    name: name.map(key_name),
                    caller_key: with.map(|with| self.id(with, KeyId::new)),
                };
                (self.run(&command), self.naive.rename(*account, *key, with, *name))
            }
            Action::Rotate { account, key, with, overlap_seconds } => {
                let with = self.naive.active_keys_of(*account).get(*with).copied();
                let command = RotateKey {
                    account: self.account(*account),
                    key: self.id(*key, KeyId::new),
                    caller_key: with.map(|with| self.id(with, KeyId::new)),
                    overlap_seconds: *overlap_seconds,
                    hash: [8; 32],
                    prefix: "ps_live_89abcdef".into(),
                };
                (self.run(&command), self.naive.rotate(*account, *key, with, *overlap_seconds))
            }
            Action::Revoke { account, key, descendants } => {
                let command = RevokeKey {
                    account: self.account(*account),
                    key: self.id(*key, KeyId::new),
                    descendants: *descendants,
                };
                (self.run(&command), self.naive.revoke(*account, *key, *descendants))
            }
            Action::Comment { author, order } => {
                let order_id = self.id(*order, OrderId::new);
                let author_id = writer(*author);
                let content = "well done".into();
                let command = WriteComment {
                    order: order_id,
                    author: author_id,
                    content,
                    elsewhere: Written::default(),
                };
                (self.run(&command), self.naive.comment(*author, *order))
            }
            Action::DeleteComment { author, comment } => {
                let comment_id = self.id(*comment, CommentId::new);
                let author_id = writer(*author);
                let command = DeleteComment { comment: comment_id, author: author_id };
                (self.run(&command), self.naive.delete_comment(*author, *comment))
            }
            Action::Settle { market, result } => self.settle(*market, *result),
        })
    }

    fn settle(&mut self, market: usize, result: usize) -> (Outcome, Outcome) {
        let labels = LABELS[market];
        let payouts: Vec<Micros> = match (result, labels.len()) {
            (winner, count) if winner < count => {
                (0..count).map(|label| Micros::from(label == winner) * 1_000_000).collect()
            }
            (_, 2) => vec![500_000; 2],
            _ => vec![250_000, 333_333, 416_667],
        };
        let tokens = labels.iter().map(|label| format!("{}-{label}", market_id(market)));
        let prices = payouts.iter().map(|&price| Price::from_micros(narrow(price)));
        let decision = Decision {
            condition_id: market_id(market).into(),
            payouts: tokens.map(Into::into).zip(prices).collect(),
            evidence: "the test".into(),
        };
        let command = Settle(Arc::new(decision));
        (self.run(&command), self.naive.settle(market, payouts))
    }

    fn trade(&mut self, order: &Order) -> (Outcome, Outcome) {
        let hashes = order.names.iter().map(|name| NameHash::of_order(&name.to_string()));
        let trade = Trade::new(
            self.owner(order.account, order.by_token),
            TradeOrder {
                market_id: market_id(order.market).into(),
                outcome: order.label.into(),
                side: if order.is_buy { Side::Buy } else { Side::Sell },
                quantity: Shares::from_micros(narrow(order.quantity)),
                expected_price: order.expected_price.map(|price| Price::from_micros(narrow(price))),
                max_slippage_bps: order.max_slippage_bps,
            },
            OrderNames::new(hashes, None),
        );
        let actual = match self.world.run(&trade) {
            Ok(Verdict::Already(known)) => Outcome::Replay(place(known.order.counter())),
            Ok(Verdict::Happens(events, _)) => happened(&self.world.state, &events),
            Err(rejection) => Outcome::Refused(report::code(&rejection)),
        };
        (actual, self.naive.trade(order))
    }

    fn create_key(
        &mut self,
        account: usize,
        by_token: bool,
        is_bootstrap: bool,
        maker: usize,
    ) -> (Outcome, Outcome) {
        // A key is made with an active key of its own account, or with the token.
        let makers = self.naive.active_keys_of(account);
        let maker = if by_token { None } else { makers.get(maker).copied() };
        let command = CreateKey {
            owner: self.owner(account, by_token),
            is_bootstrap,
            created_by: maker.map(|maker| self.id(maker, KeyId::new)),
            grant: KeyGrant {
                hash: [9; 32],
                prefix: "ps_live_01234567".into(),
                name: None,
                tier: Tier::Free,
                permissions: Permissions::DEFAULT,
                expires_at: None,
                wallet: None,
            },
        };
        (self.run(&command), self.naive.create_key(account, by_token, is_bootstrap, maker))
    }

    fn owner(&self, account: usize, by_token: bool) -> Owner {
        if by_token {
            Owner::Identity(World::identity(&subject(account)))
        } else {
            Owner::Account(self.account(account))
        }
    }

    /// The account's id, or an unused id if it is not open.
    fn account(&self, account: usize) -> AccountId {
        let place = self.naive.accounts.iter().position(|&other| other == account);
        self.id(place.unwrap_or(ACCOUNTS + account), AccountId::new)
    }

    /// The id of the record with this index among those of its kind.
    fn id<T>(&self, place: usize, of: fn(ShardId, u64) -> Option<T>) -> T {
        of(self.world.state.shard(), place as u64 + 1).expect("a small counter")
    }

    /// Every key has its name, and is active for as long as it should be.
    fn check_keys(&self) {
        for place in 0..self.naive.key_count() {
            let key = self.world.state.key(self.id(place, KeyId::new)).expect("few have ended");
            assert_eq!(key.grant.name, self.naive.name_of(place).map(key_name));
            let is_active =
                (0..ACCOUNTS).any(|account| self.naive.active_keys_of(account).contains(&place));
            assert_eq!(key.is_active(self.world.now), is_active, "key {place}");
        }
        assert_eq!(self.world.state.keys().count(), self.naive.key_count());
    }

    /// A market counts as settled if and only if its settlement is kept.
    fn check_settled(&self) {
        let state = &self.world.state;
        let kept: Vec<_> = state.settled_markets().map(|(market, _)| market).collect();
        for market in (0..).map(MarketIndex).take(state.markets().len() + 1) {
            assert_eq!(state.is_settled(market), kept.contains(&market), "{market:?}");
        }
    }

    /// Cash and shares of every account equal the sums over the naive shard's fills.
    fn check_sums(&self) {
        let state = &self.world.state;
        assert_eq!(state.accounts().len(), self.naive.accounts.len());
        for (record, &account) in state.accounts().zip(&self.naive.accounts) {
            let cash = record.ledger.cash();
            assert_eq!(Micros::from(cash.micros()), self.naive.cash(account));
            assert!(cash >= Usd::ZERO, "an account in debt");
            for position in record.positions {
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
        assert!(state.order(beyond).is_none(), "the engine has more orders than fills");
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
    let receipt = state.receipt(state.order(fill.placement.order).expect("it has filled"));
    assert_eq!(fill.levels.iter().map(|level| level.size).sum::<Shares>(), receipt.fill.quantity);
    Fill {
        opens_account,
        levels: fill
            .levels
            .iter()
            .map(|level| (level.price.micros().into(), level.size.micros().into()))
            .collect(),
        notional: receipt.fill.notional.micros().into(),
        fee: receipt.fill.fee.micros().into(),
        price: receipt.fill.price().micros().into(),
        slippage_bps: receipt.slippage_bps.map(i128::from),
        cash: receipt.fill.balance.micros().into(),
        shares: receipt.fill.position_shares.micros().into(),
        cost: receipt.fill.position_cost.micros().into(),
        average: receipt.fill.average_entry_price().micros().into(),
    }
}

/// An author of comments, whose account is in another shard.
fn writer(author: usize) -> AccountId {
    let shard = ShardId::new(11).expect("below the shard count");
    AccountId::new(shard, author as u64 + 1).expect("a small counter")
}

fn subject(account: usize) -> String {
    format!("trader-{account}")
}

fn key_name(number: usize) -> Box<str> {
    format!("key-{number}").into()
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// No two byte strings decode to the same record, however the bytes are damaged.
    #[test]
    fn a_damaged_record_never_decodes_as_another(
        actions in actions(),
        damages in prop::collection::vec((any::<usize>(), any::<usize>(), any::<u8>()), 200),
        cut in any::<usize>(),
    ) {
        let mut pair = Pair::new();
        for action in &actions {
            pair.step(action);
        }
        let records = &pair.world.records;
        prop_assume!(!records.is_empty());
        for (record, at, value) in damages {
            let mut bytes = records[record % records.len()].clone();
            let at = at % bytes.len();
            bytes[at] = value;
            check_record(&bytes);
            bytes.truncate(cut % bytes.len());
            check_record(&bytes);
        }
    }
}

/// Bytes that decode are the bytes of what they decode to.
pub(crate) fn check_record(bytes: &[u8]) {
    if let Ok((header, events)) = record::decode(bytes) {
        let mut again = Vec::new();
        record::encode(header, &events, &mut again);
        assert_eq!(again, bytes, "{events:?}");
    }
}

/// Guards the property test: its cases must fill, take several levels, replay, and be refused for
/// every possible reason.
#[test]
fn the_random_commands_reach_every_rule() {
    let mut runner = TestRunner::deterministic();
    let (mut trades, mut fills, mut walks, mut forgotten) = (0, 0, 0, 0);
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
                Outcome::Done if matches!(action, Action::Settle { .. }) => "settles",
                Outcome::Done => "done",
            });
        }
        forgotten += pair.naive.order_count() - pair.world.kept_order_count();
    }
    println!("{fills} of {trades} orders filled, {walks} over more than one level: {reached:?}");
    assert!(forgotten * 10 >= fills, "{forgotten} of {fills} orders were forgotten");
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
        "KEY_ENDED",
        "KEY_NOT_FOUND",
        "KEY_ROTATED",
        "MAKER_ROTATED",
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
        "settles",
    ] {
        assert!(reached.contains(rule), "no command led to: {rule}");
    }
}
