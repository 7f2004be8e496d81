//! Clients of the venue's user socket whose server is killed: whatever they were told is there
//! afterwards, and whatever requests showed they were told.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use paperbourse::ids::Timestamp;
use paperbourse_clob::order::signing::DraftOrder;
use paperbourse_clob::order::{MarketKind, OrderType, Side, SignatureType, Version};
use paperbourse_clob::signature::Chain;
use paperbourse_clob::signing::{ApiCredentials, Signer};
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::socket::{Frame, Socket, TEXT, upgrade};
use paperbourse_test_support::value::micros;
use paperbourse_test_support::{Connection, Request, Response};
use serde_json::{Value, json};

use crate::random::Random;
use crate::rounds::{lasting_markets, number, seed, spin};
use crate::server::start_with;

const KILLS_DEFAULT: usize = 3;
const BOTS_DEFAULT: usize = 6;
/// The server is killed after a random number of answers in this range.
const ANSWERS_MIN: usize = 20;
const ANSWERS_MAX: usize = 300;
const KILL_DELAY_MICROS_MAX: usize = 60_000;
/// A frame that is later than this is missing.
const FRAME_DELAY_MAX: Duration = Duration::from_secs(20);
/// Enough for all orders of a run.
const FLAGS: [&str; 4] = ["--clob", "on", "--starting-balance", "100000000"];

/// A wallet, and what its sockets were told.
struct Bot {
    signer: Signer,
    random: Random,
    salt: u64,
    told: Vec<Value>,
}

/// What a socket was told so far.
#[derive(Default)]
struct Told {
    state: Mutex<ToldState>,
    changed: Condvar,
}

#[derive(Default)]
struct ToldState {
    frames: Vec<Value>,
    /// The kind and the id of each frame, such as `PLACEMENT 0x…`.
    names: HashSet<String>,
    has_ended: bool,
}

/// A wallet at a running server.
struct Client<'a> {
    connection: Connection,
    signer: &'a Signer,
    credentials: ApiCredentials,
}

/// What was compared in a run.
#[derive(Default, Debug)]
struct Totals {
    orders: usize,
    trades: usize,
    filled_later: usize,
    cancelled: usize,
    awaited: usize,
}

#[test]
fn user_sockets_tell_what_is_on_disk_and_all_of_it() {
    let kills = number("PAPERBOURSE_USER_KILLS").unwrap_or(KILLS_DEFAULT);
    let bot_count: u64 = number("PAPERBOURSE_USER_BOTS").unwrap_or(BOTS_DEFAULT as u64);
    let mut random = Random::new(seed());
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut bots: Vec<Bot> = (1..=bot_count)
        .map(|number| Bot {
            signer: Signer::new(number),
            random: Random::new(random.next()),
            salt: 0,
            told: Vec::new(),
        })
        .collect();
    let mut totals = Totals::default();
    let mut server = start_with(data.path(), &FLAGS);
    for _ in 0..kills {
        totals.awaited += trade_until_killed(server, &mut bots, &mut random);
        server = start_with(data.path(), &FLAGS);
        for bot in &mut bots {
            bot.check(server.address, &mut totals);
        }
    }
    eprintln!("{kills} kills, {bot_count} bots: {totals:?}");
    assert!(totals.orders > 10 * kills && totals.trades > kills && totals.cancelled > kills);
    assert!(totals.filled_later > 0, "nothing that rested was filled");
}

/// Lets the bots trade, and kills the server. Returns how many frames the bots have waited for.
fn trade_until_killed(server: ServerProcess, bots: &mut [Bot], random: &mut Random) -> usize {
    let address = server.address;
    let markets = markets(&mut Connection::open(address));
    let answers = ANSWERS_MIN + random.below(ANSWERS_MAX - ANSWERS_MIN);
    let delay = random.below(KILL_DELAY_MICROS_MAX) as u64;
    std::thread::scope(|scope| {
        let (answered, all_answered) = channel();
        let running: Vec<_> = bots
            .iter_mut()
            .map(|bot| {
                let (markets, answered) = (&markets, answered.clone());
                scope.spawn(move || bot.trade(address, markets, &answered))
            })
            .collect();
        drop(answered);
        let count = all_answered.iter().take(answers).count();
        assert_eq!(count, answers, "the bots gave up");
        spin(Duration::from_micros(delay));
        server.kill();
        running.into_iter().map(|bot| bot.join().expect("the bot has not failed")).sum()
    })
}

/// A market with a book.
struct Market {
    token_id: String,
    kind: MarketKind,
}

fn markets(connection: &mut Connection) -> Vec<Market> {
    let ids = lasting_markets(connection);
    let mut get = |path: &str| connection.done(&Request::get(path)).json();
    let markets = ids.iter().take(4).map(|id| {
        let market = get(&format!("/markets/{id}"));
        let token_id = market["tokens"][0]["token_id"].as_str().expect("text").to_owned();
        let is_negative = market["neg_risk"] == true;
        let kind = MarketKind::of_token(&token_id, is_negative).expect("a token is a number");
        Market { token_id, kind }
    });
    markets.collect()
}

impl Bot {
    /// Trades until the server is gone, and notes what its socket tells. Returns how many frames it
    /// has waited for.
    fn trade(&mut self, address: SocketAddr, markets: &[Market], answered: &Sender<()>) -> usize {
        let Self { signer, random, salt, told: all } = self;
        let Ok((mut client, socket)) = Client::open(address, signer) else { return 0 };
        let told = Told::default();
        let mut awaited = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| told.read(socket));
            // An error is the end of the server.
            let _ = client.trade((random, salt), markets, &told, answered, &mut awaited);
            drop(client);
        });
        let state = told.state.into_inner().expect("no reader has failed");
        all.extend(state.frames);
        awaited
    }

    /// Compares what the bot was told with what the server shows, which nobody changes meanwhile
    /// but its books.
    fn check(&mut self, address: SocketAddr, totals: &mut Totals) {
        let (mut client, _socket) = Client::open(address, &self.signer).expect("the server is up");
        let mut frames = std::mem::take(&mut self.told);
        for frame in &mut frames {
            let id = frame["id"].as_str().expect("text").to_owned();
            let fields = frame.as_object_mut().expect("an object");
            let mut take = |name: &str| fields.remove(name).expect("each frame has it");
            let (kind, _) = (take("type"), take("timestamp"));
            if take("event_type") == "trade" {
                take("trade_owner");
                take("status");
                let mut rows = client.done("GET", &format!("/data/trades?id={id}"), "").json();
                let mut row = rows["data"][0].take();
                row.as_object_mut().expect("the trade is there").remove("status");
                assert_eq!(*frame, row);
                totals.trades += 1;
                totals.filled_later += usize::from(frame["trader_side"] == "MAKER");
                continue;
            }
            take("order_owner");
            let created_at = take("created_at").as_str().expect("text").parse::<i64>();
            fields.insert("created_at".into(), json!(created_at.expect("a number")));
            let [status, matched, trades] = ["status", "size_matched", "associate_trades"]
                .map(&mut |name| fields.remove(name).expect("each frame has it"));
            let mut row = client.done("GET", &format!("/data/order/{id}"), "").json();
            let shown = row.as_object_mut().expect("the order is there");
            let [shown_status, shown_matched, shown_trades] =
                ["status", "size_matched", "associate_trades"]
                    .map(|name| shown.remove(name).expect("each row has it"));
            assert_eq!(*frame, row, "{kind}");
            let is_final = kind == "CANCELLATION" || status == "MATCHED";
            if is_final {
                assert_eq!((&matched, &trades), (&shown_matched, &shown_trades), "{frame}");
                let status = status.as_str().expect("text");
                let shown_status = shown_status.as_str().expect("text");
                assert!(status.starts_with(shown_status), "{status}: {shown_status}");
            } else {
                // It may have filled since.
                assert!(micros(&matched) <= micros(&shown_matched), "{frame}");
                let is_early =
                    |it: &Value| shown_trades.as_array().is_some_and(|all| all.contains(it));
                assert!(trades.as_array().expect("a list").iter().all(is_early), "{frame}");
            }
            totals.orders += 1;
            totals.cancelled += usize::from(kind == "CANCELLATION");
        }
    }
}

impl Told {
    fn state(&self) -> MutexGuard<'_, ToldState> {
        self.state.lock().expect("no reader has failed")
    }

    /// Reads frames until the socket ends.
    fn read(&self, mut socket: Socket) {
        loop {
            match socket.next_frame() {
                Frame::Text(frame) => {
                    let text = |field: &str| frame[field].as_str().expect("text");
                    let name = match text("event_type") {
                        "trade" => format!("{} {}", text("status"), text("id")),
                        _ => format!("{} {}", text("type"), text("id")),
                    };
                    let mut state = self.state();
                    let is_new = state.names.insert(name.clone());
                    assert!(is_new || name.starts_with("UPDATE"), "{name} was told before");
                    state.frames.push(frame);
                }
                Frame::Ping | Frame::Pong(_) => continue,
                Frame::Close(_) | Frame::End => {
                    self.state().has_ended = true;
                    self.changed.notify_all();
                    return;
                }
            }
            self.changed.notify_all();
        }
    }

    /// Waits until the socket was told this, or has ended.
    fn wait_for(&self, name: &str) {
        let until = Instant::now() + FRAME_DELAY_MAX;
        let mut state = self.state();
        while !state.has_ended && !state.names.contains(name) {
            let left = until.checked_duration_since(Instant::now());
            let left = left.unwrap_or_else(|| panic!("{name} was shown, and not told"));
            state = self.changed.wait_timeout(state, left).expect("no reader has failed").0;
        }
    }
}

impl<'a> Client<'a> {
    /// Opens a socket, which is told what happens once this returns.
    fn open(address: SocketAddr, signer: &'a Signer) -> io::Result<(Self, Socket)> {
        let mut connection = Connection::try_open(address)?;
        let headers = signer.l1_headers(Chain::Amoy, Timestamp::now().seconds(), 0);
        let request = Request::new("POST", "/auth/api-key");
        let request = headers.into_iter().fold(request, |it, (name, text)| it.header(name, text));
        let answer = loop {
            let answer = connection.try_send(&request)?;
            if answer.status != 503 {
                break answer.ok(200);
            }
        };
        let text = |field: &str| answer[field].as_str().expect("text").to_owned();
        let credentials = ApiCredentials {
            api_key: text("apiKey"),
            secret: text("secret"),
            passphrase: text("passphrase"),
        };
        let mut socket = Socket::try_open(address, &upgrade("/ws/user"))?.expect("an upgrade");
        socket.say(&json!({"type": "user", "markets": [], "auth": answer}));
        socket.send(TEXT, b"PING");
        match socket.next_frame() {
            Frame::Text(pong) if pong == "PONG" => {}
            Frame::End => return Err(io::ErrorKind::UnexpectedEof.into()),
            other => panic!("{other:?}"),
        }
        Ok((Self { connection, signer, credentials }, socket))
    }

    fn send(&mut self, method: &'static str, target: &str, body: &str) -> io::Result<Response> {
        let path = target.split('?').next().unwrap_or_default();
        loop {
            let headers = self.credentials.l2_headers(
                self.signer.address(),
                Timestamp::now().seconds(),
                (method, path, body.as_bytes()),
            );
            let request = Request::new(method, target);
            let request =
                headers.into_iter().fold(request, |it, (name, text)| it.header(name, text));
            let request = if body.is_empty() { request } else { request.body(body) };
            let answer = self.connection.try_send(&request)?;
            // Segments are so small here that a busy disk may not have the next one ready.
            if answer.status != 503 {
                return Ok(answer);
            }
        }
    }

    fn done(&mut self, method: &'static str, target: &str, body: &str) -> Response {
        let answer = self.send(method, target, body).expect("the server is up");
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
        answer
    }

    /// Places and cancels orders, and waits for the frames about all that the answers show.
    fn trade(
        &mut self,
        (random, salt): (&mut Random, &mut u64),
        markets: &[Market],
        told: &Told,
        answered: &Sender<()>,
        awaited: &mut usize,
    ) -> io::Result<()> {
        let known = self.trades()?;
        let mut open = Vec::new();
        loop {
            *salt += 1;
            let mut expected = Vec::new();
            match random.below(8) {
                0 if !open.is_empty() => {
                    let id = open.swap_remove(random.below(open.len()));
                    let answer =
                        self.send("DELETE", "/order", &json!({"orderID": id}).to_string())?;
                    expected.extend(ids(&answer.json()["canceled"], "CANCELLATION"));
                }
                1 => {
                    let answer = self.send("DELETE", "/cancel-all", "")?;
                    expected.extend(ids(&answer.json()["canceled"], "CANCELLATION"));
                    open.clear();
                }
                2 => {
                    let new = self.trades()?.into_iter().filter(|id| !known.contains(id));
                    expected.extend(new.map(|id| format!("MATCHED {id}")));
                }
                kind => {
                    let market = random.pick(markets).expect("there are markets");
                    let Some(body) = self.order(kind, market, *salt, random)? else { continue };
                    let answer = self.send("POST", "/order", &body)?;
                    if answer.status == 200 {
                        let answer = answer.json();
                        let id = answer["orderID"].as_str().expect("text");
                        expected.push(format!("PLACEMENT {id}"));
                        expected.extend(ids(&answer["tradeIDs"], "MATCHED"));
                        if answer["status"] == "live" {
                            open.push(id.to_owned());
                        }
                    }
                }
            }
            for name in &expected {
                told.wait_for(name);
            }
            *awaited += expected.len();
            // The receiver is gone once the server must end.
            let _ = answered.send(());
        }
    }

    /// Returns the body of an order at or near the best price; `None` if there is no book.
    fn order(
        &mut self,
        kind: usize,
        market: &Market,
        salt: u64,
        random: &mut Random,
    ) -> io::Result<Option<String>> {
        let token_id = &market.token_id;
        let book = format!("/book?token_id={token_id}");
        let book = self.connection.try_send(&Request::get(book))?.json();
        // The best is the last.
        let best = book["asks"].as_array().and_then(|asks| asks.last());
        let Some(best) = best else { return Ok(None) };
        let cents = micros(&best["price"]).cast_unsigned() / 10_000;
        let below = if kind == 3 { 0 } else { random.below(3) as u64 };
        let cents = cents.saturating_sub(below).clamp(1, 99);
        let size = 5 + random.below(40) as u64;
        let draft = DraftOrder {
            version: Version::V2,
            wallet: SignatureType::Eoa,
            salt,
            token_id,
            kind: market.kind,
            side: Side::Buy,
            maker_amount_micros: cents * size * 10_000,
            taker_amount_micros: size * 1_000_000,
            order_type: if kind == 3 { OrderType::Fok } else { OrderType::Gtc },
            expiration_s: 0,
            post_only: false,
        };
        Ok(Some(self.signer.order(&draft, &self.credentials.api_key)))
    }

    /// The ids of the newest trades.
    fn trades(&mut self) -> io::Result<Vec<String>> {
        let answer = self.send("GET", "/data/trades", "")?.json();
        let rows = answer["data"].as_array().expect("a list");
        Ok(rows.iter().map(|row| row["id"].as_str().expect("text").to_owned()).collect())
    }
}

/// The names of frames about these ids.
fn ids(list: &Value, kind: &str) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|id| format!("{kind} {}", id.as_str().expect("text"))).collect()
}
