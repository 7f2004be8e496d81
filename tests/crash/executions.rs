//! Clients of the execution socket that lose their connection again and again, and once the server.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use paperbourse::venue::simulated::DEEP_MARKET_CONDITION_ID;
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::socket::{Frame, Socket, upgrade};
use paperbourse_test_support::{Connection, Request, Response, witness};
use serde_json::{Value, json};

use crate::books::micros;
use crate::frames;
use crate::load::{Load, Trader, id};
use crate::random::Random;
use crate::resting::{Rester, order_rows};
use crate::rounds::{bootstrap, lasting_markets, number, seed, spin};
use crate::server::start_with;

const RECONNECTS_DEFAULT: usize = 20;
const TRADER_COUNT: usize = 2;
/// A connection ends at the latest after this many live fills.
const LIVE_FILLS_MAX: usize = 40;
/// The most fills between two connections where holes are wanted.
const FILLS_BETWEEN_MAX: usize = 60;
const KILL_DELAY_MICROS_MAX: usize = 5_000;
/// Enough for all orders of a run.
const STARTING_BALANCE: &str = "100000000";
const STARTING_BALANCE_MICROS: i64 = 100_000_000_000_000;

/// A client of the execution socket.
struct Follower<'a> {
    trader: &'a Trader,
    random: Random,
    /// Every fill so far, by its number.
    fills: BTreeMap<u64, Value>,
    /// The number of the last fill that was received, or is known to be forgotten.
    last: u64,
    /// The fills that were said to be forgotten.
    forgotten_count: u64,
    connection_count: usize,
}

/// What a follower ends up with.
struct Followed {
    fills: BTreeMap<u64, Value>,
    forgotten_count: u64,
    /// All orders of the account, which has none open.
    rows: BTreeMap<u64, Value>,
}

/// What trades meanwhile.
#[derive(Clone, Copy)]
enum Orders {
    /// Market orders, and orders that rest and fill as the venue's books move.
    All,
    /// Market orders, of which the account keeps the newest.
    Market,
}

#[test]
fn reconnects_and_a_kill_lose_and_repeat_no_fill() {
    for Followed { fills, forgotten_count, rows } in follow(Orders::All, &[]) {
        assert_eq!(forgotten_count, 0);
        check_against_rows(&fills, rows);
    }
}

#[test]
fn a_hole_is_announced_before_what_follows_it() {
    let followed = follow(Orders::Market, &["--keep-orders", "20"]);
    assert!(followed.iter().any(|followed| followed.forgotten_count > 0), "no hole");
}

/// Follows the traders' executions while they trade, the server is killed, and, after a restart,
/// shut down.
fn follow(orders: Orders, flags: &[&str]) -> Vec<Followed> {
    let reconnects = number("PAPERBOURSE_RECONNECTS").unwrap_or(RECONNECTS_DEFAULT);
    let mut random = Random::new(seed());
    let data = tempfile::tempdir().expect("a temporary folder");
    let flags = [flags, &["--starting-balance", STARTING_BALANCE]].concat();
    let start = || start_with(data.path(), &flags);
    let mut server = start();
    let traders: Vec<Trader> =
        (0..TRADER_COUNT).map(|number| bootstrap(data.path(), &server, 0, number)).collect();
    let mut followers: Vec<Follower<'_>> =
        traders.iter().map(|trader| Follower::new(trader, Random::new(random.next()))).collect();
    let ends = [ServerProcess::kill, ServerProcess::terminate];
    for end in ends {
        let wanted = reconnects.div_ceil(ends.len());
        trade_until(end, server, orders, &mut followers, wanted, &mut random);
        server = start();
    }
    let mut connection = Connection::open(server.address);
    let results = followers.into_iter().map(|mut follower| {
        assert!(follower.connection_count >= reconnects);
        let cancelled = send(&mut connection, &cancel_all(follower.trader));
        assert_eq!(cancelled.expect("the server is up").status, 200);
        follower.catch_up(server.address);
        let Follower { trader, fills, last, forgotten_count, .. } = follower;
        assert_eq!(fills.len() as u64 + forgotten_count, last, "a fill is missing");
        check_balances(&fills, &mut connection, trader);
        let rows = order_rows(trader, &mut connection).expect("nothing changes any more");
        Followed { fills, forgotten_count, rows }
    });
    results.collect()
}

/// Trades and follows until each follower has connected so often. Then ends the server, while all
/// of them go on.
fn trade_until(
    end: fn(ServerProcess),
    server: ServerProcess,
    orders: Orders,
    followers: &mut [Follower<'_>],
    wanted: usize,
    random: &mut Random,
) {
    let markets = lasting_markets(&mut Connection::open(server.address));
    let address = server.address;
    let delay = random.below(KILL_DELAY_MICROS_MAX) as u64;
    std::thread::scope(|scope| {
        let mut waits = Vec::new();
        for follower in followers {
            let trader = follower.trader;
            scope.spawn(move || trade(address, trader, usize::MAX));
            let fills_between_max = match orders {
                Orders::All => 0,
                Orders::Market => FILLS_BETWEEN_MAX,
            };
            if let Orders::All = orders {
                let load = Load {
                    address,
                    trader,
                    // No two runs of a connection may use the same names.
                    label: random.next().to_string(),
                    markets: &markets,
                    random: Random::new(random.next()),
                    answered: channel().0,
                };
                scope.spawn(move || Rester::new(load).run());
                let (markets, random) = (&markets, Random::new(random.next()));
                scope.spawn(move || sweep(address, trader, markets, random));
            }
            let (connected, connections) = channel();
            waits.push(connections);
            scope.spawn(move || follower.run(address, fills_between_max, &connected));
        }
        for connections in waits {
            assert_eq!(connections.iter().take(wanted).count(), wanted, "a follower gave up");
        }
        spin(Duration::from_micros(delay));
        end(server);
    });
}

/// Buys and sells a share in turn, so often or until the connection breaks.
fn trade(address: SocketAddr, trader: &Trader, times: usize) {
    let order = |side: &str| {
        let order = json!({"market_id": DEEP_MARKET_CONDITION_ID, "outcome": "yes", "side": side,
                           "quantity": 1});
        Request::post("/trade", &order).key(&trader.key)
    };
    let orders = [order("BUY"), order("SELL")];
    let Ok(mut connection) = Connection::try_open(address) else { return };
    for order in orders.iter().cycle().take(times) {
        let Ok(answer) = send(&mut connection, order) else { return };
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// Sends a request until there is room for it: segments are so small here that a busy disk may not
/// have the next one ready.
fn send(connection: &mut Connection, request: &Request) -> io::Result<Response> {
    loop {
        let answer = connection.try_send(request)?;
        if answer.status != 503 || answer.json()["error"] != "SERVER_BUSY" {
            return Ok(answer);
        }
        std::thread::yield_now();
    }
}

/// Buys a little more than the best level shows until the connection breaks. The rest of each order
/// fills later, in parts.
fn sweep(address: SocketAddr, trader: &Trader, markets: &[String], random: Random) {
    // An error is the end of the server.
    let _ = try_sweep(address, trader, markets, random);
}

fn try_sweep(
    address: SocketAddr,
    trader: &Trader,
    markets: &[String],
    mut random: Random,
) -> io::Result<()> {
    let mut connection = Connection::try_open(address)?;
    loop {
        let market = random.pick(markets).expect("markets are listed");
        let book = format!("/v1/markets/{market}/book?outcome=yes&depth=1");
        let book = connection.try_send(&Request::get(book).key(&trader.key))?;
        let touch = &book.json()["asks"][0];
        // A paused market has no book.
        if book.status == 200 && !touch.is_null() {
            let order = json!({
                "market_id": market, "outcome": "yes", "side": "BUY", "order_type": "limit",
                "price": touch["price"], "quantity": micros(&touch["size"]) / 1_000_000 + 20,
            });
            connection.try_send(&Request::post("/v1/orders", &order).key(&trader.key))?;
        }
    }
}

fn cancel_all(trader: &Trader) -> Request {
    Request::new("POST", "/v1/cancel-all?confirm=true").key(&trader.key)
}

impl<'a> Follower<'a> {
    fn new(trader: &'a Trader, random: Random) -> Self {
        let (fills, last, forgotten_count) = (BTreeMap::new(), 0, 0);
        Self { trader, random, fills, last, forgotten_count, connection_count: 0 }
    }

    /// Connects, reads some fills and hangs up, again and again until the server is gone. It makes
    /// up to this many fills between two connections.
    fn run(&mut self, address: SocketAddr, fills_between_max: usize, connected: &Sender<()>) {
        while let Some((mut socket, newest)) = self.connect(address) {
            self.connection_count += 1;
            let missed = usize::try_from(newest.saturating_sub(self.last)).expect("a few");
            // Sometimes it does not even get what it missed.
            let count = self.random.below(missed + LIVE_FILLS_MAX);
            for _ in 0..count {
                if self.read(&mut socket).is_none() {
                    return;
                }
            }
            drop(socket);
            trade(address, self.trader, self.random.below(fills_between_max + 1));
            // The receiver is gone once the server must end.
            let _ = connected.send(());
        }
    }

    /// Reads up to the newest fill.
    fn catch_up(&mut self, address: SocketAddr) {
        let (mut socket, newest) = self.connect(address).expect("the server is up");
        while self.last < newest {
            self.read(&mut socket).expect("the server stays up");
        }
        assert_eq!(self.last, newest);
    }

    /// Opens a socket and resumes after the last fill. Returns it with the number of the newest
    /// fill; `None` if the server is gone.
    fn connect(&mut self, address: SocketAddr) -> Option<(Socket, u64)> {
        witness::call(frames::witness);
        let request = upgrade("/v1/ws/executions").key(&self.trader.key);
        let mut socket = Socket::try_open(address, &request).ok()?.ok()?;
        let hello = text(&mut socket)?;
        assert_eq!(hello["type"], "connected", "{hello}");
        let newest = id(&hello["seq"]);
        assert!(newest >= self.last, "{hello}, and the fill {} was received", self.last);
        socket.say(&json!({"action": "resume", "after": self.last}));
        for seq in newest + 1.. {
            let frame = text(&mut socket)?;
            if frame["type"] == "resumed" {
                assert_eq!(frame["after"], self.last);
                break;
            }
            // A fill that came before the server read the request. It comes once more.
            assert_eq!((&frame["type"], &frame["seq"]), (&json!("fill"), &json!(seq)), "{frame}");
        }
        Some((socket, newest))
    }

    /// Reads a frame, which must continue where the last one ended; `None` if the server is gone.
    fn read(&mut self, socket: &mut Socket) -> Option<()> {
        let mut frame = text(socket)?;
        if frame["type"] == "gap" {
            assert_eq!(frame["from"], self.last + 1, "{frame}");
            let to = id(&frame["to"]);
            assert!(to > self.last, "{frame}");
            self.forgotten_count += to - self.last;
            self.last = to;
            frame = text(socket)?;
        }
        assert_eq!((&frame["type"], &frame["seq"]), (&json!("fill"), &json!(self.last + 1)));
        self.last += 1;
        self.fills.insert(self.last, frame);
        Some(())
    }
}

/// The next message; `None` if the server is gone.
fn text(socket: &mut Socket) -> Option<Value> {
    loop {
        match socket.next_frame() {
            Frame::Text(text) => return Some(text),
            Frame::Ping => {}
            Frame::Close(1001) | Frame::End => return None,
            other => panic!("{other:?}"),
        }
    }
}

/// Each fill changes the balance that the one before it left, up to the present one.
fn check_balances(fills: &BTreeMap<u64, Value>, connection: &mut Connection, trader: &Trader) {
    let mut before = (0, STARTING_BALANCE_MICROS);
    for (&seq, fill) in fills {
        let [balance, notional, fee] =
            ["account_balance", "notional", "fee"].map(|field| micros(&fill[field]));
        let change = if fill["side"] == "BUY" { -notional } else { notional } - fee;
        if seq == before.0 + 1 {
            assert_eq!(balance, before.1 + change, "{fill} does not follow {before:?}");
        }
        before = (seq, balance);
    }
    let answer = connection.done(&Request::get("/v1/account/balance").key(&trader.key)).json();
    let cash = micros(&answer["balance"]) + micros(&answer["reserved"]);
    assert_eq!(cash, before.1, "{answer}");
}

/// The fills of each order are numbered, and add up to what its row shows.
fn check_against_rows(fills: &BTreeMap<u64, Value>, mut rows: BTreeMap<u64, Value>) {
    let mut orders: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for fill in fills.values() {
        orders.entry(id(&fill["order_id"])).or_default().push(fill);
    }
    let (mut in_parts_count, mut later_count) = (0, 0);
    for (order, parts) in orders {
        let row = rows.remove(&order).unwrap_or_else(|| panic!("not listed: {order}"));
        for part in &parts {
            for field in ["market_id", "outcome", "side", "client_order_id"] {
                assert_eq!(part[field], row[field], "{field} of {part} and {row}");
            }
        }
        for (of_fill, of_row) in
            [("quantity", "filled_quantity"), ("notional", "notional"), ("fee", "fee")]
        {
            let sum: i64 = parts.iter().map(|part| micros(&part[of_fill])).sum();
            assert_eq!(sum, micros(&row[of_row]), "{of_row} of {row}");
        }
        let ids: Vec<&Value> = parts.iter().map(|part| &part["trade_id"]).collect();
        assert_eq!(row["trade_ids"], json!(ids));
        in_parts_count += usize::from(parts.len() > 1);
        later_count += parts.iter().filter(|part| part["filled_at"] != row["created_at"]).count();
    }
    for row in rows.values() {
        assert_eq!(micros(&row["filled_quantity"]), 0, "its fills are missing: {row}");
    }
    eprintln!("{} fills, {later_count} of resting orders", fills.len());
    assert!(in_parts_count > 0, "no order filled in parts");
}
