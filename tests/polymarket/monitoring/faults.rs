//! Alerts whose fault can be made: each fires for the server that has the fault, and for no other.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use super::bourse::{Bourse, Trader, admin_address};
use super::prometheus::Prometheus;
use super::*;
use crate::standin::{Endpoint, EndpointFault, Fault, Which};

/// Most of the descriptors that the process may have are open before it starts.
const INHERITED: &str = "ulimit -n 400; for number in $(seq 20 340); do \
                         eval \"exec $number</dev/null\"; done; exec \"$@\"";

/// From the fortieth sync of a thread on, each takes longer than the alert allows.
const SLOW_SYNCS: [&str; 7] = [
    "strace",
    "-D",
    "-f",
    "--quiet=all",
    "-o/dev/null",
    "-etrace=fdatasync",
    "-einject=fdatasync:delay_enter=8000000:when=40+",
];

/// Runs its arguments where this folder is a file system of a few megabytes.
const SMALL_DISK: &str = "mount -t tmpfs -o size=5m none \"$0\" && exec \"$@\"";

/// A machine that is busy with other things is slow for everybody, even to answer a scrape.
const OF_BUSY_MACHINES: [&str; 3] =
    ["PaperbourseDown", "PaperbourseJournalSlow", "PaperbourseTradesSlow"];

/// Sets a flag when it is dropped.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Trades until it is told to stop, or the server is gone.
fn keep_trading(mut trader: Trader, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        trader.trade();
    }
}

fn can_trace() -> bool {
    let can = Command::new("strace").arg("-V").output().is_ok();
    if !can {
        eprintln!("SKIPPED: strace is not installed: a disk that stalls was NOT tested");
    }
    can
}

fn can_mount() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let script = ["--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK];
    let mounted = Command::new("unshare").args(script).arg(folder.path()).arg("true").output();
    let can = mounted.is_ok_and(|it| it.status.success());
    if !can {
        eprintln!("SKIPPED: no file system can be mounted here: a full disk was NOT tested");
    }
    can
}

/// A folder as another process sees it, which has its own file systems.
fn seen_by(id: u32, folder: &Path) -> PathBuf {
    Path::new("/proc").join(id.to_string()).join("root").join(folder.strip_prefix("/").unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_fire_for_the_server_that_has_the_fault() {
    if !is_installed() {
        return;
    }
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || play(&venue));
    played.await.unwrap();
}

/// The servers that are scraped.
struct Servers {
    healthy: Bourse,
    cut_off: Served,
    small: Bourse,
    crowded: Bourse,
    many_files: Bourse,
    unsaved: Bourse,
    gone: Bourse,
    /// `None` if it cannot be made here, like the next.
    stalled: Option<Bourse>,
    full: Option<Bourse>,
    /// A server is started here again and again.
    restarting: SocketAddr,
}

impl Servers {
    /// Also returns somebody who trades where the disk is full.
    fn start(venue: &StandIn) -> (Self, Option<Trader>) {
        let cut_off = Served::start_with(venue, &["--admin-listen", "127.0.0.1:0"]);
        cut_off.until("books", Served::is_fresh);
        let (full, trader) = can_mount().then(full_disk).unzip();
        let servers = Self {
            healthy: Bourse::start(&[]),
            cut_off,
            small: Bourse::start(&["--memory-limit", "1"]),
            crowded: Bourse::start(&["--connections-max", "2"]),
            many_files: Bourse::start_under(&["bash", "-c", INHERITED, "bash"], &[]),
            unsaved: Bourse::start(&["--snapshot-bytes", "1"]),
            gone: Bourse::start(&[]),
            stalled: can_trace().then(|| Bourse::start_under(&SLOW_SYNCS, &[])),
            full,
            restarting: free_address(),
        };
        (servers, trader)
    }

    /// Each with the alerts that must fire for it.
    fn faulty(&self) -> Vec<(SocketAddr, &'static [&'static str])> {
        let mut faulty: Vec<(SocketAddr, &[&str])> = vec![
            (
                admin_address(&self.cut_off.server),
                &[
                    "PaperbourseMarketsStale",
                    "PaperbourseVenueSocketDown",
                    "PaperbourseUnavailable",
                ],
            ),
            (self.small.admin, &["PaperbourseMemoryLimitReached", "PaperbourseMemoryHigh"]),
            (self.crowded.admin, &["PaperbourseConnectionsRefused"]),
            (self.many_files.admin, &["PaperbourseDescriptorsHigh"]),
            (self.unsaved.admin, &["PaperbourseSnapshotFailing"]),
            (self.gone.admin, &["PaperbourseDown"]),
            (self.restarting, &["PaperbourseRestarting"]),
        ];
        if let Some(stalled) = &self.stalled {
            let alerts =
                &["PaperbourseJournalStalled", "PaperbourseJournalSlow", "PaperbourseTradesSlow"];
            faulty.push((stalled.admin, alerts));
        }
        if let Some(full) = &self.full {
            faulty.push((full.admin, &["PaperbourseJournalDiskFull"]));
        }
        faulty
    }
}

fn play(venue: &StandIn) {
    let (servers, full_trader) = Servers::start(venue);
    let faulty = servers.faulty();
    let healthy = servers.healthy.admin;
    let targets: Vec<SocketAddr> =
        faulty.iter().map(|(admin, _)| *admin).chain([healthy]).collect();
    let prometheus = Prometheus::start(&targets);
    // Counters rise only between two scrapes.
    until(|| {
        let up = prometheus.query("up == 1").len();
        // All but the one that has not started yet.
        if up + 1 >= targets.len() { Ok(()) } else { Err(format!("{up} servers are scraped")) }
    });

    let is_over = &AtomicBool::new(false);
    let fired = thread::scope(|scope| {
        // The threads must end even if the test fails.
        let _over = SetOnDrop(is_over);
        if let Some(trader) = full_trader {
            scope.spawn(move || keep_trading(trader, is_over));
        }
        for bourse in servers.stalled.iter().chain([&servers.healthy]) {
            scope.spawn(move || keep_trading(bourse.trader(&bourse.data()), is_over));
        }
        scope.spawn(|| lose_snapshots(&servers.unsaved, is_over));
        scope.spawn(|| lose_venue(venue, &servers.cut_off, is_over));
        scope.spawn(|| crowd(servers.crowded.server.address, is_over));
        scope.spawn(|| restart_often(servers.restarting, &prometheus, is_over));
        servers.gone.server.signal("-KILL");
        let mut fired = BTreeSet::new();
        until(|| {
            let firing = prometheus.firing();
            fired.extend(firing.iter().cloned());
            let wanted = faulty.iter().flat_map(|(admin, alerts)| {
                alerts.iter().map(move |alert| ((*alert).to_owned(), admin.to_string()))
            });
            let missing: Vec<_> = wanted.filter(|alert| !fired.contains(alert)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} among {firing:?}")) }
        });
        fired
    });
    let of_healthy = fired.iter().filter(|(_, at)| *at == healthy.to_string());
    let at_healthy: Vec<_> =
        of_healthy.filter(|(alert, _)| !OF_BUSY_MACHINES.contains(&&**alert)).collect();
    assert!(at_healthy.is_empty(), "nothing is wrong there: {at_healthy:?}");
}

/// Puts a file in the place of the folder of snapshots, and fills segments.
fn lose_snapshots(bourse: &Bourse, is_over: &AtomicBool) {
    // There may be no snapshot yet.
    let _ = fs::remove_dir_all(bourse.data().join("snapshots"));
    fs::write(bourse.data().join("snapshots"), "").unwrap();
    keep_trading(bourse.trader(&bourse.data()), is_over);
}

/// The venue falls silent, and a bot goes on.
fn lose_venue(venue: &StandIn, served: &Served, is_over: &AtomicBool) {
    venue.misbehave(Which::Every, Fault::Freeze { has_pong: false });
    let refused = EndpointFault::Refuse { status: 503, retry_after_s: None };
    venue.misbehave_at(Endpoint::Books, refused, u32::MAX);
    while !is_over.load(Ordering::Relaxed) {
        served.buy();
    }
}

/// Opens more connections than are allowed.
fn crowd(address: SocketAddr, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let open: Vec<_> = (0..4).map(|_| Connection::try_open(address)).collect();
        thread::park_timeout(CHECK_INTERVAL);
        drop(open);
    }
}

/// A server whose disk is full when it has to make the next segment, and somebody who trades.
fn full_disk() -> (Bourse, Trader) {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().to_str().unwrap();
    let wrapper = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, disk];
    let server = Bourse::spawn(&wrapper, &folder.path().join("data"), &[]);
    let bourse = Bourse { admin: admin_address(&server), server, folder };
    let disk = seen_by(bourse.server.id(), bourse.folder.path());
    let trader = bourse.trader(&disk.join("data"));
    fill(&disk.join("filler"));
    (bourse, trader)
}

fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

/// An address that nobody listens on.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Starts a server here, kills it once it was scraped, and starts the next.
fn restart_often(admin: SocketAddr, prometheus: &Prometheus, is_over: &AtomicBool) {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--admin-listen", &admin.to_string()];
    let starts = format!("process_start_time_seconds{{instance=\"{admin}\"}}");
    let mut seen = Value::Null;
    while !is_over.load(Ordering::Relaxed) {
        let server = Bourse::spawn(&[], &folder.path().join("data"), &flags);
        while !is_over.load(Ordering::Relaxed) {
            let series = prometheus.query(&starts);
            if let Some(start) = series.first().map(|it| it["value"][1].clone())
                && start != seen
            {
                seen = start;
                break;
            }
            thread::park_timeout(CHECK_INTERVAL);
        }
        server.kill();
    }
}
