//! Orders that are delayed while a tape plays: the wait passes at the speed of the tape.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use paperbourse::venue::tape::TapeLimits;

use super::*;
use crate::standin::Ladder;
use crate::standin::world::BookSeed;
use crate::tape::taped::{Taped, tokens};

/// How long orders are delayed in the time of the tape.
const WAIT: Duration = Duration::from_secs(3);

/// The number of times that the ask rises by a tick while the tape is recorded.
const MOVES: i64 = 60;

/// How often it does.
const MOVE_INTERVAL: Duration = Duration::from_millis(10);

/// How long the tape lasts in the end.
const LENGTH: Duration = Duration::from_secs(40);

/// The ask of the game after this many moves, each of a tick.
fn ask(moves: i64) -> String {
    // As the venue writes prices: without zeros at the end.
    format!("0.{:03}", 400 + moves).trim_end_matches('0').to_owned()
}

/// Records a venue where the only ask of the game rises all the time.
async fn record(folder: &Path) {
    let mut world = world(WAIT);
    let game = &mut world.markets[GAME];
    "0.001".clone_into(&mut game.tick_size);
    game.describe(|fields| drop(fields.insert("orderPriceMinTickSize".into(), 0.001.into())));
    let mut ladder = Ladder::default();
    ladder.set(Side::Buy, "0.1", "1000");
    ladder.set(Side::Sell, &ask(0), "1000");
    let ladders = [ladder.clone(), ladder.mirrored()];
    for (book, ladder) in game.books.iter_mut().zip(ladders) {
        *book = Some(BookSeed { ladder, hash: None, timestamp_ms: 0 });
    }
    let venue = StandIn::start(world, Options::default()).await;
    let taped = Taped::start_in(venue, 2, TapeLimits::default(), folder);
    taped.until("the books", |it| it.is_settled(&tokens(2))).await;
    for number in 0..MOVES {
        let changes = [(Side::Sell, &*ask(number), "0"), (Side::Sell, &*ask(number + 1), "1000")];
        taped.venue.change_levels(&token_id(GAME, 0), &changes);
        // The pace of the venue, not a wait for anything.
        tokio::time::sleep(MOVE_INTERVAL).await;
    }
    taped.until("the last book", |it| it.is_settled(&tokens(2))).await;
    taped.finish().await;
}

/// Makes a tape last for [`LENGTH`]: the time from its start to each line grows. The times inside
/// the frames stay, so the tape no longer says how late a frame may be.
fn stretch(folder: &Path) {
    const KEY: &str = ",\"ns\":";
    let mut lines: Vec<(std::path::PathBuf, Vec<String>)> = Vec::new();
    for part in ["gamma", "clob", "ws"] {
        for entry in fs::read_dir(folder.join(part)).unwrap() {
            let path = entry.unwrap().path();
            let mut text = String::new();
            GzDecoder::new(fs::File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
            let text = text.replace("\"lag_max_ms\":", "\"unlimited_lag_ms\":");
            lines.push((path, text.lines().map(str::to_owned).collect()));
        }
    }
    let parts = |line: &str| {
        let (before, rest) = line.split_once(KEY).unwrap();
        let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap();
        (before.to_owned(), rest[..end].parse::<i64>().unwrap(), rest[end..].to_owned())
    };
    let all = || lines.iter().flat_map(|(_, lines)| lines);
    let times = || all().map(|line| parts(line).1);
    let (start, end) = (times().min().unwrap(), times().max().unwrap());
    let times_longer = i64::try_from(LENGTH.as_nanos()).unwrap() / (end - start);
    for (path, lines) in &lines {
        let mut file = GzEncoder::new(fs::File::create(path).unwrap(), Compression::fast());
        for line in lines {
            let (before, ns, after) = parts(line);
            let ns = start + (ns - start) * times_longer;
            writeln!(file, "{before}{KEY}{ns}{after}").unwrap();
        }
        file.finish().unwrap();
    }
}

impl Served {
    /// Buys a share in the game as soon as it can be bought, and returns the answer. Meanwhile it
    /// looks at the ask all the time: each look is the time before it, the price, and the time
    /// after it.
    fn buy_and_look(&self) -> (Value, Vec<(Timestamp, i64, Timestamp)>) {
        self.until("a book", |it| it.best("asks").is_some());
        std::thread::scope(|scope| {
            let answer = self.begin(scope, Request::post("/trade", &trade("BUY", 1)));
            let mut looks = Vec::new();
            loop {
                let is_last = answer.is_finished();
                let began = Timestamp::now();
                let price = self.best("asks").unwrap();
                looks.push((began, price, Timestamp::now()));
                if is_last {
                    return (answer.join().unwrap().response.ok(200), looks);
                }
            }
        })
    }

    /// Checks that an order is delayed for this long, and gets the price of the end of its wait.
    fn check_wait(&self, wait: Duration) {
        let (order, looks) = self.buy_and_look();
        let delayed_ms = delayed_ms(&order);
        assert!(delayed_ms >= wait.as_millis() && delayed_ms < 10 * wait.as_millis(), "{order}");
        let row = self.orders().pop().unwrap();
        let filled_at: Timestamp = row["filled_at"].as_str().unwrap().parse().unwrap();
        let price = millionths(&order["price"]);
        let before = looks.iter().filter(|look| look.2 <= filled_at).map(|look| look.1);
        let after = looks.iter().filter(|look| look.0 >= filled_at).map(|look| look.1);
        let at_first = looks[0].1;
        let (before, after) = (before.max().unwrap(), after.min().unwrap());
        assert!(at_first < price, "{at_first} {price}: the book did not move");
        assert!(before <= price && price <= after, "{before} {price} {after}");
    }

    /// Checks that an order is not delayed, and gets the last price of the tape.
    fn check_end(&self) {
        let order = self.done(Request::post("/trade", &trade("BUY", 1))).ok(200);
        assert_eq!(order["held_ms"], json!(null));
        assert_eq!(millionths(&order["price"]), micros(&ask(MOVES)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wait_passes_in_the_time_of_the_tape() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path()).await;
    let played = tokio::task::spawn_blocking(move || {
        stretch(folder.path());
        let play = |speed| Served::play(folder.path(), &["--venue-speed", speed]);
        std::thread::scope(|scope| {
            scope.spawn(|| play("1").check_wait(WAIT));
            scope.spawn(|| play("max").check_end());
            let played = play("10");
            played.check_wait(WAIT / 10);
            played.server.logged("tape played to its end");
            played.check_end();
        });
    });
    played.await.unwrap();
}
