//! The table of metrics, one row each.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::counters::{OTHER_STATUS, OperationMetrics};
use super::page::{Metric, Samples};
use super::scrape::{LogSample, Scrape, ServingGauges};
use crate::build::{BUILD, Build, UNKNOWN, VERSION};
use paperbourse_core::histogram::{BUCKET_COUNT, Histogram};
use paperbourse_core::ids::Timestamp;
use paperbourse_store::journal::JournalMetrics;
use paperbourse_store::snapshot::SnapshotMetrics;
use paperbourse_venue::follow::freshness::{Freshness, StateCounts};
use paperbourse_venue::follow::status::{LiveSnapshot, SocketSnapshot};

/// All metrics, in the order of the page.
pub static METRICS: [Metric; 87] = [
    Metric::gauge(
        "paperbourse_build_info",
        "Always 1; the labels are the version, the commit and its day, the features, and the \
         formats in which data is written.",
        |_, out| {
            let Build { commit, commit_date, data_format, .. } = &*BUILD;
            let [journal, snapshots] =
                [data_format.journal, data_format.snapshots].map(|version| version.to_string());
            let (commit, date) = (commit.unwrap_or(UNKNOWN), commit_date.unwrap_or(UNKNOWN));
            let features = BUILD.features();
            out.sample(&[VERSION, commit, date, &features, &journal, &snapshots], 1);
        },
    )
    .by(&["version", "commit", "commit_date", "features", "journal_format", "snapshot_format"]),
    Metric::gauge("paperbourse_uptime_seconds", "Time since the server started.", |from, out| {
        out.value(from.gauges.uptime.as_secs());
    }),
    Metric::counter(
        "paperbourse_http_requests_total",
        "Requests answered, by operation and status. Operation `none` is of requests that match \
         no operation.",
        |from, out| {
            for (name, operation) in from.operations.iter().zip(from.workers.operations()) {
                for (status, count) in operation.by_status() {
                    let status = status.map(|status| status.to_string());
                    out.sample(&[name, status.as_deref().unwrap_or(OTHER_STATUS)], count);
                }
            }
        },
    )
    .by(&["operation", "status"]),
    Metric::histogram(
        "paperbourse_http_request_duration_seconds",
        "Time from the head of a request to its answer, by operation. Receiving the body and \
         waiting for the disk are included, sending the answer is not.",
        |from, out| {
            for (name, operation) in from.operations.iter().zip(from.workers.operations()) {
                if operation.by_status().next().is_some() {
                    out.histogram(&[name], &operation.duration_us, 4..=24, 1e6);
                }
            }
        },
    )
    .by(&["operation"]),
    // A separate metric: the series of requests with status 500 starts only with the first such
    // request, so no alert could see it rise from 0.
    Metric::counter(
        "paperbourse_internal_errors_total",
        "Requests answered with status 500. Each is a bug, and logged.",
        |from, out| {
            let statuses = from.workers.operations().iter().flat_map(OperationMetrics::by_status);
            let errors = statuses.filter(|&(status, _)| status == Some(500));
            out.value(errors.map(|(_, count)| count).sum::<u64>());
        },
    ),
    Metric::counter(
        "paperbourse_rate_limited_requests_total",
        "Requests refused by a rate limit, by rule, and by tier where the tier sets the limit.",
        |from, out| {
            for (rule, count) in from.workers.rate_limited_by_rule() {
                let tier = rule.tier().map_or("", |tier| tier.as_str());
                out.sample(&[rule.as_str(), tier], count);
            }
        },
    )
    .by(&["rule", "tier"]),
    Metric::gauge("paperbourse_connections", "Open client connections.", |from, out| {
        out.value(from.gauges.connections);
    }),
    Metric::counter(
        "paperbourse_connections_refused_total",
        "Connections refused by a connection limit.",
        |from, out| out.value(from.workers.connections_refused.get()),
    ),
    Metric::gauge("paperbourse_websocket_connections", "Open client WebSockets.", |from, out| {
        out.maybe(serving(from, |it| it.sockets));
    }),
    Metric::gauge(
        "paperbourse_execution_websocket_connections",
        "Open client WebSockets that stream executions.",
        |from, out| out.maybe(serving(from, |it| it.execution_sockets)),
    ),
    Metric::counter(
        "paperbourse_websockets_closed_total",
        "Client WebSockets that ended, by reason.",
        |from, out| {
            for (reason, count) in from.workers.sockets_by_end() {
                out.sample(&[reason], count);
            }
        },
    )
    .by(&["reason"]),
    Metric::gauge(
        "paperbourse_price_streams",
        "Open streams of server-sent prices.",
        |from, out| {
            out.maybe(serving(from, |it| it.streams));
        },
    ),
    Metric::counter(
        "paperbourse_price_streams_cut_off_total",
        "Price streams cut off because their clients read too slowly.",
        |from, out| out.maybe(serving(from, |it| it.streams_cut_off)),
    ),
    Metric::gauge(
        "paperbourse_price_subscriptions",
        "Markets that sockets and streams are subscribed to, counted once for each of them.",
        |from, out| out.maybe(serving(from, |it| it.subscriptions)),
    ),
    Metric::gauge(
        "paperbourse_unsent_bytes",
        "Memory held by frames and events that clients of sockets and streams have yet to read.",
        |from, out| out.maybe(serving(from, |it| it.unsent_bytes)),
    ),
    Metric::counter(
        "paperbourse_price_frames_conflated_total",
        "Price frames that stand for several because the reader or the server could not keep up.",
        |from, out| out.maybe(serving(from, |it| it.conflated_frames)),
    ),
    Metric::gauge("paperbourse_exports", "Exports that are being sent.", |from, out| {
        out.maybe(serving(from, |it| it.exports));
    }),
    Metric::counter(
        "paperbourse_execution_fills_total",
        "Fills sent to execution sockets.",
        |from, out| out.maybe(serving(from, |it| it.fill_frames)),
    ),
    Metric::counter(
        "paperbourse_execution_gaps_total",
        "Times that an execution socket had missed fills that are no longer kept.",
        |from, out| out.maybe(serving(from, |it| it.gap_frames)),
    ),
    Metric::gauge("paperbourse_accounts", "Accounts.", |from, out| {
        out.maybe(serving(from, |it| it.accounts));
    }),
    Metric::gauge(
        "paperbourse_api_keys",
        "API keys, ended ones that are kept included.",
        |from, out| out.maybe(serving(from, |it| it.keys)),
    ),
    Metric::counter(
        "paperbourse_orders_filled_total",
        "Orders filled when they were placed.",
        |from, out| out.value(from.workers.orders_filled.get()),
    ),
    Metric::counter(
        "paperbourse_orders_rested_total",
        "Orders that rested when they were placed.",
        |from, out| out.value(from.workers.orders_rested.get()),
    ),
    Metric::counter(
        "paperbourse_orders_killed_total",
        "Orders that had to fill at once and filled nothing.",
        |from, out| out.value(from.workers.orders_killed.get()),
    ),
    Metric::counter(
        "paperbourse_orders_cancelled_total",
        "Open orders cancelled by their accounts.",
        |from, out| out.value(from.workers.orders_cancelled.get()),
    ),
    Metric::counter(
        "paperbourse_orders_replayed_total",
        "Orders sent again and answered with their first result.",
        |from, out| out.value(from.workers.orders_replayed.get()),
    ),
    Metric::counter(
        "paperbourse_orders_rejected_total",
        "Orders rejected by a rule.",
        |from, out| out.value(from.workers.orders_rejected.get()),
    ),
    Metric::counter("paperbourse_resting_fills_total", "Fills of open orders.", |from, out| {
        out.maybe(serving(from, |it| it.resting_fills));
    }),
    Metric::gauge("paperbourse_open_orders", "Open orders.", |from, out| {
        out.maybe(serving(from, |it| it.open_orders));
    }),
    Metric::gauge(
        "paperbourse_held_orders",
        "Open orders that wait as long as the venue delays them.",
        |from, out| out.maybe(serving(from, |it| it.delayed_orders)),
    ),
    Metric::gauge(
        "paperbourse_crossings_waiting",
        "Books that may fill open orders and have not reached the shards.",
        |from, out| out.maybe(serving(from, |it| it.crossings)),
    ),
    Metric::counter(
        "paperbourse_crossings_overflowed_total",
        "Books that might fill open orders but found the queue full.",
        |from, out| out.maybe(serving(from, |it| it.crossings_overflowed)),
    ),
    Metric::counter(
        "paperbourse_comments_added_total",
        "Comments added to orders.",
        |from, out| {
            out.value(from.workers.comments_added.get());
        },
    ),
    Metric::gauge("paperbourse_markets", "Markets in the catalogue.", |from, out| {
        out.maybe(serving(from, |it| it.markets));
    }),
    Metric::gauge(
        "paperbourse_fresh_markets",
        "Markets in which orders can fill: open, with a book that is not stale.",
        |from, out| out.maybe(serving(from, |it| it.fresh_markets)),
    ),
    Metric::gauge(
        "paperbourse_unsettled_markets",
        "Resolved markets with positions left to pay.",
        |from, out| out.maybe(serving(from, |it| it.markets_unsettled)),
    ),
    Metric::histogram(
        "paperbourse_journal_flush_seconds",
        "Duration of a journal flush: write and sync.",
        |from, out| journal(from, out, |journal| (&journal.flush_us, 1e6)),
    ),
    Metric::histogram(
        "paperbourse_journal_flush_records",
        "Records per journal flush.",
        |from, out| journal(from, out, |journal| (&journal.batch_records, 1.0)),
    ),
    Metric::histogram(
        "paperbourse_journal_flush_bytes",
        "Bytes per journal flush.",
        |from, out| journal(from, out, |journal| (&journal.batch_bytes, 1.0)),
    ),
    Metric::gauge(
        "paperbourse_journal_unflushed_seconds",
        "Age of the oldest unflushed record.",
        |from, out| {
            out.maybe(from.journal.map(|journal| journal.unflushed_age().as_secs_f64()));
        },
    ),
    Metric::gauge(
        "paperbourse_journal_segment",
        "Journal segment that is being written.",
        |from, out| out.maybe(from.gauges.journal_segment),
    ),
    Metric::gauge(
        "paperbourse_journal_disk_full",
        "Whether the disk was full when the journal last needed space: 1 or 0.",
        |from, out| {
            out.maybe(from.journal.map(|_| u8::from(from.gauges.is_journal_full)));
        },
    ),
    Metric::counter("paperbourse_snapshots_total", "Snapshots taken.", |from, out| {
        out.maybe(snapshot(from, |it| &it.made));
    }),
    Metric::counter(
        "paperbourse_snapshot_failures_total",
        "Snapshots that failed.",
        |from, out| {
            out.maybe(snapshot(from, |it| &it.failed));
        },
    ),
    Metric::gauge(
        "paperbourse_snapshot_segment",
        "Last journal segment that the newest snapshot covers.",
        |from, out| out.maybe(snapshot(from, |it| &it.covered_segment)),
    ),
    Metric::gauge(
        "paperbourse_snapshot_timestamp_seconds",
        "Unix time of the newest snapshot; 0 if there was none since the start.",
        |from, out| {
            let time = |time: &AtomicI64| time.load(Ordering::Relaxed).unsigned_abs();
            out.maybe(from.snapshots.map(|it| time(&it.made_at_seconds)));
        },
    ),
    Metric::gauge(
        "paperbourse_snapshot_size_bytes",
        "Bytes written for the newest snapshot.",
        |from, out| out.maybe(snapshot(from, |it| &it.bytes)),
    ),
    Metric::gauge(
        "paperbourse_snapshot_duration_seconds",
        "Time that the newest snapshot took.",
        |from, out| {
            let elapsed = snapshot(from, |it| &it.elapsed_ms).map(Duration::from_millis);
            out.maybe(elapsed.map(|elapsed| elapsed.as_secs_f64()));
        },
    ),
    Metric::gauge(
        "paperbourse_cluster_owner",
        "Whether this node owns the log, and so serves: 0 or 1.",
        |from, out| of_log(from, out, |log| Some(log.is_owned.into())),
    )
    .by(&["log"]),
    Metric::gauge(
        "paperbourse_cluster_epoch",
        "How many times a node has taken the log.",
        |from, out| of_log(from, out, |log| log.epoch),
    )
    .by(&["log"]),
    Metric::gauge(
        "paperbourse_cluster_position",
        "Position of the newest record in the log that this node knows of.",
        |from, out| of_log(from, out, |log| log.position),
    )
    .by(&["log"]),
    Metric::gauge(
        "paperbourse_cluster_copied_position",
        "Position of the newest record of the log on the disk of this node.",
        |from, out| of_log(from, out, |log| log.copied_position),
    )
    .by(&["log"]),
    Metric::gauge(
        "paperbourse_cluster_broker_answer_timestamp_seconds",
        "Unix time of the newest answer of a broker about the log; 0 before the first.",
        |from, out| of_log(from, out, |log| Some(log.answered_at_seconds)),
    )
    .by(&["log"]),
    Metric::gauge(
        "paperbourse_cluster_halted",
        "Whether this node can read the log no further, since a block is missing or damaged at \
         every broker: 0 or 1.",
        |from, out| of_log(from, out, |log| Some(log.is_halted.into())),
    )
    .by(&["log"]),
    Metric::histogram(
        "paperbourse_cluster_append_seconds",
        "Time from sending a block of the log until a majority of brokers has it on disk.",
        |from, out| {
            if let Some(log) = &from.log {
                out.histogram(&[log.name], log.append_us, 4..=26, 1e6);
            }
        },
    )
    .by(&["log"]),
    Metric::gauge(
        "paperbourse_venue_tokens",
        "Followed tokens by freshness of their books.",
        |from, out| by_freshness(out, from.live.as_ref().map(|live| live.tokens)),
    )
    .by(&["state"]),
    Metric::gauge(
        "paperbourse_venue_sockets",
        "Sockets to the venue by freshness.",
        |from, out| by_freshness(out, from.live.as_ref().map(|live| live.sockets)),
    )
    .by(&["state"]),
    Metric::gauge(
        "paperbourse_venue_socket_live",
        "Whether the connection of a socket to the venue can be trusted: 0 or 1.",
        |from, out| by_socket(from, out, |socket| u64::from(socket.state == Freshness::Live)),
    )
    .by(&["socket"]),
    Metric::counter(
        "paperbourse_venue_socket_frames_total",
        "Frames received from the venue, by socket.",
        |from, out| by_socket(from, out, |socket| socket.frames),
    )
    .by(&["socket"]),
    Metric::gauge(
        "paperbourse_venue_socket_last_frame_timestamp_seconds",
        "Unix time of the newest frame of a socket to the venue; 0 before the first.",
        |from, out| by_socket(from, out, |socket| unix_seconds(socket.frame_received_at)),
    )
    .by(&["socket"]),
    Metric::gauge(
        "paperbourse_venue_last_frame_timestamp_seconds",
        "Unix time of the venue's newest frame; 0 before the first.",
        |from, out| out.maybe(venue(from, |live| unix_seconds(live.frame_received_at))),
    ),
    Metric::counter(
        "paperbourse_venue_frames_total",
        "Frames received from the venue.",
        |from, out| out.maybe(venue(from, |live| live.frames)),
    ),
    Metric::counter(
        "paperbourse_venue_unknown_messages_total",
        "Venue messages of an unknown kind, which were skipped.",
        |from, out| out.maybe(venue(from, |live| live.unknown_messages)),
    ),
    Metric::counter(
        "paperbourse_venue_unreadable_messages_total",
        "Venue messages of a known kind that cannot be parsed.",
        |from, out| out.maybe(venue(from, |live| live.unreadable_messages)),
    ),
    Metric::counter(
        "paperbourse_venue_late_messages_total",
        "Venue messages that arrived too late.",
        |from, out| out.maybe(venue(from, |live| live.late_messages)),
    ),
    Metric::counter(
        "paperbourse_venue_future_messages_total",
        "Venue messages with a timestamp in the future.",
        |from, out| out.maybe(venue(from, |live| live.ahead_messages)),
    ),
    Metric::counter(
        "paperbourse_venue_connections_lost_total",
        "Connections to the venue that were lost or refused.",
        |from, out| out.maybe(venue(from, |live| live.connections_lost)),
    ),
    Metric::counter(
        "paperbourse_venue_books_requested_total",
        "Books requested from the venue's REST API.",
        |from, out| out.maybe(venue(from, |live| live.books_requested)),
    ),
    Metric::counter(
        "paperbourse_venue_books_diverged_total",
        "Requested books that differed from the one kept here.",
        |from, out| out.maybe(venue(from, |live| live.books_diverged)),
    ),
    Metric::counter(
        "paperbourse_venue_book_hashes_matched_total",
        "Book hashes of the venue that matched the book kept here.",
        |from, out| out.maybe(venue(from, |live| live.feed.hashes_verified)),
    ),
    Metric::counter(
        "paperbourse_venue_book_hashes_mismatched_total",
        "Book hashes of the venue that did not match the book kept here.",
        |from, out| out.maybe(venue(from, |live| live.feed.hashes_mismatched)),
    ),
    Metric::histogram(
        "paperbourse_venue_frame_delay_seconds",
        "Time from reading a frame of the venue to publishing its books.",
        |from, out| {
            let Some(delays) = from.live.as_ref().map(|live| &live.delays) else { return };
            let buckets = delays.cumulative();
            let buckets =
                buckets.map(|(ns, count)| (Duration::from_nanos(ns).as_secs_f64(), count));
            out.buckets(&[], buckets, delays.sum().as_secs_f64(), delays.count());
        },
    ),
    Metric::counter(
        "paperbourse_system_clock_jumps_total",
        "Jumps of the system clock.",
        |from, out| out.value(from.gauges.clock_jumps),
    ),
    Metric::gauge(
        "paperbourse_system_clock_offset_seconds",
        "Difference between the system clock and the server's time after a clock jump.",
        |from, out| out.value(from.gauges.clock_off_seconds),
    ),
    Metric::gauge(
        "paperbourse_body_bytes",
        "Memory for request bodies in progress, without the first 4 KiB of each.",
        |from, out| out.value(from.gauges.body_bytes),
    ),
    Metric::gauge(
        "paperbourse_answer_bytes",
        "Memory held by answers over 16 KiB that clients have yet to read.",
        |from, out| out.value(from.gauges.answer_bytes),
    ),
    Metric::gauge(
        "paperbourse_memory_bytes",
        "Memory by what it holds, counted in the background, every 5 s or less often. Its sum is \
         less than what is in use: connections and snapshots in progress are not counted.",
        |from, out| {
            for &(part, bytes) in &from.memory {
                out.sample(&[part], bytes);
            }
        },
    )
    .by(&["part"]),
    Metric::gauge(
        "paperbourse_memory_in_use_bytes",
        "Memory that was allocated and not freed. The limit is compared with it, or with eight \
         ninths of the resident memory if that is more.",
        |from, out| out.maybe(from.process.in_use_bytes),
    ),
    Metric::gauge(
        "paperbourse_memory_limit_bytes",
        "Memory in use above which requests are refused that need more.",
        |from, out| out.maybe(from.serving.and_then(|it| it.memory_limit_bytes)),
    ),
    Metric::gauge(
        "paperbourse_memory_limit_reached",
        "Whether requests that need memory are refused: 0 or 1.",
        |from, out| out.maybe(serving(from, |it| u8::from(it.is_memory_full))),
    ),
    Metric::counter(
        "paperbourse_trace_spans_exported_total",
        "Spans of traced requests that the collector has accepted.",
        |from, out| out.maybe(from.spans.map(|it| it.exported)),
    ),
    Metric::counter(
        "paperbourse_trace_spans_dropped_total",
        "Spans of traced requests that the collector did not get, or did not take.",
        |from, out| out.maybe(from.spans.map(|it| it.dropped)),
    ),
    Metric::counter(
        "process_cpu_seconds_total",
        "Processor time of the process, user and system.",
        |from, out| out.maybe(from.process.cpu_seconds),
    ),
    Metric::gauge("process_resident_memory_bytes", "Resident memory.", |from, out| {
        out.maybe(from.process.resident_bytes);
    }),
    Metric::gauge(
        "process_start_time_seconds",
        "Unix time at which the process started.",
        |from, out| out.maybe(from.process.start_seconds),
    ),
    Metric::gauge("process_open_fds", "Open file descriptors.", |from, out| {
        out.maybe(from.process.open_files);
    }),
    Metric::gauge("process_max_fds", "How many file descriptors may be open.", |from, out| {
        out.maybe(from.process.open_files_max);
    }),
];

fn journal(
    from: &Scrape<'_>,
    out: &mut Samples<'_>,
    read: fn(&JournalMetrics) -> (&Histogram, f64),
) {
    if let Some(journal) = from.journal {
        let (histogram, unit) = read(journal);
        out.histogram(&[], histogram, 0..=BUCKET_COUNT - 2, unit);
    }
}

fn serving<T>(from: &Scrape<'_>, read: fn(&ServingGauges) -> T) -> Option<T> {
    from.serving.as_ref().map(read)
}

fn snapshot(from: &Scrape<'_>, read: fn(&SnapshotMetrics) -> &AtomicU64) -> Option<u64> {
    from.snapshots.map(|snapshots| read(snapshots).load(Ordering::Relaxed))
}

fn of_log(from: &Scrape<'_>, out: &mut Samples<'_>, read: fn(&LogSample<'_>) -> Option<u64>) {
    if let Some(log) = &from.log
        && let Some(value) = read(log)
    {
        out.sample(&[log.name], value);
    }
}

fn venue(from: &Scrape<'_>, read: fn(&LiveSnapshot) -> u64) -> Option<u64> {
    from.live.as_ref().map(read)
}

fn by_freshness(out: &mut Samples<'_>, counts: Option<StateCounts>) {
    for (state, count) in Freshness::ALL.iter().zip(counts.into_iter().flatten()) {
        out.sample(&[state.as_str()], count);
    }
}

fn by_socket(from: &Scrape<'_>, out: &mut Samples<'_>, read: fn(&SocketSnapshot) -> u64) {
    let sockets = from.live.iter().flat_map(|live| &live.by_socket);
    for (number, socket) in sockets.enumerate() {
        out.sample(&[&number.to_string()], read(socket));
    }
}

fn unix_seconds(time: Option<Timestamp>) -> u64 {
    time.map_or(0, |time| time.seconds().unsigned_abs())
}
