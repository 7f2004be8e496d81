//! Scenarios as text: a command on each line, and its expected result after `->`.
//!
//! ```text
//! balance 1000                        starting balance of accounts opened below
//! rules keys 2                        the most active keys of an account
//! rules orders 2                      the most finished orders that an account keeps
//! market M1 Yes No                    an open market without fees and without books
//! status M1 closed | placeholder      fees M1 0.07 ^1 | free | unsupported
//! book M1 yes bids 0.57x100 asks 0.58x5 0.6x100        may end with `stale`
//! after 60                            seconds pass
//! open A1                             -> opened A1
//! buy A1 M1 yes 10 expected=0.57 max_bps=100 name=a,b  -> filled 10 @0.58 cash 994.2
//! key A1 K1 by=K0 bootstrap                            -> created K1
//! revoke A1 K1 descendants            -> revoked K1 K2
//! rename A1 K1 Desk by=K1             -> named K1 Desk
//! rotate A1 K1 K3 by=K1 overlap=60    -> created K3 ends K1
//! comment A2 O1 words                 -> commented C1
//! delete A2 C1                        -> COMMENT_NOT_OWN
//! reset A1                            -> reset A1 closed 1 cost 5.8 granted 5.8 balance 1000
//! suspend A1                           -> suspend A1
//! resume A1                            -> resume A1
//! deposit A1 50.5 1                    -> deposit A1 50.5
//! decide M1 1 0                       -> decided
//! settle M1 1 0                       -> pays A1:0:10:10:1004.2 settled
//! ```
//!
//! [`crate::placing`] has the lines about orders that may rest.
//!
//! `token:A1` is the bearer of A1's access token, whose account need not exist. A result is a list
//! of fields, each a name and its values. A line lists only the fields that it checks, and those
//! must match. Lines that begin with `#` are comments.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use paperbourse::engine::account::Account;
use paperbourse::engine::admin::reset::ResetAccount;
use paperbourse::engine::command::{
    CreateKey, DecideSettlement, DeleteComment, OpenAccount, OrderNames, Owner, RenameKey,
    RevokeKey, RotateKey, Settle, Trade, TradeOrder, WriteComment,
};
use paperbourse::engine::comment::Written;
use paperbourse::engine::key::{KeyGrant, Permissions};
use paperbourse::engine::market::payout::Decision;
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::engine::order::place::PlacedSubject;
use paperbourse::engine::order::receipt::OrderReceipt;
use paperbourse::engine::{Command, Verdict};
use paperbourse::ids::{AccountId, CommentId, KeyId, OrderId, OutcomeIndex, Timestamp};
use paperbourse::limits::tier::Tier;
use paperbourse::market::book::{Level, Side};
use paperbourse::market::catalogue::{Fees, MarketStatus};
use paperbourse::money::{FeeRate, Price, Rounding, Shares, Usd};

use crate::operators;
use crate::placing::first_answer;
use crate::report;
use crate::world::World;

/// A counter that no scenario reaches.
const UNKNOWN: u64 = 9_999;

/// Runs a scenario from an empty shard.
#[track_caller]
pub(crate) fn check(script: &str) {
    world_after(script);
}

/// Runs a scenario from an empty shard, and returns what has become of it.
#[track_caller]
pub(crate) fn world_after(script: &str) -> World {
    let mut run = Run { world: World::new(), keys: HashMap::new(), receipts: HashMap::new() };
    for (number, line) in (1..).zip(script.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (input, expected) = match line.split_once("->") {
            Some((input, expected)) => (input, Some(expected.trim())),
            None => (line, None),
        };
        let words: Vec<&str> = input.split_whitespace().collect();
        let Some(actual) = run.line(&words) else {
            assert_eq!(expected, None, "line {number}: {line}\n  only sets something up");
            continue;
        };
        let expected = expected.unwrap_or_else(|| panic!("line {number}: {line}\n  needs `->`"));
        if let Err(difference) = compare(expected, &actual) {
            panic!(
                "line {number}: {line}\n  expected: {expected}\n  got:      {actual}\n  \
                 {difference}"
            );
        }
    }
    run.world
}

/// A name and the values after it. A value that starts with `@` is a separate field:
/// `filled 10 @0.58` has the fields `filled` and `filled@`.
type Field<'a> = (String, Vec<&'a str>);

fn fields(text: &str) -> Vec<Field<'_>> {
    let mut fields: Vec<Field<'_>> = Vec::new();
    // A name that comes again adds to its values: `fill O1 fill O2` is `fill O1 O2`.
    let mut current = 0;
    for word in text.split_whitespace() {
        let name = match fields.get_mut(current) {
            Some((name, _)) if word.starts_with('@') => format!("{name}@"),
            Some((_, values)) if !word.starts_with(|first: char| first.is_ascii_lowercase()) => {
                values.push(word);
                continue;
            }
            _ => word.to_owned(),
        };
        let known = fields.iter().position(|field| field.0 == name);
        current = known.unwrap_or(fields.len());
        if known.is_none() {
            fields.push((name, Vec::new()));
        }
        if word.starts_with('@') {
            fields[current].1.push(word);
        }
    }
    fields
}

fn compare(expected: &str, actual: &str) -> Result<(), String> {
    let (expected, actual) = (fields(expected), fields(actual));
    if expected.first().map(|field| &field.0) != actual.first().map(|field| &field.0) {
        return Err("another outcome".to_owned());
    }
    for (name, values) in &expected {
        let Some((_, found)) = actual.iter().find(|field| field.0 == *name) else {
            return Err(format!("no field `{name}`"));
        };
        if !values.is_empty() && values != found {
            return Err(format!("{name}: {} instead of {}", found.join(" "), values.join(" ")));
        }
    }
    Ok(())
}

pub(crate) struct Run {
    pub(crate) world: World,
    keys: HashMap<String, KeyId>,
    /// Every order's receipt at the time when it was placed.
    pub(crate) receipts: HashMap<OrderId, OrderReceipt>,
}

impl Run {
    /// Runs the command of a line and returns its result as text. A line that sets up the world
    /// changes it and returns `None`.
    #[track_caller]
    fn line(&mut self, words: &[&str]) -> Option<String> {
        Some(match words {
            ["open", subject] => self.outcome(&OpenAccount(World::identity(subject))),
            ["buy", rest @ ..] => self.trade(Side::Buy, rest),
            ["sell", rest @ ..] => self.trade(Side::Sell, rest),
            ["place", rest @ ..] => self.place(rest),
            ["match", rest @ ..] => self.match_orders(rest),
            ["due", order] => self.decide_delayed(order),
            ["cancel", account, order] => self.cancel(account, order),
            ["cancel-all", account, options @ ..] => self.cancel_all(account, options),
            ["expire"] => self.expire(),
            ["undo", account, order, part] => self.undo(account, order, part),
            ["reset", account] => self.outcome(&ResetAccount(self.account(account))),
            [
                act @ ("suspend" | "resume" | "deposit" | "tier" | "erase" | "operator-reset"),
                account,
                options @ ..,
            ] => {
                let act = act.trim_start_matches("operator-");
                let act = [&[act], options].concat();
                self.outcome(&operators::command(self.account(account), &act))
            }
            ["show", account, market, outcome] => self.show(account, market, outcome),
            ["key", owner, name, options @ ..] => {
                self.outcome(&self.create_key(owner, name, options))
            }
            ["revoke", account, key, options @ ..] => self.outcome(&RevokeKey {
                account: self.account(account),
                key: self.key(key),
                descendants: options == ["descendants"],
            }),
            ["rename", account, key, name, options @ ..] => self.outcome(&RenameKey {
                account: self.account(account),
                key: self.key(key),
                name: (*name != "NOTHING").then(|| (*name).into()),
                caller_key: option(options, "by").map(|key| self.key(key)),
            }),
            ["rotate", account, key, new, options @ ..] => self.outcome(&RotateKey {
                account: self.account(account),
                key: self.key(key),
                caller_key: option(options, "by").map(|key| self.key(key)),
                overlap_seconds: option(options, "overlap")
                    .map_or(0, |seconds| seconds.parse().expect("seconds")),
                hash: [1; 32],
                prefix: (*new).into(),
            }),
            ["comment", author, order, content @ ..] => self.outcome(&WriteComment {
                order: OrderId::new(self.world.state.shard(), counter(order)).expect("an id"),
                author: self.account(author),
                content: content.join(" ").into(),
                elsewhere: Written::default(),
            }),
            ["delete", author, comment] => self.outcome(&DeleteComment {
                comment: CommentId::new(self.world.state.shard(), counter(comment)).expect("an id"),
                author: self.account(author),
            }),
            ["decide", market, payouts @ ..] => {
                self.outcome(&DecideSettlement(self.decision(market, payouts)))
            }
            ["settle", market, payouts @ ..] => {
                self.outcome(&Settle(self.decision(market, payouts)))
            }
            _ => {
                self.set_up(words);
                return None;
            }
        })
    }

    /// A decision with the payout of each outcome, in the market's order or by token.
    fn decision(&self, market: &str, payouts: &[&str]) -> Arc<Decision> {
        let listed = self.world.markets.by_condition(market);
        let tokens = listed.iter().flat_map(|market| market.info().outcomes.clone());
        let mut tokens = tokens.map(|outcome| outcome.token_id);
        let payout = |word: &&str| {
            let (token, price) = match word.split_once('=') {
                Some((token, price)) => (token.into(), price),
                None => (tokens.next().expect("an outcome"), *word),
            };
            (token, Price::from_text(price, Rounding::Exact).expect("a price"))
        };
        let payouts = payouts.iter().map(payout).collect();
        let evidence = "the script says so".into();
        Arc::new(Decision { condition_id: market.into(), payouts, evidence })
    }

    #[track_caller]
    fn set_up(&mut self, words: &[&str]) {
        match words {
            ["balance", amount] => self.world.rules.starting_balance = usd(amount),
            ["rules", "keys", count] => {
                self.world.rules.active_keys_max = count.parse().expect("a count");
            }
            ["rules", "orders", count] => {
                self.world.rules.kept_orders_max = count.parse().expect("a count");
            }
            ["rules", "open", count] => {
                self.world.rules.open_orders_max = count.parse().expect("a count");
            }
            ["restart"] => self.world.restart(),
            ["minimum", id, size] => {
                let size = Shares::from_text(size, Rounding::Exact).expect("shares");
                self.world.describe(id, |info| info.order_size_min = size);
            }
            ["tick", id, tick] => {
                let tick = price(tick);
                self.world.describe(id, |info| info.tick = tick);
            }
            ["after", seconds] => {
                let nanos = self.world.now.nanos() + seconds_of(seconds).nanos();
                self.world.now = Timestamp::from_nanos(nanos);
            }
            ["delay", id, millis] => {
                let taker_delay_ms = millis.parse().expect("milliseconds");
                self.world.describe(id, |info| info.taker_delay_ms = taker_delay_ms);
            }
            ["market", id, labels @ ..] => self.world.list(id, labels),
            ["status", id, "placeholder"] => self.world.describe(id, |info| {
                (info.status, info.is_placeholder) = (MarketStatus::Paused, true);
            }),
            ["status", id, status] => {
                let named =
                    |known: &MarketStatus| format!("{known:?}").eq_ignore_ascii_case(status);
                let status = MarketStatus::ALL.into_iter().find(named).expect("a status");
                self.world.describe(id, |info| {
                    (info.status, info.is_placeholder) = (status, false);
                });
            }
            ["fees", id, schedule @ ..] => {
                let fees = fees(schedule);
                self.world.describe(id, |info| info.fees = fees);
            }
            ["book", id, label, levels @ ..] => self.book(id, label, levels),
            _ => panic!("no such line: {}", words.join(" ")),
        }
    }

    #[track_caller]
    fn book(&mut self, id: &str, label: &str, levels: &[&str]) {
        let market = self.world.markets.by_condition(id).expect("a listed market");
        let outcome: OutcomeIndex = market.info().outcome(label).expect("an outcome of the market");
        let (mut bids, mut asks, mut stale, mut side) = (Vec::new(), Vec::new(), false, None);
        for word in levels {
            match (*word, side) {
                ("bids", _) => side = Some(Side::Buy),
                ("asks", _) => side = Some(Side::Sell),
                ("stale", _) => stale = true,
                (word, Some(Side::Buy)) => bids.push(level(word)),
                (word, Some(Side::Sell)) => asks.push(level(word)),
                (word, None) => panic!("{word} is on no side"),
            }
        }
        self.world.publish(id, outcome, bids, asks, stale);
    }

    #[track_caller]
    fn trade(&mut self, side: Side, words: &[&str]) -> String {
        let [owner, market_id, outcome, quantity, options @ ..] = words else {
            panic!("an order is: account, market, outcome, quantity; not {}", words.join(" "));
        };
        let mut order = TradeOrder {
            market_id: (*market_id).into(),
            outcome: (*outcome).into(),
            side,
            quantity: Shares::from_text(quantity, Rounding::Exact).expect("shares"),
            expected_price: None,
            max_slippage_bps: None,
        };
        let mut names = OrderNames::default();
        for option in options {
            match option.split_once('=') {
                Some(("expected", text)) => order.expected_price = Some(price(text)),
                Some(("max_bps", text)) => {
                    order.max_slippage_bps = Some(text.parse().expect("bps"));
                }
                Some(("name", list)) => {
                    names = OrderNames::new(list.split(',').map(name_hash), None);
                }
                _ => panic!("no such option: {option}"),
            }
        }
        let trade = Trade::new(self.owner(owner), order, names);
        let verdict = self.world.run(&trade);
        let state = &self.world.state;
        match verdict {
            Ok(Verdict::Happens(events, PlacedSubject { order, .. })) => {
                let receipt = state.receipt(state.order(order).expect("it has filled"));
                self.receipts.insert(order, receipt);
                report::happened(state, &events)
            }
            Ok(Verdict::Already(PlacedSubject { order, .. })) => {
                let receipt = state.receipt(state.order(order).expect("it has filled"));
                let before = self.receipts[&order].clone();
                assert_eq!(first_answer(receipt), first_answer(before), "another answer");
                format!("replay of O{}", order.counter())
            }
            Err(rejection) => report::refusal(&rejection),
        }
    }

    #[track_caller]
    fn create_key(&self, owner: &str, name: &str, options: &[&str]) -> CreateKey {
        let mut create = CreateKey {
            owner: self.owner(owner),
            is_bootstrap: false,
            created_by: None,
            grant: KeyGrant {
                hash: [0; 32],
                prefix: name.into(),
                name: None,
                tier: Tier::Free,
                permissions: Permissions::DEFAULT,
                expires_at: None,
                wallet: None,
            },
        };
        for option in options {
            match option.split_once('=') {
                None if *option == "bootstrap" => create.is_bootstrap = true,
                Some(("by", key)) => create.created_by = Some(self.key(key)),
                Some(("tier", tier)) => create.grant.tier = Tier::parse(tier).expect("a tier"),
                _ => panic!("no such option: {option}"),
            }
        }
        create
    }

    /// Runs a command that is no order and returns its result as text.
    #[track_caller]
    pub(crate) fn outcome<C>(&mut self, command: &C) -> String
    where
        C: Command<Subject: PartialEq + Debug>,
    {
        let verdict = match self.world.run(command) {
            Err(rejection) => return report::refusal(&rejection),
            Ok(verdict) => verdict,
        };
        let state = &self.world.state;
        for key in state.keys() {
            self.keys.insert(key.grant.prefix.to_string(), key.id);
        }
        match verdict {
            Verdict::Already(_) => "already".to_owned(),
            Verdict::Happens(events, _) => report::happened(state, &events),
        }
    }

    pub(crate) fn owner(&self, name: &str) -> Owner {
        match name.strip_prefix("token:") {
            Some(subject) => Owner::Identity(World::identity(subject)),
            None => Owner::Account(self.account(name)),
        }
    }

    /// The account of a subject, or an id that no account has.
    pub(crate) fn account(&self, subject: &str) -> AccountId {
        let state = &self.world.state;
        state
            .account_of(&World::identity(subject).digest)
            .map_or_else(|| AccountId::new(state.shard(), UNKNOWN).expect("an id"), Account::id)
    }

    /// The key with this name, or an id that no key has.
    fn key(&self, name: &str) -> KeyId {
        let unknown = || KeyId::new(self.world.state.shard(), UNKNOWN).expect("an id");
        self.keys.get(name).copied().unwrap_or_else(unknown)
    }
}

/// The value of an option; `None` if it is missing.
#[track_caller]
fn option<'a>(options: &[&'a str], wanted: &str) -> Option<&'a str> {
    let mut given = options.iter().map(|option| option.split_once('=').expect("name=value"));
    given.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

#[track_caller]
fn fees(words: &[&str]) -> Fees {
    match words {
        ["free"] => Fees::Free,
        ["unsupported"] => Fees::Unsupported,
        [rate, exponent] => {
            let rate = FeeRate::from_text(rate, Rounding::Exact).expect("a rate");
            let exponent = exponent.strip_prefix('^').expect("^1 or ^2");
            Fees::from_schedule(rate, exponent.parse().expect("an exponent"))
        }
        _ => panic!("no such fees: {}", words.join(" ")),
    }
}

#[track_caller]
fn level(text: &str) -> Level {
    let (at, size) = text.split_once('x').unwrap_or_else(|| panic!("a level is 0.5x10: {text}"));
    Level { price: price(at), size: Shares::from_text(size, Rounding::Exact).expect("shares") }
}

#[track_caller]
pub(crate) fn price(text: &str) -> Price {
    Price::from_text(text, Rounding::Exact).expect("a price")
}

#[track_caller]
pub(crate) fn usd(text: &str) -> Usd {
    Usd::from_text(text, Rounding::Exact).expect("dollars")
}

#[track_caller]
fn seconds_of(text: &str) -> Timestamp {
    Timestamp::from_seconds(text.parse().expect("seconds"))
}

/// `a` is the name of an order, `a#3` that of entry 3 of the batch `a`.
#[track_caller]
pub(crate) fn name_hash(name: &str) -> NameHash {
    match name.split_once('#') {
        Some((batch, index)) => NameHash::of_batch_entry(batch, index.parse().expect("an index")),
        None => NameHash::of_order(name),
    }
}

/// The number in a name such as `O1` or `C1`.
#[track_caller]
pub(crate) fn counter(name: &str) -> u64 {
    name[1..].parse().unwrap_or_else(|_| panic!("not a counted name: {name}"))
}
