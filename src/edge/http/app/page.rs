//! The metrics page and its sources.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::{AppState, Server};
use crate::http::route::{operation_count, operation_names};
use crate::telemetry::{self, Gauges, LogSample, Metrics, Process, Scrape, ServingGauges};
#[cfg(feature = "cluster")]
use paperbourse_cluster::metrics::LogMetrics;
use paperbourse_core::clock;
use paperbourse_store::journal::Journal;
use paperbourse_store::snapshot::SnapshotMetrics;
use paperbourse_venue::follow::status::LiveStatus;

/// Sources of metrics outside the exchange; each is set once it exists. A standby has no other
/// sources.
#[derive(Default)]
pub struct Observed {
    /// The journal that a standby copies from the cluster's log.
    pub journal: OnceLock<Arc<Journal>>,
    /// Metrics of the snapshots, if data is kept on disk.
    pub snapshots: OnceLock<Arc<SnapshotMetrics>>,
    /// The status of the live venue's connector, while the node is a standby.
    pub live: OnceLock<LiveStatus>,
    /// Metrics of the cluster's log.
    #[cfg(feature = "cluster")]
    pub log: OnceLock<Arc<LogMetrics>>,
}

impl Server {
    /// Renders all metrics in the Prometheus text format.
    pub fn metrics_page(&self) -> String {
        let clock = clock::status();
        let app = self.app();
        let observed = &self.observed;
        let journal = app.map(|app| &app.journal).or(observed.journal.get());
        let live = app.map_or(observed.live.get(), |app| app.venue.live.as_ref());
        let gauges = Gauges {
            connections: self.connections.count(),
            body_bytes: self.bodies.held_bytes(),
            answer_bytes: self.answers.held_bytes(),
            journal_segment: journal.and_then(|journal| journal.segment()),
            is_journal_full: journal.is_some_and(|journal| journal.is_disk_full()),
            uptime: self.started.elapsed(),
            clock_jumps: clock.jumps_ever,
            clock_off_seconds: clock.jump.map_or(0, |jump| jump.seconds().unsigned_abs()),
        };
        let mut memory = app.map_or_else(Vec::new, |app| app.memory.lock().clone());
        if !memory.is_empty() {
            memory.push(("bodies", self.bodies.held_bytes()));
            memory.push(("answers", self.answers.held_bytes()));
            let unsent = app.map_or(0, |app| app.unsent.held_bytes());
            memory.push(("readers", unsent));
        }
        let workers = self.metrics.lock().clone();
        telemetry::render(&Scrape {
            workers: Metrics::sum(operation_count(self.has_clob), workers.iter().map(Arc::as_ref)),
            operations: operation_names(self.has_clob),
            gauges,
            serving: app.map(|app| app.gauges()),
            log: self.log_sample(journal),
            memory,
            process: Process::read(),
            journal: journal.and_then(|journal| journal.metrics()),
            snapshots: observed.snapshots.get().map(Arc::as_ref),
            live: live.map(LiveStatus::get),
            #[cfg(feature = "traces")]
            spans: self.traces.as_ref().map(|traces| traces.counts()),
            #[cfg(not(feature = "traces"))]
            spans: None,
        })
    }

    #[cfg(feature = "cluster")]
    fn log_sample(&self, journal: Option<&Arc<Journal>>) -> Option<LogSample<'_>> {
        let log = self.observed.log.get()?;
        let (position, epoch) = log.end().unzip();
        Some(LogSample {
            name: log.name(),
            is_owned: self.place.is_owner(),
            epoch,
            position,
            copied_position: journal.map(|journal| journal.durable_lsn().position()),
            answered_at_seconds: log.answered_at_seconds(),
            is_halted: log.is_halted(),
            append_us: log.append_us(),
        })
    }

    #[cfg(not(feature = "cluster"))]
    #[expect(clippy::unused_self, reason = "a node of a cluster has a log")]
    const fn log_sample(&self, _: Option<&Arc<Journal>>) -> Option<LogSample<'_>> {
        None
    }
}

impl AppState {
    fn gauges(&self) -> ServingGauges {
        let (service, markets) = (&self.service, self.service.markets());
        let listing = markets.listing();
        let fresh = listing.markets().iter().filter(|it| it.snapshot().has_fresh_book());
        ServingGauges {
            sockets: self.sockets.total(),
            streams: self.streams.total(),
            exports: self.exports.total(),
            unsent_bytes: self.unsent.held_bytes(),
            subscriptions: self.fanout.subscription_count(),
            conflated_frames: self.fanout.conflated_count(),
            streams_cut_off: self.streams_cut_off.load(Ordering::Relaxed),
            execution_sockets: service.fill_follower_count(),
            fill_frames: self.executions.fills(),
            gap_frames: self.executions.gaps(),
            markets: listing.markets().len(),
            fresh_markets: fresh.count(),
            markets_unsettled: markets.unsettled_count(),
            crossings: markets.crossings_waiting(),
            crossings_overflowed: markets.crossings_overflowed_count(),
            open_orders: service.open_orders().count(),
            delayed_orders: service.delayed_orders().count(),
            resting_fills: service.open_orders().fill_count(),
            accounts: service.account_count(),
            keys: service.key_count(),
            is_memory_full: service.room().is_full(),
            memory_limit_bytes: service.room().limit_bytes(),
        }
    }
}
