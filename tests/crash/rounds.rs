//! Round after round: load, a kill, a restart, and a comparison with the clients' books.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use paperbourse::journal::segment_number;
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::value::id;
use paperbourse_test_support::{Connection, Request};
use serde_json::json;

use crate::books::Books;
use crate::load::{Kind, Load, Sent, Trader, assert_replay};
use crate::random::Random;
use crate::resting::{Rester, RestingBooks};
use crate::server::{start, start_and_kill, token};

const ROUNDS_DEFAULT: usize = 5;
const CONNECTION_COUNT: usize = 16;
const TRADER_COUNT: usize = 6;
/// Traders with orders that rest, and the connections that act for them.
const RESTER_COUNT: usize = 2;
const RESTER_CONNECTION_COUNT: usize = 6;
/// The server is killed after a random number of answers in this range.
const ANSWERS_MIN: usize = 20;
const ANSWERS_MAX: usize = 1_500;
/// A further random delay before the kill, so that it hits the disk at any moment.
const DELAY_MICROS_MAX: usize = 5_000;
/// One in this many restarts is killed as well.
const KILLED_STARTS_ONE_IN: usize = 4;

/// One in this many restarts gets the time to finish the due snapshot.
const FINISHED_SNAPSHOTS_ONE_IN: usize = 4;
/// The thread that makes snapshots leaves the processors to everybody else: on a busy machine, a
/// second of its work takes minutes.
const SNAPSHOT_TIME_MAX: Duration = Duration::from_mins(15);

#[derive(Default, Debug)]
struct Totals {
    fills: usize,
    resting: RestingTotals,
    writes_answered: usize,
    writes_unanswered: usize,
    orders_sent_again: usize,
    of_those_on_disk_already: usize,
    replays_compared: usize,
    starts_killed: usize,
    /// Starts that recovered from a newer snapshot than every start before.
    new_snapshots: usize,
    /// Starts that found an unfinished snapshot.
    half_snapshots: usize,
}

#[derive(Default, Debug)]
pub(crate) struct RestingTotals {
    pub(crate) placed: usize,
    /// Those that filled, in part or completely, after they had been placed.
    pub(crate) filled_later: usize,
    pub(crate) cancelled: usize,
    /// Cancels that came after the last fill.
    pub(crate) cancelled_too_late: usize,
    pub(crate) still_open: usize,
    pub(crate) reads_compared: usize,
}

struct Run {
    random: Random,
    totals: Totals,
    /// The books of all rounds so far, which must stay true.
    books: Vec<Books>,
    resting: Vec<RestingBooks>,
    newest_snapshot: Option<String>,
}

#[test]
fn acknowledged_writes_survive_kills() {
    let rounds = number("PAPERBOURSE_CRASH_ROUNDS").unwrap_or(ROUNDS_DEFAULT);
    let seed = seed();
    let data = tempfile::tempdir().unwrap();
    let mut run = Run {
        random: Random::new(seed),
        totals: Totals::default(),
        books: Vec::new(),
        resting: Vec::new(),
        newest_snapshot: None,
    };
    let started = Instant::now();
    let mut server = start(data.path());
    for round in 0..rounds {
        server = run.round(round, data.path(), server, ServerProcess::kill);
    }
    // An orderly shutdown under load loses nothing either.
    server = run.round(rounds, data.path(), server, ServerProcess::terminate);
    drop(server);
    eprintln!("{rounds} rounds in {:.1?}: {:#?}", started.elapsed(), run.totals);
    assert!(run.totals.fills > rounds, "almost nothing was traded");
    assert!(run.totals.resting.filled_later > 0, "nothing that rested was filled");
    assert!(run.totals.resting.cancelled > rounds, "almost nothing was cancelled");
}

/// A number from the environment.
pub(crate) fn number<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// The seed of a run, which is printed so that the run can be repeated.
pub(crate) fn seed() -> u64 {
    let seed = number("PAPERBOURSE_CRASH_SEED").unwrap_or_else(|| {
        u64::try_from(paperbourse::ids::Timestamp::now().nanos()).expect("after 1970")
    });
    eprintln!("PAPERBOURSE_CRASH_SEED={seed}");
    seed
}

impl Run {
    fn round(
        &mut self,
        round: usize,
        data: &Path,
        server: ServerProcess,
        end: fn(ServerProcess),
    ) -> ServerProcess {
        let traders: Vec<_> = (0..TRADER_COUNT + RESTER_COUNT)
            .map(|number| bootstrap(data, &server, round, number))
            .collect();
        let mut sent = self.load_until(end, round, &traders, server);
        if self.random.below(KILLED_STARTS_ONE_IN) == 0 {
            self.totals.starts_killed += 1;
            let delay = self.delay();
            start_and_kill(data, || spin(delay));
        }
        self.look_at_snapshots(data);
        let server = start(data);
        if self.random.below(FINISHED_SNAPSHOTS_ONE_IN) == 0 {
            await_snapshot(data, &server);
        }
        let mut connection = Connection::open(server.address);
        self.send_again(&mut sent, &mut connection);
        self.replay(&sent, &mut connection);
        for trader in &traders[TRADER_COUNT..] {
            let mut books = RestingBooks::of(trader, &sent);
            books.check(&mut connection);
            books.count(&mut self.totals.resting);
            self.resting.push(books);
        }
        for trader in &traders[..TRADER_COUNT] {
            let books = Books::of(trader, &sent);
            books.check(&mut connection);
            self.totals.fills += books.fill_count();
            self.books.push(books);
        }
        self.random.pick(&self.books).expect("just pushed").check(&mut connection);
        let earlier = self.random.below(self.resting.len());
        self.resting[earlier].check(&mut connection);
        server
    }

    /// Counts the snapshots that the ended server left.
    fn look_at_snapshots(&mut self, data: &Path) {
        let Ok(entries) = std::fs::read_dir(data.join("snapshots")) else { return };
        let names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into()).collect();
        self.totals.half_snapshots += usize::from(names.iter().any(|name| name.contains(".tmp")));
        let newest = names.into_iter().filter(|name| !name.contains(".tmp")).max();
        self.totals.new_snapshots += usize::from(newest > self.newest_snapshot);
        self.newest_snapshot = newest;
    }

    /// Runs the load until the server ends. Returns all requests.
    fn load_until(
        &mut self,
        end: fn(ServerProcess),
        round: usize,
        traders: &[Trader],
        server: ServerProcess,
    ) -> Vec<Sent> {
        let markets = lasting_markets(&mut Connection::open(server.address));
        let answers = ANSWERS_MIN + self.random.below(ANSWERS_MAX - ANSWERS_MIN);
        let delay = self.delay();
        let (answered, answers_seen) = channel();
        let sent: Vec<Sent> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CONNECTION_COUNT + RESTER_CONNECTION_COUNT)
                .map(|number| {
                    let rester = number.checked_sub(CONNECTION_COUNT);
                    let trader = match rester {
                        None => number % TRADER_COUNT,
                        Some(rester) => TRADER_COUNT + rester % RESTER_COUNT,
                    };
                    let load = Load {
                        address: server.address,
                        trader: &traders[trader],
                        label: format!("r{round}-c{number}"),
                        markets: &markets,
                        random: Random::new(self.random.next()),
                        answered: answered.clone(),
                    };
                    scope.spawn(move || match rester {
                        None => load.run(),
                        Some(_) => Rester::new(load).run(),
                    })
                })
                .collect();
            drop(answered);
            assert_eq!(answers_seen.iter().take(answers).count(), answers, "connections broke");
            spin(delay);
            end(server);
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("the load does not panic"))
                .collect()
        });
        let unanswered = sent.iter().filter(|sent| sent.answer.is_none()).count();
        self.totals.writes_unanswered += unanswered;
        self.totals.writes_answered += sent.len() - unanswered;
        sent
    }

    /// Retries every unanswered order under the same names.
    fn send_again(&mut self, sent: &mut [Sent], connection: &mut Connection) {
        let is_order = |kind: &Kind| matches!(kind, Kind::Trade | Kind::Batch | Kind::Place);
        for sent in sent.iter_mut().filter(|sent| sent.answer.is_none() && is_order(&sent.kind)) {
            let answer = connection.send(&sent.request);
            self.totals.orders_sent_again += 1;
            let is_old = answer.is_replay() || answer.text.contains("\"is_replay\":true");
            self.totals.of_those_on_disk_already += usize::from(is_old);
            sent.answer = Some(answer);
        }
    }

    /// Every order gets its first answer again, byte for byte, whatever became of it.
    fn replay(&mut self, sent: &[Sent], connection: &mut Connection) {
        for sent in sent.iter().filter(|sent| matches!(sent.kind, Kind::Trade | Kind::Place)) {
            let Some(first) = sent.answer.as_ref().filter(|answer| answer.status == 200) else {
                continue;
            };
            let again = connection.send(&sent.request);
            assert_replay(&sent.request, first, &again);
            self.totals.replays_compared += 1;
        }
    }

    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.random.below(DELAY_MICROS_MAX) as u64)
    }
}

/// The markets without an end. The others may resolve, and the books know nothing of payouts.
pub(crate) fn lasting_markets(connection: &mut Connection) -> Vec<String> {
    let mut get = |path: &str| connection.done(&Request::get(path)).json();
    let list = get("/v1/markets?limit=200");
    let ids = list.as_array().expect("a list").iter().map(|market| &market["condition_id"]);
    let ids = ids.map(|id| String::from(id.as_str().expect("text")));
    ids.filter(|id| get(&format!("/v1/markets/{id}"))["end_date"].is_null()).collect()
}

/// Waits until the journal has no closed segments left: only the one being written and the prepared
/// one stay.
fn await_snapshot(data: &Path, server: &ServerProcess) {
    let started = Instant::now();
    let segments = || {
        let entries = std::fs::read_dir(data.join("journal")).expect("a journal").flatten();
        // Cutting a torn end leaves a copy in the folder, which is no segment.
        entries.filter(|entry| segment_number(&entry.file_name().to_string_lossy()).is_some())
    };
    while segments().count() > 2 {
        let log = || server.log_lines("snapshot");
        assert!(started.elapsed() < SNAPSHOT_TIME_MAX, "no snapshot was made: {:#?}", log());
        std::thread::yield_now();
    }
}

/// Waits without giving up the processor, because a sleep would round the delay up.
pub(crate) fn spin(delay: Duration) {
    let started = Instant::now();
    while started.elapsed() < delay {
        std::hint::spin_loop();
    }
}

/// Opens the account of a trader of this round.
pub(crate) fn bootstrap(
    data: &Path,
    server: &ServerProcess,
    round: usize,
    number: usize,
) -> Trader {
    let token = token(data, &format!("round-{round}-trader-{number}"));
    let permissions = json!({"permissions": ["read", "trade", "admin"]});
    let request = Request::post("/v1/keys/bootstrap", &permissions).bearer(&token);
    let mut connection = Connection::open(server.address);
    let new = connection.done(&request).json();
    let key = new["raw_key"].as_str().expect("a new key has a raw key").into();
    Trader { number, key, key_id: id(&new["id"]) }
}
