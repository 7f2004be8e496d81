//! Load, a kill, a restart, and the comparison of both sides' books, round after round.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use paperbourse::journal::segment_number;
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::{Connection, Request};
use serde_json::json;

use crate::books::Books;
use crate::load::{Kind, Load, Sent, Trader, assert_replay, id};
use crate::random::Random;
use crate::server::{start, start_and_kill, token};

const ROUNDS_DEFAULT: usize = 5;
const CONNECTION_COUNT: usize = 16;
const TRADER_COUNT: usize = 6;
/// The end comes after so many answers of a round.
const ANSWERS_MIN: usize = 20;
const ANSWERS_MAX: usize = 1_500;
/// And then so many microseconds later, so that it meets the disk at every moment.
const DELAY_MICROS_MAX: usize = 5_000;
/// One restart in so many is killed itself.
const KILLED_STARTS_ONE_IN: usize = 4;

/// One restart in so many is given the time for the snapshot that is due.
const FINISHED_SNAPSHOTS_ONE_IN: usize = 4;
const SNAPSHOT_TIME_MAX: Duration = Duration::from_secs(30);

#[derive(Default, Debug)]
struct Totals {
    fills: usize,
    writes_answered: usize,
    writes_unanswered: usize,
    orders_sent_again: usize,
    of_those_on_disk_already: usize,
    replays_compared: usize,
    starts_killed: usize,
    /// Starts that went on from a snapshot which no start before had.
    new_snapshots: usize,
    /// Starts that found a snapshot half made.
    half_snapshots: usize,
}

struct Run {
    random: Random,
    totals: Totals,
    /// All rounds so far: what was true stays true.
    books: Vec<Books>,
    newest_snapshot: Option<String>,
}

#[test]
fn what_was_acknowledged_survives_kills() {
    let number = |name: &str| {
        std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
    };
    let rounds = number("PAPERBOURSE_CRASH_ROUNDS")
        .map_or(ROUNDS_DEFAULT, |rounds: u64| usize::try_from(rounds).expect("a number of rounds"));
    let seed = number("PAPERBOURSE_CRASH_SEED").unwrap_or_else(|| {
        u64::try_from(paperbourse::ids::Timestamp::now().nanos()).expect("after 1970")
    });
    eprintln!("PAPERBOURSE_CRASH_SEED={seed}");
    let data = tempfile::tempdir().unwrap();
    let mut run = Run {
        random: Random::new(seed),
        totals: Totals::default(),
        books: Vec::new(),
        newest_snapshot: None,
    };
    let started = Instant::now();
    let mut server = start(data.path());
    for round in 0..rounds {
        server = run.round(round, data.path(), server, ServerProcess::kill);
    }
    // An orderly end under load loses nothing either.
    server = run.round(rounds, data.path(), server, ServerProcess::terminate);
    drop(server);
    eprintln!("{rounds} rounds in {:.1?}: {:#?}", started.elapsed(), run.totals);
    assert!(run.totals.fills > rounds, "next to nothing was traded");
}

impl Run {
    fn round(
        &mut self,
        round: usize,
        data: &Path,
        server: ServerProcess,
        end: fn(ServerProcess),
    ) -> ServerProcess {
        let traders: Vec<_> =
            (0..TRADER_COUNT).map(|number| bootstrap(data, &server, round, number)).collect();
        let mut sent = self.load_until(end, round, &traders, server);
        if self.random.below(KILLED_STARTS_ONE_IN) == 0 {
            self.totals.starts_killed += 1;
            let delay = self.delay();
            start_and_kill(data, || spin(delay));
        }
        self.look_at_snapshots(data);
        let server = start(data);
        if self.random.below(FINISHED_SNAPSHOTS_ONE_IN) == 0 {
            await_snapshot(data);
        }
        let mut connection = Connection::open(server.address);
        self.send_again(&mut sent, &mut connection);
        self.replay(&sent, &mut connection);
        for trader in &traders {
            let books = Books::of(trader, &sent);
            books.check(&mut connection);
            self.totals.fills += books.fill_count();
            self.books.push(books);
        }
        self.random.pick(&self.books).expect("just pushed").check(&mut connection);
        server
    }

    /// What the ended server has left of its snapshots.
    fn look_at_snapshots(&mut self, data: &Path) {
        let Ok(entries) = std::fs::read_dir(data.join("snapshots")) else { return };
        let names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into()).collect();
        self.totals.half_snapshots += usize::from(names.iter().any(|name| name.contains(".tmp")));
        let newest = names.into_iter().filter(|name| !name.contains(".tmp")).max();
        self.totals.new_snapshots += usize::from(newest > self.newest_snapshot);
        self.newest_snapshot = newest;
    }

    /// Everything that was sent until the server ended.
    fn load_until(
        &mut self,
        end: fn(ServerProcess),
        round: usize,
        traders: &[Trader],
        server: ServerProcess,
    ) -> Vec<Sent> {
        let mut connection = Connection::open(server.address);
        let list = Request::get("/v1/markets?limit=200").key(&traders[0].key);
        let markets: Vec<String> = connection
            .done(&list)
            .json()
            .as_array()
            .expect("a list")
            .iter()
            .map(|market| market["condition_id"].as_str().expect("text").into())
            .collect();
        let answers = ANSWERS_MIN + self.random.below(ANSWERS_MAX - ANSWERS_MIN);
        let delay = self.delay();
        let (answered, answers_seen) = channel();
        let sent: Vec<Sent> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CONNECTION_COUNT)
                .map(|number| {
                    let load = Load {
                        address: server.address,
                        trader: &traders[number % TRADER_COUNT],
                        label: format!("r{round}-c{number}"),
                        markets: &markets,
                        random: Random::new(self.random.next()),
                        answered: answered.clone(),
                    };
                    scope.spawn(move || load.run())
                })
                .collect();
            drop(answered);
            assert_eq!(answers_seen.iter().take(answers).count(), answers, "connections broke");
            spin(delay);
            end(server);
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("it has not failed"))
                .collect()
        });
        let unanswered = sent.iter().filter(|sent| sent.answer.is_none()).count();
        self.totals.writes_unanswered += unanswered;
        self.totals.writes_answered += sent.len() - unanswered;
        sent
    }

    /// Sends every order again that got no answer, under the same names.
    fn send_again(&mut self, sent: &mut [Sent], connection: &mut Connection) {
        let is_order = |kind: &Kind| matches!(kind, Kind::Trade | Kind::Batch);
        for sent in sent.iter_mut().filter(|sent| sent.answer.is_none() && is_order(&sent.kind)) {
            let answer = connection.send(&sent.request);
            self.totals.orders_sent_again += 1;
            let is_old = answer.is_replay() || answer.text.contains("\"is_replay\":true");
            self.totals.of_those_on_disk_already += usize::from(is_old);
            sent.answer = Some(answer);
        }
    }

    /// Every order that has filled is answered as the first time, to the byte.
    fn replay(&mut self, sent: &[Sent], connection: &mut Connection) {
        for sent in sent.iter().filter(|sent| sent.kind == Kind::Trade) {
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

/// Lets so much time pass without giving up the processor, which would round it up.
/// Waits until no closed segment is left with the journal: the one that is written and the one that
/// is prepared stay.
fn await_snapshot(data: &Path) {
    let started = Instant::now();
    let segments = || {
        let entries = std::fs::read_dir(data.join("journal")).expect("it is there").flatten();
        // A torn end that was cut leaves a copy there, which is no segment.
        entries.filter(|entry| segment_number(&entry.file_name().to_string_lossy()).is_some())
    };
    while segments().count() > 2 {
        assert!(started.elapsed() < SNAPSHOT_TIME_MAX, "no snapshot was made");
        std::thread::yield_now();
    }
}

fn spin(delay: Duration) {
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
    let key = new["raw_key"].as_str().expect("a new key is told").into();
    Trader { number, key, key_id: id(&new["id"]) }
}
