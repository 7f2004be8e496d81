//! The text that `top` displays.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use super::scrape::{Between, Page, label_of};

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

const REQUESTS: &str = "paperbourse_http_requests_total";
const DURATION: &str = "paperbourse_http_request_duration_seconds";
const FLUSH: &str = "paperbourse_journal_flush";
const VENUE: &str = "paperbourse_venue";
const CLUSTER: &str = "paperbourse_cluster";

/// Renders the activity between two scrapes of this server, cut to fit the terminal.
pub(super) fn text(before: &Page, after: &Page, address: &str, size: Size) -> String {
    let between = Between::new(before, after);
    let mut lines = vec![title(after, address), String::new()];
    lines.extend(summary(&between, after));
    lines.push(String::new());
    lines.extend(operations(&between, after));
    let lines = lines.into_iter().take(size.rows);
    lines.map(|line| clipped(line, size.columns) + "\n").collect()
}

fn title(page: &Page, address: &str) -> String {
    let version = page.label("paperbourse_build_info", "version").unwrap_or("-");
    let uptime = page.value("paperbourse_uptime_seconds").map_or_else(unknown, time);
    format!("paperbourse {version} at {address}, up {uptime}")
}

fn summary(between: &Between<'_>, page: &Page) -> Vec<String> {
    let gauge = |name: &str| page.value(&format!("paperbourse_{name}")).map_or_else(unknown, count);
    let rate = |name: &str| {
        let rate = between.rate(&format!("paperbourse_{name}_total"));
        rate.map_or_else(unknown, per_second)
    };
    let all = between.rate_where(REQUESTS, |_| true);
    let errors = between.rate_where(REQUESTS, is_server_error);
    let refused = between.rate_where("paperbourse_rate_limited_requests_total", |_| true);
    let mut lines = vec![
        format!(
            "requests   {}, answered with 5xx {}, refused by rate limits {}",
            per_second(all),
            per_second(errors),
            per_second(refused)
        ),
        format!(
            "orders     filled {}, rested {}, killed {}, rejected {}; open {}, held {}",
            rate("orders_filled"),
            rate("orders_rested"),
            rate("orders_killed"),
            rate("orders_rejected"),
            gauge("open_orders"),
            gauge("held_orders")
        ),
    ];
    lines.extend(journal(between, page));
    lines.extend(log(between, page));
    lines.push(format!(
        "markets    {} open for orders, {} listed, {} not settled",
        gauge("fresh_markets"),
        gauge("markets"),
        gauge("unsettled_markets")
    ));
    lines.extend(venue(between, page));
    lines.push(format!(
        "clients    {} connections, {} sockets, {} price streams; conflated {}",
        gauge("connections"),
        gauge("websocket_connections"),
        gauge("price_streams"),
        rate("price_frames_conflated")
    ));
    lines.push(format!("accounts   {}; API keys {}", gauge("accounts"), gauge("api_keys")));
    lines.push(process(between, page));
    lines.extend(warnings(page));
    lines
}

/// Returns the journal's line, or `None` for a server that keeps its data in memory.
fn journal(between: &Between<'_>, page: &Page) -> Option<String> {
    let flushes = between.rate(&format!("{FLUSH}_records_count"))?;
    let records = between.rate(&format!("{FLUSH}_records_sum"))?;
    let quantile = |part| {
        let found = between.quantile(part, &format!("{FLUSH}_seconds"), |_| true);
        found.map_or_else(unknown, time)
    };
    let unflushed = page.value("paperbourse_journal_unflushed_seconds").map_or_else(unknown, time);
    Some(format!(
        "journal    flushes {} (p50 {}, p99 {}), records {}; unflushed for {unflushed}",
        per_second(flushes),
        quantile(0.5),
        quantile(0.99),
        per_second(records)
    ))
}

/// Returns the line of the cluster's log, or `None` on a standalone server.
fn log(between: &Between<'_>, page: &Page) -> Option<String> {
    let of_log = |name: &str| {
        let name = format!("{CLUSTER}_{name}");
        page.series(&name).next().map(|(_, value)| value)
    };
    let is_owned = of_log("owner")? > 0.0;
    let epoch = of_log("epoch").map_or_else(unknown, count);
    let name = page.label(&format!("{CLUSTER}_owner"), "log")?;
    let rest = if is_owned {
        let appends = format!("{CLUSTER}_append_seconds");
        let rate = between.rate_where(&format!("{appends}_count"), |_| true);
        let quantile = |part| between.quantile(part, &appends, |_| true).map_or_else(unknown, time);
        let (median, tail) = (quantile(0.5), quantile(0.99));
        format!("owned here; appends {} (p50 {median}, p99 {tail})", per_second(rate))
    } else {
        let copied = of_log("copied_position").map_or_else(unknown, count);
        format!("followed here, copied up to record {copied}")
    };
    let answered = of_log("broker_answer_timestamp_seconds")?;
    let answered =
        if answered > 0.0 { format!("{} ago", time(unix_now() - answered)) } else { unknown() };
    Some(format!("log        {name}, epoch {epoch}, {rest}; brokers answered {answered}"))
}

/// Returns the venue's line, or `None` unless the venue is followed live.
fn venue(between: &Between<'_>, page: &Page) -> Option<String> {
    let frames = between.rate(&format!("{VENUE}_frames_total"))?;
    let newest = page.value(&format!("{VENUE}_last_frame_timestamp_seconds"))?;
    let live_name = format!("{VENUE}_socket_live");
    let sockets: Vec<f64> = page.series(&live_name).map(|(_, is_live)| is_live).collect();
    let age = if newest > 0.0 { format!("{} ago", time(unix_now() - newest)) } else { unknown() };
    Some(format!(
        "venue      frames {}, the newest {age}; {} of {} sockets live",
        per_second(frames),
        count(sockets.iter().sum()),
        sockets.len()
    ))
}

fn process(between: &Between<'_>, page: &Page) -> String {
    let cores = between.rate("process_cpu_seconds_total");
    let bytes_of = |name: &str| page.value(name).map_or_else(unknown, bytes);
    let count_of = |name: &str| page.value(name).map_or_else(unknown, count);
    format!(
        "process    {} cores; {} of {} memory; {} of {} files",
        cores.map_or_else(unknown, |cores| format!("{cores:.2}")),
        bytes_of("paperbourse_memory_in_use_bytes"),
        bytes_of("paperbourse_memory_limit_bytes"),
        count_of("process_open_fds"),
        count_of("process_max_fds")
    )
}

/// Returns the warnings that an operator must not overlook.
fn warnings(page: &Page) -> Vec<String> {
    let is_set = |name: &str| page.value(name).is_some_and(|value| value > 0.0);
    let warnings = [
        ("paperbourse_journal_disk_full", "the disk is full: orders are refused"),
        ("paperbourse_memory_limit_reached", "the memory limit is reached: orders are refused"),
        ("paperbourse_system_clock_offset_seconds", "the system clock has jumped"),
        ("paperbourse_internal_errors_total", "there were internal errors: see the log"),
    ];
    let warnings = warnings.into_iter().filter(|(name, _)| is_set(name)).map(|(_, text)| text);
    let is_halted = page.series("paperbourse_cluster_halted").any(|(_, value)| value > 0.0);
    let halted = is_halted.then_some("the log of the cluster is damaged: see the log lines");
    warnings.chain(halted).map(|text| format!("WARNING    {text}")).collect()
}

/// Returns a table of the operations called since the server's start, busiest first.
fn operations(between: &Between<'_>, page: &Page) -> Vec<String> {
    let name = format!("{DURATION}_count");
    let mut rows: Vec<(&str, f64, f64)> = page
        .series(&name)
        .filter_map(|(labels, total)| {
            let operation = label_of(labels, "operation")?;
            let rate = between.rate_where(&name, |other| other == labels);
            Some((operation, rate, total))
        })
        .collect();
    rows.sort_by(|one, other| other.1.total_cmp(&one.1).then(other.2.total_cmp(&one.2)));
    let mut lines =
        vec![format!("{:<46}{:>10}{:>10}{:>10}{:>10}", "OPERATION", "/s", "5xx/s", "p50", "p99")];
    for (operation, rate, _) in rows {
        let is_its = |labels: &str| label_of(labels, "operation") == Some(operation);
        let errors =
            between.rate_where(REQUESTS, |labels| is_its(labels) && is_server_error(labels));
        let quantile =
            |part| between.quantile(part, DURATION, is_its).map_or_else(String::new, time);
        let mut line = format!("{operation:<46}{:>10}{:>10}", number(rate), number(errors));
        let _ = write!(line, "{:>10}{:>10}", quantile(0.5), quantile(0.99));
        lines.push(line.trim_end().to_owned());
    }
    lines
}

fn is_server_error(labels: &str) -> bool {
    label_of(labels, "status").is_some_and(|status| status.starts_with('5'))
}

fn unknown() -> String {
    "-".to_owned()
}

fn per_second(rate: f64) -> String {
    format!("{}/s", number(rate))
}

/// Formats a number with one decimal, except for zero and values of 100 or more.
fn number(value: f64) -> String {
    if value == 0.0 || value >= 99.95 { count(value) } else { format!("{value:.1}") }
}

/// Formats a whole number with thousands separators.
fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(value: f64) -> String {
    match value {
        1e9.. => format!("{:.1} GB", value / 1e9),
        1e6.. => format!("{:.0} MB", value / 1e6),
        _ => format!("{:.0} kB", value / 1e3),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        172_800.0.. => format!("{:.0} days", (seconds / 86_400.0).floor()),
        7_200.0.. => format!("{:.0} h", (seconds / 3_600.0).floor()),
        120.0.. => format!("{:.0} min", (seconds / 60.0).floor()),
        10.0.. => format!("{seconds:.0} s"),
        1.0.. => format!("{seconds:.1} s"),
        0.01.. => format!("{:.0} ms", seconds * 1e3),
        0.001.. => format!("{:.1} ms", seconds * 1e3),
        _ if seconds > 0.0 => format!("{:.0} µs", seconds * 1e6),
        _ => "0 s".to_owned(),
    }
}

fn clipped(line: String, columns: usize) -> String {
    match line.char_indices().nth(columns) {
        Some((end, _)) => line[..end].to_owned(),
        None => line,
    }
}

fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::super::scrape::tests::pages;
    use super::*;

    /// A server that has recently begun to trade.
    const BEFORE: &str = "\
paperbourse_http_requests_total{operation=\"GET /v1/health\",status=\"200\"} 40
paperbourse_http_request_duration_seconds_count{operation=\"GET /v1/health\"} 40
paperbourse_orders_filled_total 10
paperbourse_venue_frames_total 100
process_cpu_seconds_total 1
";

    /// The same server two seconds later.
    const AFTER: &str = "\
paperbourse_build_info{version=\"1.2.3\"} 1
paperbourse_uptime_seconds 7300
paperbourse_http_requests_total{operation=\"GET /v1/health\",status=\"200\"} 42
paperbourse_http_requests_total{operation=\"POST /trade\",status=\"200\"} 2400
paperbourse_http_requests_total{operation=\"POST /trade\",status=\"503\"} 1
paperbourse_http_request_duration_seconds_bucket{operation=\"GET /v1/health\",le=\"+Inf\"} 42
paperbourse_http_request_duration_seconds_count{operation=\"GET /v1/health\"} 42
paperbourse_http_request_duration_seconds_bucket{operation=\"POST /trade\",le=\"0.001\"} 1200
paperbourse_http_request_duration_seconds_bucket{operation=\"POST /trade\",le=\"0.002\"} 2401
paperbourse_http_request_duration_seconds_bucket{operation=\"POST /trade\",le=\"+Inf\"} 2401
paperbourse_http_request_duration_seconds_count{operation=\"POST /trade\"} 2401
paperbourse_rate_limited_requests_total{rule=\"second\",tier=\"free\"} 3
paperbourse_rate_limited_requests_total{rule=\"address\",tier=\"\"} 0
paperbourse_connections 12
paperbourse_websocket_connections 4
paperbourse_price_frames_conflated_total 7
paperbourse_accounts 3
paperbourse_api_keys 5
paperbourse_orders_filled_total 2410
paperbourse_open_orders 1234
paperbourse_markets 50
paperbourse_fresh_markets 48
paperbourse_unsettled_markets 0
paperbourse_journal_flush_seconds_bucket{le=\"0.0005\"} 90
paperbourse_journal_flush_seconds_bucket{le=\"+Inf\"} 100
paperbourse_journal_flush_records_sum 2400
paperbourse_journal_flush_records_count 100
paperbourse_journal_unflushed_seconds 0
paperbourse_journal_disk_full 1
paperbourse_venue_socket_live{socket=\"0\"} 1
paperbourse_venue_socket_live{socket=\"1\"} 0
paperbourse_venue_last_frame_timestamp_seconds 0
paperbourse_venue_frames_total 900
process_cpu_seconds_total 2.5
paperbourse_memory_in_use_bytes 120000000
paperbourse_memory_limit_bytes 3260000000
process_open_fds 30
process_max_fds 1048576
";

    #[test]
    fn a_look_at_a_busy_server() {
        let (before, after) = pages(BEFORE, AFTER, 2);
        let size = Size { columns: 100, rows: 40 };
        insta::assert_snapshot!(text(&before, &after, "http://127.0.0.1:9090/metrics", size));
    }

    #[test]
    fn a_node_shows_its_log() {
        let line = |page: &str, appends_before: &str| {
            let (before, after) = pages(appends_before, page, 2);
            log(&Between::new(&before, &after), &after)
        };
        let of = |is_owned: u8| {
            format!(
                "paperbourse_cluster_append_seconds_bucket{{log=\"a-0\",le=\"0.001\"}} 20\n\
                 paperbourse_cluster_append_seconds_bucket{{log=\"a-0\",le=\"+Inf\"}} 20\n\
                 paperbourse_cluster_append_seconds_count{{log=\"a-0\"}} 20\n\
                 paperbourse_cluster_broker_answer_timestamp_seconds{{log=\"a-0\"}} 0\n\
                 paperbourse_cluster_copied_position{{log=\"a-0\"}} 1235\n\
                 paperbourse_cluster_epoch{{log=\"a-0\"}} 7\n\
                 paperbourse_cluster_owner{{log=\"a-0\"}} {is_owned}\n"
            )
        };
        let before = "paperbourse_cluster_append_seconds_count{log=\"a-0\"} 10\n";
        for (page, expected) in [
            (String::new(), None),
            (
                of(0),
                Some(
                    "log        a-0, epoch 7, followed here, copied up to record 1,235; brokers \
                     answered -",
                ),
            ),
            (
                of(1),
                Some(
                    "log        a-0, epoch 7, owned here; appends 5.0/s (p50 500 µs, p99 990 µs); \
                     brokers answered -",
                ),
            ),
        ] {
            assert_eq!(line(&page, before).as_deref(), expected);
        }
    }

    #[test]
    fn a_small_terminal_gets_what_fits() {
        let (before, after) = pages(BEFORE, AFTER, 2);
        let shown =
            text(&before, &after, "http://127.0.0.1:9090/metrics", Size { columns: 20, rows: 5 });
        assert_eq!(shown.lines().count(), 5);
        assert!(shown.lines().all(|line| line.chars().count() <= 20), "{shown}");
    }

    #[test]
    fn numbers_are_short() {
        for (value, expected) in
            [(0.0, "0"), (0.04, "0.0"), (9.96, "10.0"), (99.96, "100"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(number(value), expected);
        }
        for (seconds, expected) in [
            (0.0, "0 s"),
            (0.000_42, "420 µs"),
            (0.0012, "1.2 ms"),
            (0.25, "250 ms"),
            (1.26, "1.3 s"),
            (59.0, "59 s"),
            (119.0, "119 s"),
            (179.0, "2 min"),
            (7_199.0, "119 min"),
            (86_400.0, "24 h"),
            (200_000.0, "2 days"),
        ] {
            assert_eq!(time(seconds), expected);
        }
        for (value, expected) in [(900.0, "1 kB"), (120e6, "120 MB"), (3.26e9, "3.3 GB")] {
            assert_eq!(bytes(value), expected);
        }
    }
}
