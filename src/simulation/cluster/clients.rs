//! Clients: traders, who each send one order at a time, and watchers, who read the traders'
//! accounts.

use std::collections::BTreeSet;

use super::NODES;
use super::node::{Answer, Request};
use super::totals::Totals;
use crate::disk::simulated::random::Random;
use crate::engine::State;
use crate::engine::command::{Identity, OrderNames, Owner, Trade, TradeOrder};
use crate::engine::order::idempotency::NameHash;
use crate::engine::state::view::AccountPage;
use crate::ids::{AccountId, OrderId, ShardId};
use crate::market::book::Side;
use crate::money::Shares;
use crate::shard::Refusal;
use crate::simulation::clients::START_MICROS;
use crate::simulation::markets::{Fill, LASTING_COUNT, MARKETS};

/// The shards of the traders. Two of the traders share a shard.
const SHARDS: [u8; 4] = [3, 3, 17, 40];

/// Time that a client waits for an answer, in milliseconds.
const PATIENCE_MS: u64 = 1_500;

/// An order being sent, possibly more than once.
struct Attempt {
    number: usize,
    request: Option<u64>,
    sent_ms: u64,
    /// Whether an earlier try went unanswered, so that the order may have been executed.
    may_be_done: bool,
}

/// A read in flight.
struct Look {
    request: u64,
    sent_ms: u64,
    /// Minimum number of orders that the answer must show.
    floor: usize,
}

struct Trader {
    identity: Identity,
    account: Option<AccountId>,
    /// The cost of each order in micro-dollars, indexed by its number.
    costs: Vec<i64>,
    /// The account's cash in micro-dollars, initially and after each executed order.
    cash: Vec<i64>,
    /// The executed orders, with their ids.
    done: Vec<(usize, OrderId)>,
    attempt: Option<Attempt>,
    /// The time at which the next order is due.
    next_ms: u64,
    look: Option<Look>,
    /// Reads that timed out. Their answers may still arrive, and must still show at least `floor`
    /// orders.
    late_looks: Vec<Look>,
    next_look_ms: u64,
    /// The highest number of orders that any read has shown.
    seen: usize,
}

impl Trader {
    fn new(index: usize) -> Self {
        let mut digest = [0xc0 + u8::try_from(index).expect("few traders"); 32];
        digest[0] = SHARDS[index];
        let subject = format!("trader {index}").into();
        Self {
            identity: Identity { digest, issuer: "cluster".into(), subject },
            account: None,
            costs: Vec::new(),
            cash: vec![START_MICROS],
            done: Vec::new(),
            attempt: None,
            next_ms: 0,
            look: None,
            late_looks: Vec::new(),
            next_look_ms: 0,
            seen: 0,
        }
    }

    /// Returns the market and the quantity of a cheap order. The same number always gives the same
    /// order.
    fn order(index: usize, number: usize) -> (usize, i64) {
        let market = (index + number) % LASTING_COUNT;
        (market, 1_000_000 + 10_000 * i64::try_from(number % 50).expect("few"))
    }

    fn trade(&self, index: usize, number: usize) -> Trade {
        let (market, quantity_micros) = Self::order(index, number);
        let name = NameHash::of_order(&format!("order {number} of {index}"));
        let names = OrderNames::new(vec![name], None);
        let order = TradeOrder {
            market_id: MARKETS[market].id.into(),
            outcome: "Yes".into(),
            side: Side::Buy,
            quantity: Shares::from_micros(quantity_micros),
            expected_price: None,
            max_slippage_bps: None,
        };
        Trade::new(Owner::Identity(self.identity.clone()), order, names)
    }

    /// Returns the number of orders that explains this cash; `None` if no number does.
    fn count_of(&self, cash: i64) -> Option<usize> {
        let is_on_its_way = |attempt: &&Attempt| attempt.request.is_some() || attempt.may_be_done;
        let on_its_way = self.attempt.as_ref().filter(is_on_its_way).map(|attempt| {
            self.cash.last().expect("the first is there") - self.costs[attempt.number]
        });
        self.cash.iter().copied().chain(on_its_way).position(|known| known == cash)
    }
}

pub(super) struct Clients {
    traders: Vec<Trader>,
    requests: u64,
    /// The node that answered last, which is presumed to be the owner.
    believed: usize,
    orders: BTreeSet<OrderId>,
    pub(super) totals: Totals,
}

/// A request to a node: the node's number, the request's number, and the request.
pub(super) type Sent = (usize, u64, Request);

impl Clients {
    pub(super) fn new() -> Self {
        Self {
            traders: (0..SHARDS.len()).map(Trader::new).collect(),
            requests: 0,
            believed: 0,
            orders: BTreeSet::new(),
            totals: Totals::default(),
        }
    }

    /// Returns the number of orders done by each trader.
    pub(super) fn done(&self) -> Vec<usize> {
        self.traders.iter().map(|trader| trader.done.len()).collect()
    }

    /// Returns the requests that are due.
    pub(super) fn send(&mut self, now_ms: u64, random: &mut Random) -> Vec<Sent> {
        let mut sent = Vec::new();
        for (index, trader) in self.traders.iter_mut().enumerate() {
            let mut node = || if random.one_in(6) { random.below(NODES) } else { self.believed };
            let attempt = trader.attempt.get_or_insert_with(|| {
                let number = trader.costs.len();
                let (market, quantity_micros) = Trader::order(index, number);
                let Fill { notional_micros, fee_micros, .. } =
                    MARKETS[market].fill(Side::Buy, quantity_micros);
                trader.costs.push(notional_micros + fee_micros);
                Attempt { number, request: None, sent_ms: 0, may_be_done: false }
            });
            if attempt.request.is_some() && now_ms >= attempt.sent_ms + PATIENCE_MS {
                self.totals.unanswered += 1;
                attempt.request = None;
                attempt.may_be_done = true;
            }
            if attempt.request.is_none() && now_ms >= trader.next_ms {
                self.requests += 1;
                (attempt.request, attempt.sent_ms) = (Some(self.requests), now_ms);
                let number = attempt.number;
                let trade = trader.trade(index, number);
                let shard = trader.identity.shard();
                sent.push((
                    node(),
                    self.requests,
                    Request::Order { shard, trade: Box::new(trade) },
                ));
            }
            let is_late = |look: &mut Look| now_ms >= look.sent_ms + PATIENCE_MS;
            trader.late_looks.extend(trader.look.take_if(is_late));
            if let Some(account) = trader.account
                && trader.look.is_none()
                && now_ms >= trader.next_look_ms
            {
                self.requests += 1;
                let floor = trader.done.len().max(trader.seen);
                trader.look = Some(Look { request: self.requests, sent_ms: now_ms, floor });
                // A former owner may still answer, so reads go to any node.
                let node = random.below(NODES);
                sent.push((node, self.requests, Request::Read { account }));
            }
        }
        sent
    }

    /// Checks an answer against the answers that are allowed at this time.
    pub(super) fn receive(
        &mut self,
        (node, number): (usize, u64),
        answer: Answer,
        now_ms: u64,
        random: &mut Random,
    ) -> Result<(), String> {
        for trader in &mut self.traders {
            let late = trader.late_looks.extract_if(.., |look| look.request == number).next();
            let look = trader.look.take_if(|look| look.request == number).or(late);
            if let Some(Look { floor, .. }) = look {
                trader.next_look_ms = now_ms + random.below(60) as u64;
                if let Answer::Page(page) = answer {
                    self.totals.looks += 1;
                    let page = page.ok_or("an account is gone")?;
                    trader.seen = trader.seen.max(seen(trader, &page, floor)?);
                }
                return Ok(());
            }
            let Some(attempt) = &mut trader.attempt else { continue };
            if attempt.request != Some(number) {
                continue;
            }
            attempt.request = None;
            let known = attempt.number;
            match answer {
                Answer::Done(receipt) => {
                    self.totals.orders += 1;
                    self.totals.repeated += u64::from(attempt.may_be_done);
                    self.believed = node;
                    trader.attempt = None;
                    trader.next_ms = now_ms + random.below(100) as u64;
                    trader.account = Some(receipt.account);
                    if !self.orders.insert(receipt.order) {
                        return Err(format!("order {} was given twice", receipt.order));
                    }
                    trader.done.push((known, receipt.order));
                    let cash = trader.cash.last().expect("the first") - trader.costs[known];
                    trader.cash.push(cash);
                }
                Answer::NotReady => {
                    self.totals.not_ready += 1;
                    trader.next_ms = now_ms + 20 + random.below(100) as u64;
                    self.believed = random.below(NODES);
                    if !attempt.may_be_done && random.one_in(4) {
                        // The order was not executed, so it can never show up.
                        self.totals.given_up += 1;
                        trader.attempt = None;
                    }
                }
                Answer::Refused(refusal) => {
                    if let Refusal::Rejected(reason) = refusal {
                        return Err(format!("an order was refused: {reason}"));
                    }
                    trader.next_ms = now_ms + 20;
                }
                Answer::Page(_) => return Err("an order was answered with a page".to_owned()),
            }
            return Ok(());
        }
        // The client has given up this request.
        Ok(())
    }

    /// Records that a request could not be sent.
    pub(super) fn unsent(&mut self, number: u64, now_ms: u64, random: &mut Random) {
        for trader in &mut self.traders {
            if let Some(attempt) = &mut trader.attempt
                && attempt.request == Some(number)
            {
                attempt.request = None;
                trader.next_ms = now_ms + 20;
                self.believed = random.below(NODES);
            }
            trader.look.take_if(|look| look.request == number);
        }
    }

    /// Compares the states of all shards with the answers that the traders received.
    pub(super) fn judge<'s>(&self, states: impl Iterator<Item = &'s State>) -> Result<(), String> {
        let states: Vec<&State> = states.collect();
        for (index, trader) in self.traders.iter().enumerate() {
            let Some(account) = trader.account else { continue };
            let state = states[ShardId::index(account.shard())];
            let page = state.observe_account(account, 0).value;
            let page = page.ok_or_else(|| format!("the account of trader {index} is gone"))?;
            let count = seen(trader, &page, trader.done.len().max(trader.seen))
                .map_err(|error| format!("trader {index}, in the end: {error}"))?;
            let orders = state.account(account).expect("it is there").order_count_ever();
            if orders != count as u64 {
                return Err(format!("trader {index} has {orders} orders, and paid for {count}"));
            }
            for &(number, order) in &trader.done {
                if state.observe_order(account, order).value.is_none() {
                    return Err(format!("order {number} of trader {index} is gone"));
                }
            }
        }
        Ok(())
    }
}

/// Returns the number of orders that this page shows. Fails if it is less than `floor`.
fn seen(trader: &Trader, page: &AccountPage, floor: usize) -> Result<usize, String> {
    let ledger = page.ledger;
    let cash = START_MICROS - ledger.purchases.micros() - ledger.fees.micros();
    match trader.count_of(cash) {
        Some(count) if count >= floor => Ok(count),
        Some(count) => Err(format!("a look shows {count} orders, and {floor} were there before")),
        None => Err(format!("a look shows cash of {cash}, which no orders explain")),
    }
}
