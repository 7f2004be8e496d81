//! Tests of the page as a whole.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;
use crate::build::BUILD;
use crate::ws::close::CloseReason;
use crate::ws::connection::Ended;
use paperbourse_core::histogram::Histogram;
use paperbourse_core::limits::tier::Tier;
use paperbourse_exchange::service::RateRule;
use paperbourse_store::journal::JournalMetrics;
use paperbourse_store::snapshot::SnapshotMetrics;
use paperbourse_venue::follow::freshness::Freshness;
use paperbourse_venue::follow::status::{LiveSnapshot, SocketSnapshot};

fn scrape(workers: Metrics) -> Scrape<'static> {
    Scrape {
        workers,
        operations: ["POST /trade", "GET /v1/orders/{order_id}", "none"].map(Into::into).into(),
        gauges: Gauges::default(),
        serving: None,
        log: None,
        memory: Vec::new(),
        process: Process::default(),
        journal: None,
        snapshots: None,
        live: None,
        spans: None,
    }
}

/// The sum of two workers that have done a little of everything.
fn busy_workers() -> Metrics {
    let parts = [Metrics::new(2), Metrics::new(2)];
    for part in &parts {
        part.answered(0, 200, Duration::from_micros(100));
        part.orders_filled.increment();
        part.rate_limited(RateRule::Second(Tier::Pro));
    }
    parts[0].answered(0, 503, Duration::from_secs(20));
    parts[0].answered(2, 404, Duration::from_micros(1));
    parts[0].socket_ended(Ended::Closed(CloseReason::TooSlow));
    Metrics::sum(2, &parts)
}

#[test]
fn the_page_is_prometheus_text() {
    let journal = JournalMetrics::default();
    journal.flush_us.record(100);
    journal.batch_records.record(1);
    let snapshots = SnapshotMetrics::default();
    snapshots.covered_segment.store(7, Ordering::Relaxed);
    snapshots.elapsed_ms.store(1_500, Ordering::Relaxed);
    let page = render(&Scrape {
        serving: Some(ServingGauges { sockets: 3, ..ServingGauges::default() }),
        gauges: Gauges {
            clock_jumps: 2,
            clock_off_seconds: 3_600,
            journal_segment: Some(8),
            uptime: Duration::from_millis(2_900),
            ..Gauges::default()
        },
        memory: vec![("accounts", 96), ("orders", 160)],
        process: Process { cpu_seconds: Some(1.25), open_files: Some(9), ..Process::default() },
        journal: Some(&journal),
        snapshots: Some(&snapshots),
        live: Some(LiveSnapshot {
            tokens: [1, 4, 0, 0, 0],
            frames: 9,
            by_socket: vec![
                SocketSnapshot { state: Freshness::Live, frames: 8, frame_received_at: None },
                SocketSnapshot { state: Freshness::Stale, frames: 1, frame_received_at: None },
            ],
            ..LiveSnapshot::default()
        }),
        ..scrape(busy_workers())
    });
    let trades = "paperbourse_http_request_duration_seconds_bucket{operation=\"POST /trade\"";
    for line in [
        &format!(
            "paperbourse_build_info{{version=\"{}\",commit=\"{}\",commit_date=\"{}\",\
             features=\"{}\",journal_format=\"{}\",snapshot_format=\"{}\"}} 1",
            env!("CARGO_PKG_VERSION"),
            BUILD.commit.unwrap_or("unknown"),
            BUILD.commit_date.unwrap_or("unknown"),
            BUILD.features(),
            BUILD.data_format.journal,
            BUILD.data_format.snapshots,
        ),
        "paperbourse_uptime_seconds 2",
        "paperbourse_http_requests_total{operation=\"POST /trade\",status=\"200\"} 2",
        "paperbourse_http_requests_total{operation=\"POST /trade\",status=\"503\"} 1",
        "paperbourse_http_requests_total{operation=\"none\",status=\"404\"} 1",
        &format!("{trades},le=\"0.000064\"}} 0"),
        &format!("{trades},le=\"0.000128\"}} 2"),
        &format!("{trades},le=\"16.777216\"}} 2"),
        &format!("{trades},le=\"+Inf\"}} 3"),
        "paperbourse_http_request_duration_seconds_sum{operation=\"POST /trade\"} 20.0002",
        "paperbourse_http_request_duration_seconds_count{operation=\"POST /trade\"} 3",
        "paperbourse_http_request_duration_seconds_bucket{operation=\"none\",le=\"0.000016\"} 1",
        "paperbourse_rate_limited_requests_total{rule=\"second\",tier=\"pro\"} 2",
        "paperbourse_rate_limited_requests_total{rule=\"address\",tier=\"\"} 0",
        "paperbourse_websockets_closed_total{reason=\"too_slow\"} 1",
        "paperbourse_websockets_closed_total{reason=\"gone\"} 0",
        "paperbourse_orders_filled_total 2",
        "paperbourse_websocket_connections 3",
        "paperbourse_system_clock_jumps_total 2",
        "paperbourse_system_clock_offset_seconds 3600",
        "paperbourse_journal_flush_seconds_bucket{le=\"0.000064\"} 0",
        "paperbourse_journal_flush_seconds_bucket{le=\"0.000128\"} 1",
        "paperbourse_journal_flush_seconds_bucket{le=\"+Inf\"} 1",
        "paperbourse_journal_flush_seconds_sum 0.0001",
        "paperbourse_journal_flush_seconds_count 1",
        "paperbourse_journal_flush_records_bucket{le=\"1\"} 1",
        "paperbourse_journal_unflushed_seconds 0",
        "paperbourse_journal_segment 8",
        "paperbourse_journal_disk_full 0",
        "paperbourse_snapshot_segment 7",
        "paperbourse_snapshot_failures_total 0",
        "paperbourse_snapshot_duration_seconds 1.5",
        "paperbourse_venue_tokens{state=\"live\"} 4",
        "paperbourse_venue_sockets{state=\"stale\"} 0",
        "paperbourse_venue_frames_total 9",
        "paperbourse_venue_socket_live{socket=\"0\"} 1",
        "paperbourse_venue_socket_live{socket=\"1\"} 0",
        "paperbourse_venue_socket_frames_total{socket=\"0\"} 8",
        "paperbourse_venue_last_frame_timestamp_seconds 0",
        "paperbourse_venue_frame_delay_seconds_bucket{le=\"0.0000125\"} 0",
        "paperbourse_venue_frame_delay_seconds_bucket{le=\"+Inf\"} 0",
        "paperbourse_venue_frame_delay_seconds_sum 0",
        "paperbourse_memory_bytes{part=\"orders\"} 160",
        "process_cpu_seconds_total 1.25",
        "process_open_fds 9",
    ] {
        assert!(page.lines().any(|other| other == line), "no {line:?} in\n{page}");
    }
    for left_out in ["GET /v1/orders/{order_id}", "process_max_fds", "memory_limit_bytes"] {
        assert!(!page.contains(left_out), "{left_out} has no sample:\n{page}");
    }
}

#[test]
fn a_node_shows_its_log() {
    let append_us = Histogram::default();
    append_us.record(2_000);
    let page = render(&Scrape {
        log: Some(LogSample {
            name: "bourse-0",
            is_owned: true,
            epoch: Some(4),
            position: Some(12),
            copied_position: Some(11),
            answered_at_seconds: 1_800_000_000,
            is_halted: false,
            append_us: &append_us,
        }),
        ..scrape(Metrics::new(2))
    });
    for line in [
        "paperbourse_cluster_owner{log=\"bourse-0\"} 1",
        "paperbourse_cluster_epoch{log=\"bourse-0\"} 4",
        "paperbourse_cluster_position{log=\"bourse-0\"} 12",
        "paperbourse_cluster_copied_position{log=\"bourse-0\"} 11",
        "paperbourse_cluster_broker_answer_timestamp_seconds{log=\"bourse-0\"} 1800000000",
        "paperbourse_cluster_halted{log=\"bourse-0\"} 0",
        "paperbourse_cluster_append_seconds_bucket{log=\"bourse-0\",le=\"0.001024\"} 0",
        "paperbourse_cluster_append_seconds_bucket{log=\"bourse-0\",le=\"0.002048\"} 1",
    ] {
        assert!(page.lines().any(|other| other == line), "no {line:?} in\n{page}");
    }
}

#[test]
fn what_the_server_does_not_have_is_not_on_the_page() {
    let page = render(&scrape(Metrics::new(2)));
    for left_out in
        ["journal", "snapshot", "venue", "http", "process", "trace", "cluster", "markets", "keys"]
    {
        assert!(!page.contains(&format!("_{left_out}")), "{left_out}:\n{page}");
    }
    assert!(page.contains("paperbourse_orders_filled_total 0"), "{page}");
}

#[test]
fn rows_follow_the_naming_rules() {
    let mut names = HashSet::new();
    for Metric { name, kind, help, labels, .. } in &METRICS {
        assert!(names.insert(name), "{name} is listed twice");
        let body = name.strip_prefix("paperbourse_").or(name.strip_prefix("process_"));
        let body = body.unwrap_or_else(|| panic!("{name} has another prefix"));
        assert!(body.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_')), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name} is a {kind:?}");
        assert!(help.ends_with('.') && help.starts_with(char::is_uppercase), "{name}: {help}");
        assert!(!labels.contains(&"le"), "{name}");
    }
}
