//! The clients: traders with several requests in flight, who resend unanswered orders.
//!
//! A server keeps the idempotency names of an account's newest orders only. So no trader has more
//! unanswered orders than the server keeps names for, and unanswered orders are resent before new
//! ones are sent.

use std::collections::VecDeque;
use std::ops::Range;

use super::command::Command;
use super::markets::{Fill, LASTING_COUNT, MARKETS};
use super::operated::{Ask, OPERATED, Operated};
use super::resting::orders::RestingClients;
use super::resting::venue::Venue;
use crate::disk::simulated::random::Random;
use crate::engine::admin::reset::ResetAccount;
use crate::engine::command::{
    CreateKey, DeleteComment, Identity, OpenAccount, OrderNames, Owner, RenameKey, RevokeKey,
    RotateKey, SetHeartbeat, Trade, TradeOrder, WriteComment,
};
use crate::engine::comment::Written;
use crate::engine::key::{KeyGrant, OVERLAP_SECONDS_MAX, Permissions};
use crate::engine::order::idempotency::NameHash;
use crate::ids::{AccountId, CommentId, KeyId, OrderId, ShardId, Timestamp};
use crate::limits::tier::Tier;
use crate::market::book::Side;
use crate::money::Shares;

/// The shards of the traders, the resters and the operated accounts. Some of them share a shard.
pub(super) const SHARDS: [u8; OPERATED.end] = [3, 3, 17, 40, 3, 17, 17, 40, 3];

/// Number of traders with market orders.
pub(super) const TRADER_COUNT: usize = 4;

/// The traders with orders that rest; see [`super::resting`].
pub(super) const RESTERS: Range<usize> = TRADER_COUNT..TRADER_COUNT + 3;

/// Number of finished orders that the server keeps per account.
pub(super) const KEPT_ORDERS_MAX: u32 = 20;

/// Maximum number of unanswered orders per account.
pub(super) const UNANSWERED_MAX: usize = 8;

/// Number of an account's newest executed orders that may be resent. The server still has their
/// names, even if all unanswered orders were executed after them.
const RECENT_MAX: usize = KEPT_ORDERS_MAX as usize - UNANSWERED_MAX;

/// The starting balance, in micro-dollars.
pub(super) const START_MICROS: i64 = 1_000_000_000;

/// An order. It is resent unchanged, byte for byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Order {
    pub(super) trader: usize,
    pub(super) market: usize,
    pub(super) side: Side,
    pub(super) quantity_micros: i64,
    /// The order's index among all orders, which determines its names.
    number: usize,
}

impl Order {
    /// Returns the order's one or two idempotency names.
    pub(super) fn names(&self) -> Vec<NameHash> {
        let first = NameHash::of_order(&format!("order {}", self.number));
        let second = || NameHash::of_batch_entry(&format!("batch {}", self.number), 1);
        if self.number.is_multiple_of(3) { vec![first, second()] } else { vec![first] }
    }

    /// Returns the expected fill.
    pub(super) fn fill(&self) -> Fill {
        MARKETS[self.market].fill(self.side, self.quantity_micros)
    }
}

/// A request to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// One order, or several in a batch, by number.
    Trade(Vec<usize>),
    Comment {
        order: OrderId,
        trader: usize,
    },
    DeleteComment {
        comment: CommentId,
        trader: usize,
    },
    CreateKey {
        trader: usize,
        created_by: Option<KeyId>,
    },
    RenameKey {
        trader: usize,
        key: KeyId,
        name: Option<Box<str>>,
    },
    RotateKey {
        trader: usize,
        key: KeyId,
        overlap_seconds: u32,
    },
    RevokeKey {
        trader: usize,
        key: KeyId,
    },
    ReadAccount {
        trader: usize,
    },
    ReadOrder {
        trader: usize,
        order: OrderId,
    },
    ReadComments {
        order: OrderId,
    },
    ReadKeys {
        trader: usize,
    },
    /// An order that may rest, by number.
    Place(usize),
    Cancel {
        trader: usize,
        order: OrderId,
    },
    CancelAll {
        trader: usize,
        /// The newest order known to the trader.
        newest: Option<OrderId>,
    },
    Beat {
        trader: usize,
    },
    Reset {
        trader: usize,
        /// The newest order known to the trader.
        newest: Option<OrderId>,
    },
    ReadResting {
        trader: usize,
        order: OrderId,
    },
    /// A request for an account in [`OPERATED`], from its owner or an operator.
    Operated {
        trader: usize,
        ask: Ask,
    },
}

impl Request {
    /// Whether the request concerns orders that rest.
    pub(super) const fn is_about_resting(&self) -> bool {
        matches!(
            self,
            Self::Place(_)
                | Self::Cancel { .. }
                | Self::CancelAll { .. }
                | Self::ReadResting { .. }
        )
    }

    /// Returns the shard that decides the request, and the trader on whose orders its answer may
    /// depend.
    pub(super) fn about(&self, clients: &Clients) -> (ShardId, usize) {
        let of_trader = |trader: usize| (clients.traders[trader].shard(), trader);
        match *self {
            Request::Trade(ref numbers) => of_trader(clients.orders[numbers[0]].trader),
            Request::Comment { order, trader } => (order.shard(), trader),
            Request::DeleteComment { comment, trader } => (comment.shard(), trader),
            Request::ReadComments { order } => (order.shard(), 0),
            Request::CreateKey { trader, .. }
            | Request::RenameKey { trader, .. }
            | Request::RotateKey { trader, .. }
            | Request::RevokeKey { trader, .. }
            | Request::ReadAccount { trader }
            | Request::ReadOrder { trader, .. }
            | Request::ReadKeys { trader }
            | Request::Cancel { trader, .. }
            | Request::CancelAll { trader, .. }
            | Request::Beat { trader }
            | Request::Reset { trader, .. }
            | Request::ReadResting { trader, .. }
            | Request::Operated { trader, .. } => of_trader(trader),
            Request::Place(number) => of_trader(clients.resting.orders[number].trader),
        }
    }
}

pub(super) struct Trader {
    pub(super) identity: Identity,
    pub(super) account: Option<AccountId>,
    /// Orders that were sent but not answered, and are no longer in flight.
    pub(super) unanswered: Vec<usize>,
    /// Number of orders in flight.
    pub(super) in_flight: usize,
    /// Recently executed orders, newest last.
    recent: VecDeque<(OrderId, usize)>,
}

impl Trader {
    fn new(index: usize) -> Self {
        let mut digest = [u8::try_from(index).expect("few traders"); 32];
        digest[0] = SHARDS[index];
        let subject = format!("trader {index}").into();
        Self {
            identity: Identity { digest, issuer: "simulation".into(), subject },
            account: None,
            unanswered: Vec::new(),
            in_flight: 0,
            recent: VecDeque::new(),
        }
    }

    pub(super) fn shard(&self) -> ShardId {
        self.identity.shard()
    }

    /// Records that an answer confirmed the order's execution.
    pub(super) fn executed(&mut self, order: OrderId, number: usize) {
        let at = self.recent.partition_point(|&(other, _)| other < order);
        if self.recent.get(at).is_none_or(|&(other, _)| other != order) {
            self.recent.insert(at, (order, number));
        }
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
    }

    /// Whether every order that the trader ever sent has been answered.
    pub(super) fn all_answered(&self) -> bool {
        self.unanswered.is_empty() && self.in_flight == 0
    }

    fn recent(&self, random: &mut Random) -> Option<(OrderId, usize)> {
        let count = self.recent.len();
        if count == 0 { None } else { Some(self.recent[random.below(count)]) }
    }
}

pub(super) struct Clients {
    pub(super) traders: Vec<Trader>,
    pub(super) orders: Vec<Order>,
    /// Whether each order has its final answer.
    pub(super) is_answered: Vec<bool>,
    comments: Vec<(CommentId, usize)>,
    keys: Vec<(KeyId, usize)>,
    keys_requested: u64,
    /// A request that has no effect when it is repeated.
    repeatable: Option<Request>,
    /// Number of resolved markets; markets resolve in order.
    resolved_count: usize,
    pub(super) resting: RestingClients,
    /// The accounts in [`OPERATED`].
    pub(super) operated: Vec<Operated>,
}

/// Number of newest comments or keys that are remembered, to be deleted or used later.
const REMEMBERED_MAX: usize = 8;

impl Clients {
    pub(super) fn new() -> Self {
        Self {
            traders: (0..OPERATED.end).map(Trader::new).collect(),
            orders: Vec::new(),
            is_answered: Vec::new(),
            comments: Vec::new(),
            keys: Vec::new(),
            keys_requested: 0,
            repeatable: None,
            resolved_count: 0,
            resting: RestingClients::default(),
            operated: OPERATED.map(|_| Operated::new()).collect(),
        }
    }

    /// Takes back requests that were in flight when their process ended or their client gave up.
    pub(super) fn lost(&mut self, requests: impl Iterator<Item = Request>) {
        for request in requests {
            if let Request::Trade(numbers) = request {
                for number in numbers {
                    let trader = &mut self.traders[self.orders[number].trader];
                    trader.in_flight -= 1;
                    if !self.is_answered[number] {
                        trader.unanswered.push(number);
                    }
                }
            } else if let Request::Place(number) = request {
                let order = &self.resting.orders[number];
                let trader = &mut self.traders[order.trader];
                trader.in_flight -= 1;
                if !order.is_answered {
                    trader.unanswered.push(number);
                }
            } else if let Request::Operated { trader, .. } = request {
                self.operated(trader).lost();
            }
        }
    }

    /// Whether every order ever sent has been answered.
    pub(super) fn all_answered(&self) -> bool {
        self.traders.iter().all(Trader::all_answered)
    }

    /// Resolves the next market and returns its index, or `None` if all are resolved.
    pub(super) fn resolve(&mut self) -> Option<usize> {
        let market = LASTING_COUNT + self.resolved_count;
        if market == MARKETS.len() {
            return None;
        }
        self.resolved_count += 1;
        Some(market)
    }

    /// Returns the indices of the resolved markets.
    pub(super) fn resolved(&self) -> Range<usize> {
        LASTING_COUNT..LASTING_COUNT + self.resolved_count
    }

    pub(super) fn commented(&mut self, comment: CommentId, trader: usize) {
        remember(&mut self.comments, (comment, trader));
    }

    pub(super) fn made_key(&mut self, key: KeyId, trader: usize) {
        remember(&mut self.keys, (key, trader));
    }

    /// Resends an unanswered order, if there is one.
    pub(super) fn resend(&mut self, index: usize, random: &mut Random) -> Option<Request> {
        let trader = &mut self.traders[index];
        if trader.unanswered.is_empty() {
            return None;
        }
        let number = trader.unanswered.swap_remove(random.below(trader.unanswered.len()));
        trader.in_flight += 1;
        let rests = RESTERS.contains(&index);
        Some(if rests { Request::Place(number) } else { Request::Trade(vec![number]) })
    }

    /// Returns the next request, sometimes a repetition of an earlier one.
    pub(super) fn next(&mut self, random: &mut Random) -> Option<Request> {
        if random.one_in(3)
            && let Some(request) = self.repeatable.take()
        {
            return Some(request);
        }
        if random.one_in(4) {
            return self.next_operated(random);
        }
        let request = self.next_new(random)?;
        if matches!(request, Request::RenameKey { .. } | Request::RevokeKey { .. }) {
            self.repeatable = Some(request.clone());
        }
        Some(request)
    }

    fn next_new(&mut self, random: &mut Random) -> Option<Request> {
        let trader = random.below(TRADER_COUNT);
        match random.below(16) {
            0 => self.traders[trader].account.map(|_| Request::ReadAccount { trader }),
            1 => {
                let (order, _) = self.traders[trader].recent(random)?;
                let reader = random.below(TRADER_COUNT);
                Some(Request::Comment { order, trader: reader })
                    .filter(|_| self.traders[reader].account.is_some())
            }
            2 => {
                let (order, _) = self.traders[trader].recent(random)?;
                Some(if random.one_in(2) {
                    Request::ReadOrder { trader, order }
                } else {
                    Request::ReadComments { order }
                })
            }
            3 if random.one_in(2) => {
                let (comment, trader) = chosen(&self.comments, random)?;
                Some(Request::DeleteComment { comment, trader })
            }
            4 if random.one_in(2) => {
                let maker = chosen(&self.keys, random).filter(|_| random.one_in(3));
                let created_by = maker.filter(|&(_, owner)| owner == trader).map(|(key, _)| key);
                self.traders[trader].account.map(|_| Request::CreateKey { trader, created_by })
            }
            5 => {
                let (key, trader) = chosen(&self.keys, random)?;
                Some(match random.below(5) {
                    0 | 1 => Request::RevokeKey { trader, key },
                    2 | 3 => {
                        let name =
                            (!random.one_in(4)).then(|| format!("name {}", random.below(4)).into());
                        Request::RenameKey { trader, key, name }
                    }
                    // Without an overlap, or with an overlap that outlasts the simulation.
                    _ => {
                        let overlap_seconds =
                            if random.one_in(3) { 0 } else { OVERLAP_SECONDS_MAX };
                        Request::RotateKey { trader, key, overlap_seconds }
                    }
                })
            }
            6 if random.one_in(2) => {
                self.traders[trader].account.map(|_| Request::ReadKeys { trader })
            }
            7 => {
                let (_, number) = self.traders[trader].recent(random)?;
                self.traders[trader].in_flight += 1;
                Some(Request::Trade(vec![number]))
            }
            _ => self.resend(trader, random).or_else(|| self.new_orders(trader, random)),
        }
    }

    fn new_orders(&mut self, trader: usize, random: &mut Random) -> Option<Request> {
        let count = if random.one_in(4) { 2 + random.below(2) } else { 1 };
        if self.traders[trader].in_flight + count > UNANSWERED_MAX {
            return None;
        }
        let numbers = (0..count).map(|_| self.new_order(trader, random)).collect();
        self.traders[trader].in_flight += count;
        Some(Request::Trade(numbers))
    }

    /// Creates a random order, which sometimes exceeds the balance or the shares held. Returns its
    /// number.
    fn new_order(&mut self, trader: usize, random: &mut Random) -> usize {
        let number = self.orders.len();
        let shares_end = if random.one_in(6) { 2000 } else { 60 };
        let shares = 1 + i64::try_from(random.below(shares_end)).expect("few shares");
        let part = if random.one_in(2) { random.below(1_000_000) } else { 0 };
        self.is_answered.push(false);
        // Usually a market that stays open or the next one to resolve, sometimes any market.
        let next = self.resolved().end;
        let market = match random.below(LASTING_COUNT + 1) {
            _ if random.one_in(12) || next == MARKETS.len() => random.below(MARKETS.len()),
            LASTING_COUNT => next,
            lasting => lasting,
        };
        self.orders.push(Order {
            trader,
            market,
            side: if random.one_in(2) { Side::Buy } else { Side::Sell },
            quantity_micros: shares * 1_000_000 + i64::try_from(part).expect("less than a share"),
            number,
        });
        number
    }

    /// Returns the command for an order. It is the same on every call.
    pub(super) fn trade(&self, number: usize) -> Trade {
        let order = &self.orders[number];
        let client_order_id = number.is_multiple_of(2).then(|| format!("client {number}").into());
        let owner = Owner::Identity(self.traders[order.trader].identity.clone());
        let names = OrderNames::new(order.names(), client_order_id);
        let order = TradeOrder {
            market_id: MARKETS[order.market].id.into(),
            outcome: "Yes".into(),
            side: order.side,
            quantity: Shares::from_micros(order.quantity_micros),
            expected_price: None,
            max_slippage_bps: None,
        };
        Trade::new(owner, order, names)
    }

    /// Returns the next requests of several clients, all for the shard of the first request.
    pub(super) fn next_together(
        &mut self,
        venue: &Venue,
        now: Timestamp,
        random: &mut Random,
    ) -> Vec<Request> {
        let mut requests: Vec<Request> = Vec::new();
        for _ in 0..2 + random.below(4) {
            let next = if random.one_in(2) {
                self.next_resting(venue, now, random)
            } else {
                self.next(random)
            };
            let Some(request) = next else { continue };
            let (shard, _) = request.about(self);
            if requests.first().is_none_or(|first| first.about(self).0 == shard) {
                requests.push(request);
            } else {
                // A request for another shard is not sent.
                self.lost([request].into_iter());
            }
        }
        requests
    }

    /// Returns a unique hash for a new key.
    fn next_hash(&mut self) -> [u8; 32] {
        self.keys_requested += 1;
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&self.keys_requested.to_le_bytes());
        hash
    }

    fn create_key(
        &mut self,
        account: AccountId,
        tier: Tier,
        created_by: Option<KeyId>,
    ) -> CreateKey {
        let grant = KeyGrant {
            hash: self.next_hash(),
            prefix: "ps_live_01234567".into(),
            name: None,
            tier,
            permissions: Permissions::DEFAULT,
            expires_at: None,
            wallet: None,
        };
        CreateKey { owner: Owner::Account(account), is_bootstrap: false, created_by, grant }
    }

    /// Returns the shard and the command for a request, or `None` for an order or a read.
    pub(super) fn command(&mut self, request: &Request) -> Option<(ShardId, Command)> {
        let account = |trader: usize| self.traders[trader].account.expect("it has an account");
        Some(match *request {
            Request::Comment { order, trader } => {
                let content = format!("{trader} says of {order}").into();
                let author = account(trader);
                (
                    order.shard(),
                    Command::Comment(WriteComment {
                        order,
                        author,
                        content,
                        elsewhere: Written::default(),
                    }),
                )
            }
            Request::DeleteComment { comment, trader } => {
                let author = account(trader);
                (comment.shard(), Command::DeleteComment(DeleteComment { comment, author }))
            }
            Request::RenameKey { trader, key, ref name } => {
                let account = account(trader);
                let name = name.clone();
                let rename = RenameKey { account, key, name, caller_key: None };
                (key.shard(), Command::RenameKey(rename))
            }
            Request::RotateKey { trader, key, overlap_seconds } => {
                let account = account(trader);
                let rotate = RotateKey {
                    account,
                    key,
                    caller_key: None,
                    overlap_seconds,
                    hash: self.next_hash(),
                    prefix: "ps_live_89abcdef".into(),
                };
                (key.shard(), Command::RotateKey(rotate))
            }
            Request::CreateKey { trader, created_by } => {
                let create = self.create_key(account(trader), Tier::Free, created_by);
                (self.traders[trader].shard(), Command::CreateKey(create))
            }
            Request::Beat { trader } => {
                let beat = SetHeartbeat { account: account(trader), interval_ms: 1_000 };
                (self.traders[trader].shard(), Command::Beat(beat))
            }
            Request::Reset { trader, .. } => {
                let reset = ResetAccount(account(trader));
                (self.traders[trader].shard(), Command::Reset(reset))
            }
            Request::RevokeKey { trader, key } => {
                let account = account(trader);
                let revoke = RevokeKey { account, key, descendants: false };
                (key.shard(), Command::RevokeKey(revoke))
            }
            Request::Operated { trader, ref ask } => {
                let command = match ask.clone() {
                    Ask::Open => Command::Open(OpenAccount(self.traders[trader].identity.clone())),
                    Ask::Act(act) => Command::Operate(self.operated(trader).command(act)),
                    Ask::Key(tier) => {
                        let account = self.operated(trader).account().expect("it is open");
                        Command::CreateKey(self.create_key(account, tier, None))
                    }
                };
                (self.traders[trader].shard(), command)
            }
            _ => return None,
        })
    }
}

fn remember<T>(list: &mut Vec<T>, item: T) {
    if list.len() == REMEMBERED_MAX {
        list.remove(0);
    }
    list.push(item);
}

fn chosen<T: Copy>(list: &[T], random: &mut Random) -> Option<T> {
    if list.is_empty() { None } else { Some(list[random.below(list.len())]) }
}
