//! Orders that are delayed while the disk is full: to decide one takes a record.
//!
//! `PAPERBOURSE_SMALL_DISK` names a separate file system of about 6 MB. `.ci/run` mounts one.

use std::io::Write;
use std::path::{Path, PathBuf};

use paperbourse_test_support::Connection;

use super::*;

/// More trades than fit into two segments of a MiB, each in a block of its own.
const TRADES_MAX: usize = 4_096;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delayed_orders_wait_for_room_and_a_shutdown_does_not() {
    let Some(disk) = std::env::var_os("PAPERBOURSE_SMALL_DISK").map(PathBuf::from) else {
        eprintln!(
            "SKIPPED: PAPERBOURSE_SMALL_DISK names no file system: delayed orders on a full disk \
             were NOT tested"
        );
        return;
    };
    let venue = StandIn::start(world(LONG), Options::default()).await;
    tokio::task::spawn_blocking(move || play_on(&disk, &venue)).await.unwrap();
}

fn play_on(disk: &Path, venue: &StandIn) {
    let filler = disk.join("filler");
    let mut served = Served::start_on(disk, venue);
    served.until_fresh();

    let (mut first, began) = served.delay_on_full_disk(&filler, "first");
    let overdue = LONG + Duration::from_secs(1);
    served.until("the end of the wait", |_| began.elapsed() > overdue);
    assert_eq!(served.delayed().len(), 1);
    std::fs::remove_file(&filler).unwrap();
    let filled = first.read(false).ok(200);
    assert!(delayed_ms(&filled) > overdue.as_millis(), "{filled}");
    assert_eq!(served.delayed().len(), 0);

    let (mut second, _) = served.delay_on_full_disk(&filler, "second");
    served.server.signal("-TERM");
    assert_eq!(served.server.wait().code(), Some(0));
    assert_eq!(served.server.log_lines("exiting anyway held_orders=1").len(), 1);
    assert!(second.is_ended(), "without an answer");
    std::fs::remove_file(&filler).unwrap();
    let served = served.restart(venue, &["--venue-markets", "2"]);
    served.until("a decision", |it| it.delayed().is_empty());
    served.until_fresh();
    assert_eq!(served.done(market("second")).ok(200)["status"], "FILLED");
    assert!(served.done(market("first")).is_replay());
}

fn market(name: &str) -> Request {
    Request::post("/trade", &trade("BUY", 5)).named(name)
}

impl Served {
    /// Places an order that is delayed, and uses up the disk before it is decided.
    fn delay_on_full_disk(&self, filler: &Path, name: &str) -> (Connection, Instant) {
        fill(filler);
        let mut waiting = Connection::open(self.server.address);
        waiting.write(&self.signed(market(name)).to_bytes());
        self.until_delayed(1);
        let began = Instant::now();
        let mut connection = Connection::open(self.server.address);
        let trades = (0..TRADES_MAX).map(|number| {
            let mut order = trade(if number.is_multiple_of(2) { "BUY" } else { "SELL" }, 1);
            order["market_id"] = condition_id(0).into();
            connection.send(&self.signed(Request::post("/trade", &order)))
        });
        let refused = trades.into_iter().find(|answer| answer.status != 200);
        let refused = refused.expect("the disk is full").json();
        assert_eq!(refused["error"], "JOURNAL_FULL", "{refused}");
        assert_eq!(self.delayed().len(), 1, "the disk was used up in time");
        (waiting, began)
    }
}

/// Writes a file until the disk is full.
fn fill(filler: &Path) {
    let mut file = std::fs::File::create(filler).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}
