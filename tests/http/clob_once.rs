//! A network that loses the answers to signed orders, and a server that is killed meanwhile: a
//! client that repeats each request has every order once.
//!
//! In each round, wallets send orders and lose the answers, until the server is killed. In the next
//! round they repeat the same requests beside new ones, in which they may be interrupted again.
//! Orders are signed once, and requests each time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use paperbourse_clob::order::{Caller, MarketFacts, MarketKind, PostedOrder};
use paperbourse_clob::signing::{ApiCredentials, Signer};
use paperbourse_test_support::value::micros;
use paperbourse_test_support::{Connection, Response};
use serde_json::{Value, json};

use super::clob_orders::draft;
use super::clob_wallets::{Client, create};
use super::random::Random;
use super::recording::token_id;
use super::server::Server;

const ORDERS: usize = 1_000;
const KILLS: usize = 20;
const WALLETS: usize = 4;
const CONNECTIONS: usize = 6;
/// Maximum number of orders in a list, the venue's.
const LIST_MAX: usize = 15;
/// Segments so large that a busy disk always has room, and cash for all orders.
const FLAGS: [&str; 6] =
    ["--clob", "on", "--starting-balance", "100000", "--journal-segment-bytes", "8388608"];
const CASH_MICROS: i64 = 100_000_000_000;
/// What each wallet buys first, so that it can sell.
const STOCK: Kind = kind(0, "BUY GTC 530 for 1000", 1_000, 52_700, "MATCHED");

/// A kind of order, and what becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind {
    /// The index of its market.
    market: usize,
    asked: &'static str,
    /// What it trades when it is placed.
    shares_micros: i64,
    dollars_micros: i64,
    status: &'static str,
}

const fn kind(
    market: usize,
    asked: &'static str,
    shares: i64,
    cents: i64,
    status: &'static str,
) -> Kind {
    let (shares_micros, dollars_micros) = (shares * 1_000_000, cents * 10_000);
    Kind { market, asked, shares_micros, dollars_micros, status }
}

/// The second market has fees. Each order fills at one price, so that size and price of its trade
/// tell what it cost.
const KINDS: [Kind; 12] = [
    kind(0, "BUY FOK 5 for 10", 10, 500, "MATCHED"),
    kind(2, "BUY FOK 5 for 10", 10, 500, "MATCHED"),
    kind(2, "BUY FAK 52 for 104", 100, 5_000, "MATCHED"),
    kind(0, "SELL FOK 10 for 4.6", 10, 480, "MATCHED"),
    kind(2, "BUY GTC 10.6 for 20", 20, 1_000, "MATCHED"),
    kind(0, "SELL FAK 10 for 4", 10, 480, "MATCHED"),
    kind(0, "BUY GTC 4 for 10", 0, 0, "LIVE"),
    kind(2, "BUY GTC 4.9 for 10", 0, 0, "LIVE"),
    kind(0, "SELL GTC 5 for 3.5", 0, 0, "LIVE"),
    kind(2, "BUY GTD 4 for 10 in=90000", 0, 0, "LIVE"),
    kind(0, "BUY GTC 4 for 10 post-only", 0, 0, "LIVE"),
    kind(2, "BUY GTC 51 for 102", 100, 5_000, "LIVE"),
];

/// A request, and what is known of it.
struct Sent {
    wallet: usize,
    path: &'static str,
    body: String,
    orders: Vec<Order>,
    /// The first answer that was read.
    answer: Mutex<Option<Value>>,
}

struct Order {
    /// The digest that its wallet has signed.
    id: String,
    kind: Kind,
}

/// When the network loses the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lost {
    /// When the whole answer has left the server.
    Answered,
    /// When the request has been sent. The server may still be working on it.
    Sent,
    /// When half of the request has been sent.
    Half,
}

impl Lost {
    const fn of(number: usize) -> Self {
        match number % 10 {
            0 => Self::Half,
            1..5 => Self::Sent,
            _ => Self::Answered,
        }
    }
}

impl Sent {
    /// Makes the requests of all wallets, with as many orders as there should be.
    fn make(wallets: &[Client<'_>]) -> Vec<Self> {
        let mut random = Random::new(1);
        let mut numbers = 0..ORDERS;
        let mut made = Vec::new();
        while !numbers.is_empty() {
            let is_list = random.below(8) == 0;
            let length = if is_list { 2 + random.below(LIST_MAX - 1) } else { 1 };
            let wallet = random.below(WALLETS);
            let (client, orders) = (&wallets[wallet], numbers.by_ref().take(length));
            let (bodies, orders): (Vec<_>, Vec<_>) =
                orders.map(|salt| Order::sign(client, salt, *random.pick(&KINDS).unwrap())).unzip();
            let (path, body) = match &bodies[..] {
                [body] if !is_list => ("/order", body.clone()),
                bodies => ("/orders", format!("[{}]", bodies.join(","))),
            };
            made.push(Self { wallet, path, body, orders, answer: Mutex::default() });
        }
        made
    }

    /// Sends the request, and keeps the answer if it arrives. Where the server was killed, another
    /// may have its port by now.
    fn send(&self, wallets: &[Client<'_>], lost: Lost) -> Option<()> {
        let client = &wallets[self.wallet];
        let mut connection = Connection::try_open(client.server.address).ok()?;
        let request = client.sign("POST", self.path, &self.body, &self.body);
        match lost {
            Lost::Half => {
                let bytes = request.to_bytes();
                connection.try_write(&bytes[..bytes.len() - self.body.len() / 2]);
            }
            Lost::Sent => connection.try_write(&request.to_bytes()),
            Lost::Answered => {
                let answer = connection.try_send(&request).ok()?;
                if answer.status == 200 {
                    self.keep(&answer);
                }
            }
        }
        Some(())
    }

    /// Checks an answer, which is the same each time.
    fn keep(&self, answer: &Response) {
        let answer = answer.ok(200);
        let mut first = self.answer.lock().unwrap();
        let first = first.get_or_insert_with(|| answer.clone());
        assert_eq!(*first, answer, "{}", self.body);
        let entries = answer.as_array().map_or(std::slice::from_ref(&answer), Vec::as_slice);
        assert_eq!(entries.len(), self.orders.len());
        for (entry, order) in entries.iter().zip(&self.orders) {
            order.check_answer(entry);
        }
    }
}

impl Order {
    /// Returns an order with its body.
    fn sign(client: &Client<'_>, salt: usize, kind: Kind) -> (String, Self) {
        let token_id = token_id(kind.market, 0);
        let body = client
            .signer
            .order(&draft(salt as u64, &token_id, kind.asked), &client.credentials.api_key);
        let facts = MarketFacts {
            kind: MarketKind::of_token(&token_id, false).unwrap(),
            tick_micros: 10_000,
        };
        let api_key = &*client.credentials.api_key;
        let caller = Caller { address: client.signer.address(), api_key };
        let signed = PostedOrder::parse(body.as_bytes()).unwrap().verify(&caller, &facts);
        (body, Self { id: signed.unwrap().id.to_string(), kind })
    }

    fn check_answer(&self, entry: &Value) {
        let Kind { asked, shares_micros, dollars_micros, .. } = self.kind;
        assert_eq!(entry["errorMsg"], "", "{asked}");
        assert_eq!((&entry["success"], &entry["orderID"]), (&json!(true), &json!(self.id)));
        let status = if shares_micros > 0 { "matched" } else { "live" };
        assert_eq!(entry["status"], status, "{asked}");
        let [given, taken] = if asked.starts_with("BUY") {
            [dollars_micros, shares_micros]
        } else {
            [shares_micros, dollars_micros]
        };
        if shares_micros > 0 {
            let told = ["makingAmount", "takingAmount"].map(|field| micros(&entry[field]));
            assert_eq!(told, [given, taken], "{asked}");
        }
    }

    /// What it has cost, with fees; below 0 if it has earned.
    fn check_trade(&self, trade: &Value) -> i64 {
        let told = ["size", "price", "fee_rate_bps"].map(|field| micros(&trade[field]));
        let [shares, price, rate_bps] = told;
        assert_eq!(shares, self.kind.shares_micros, "{}", self.kind.asked);
        let dollars = shares * price / 1_000_000;
        assert_eq!(dollars, self.kind.dollars_micros, "{}", self.kind.asked);
        let rate = i128::from(rate_bps) / 10_000;
        let weight = i128::from(price) * i128::from(1_000_000 - price);
        let fee = i128::from(shares) * rate * weight / 10_i128.pow(18);
        assert_eq!(fee % 10, 0, "no fee here has a sixth decimal");
        let fee = i64::try_from(fee).unwrap();
        assert_eq!(fee > 0, self.kind.market == 2);
        if trade["side"] == "BUY" { dollars + fee } else { fee - dollars }
    }
}

/// The rows of a wallet by the ids of their orders.
struct Rows {
    open: BTreeMap<String, Value>,
    trades: BTreeMap<String, Value>,
}

impl Rows {
    /// Reads them. No order is listed twice, and none has a second trade.
    fn read(client: &Client<'_>) -> Self {
        let read = |path: &str, field: &str| {
            let (mut rows, mut cursor) = (BTreeMap::new(), "MA==".to_owned());
            while cursor != "LTE=" {
                let mut page = client.get(&format!("{path}?next_cursor={cursor}")).ok(200);
                for row in page["data"].as_array_mut().unwrap().drain(..) {
                    let id = row[field].as_str().unwrap().to_owned();
                    let before = rows.insert(id, row);
                    assert!(before.is_none(), "{path} lists an order twice: {before:?}");
                }
                page["next_cursor"].as_str().unwrap().clone_into(&mut cursor);
            }
            rows
        };
        Self { open: read("/data/orders", "id"), trades: read("/data/trades", "taker_order_id") }
    }

    fn has(&self, order: &Order) -> bool {
        self.open.contains_key(&order.id) || self.trades.contains_key(&order.id)
    }
}

/// Sends new requests and repeats old ones, and loses all answers, until the server is killed.
fn storm(wallets: &[Client<'_>], old: &[&Sent], new: &[Sent], kill_after: Option<usize>) {
    // Old and new ones in turn, as far as there are both.
    let both = (0..old.len().max(new.len())).flat_map(|number| {
        let old = old.get(number).map(|&sent| (sent, Lost::Answered));
        old.into_iter().chain(new.get(number).map(|sent| (sent, Lost::of(number))))
    });
    let both: &Mutex<_> = &Mutex::new(both);
    let next = || both.lock().unwrap().next();
    let (done, seen) = channel();
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            let done = done.clone();
            scope.spawn(move || {
                while let Some((sent, lost)) = next() {
                    // If it is not sent, the server was killed, and nobody waits for a message.
                    let _: Option<()> = sent.send(wallets, lost);
                    let _ = done.send(());
                }
            });
        }
        drop(done);
        if let Some(kill_after) = kill_after {
            assert_eq!(seen.iter().take(kill_after).count(), kill_after);
            wallets[0].server.kill();
        }
    });
}

/// The orders are all that the wallet has done, and its cash and shares are what they left.
fn check_wallet(client: &Client<'_>, orders: &[&Order]) {
    let rows = Rows::read(client);
    let (mut cash_micros, mut shares_micros) = (CASH_MICROS, BTreeMap::<usize, i64>::new());
    let (mut open_count, mut trade_count) = (0, 0);
    for order in orders {
        let Kind { market, asked, status, .. } = order.kind;
        let row = client.get(&format!("/data/order/{}", order.id)).ok(200);
        assert_eq!((&row["id"], &row["status"]), (&json!(order.id), &json!(status)), "{asked}");
        assert_eq!(micros(&row["size_matched"]), order.kind.shares_micros, "{asked}");
        assert_eq!(rows.open.get(&order.id), (status == "LIVE").then_some(&row), "{asked}");
        open_count += usize::from(status == "LIVE");
        if order.kind.shares_micros > 0 {
            trade_count += 1;
            cash_micros -= order.check_trade(&rows.trades[&order.id]);
            let sign = if asked.starts_with("BUY") { 1 } else { -1 };
            *shares_micros.entry(market).or_default() += sign * order.kind.shares_micros;
        }
    }
    assert_eq!((rows.open.len(), rows.trades.len()), (open_count, trade_count));
    assert_eq!(client.balance("COLLATERAL"), cash_micros.to_string());
    for (market, shares_micros) in shares_micros {
        let query = format!("CONDITIONAL&token_id={}", token_id(market, 0));
        assert_eq!(client.balance(&query), shares_micros.to_string());
    }
}

/// Sends every request of a wallet twice more, and now hears the answers.
fn repeat(client: &Client<'_>, sent: &[&Sent]) {
    let mut connection = client.server.connect();
    for sent in sent {
        for _ in 0..2 {
            let request = client.sign("POST", sent.path, &sent.body, &sent.body);
            sent.keep(&connection.send(&request));
        }
    }
}

fn connect<'s>(server: &'s Server, known: &[(Signer, ApiCredentials)]) -> Vec<Client<'s>> {
    let client = |(signer, credentials): &(Signer, ApiCredentials)| Client {
        server,
        signer: signer.clone(),
        credentials: credentials.clone(),
    };
    known.iter().map(client).collect()
}

#[test]
fn a_signed_order_whose_answer_is_lost_executes_once() {
    let mut random = Random::new(2);
    let mut server = Server::unlimited_with(&FLAGS);
    let known = (1..=WALLETS as u64).map(Signer::new);
    let known = known.map(|signer| (signer.clone(), create(&server, &signer, 0)));
    let known: Vec<_> = known.collect();
    let wallets = connect(&server, &known);
    let stocks = wallets.iter().map(|client| {
        let (body, stock) = Order::sign(client, ORDERS, STOCK);
        stock.check_answer(&client.call("POST", "/order", &body).ok(200));
        stock
    });
    let stocks: Vec<Order> = stocks.collect();
    let sent = Sent::make(&wallets);
    let ids: BTreeSet<&str> =
        sent.iter().flat_map(|sent| &sent.orders).map(|order| &*order.id).collect();
    assert_eq!(ids.len(), ORDERS);

    let mut rounds = sent.chunks(sent.len().div_ceil(KILLS + 1));
    let (mut old, mut at_once, mut taken) = (Vec::new(), 0, 0);
    // After the last kill come two more rounds, so that each request is answered at least once.
    for round in 0..KILLS + 2 {
        let new = rounds.next().unwrap_or_default();
        let load = old.len() + new.len();
        let kill_after = (round < KILLS).then(|| 2 * load / 3 + random.below(load / 3));
        storm(&connect(&server, &known), &old, new, kill_after);
        if round < KILLS {
            server = server.crash_and_restart_with(&FLAGS);
        }
        let rows: Vec<Rows> = connect(&server, &known).iter().map(Rows::read).collect();
        let count = |sent: &Sent| sent.orders.iter().filter(|it| rows[sent.wallet].has(it)).count();
        at_once += new.iter().map(count).sum::<usize>();
        old.retain(|sent| count(sent) < sent.orders.len());
        old.extend(new);
        taken = sent.iter().map(count).sum();
    }
    eprintln!("{at_once} of {ORDERS} orders had been taken when their first answers were lost");
    assert!(at_once > ORDERS / 2, "{at_once}");
    assert_eq!(taken, ORDERS, "orders that were taken before any answer was heard");

    std::thread::scope(|scope| {
        for (number, client) in connect(&server, &known).into_iter().enumerate() {
            let sent: Vec<&Sent> = sent.iter().filter(|sent| sent.wallet == number).collect();
            let stock = &stocks[number];
            scope.spawn(move || {
                repeat(&client, &sent);
                let orders = sent.iter().flat_map(|sent| &sent.orders);
                check_wallet(&client, &orders.chain([stock]).collect::<Vec<_>>());
            });
        }
    });
}
