//! A real fault for each alert, which must fire for the server that has the fault and for no
//! healthy one.

mod system;
mod venue;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use paperbourse_test_support::NOBODY;
use paperbourse_test_support::address::own_address;

use super::bourse::{Bourse, Trader};
use super::prometheus::Prometheus;
use super::*;
use system::BrokenSystem;

/// Most of the descriptors that the process may have are open before it starts.
const INHERITED: &str = "ulimit -n 400; for number in $(seq 20 340); do \
                         eval \"exec $number</dev/null\"; done; exec \"$@\"";

/// A machine that is busy with other things is slow for everybody, even to answer a scrape.
const OF_BUSY_MACHINES: [&str; 3] =
    ["PaperbourseDown", "PaperbourseJournalSlow", "PaperbourseTradesSlow"];

/// Live venues, by what becomes of them.
struct Venues {
    silent: StandIn,
    liar: StandIn,
    busy: StandIn,
}

/// A server, the alerts that must fire for it, and what makes its fault.
struct Faulty<'v> {
    admin: SocketAddr,
    alerts: &'static [&'static str],
    make: Box<dyn FnOnce(&Stage<'_>) + Send + 'v>,
}

/// What faults are made with.
struct Stage<'s> {
    prometheus: &'s Prometheus,
    is_over: &'s AtomicBool,
}

/// Ends the faults when it is dropped, so that their threads end even if the test fails.
struct Curtain<'f>(&'f AtomicBool);

impl Drop for Curtain<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<'v> Faulty<'v> {
    fn new(
        bourse: Bourse,
        alerts: &'static [&'static str],
        make: impl FnOnce(&Bourse, &Stage<'_>) + Send + 'v,
    ) -> Self {
        let admin = bourse.admin;
        let make = move |stage: &Stage<'_>| {
            make(&bourse, stage);
            // The server stays until then.
            while !stage.is_over_soon() {}
        };
        Self { admin, alerts, make: Box::new(make) }
    }
}

impl Stage<'_> {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// The same, after a moment.
    fn is_over_soon(&self) -> bool {
        thread::park_timeout(CHECK_INTERVAL);
        self.is_over()
    }

    /// What is refused with 503 is in the output of a test that fails.
    fn keep_trading(&self, mut trader: Trader) {
        let mut seen = BTreeSet::new();
        while !self.is_over() {
            let response = trader.order();
            if response.status == 503 {
                let code = response.json()["error"].to_string();
                if seen.insert(code.clone()) {
                    println!("a server refuses trades: {code}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_alert_fires_for_the_server_that_has_its_fault() {
    if !is_installed() {
        return;
    }
    let start = || StandIn::start(World::invented(2), Options::default());
    let venues = Venues { silent: start().await, liar: start().await, busy: start().await };
    tokio::task::spawn_blocking(move || play(&venues)).await.unwrap();
}

/// The faults that can be made everywhere.
fn faults(venues: &Venues) -> Vec<Faulty<'_>> {
    let Venues { silent, liar, busy } = venues;
    let without_provider = venue::without_provider();
    vec![
        Faulty::new(Bourse::start(&[]), &["PaperbourseDown"], |bourse, _| {
            bourse.server.signal("-KILL");
        }),
        restarts(),
        Faulty::new(
            Bourse::start(&["--memory-limit", "1"]),
            &["PaperbourseMemoryLimitReached", "PaperbourseMemoryHigh"],
            |_, _| {},
        ),
        Faulty::new(
            Bourse::start(&["--connections-max", "2"]),
            &["PaperbourseConnectionsRefused"],
            system::crowd,
        ),
        Faulty::new(
            Bourse::start_under(&["bash", "-c", INHERITED, "bash"], &[]),
            &["PaperbourseDescriptorsHigh"],
            |_, _| {},
        ),
        Faulty::new(
            Bourse::start(&["--snapshot-bytes", "1"]),
            &["PaperbourseSnapshotFailing"],
            system::lose_snapshots,
        ),
        Faulty::new(
            venue::follower(silent),
            &["PaperbourseMarketsStale", "PaperbourseVenueSocketDown", "PaperbourseUnavailable"],
            |bourse, stage| venue::fall_silent(silent, bourse, stage),
        ),
        Faulty::new(venue::follower(liar), &["PaperbourseBooksWrong"], |_, stage| {
            venue::lie(liar, stage);
        }),
        Faulty::new(venue::follower(busy), &["PaperbourseCrossingsOverflowed"], |bourse, stage| {
            venue::burst(busy, bourse, stage);
        }),
        Faulty::new(
            Bourse::start(&without_provider.each_ref().map(String::as_str)),
            &["PaperbourseUnavailable"],
            venue::ask_with_token,
        ),
    ]
}

/// The faults that not every machine can make, and the alerts of those that this one cannot.
fn faults_of_system<'v>(
    venues: &'v Venues,
    broken: &'v [BrokenSystem; 2],
) -> (Vec<Faulty<'v>>, Vec<&'static str>) {
    let (mut faults, mut skipped) = (Vec::new(), Vec::new());
    let mut can = |lack: Option<&str>, alerts: &'static [&'static str]| {
        if let Some(lack) = lack {
            eprintln!("SKIPPED: {lack}: the faults of {alerts:?} were NOT made");
            skipped.extend(alerts);
        }
        lack.is_none()
    };
    let alerts = &["PaperbourseClockJumped"];
    let [jumping, predictable] = broken;
    if can(BrokenSystem::lack(), alerts) {
        faults.push(Faulty::new(jumping.start(), alerts, |_, _| jumping.jump_clock()));
    }
    let alerts = &["PaperbourseInternalErrors"];
    if can(BrokenSystem::lack(), alerts) {
        faults.push(Faulty::new(predictable.start(), alerts, |bourse, stage| {
            predictable.lose_random_bytes(bourse, stage);
        }));
    }
    let alerts = &["PaperbourseJournalStalled", "PaperbourseJournalSlow", "PaperbourseTradesSlow"];
    if can(system::lack_of_tracing(), alerts) {
        let bourse = Bourse::start_under(&system::SLOW_SYNCS, &["--journal-sync", "fdatasync"]);
        faults.push(Faulty::new(bourse, alerts, |bourse, stage| {
            stage.keep_trading(bourse.trader(&bourse.data()));
        }));
    }
    let alerts = &["PaperbourseJournalDiskFull"];
    if can(system::lack_of_mounts(), alerts) {
        let (bourse, trader) = system::on_small_disk(&[]);
        faults.push(Faulty::new(bourse, alerts, |bourse, stage| {
            system::fill_disk(bourse);
            stage.keep_trading(trader);
        }));
    }
    let alerts = &["PaperbourseSettlementLate"];
    if can(system::lack_of_mounts(), alerts) {
        let flags = venue::following(&venues.busy);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let (bourse, trader) = system::on_small_disk(&flags);
        faults.push(Faulty::new(bourse, alerts, |bourse, stage| {
            system::fill_disk(bourse);
            venue::resolve_unpaid(&venues.busy, trader, stage);
        }));
    }
    (faults, skipped)
}

fn play(venues: &Venues) {
    let broken = [BrokenSystem::new(), BrokenSystem::new()];
    let mut faults = faults(venues);
    let (of_system, skipped) = faults_of_system(venues, &broken);
    faults.extend(of_system);
    let wanted: BTreeSet<(String, String)> = faults
        .iter()
        .flat_map(|it| it.alerts.iter().map(|alert| ((*alert).to_owned(), it.admin.to_string())))
        .collect();
    let made = wanted.iter().map(|(alert, _)| alert.as_str()).chain(skipped);
    assert_eq!(made.collect::<BTreeSet<_>>(), alerts().iter().map(String::as_str).collect());
    let healthy = Bourse::start(&[]);
    let targets: Vec<SocketAddr> =
        faults.iter().map(|it| it.admin).chain([healthy.admin]).collect();
    let prometheus = Prometheus::start(&targets);
    // Counters rise only between two scrapes.
    until(|| {
        let up = prometheus.query("up == 1").len();
        // All but the one that has not started yet.
        if up + 1 >= targets.len() { Ok(()) } else { Err(format!("{up} servers are scraped")) }
    });

    let stage = &Stage { prometheus: &prometheus, is_over: &AtomicBool::new(false) };
    let fired = thread::scope(|scope| {
        let _curtain = Curtain(stage.is_over);
        scope.spawn(|| stage.keep_trading(healthy.trader(&healthy.data())));
        for fault in faults {
            scope.spawn(move || (fault.make)(stage));
        }
        let mut fired = BTreeSet::new();
        until(|| {
            let firing = prometheus.firing();
            fired.extend(firing.iter().cloned());
            let missing: Vec<_> = wanted.difference(&fired).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} among {firing:?}")) }
        });
        fired
    });
    let of_healthy = fired.iter().filter(|(_, at)| *at == healthy.admin.to_string());
    let at_healthy: Vec<_> =
        of_healthy.filter(|(alert, _)| !OF_BUSY_MACHINES.contains(&&**alert)).collect();
    assert!(at_healthy.is_empty(), "nothing is wrong there: {at_healthy:?}");
}

/// The names of all alerts.
fn alerts() -> Vec<String> {
    let rules = fs::read_to_string(monitoring("alerts.yml")).unwrap();
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    // The tests of clusters look at what theirs are made of.
    let names = names.filter(|name| !name.starts_with("PaperbourseCluster"));
    names.map(str::to_owned).collect()
}

/// A server that is killed once it was scraped, again and again.
fn restarts() -> Faulty<'static> {
    let admin = own_address();
    let make = move |stage: &Stage<'_>| {
        let folder = tempfile::tempdir().unwrap();
        let flags = ["--admin-listen", &admin.to_string()];
        let starts = format!("process_start_time_seconds{{instance=\"{admin}\"}}");
        let mut seen = Value::Null;
        while !stage.is_over() {
            let server = Bourse::spawn(&[], &folder.path().join("data"), &flags);
            while !stage.is_over_soon() {
                let series = stage.prometheus.query(&starts);
                if let Some(start) = series.first().map(|it| it["value"][1].clone())
                    && start != seen
                {
                    seen = start;
                    break;
                }
            }
            server.kill();
        }
    };
    Faulty { admin, alerts: &["PaperbourseRestarting"], make: Box::new(make) }
}
