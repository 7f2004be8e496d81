//! Clients of the execution socket that lose their connection again and again, and once the server.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use paperbourse::venue::simulated::DEEP_MARKET_CONDITION_ID;
use paperbourse_test_support::follower::{Follower, order_rows};
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::value::micros;
use paperbourse_test_support::{Connection, Request, Response, witness};
use serde_json::{Value, json};

use crate::frames;
use crate::load::{Load, Trader};
use crate::random::Random;
use crate::resting::Rester;
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
struct Client<'a> {
    trader: &'a Trader,
    random: Random,
    follower: Follower,
    connection_count: usize,
}

/// What a client ends up with.
struct Followed {
    follower: Follower,
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
    for Followed { follower, rows } in follow(Orders::All, &[]) {
        assert_eq!(follower.forgotten_count, 0);
        let (in_parts_count, later_count) = follower.check_rows(rows);
        eprintln!("{} fills, {later_count} of resting orders", follower.fills.len());
        assert!(in_parts_count > 0, "no order filled in parts");
    }
}

#[test]
fn a_hole_is_announced_before_what_follows_it() {
    let followed = follow(Orders::Market, &["--keep-orders", "20"]);
    assert!(followed.iter().any(|followed| followed.follower.forgotten_count > 0), "no hole");
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
    let mut clients: Vec<Client<'_>> =
        traders.iter().map(|trader| Client::new(trader, Random::new(random.next()))).collect();
    let ends = [ServerProcess::kill, ServerProcess::terminate];
    for end in ends {
        let wanted = reconnects.div_ceil(ends.len());
        trade_until(end, server, orders, &mut clients, wanted, &mut random);
        server = start();
    }
    let mut connection = Connection::open(server.address);
    let results = clients.into_iter().map(|client| {
        let Client { trader, mut follower, connection_count, .. } = client;
        assert!(connection_count >= reconnects);
        let cancelled = send(&mut connection, &cancel_all(trader));
        assert_eq!(cancelled.expect("the server is up").status, 200);
        follower.catch_up(Connection::open(server.address));
        follower.check_balances(STARTING_BALANCE_MICROS, &mut connection);
        let rows = order_rows(&trader.key, &mut connection).expect("nothing changes any more");
        Followed { follower, rows }
    });
    results.collect()
}

/// Trades and follows until each client has connected so often. Then ends the server, while all
/// of them go on.
fn trade_until(
    end: fn(ServerProcess),
    server: ServerProcess,
    orders: Orders,
    clients: &mut [Client<'_>],
    wanted: usize,
    random: &mut Random,
) {
    let markets = lasting_markets(&mut Connection::open(server.address));
    let address = server.address;
    let delay = random.below(KILL_DELAY_MICROS_MAX) as u64;
    std::thread::scope(|scope| {
        let mut waits = Vec::new();
        for client in clients {
            let trader = client.trader;
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
            scope.spawn(move || client.run(address, fills_between_max, &connected));
        }
        for connections in waits {
            assert_eq!(connections.iter().take(wanted).count(), wanted, "a client gave up");
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

impl<'a> Client<'a> {
    fn new(trader: &'a Trader, random: Random) -> Self {
        witness::call(frames::witness);
        Self { trader, random, follower: Follower::new(&trader.key), connection_count: 0 }
    }

    /// Connects, reads some fills and hangs up, again and again until the server is gone. It makes
    /// up to this many fills between two connections.
    fn run(&mut self, address: SocketAddr, fills_between_max: usize, connected: &Sender<()>) {
        while let Ok(connection) = Connection::try_open(address)
            && let Some((mut socket, newest)) = self.follower.connect(connection)
        {
            self.connection_count += 1;
            let missed = newest.saturating_sub(self.follower.last);
            let missed = usize::try_from(missed).expect("a few");
            // Sometimes it does not even get what it missed.
            let count = self.random.below(missed + LIVE_FILLS_MAX);
            for _ in 0..count {
                if self.follower.read(&mut socket).is_none() {
                    return;
                }
            }
            drop(socket);
            trade(address, self.trader, self.random.below(fills_between_max + 1));
            // The receiver is gone once the server must end.
            let _ = connected.send(());
        }
    }
}
