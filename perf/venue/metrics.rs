//! The server's metrics of the venue, from its admin listener.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};

use crate::client::{Connection, encode_request};

/// The histogram of the time from reading the venue's socket to publishing the books.
pub(crate) const PUBLISHED: &str = "paperbourse_venue_frame_delay_seconds";

/// The histogram of the journal's flushes.
pub(crate) const FLUSHED: &str = "paperbourse_journal_flush_seconds";

/// A metrics page.
#[derive(Clone, Debug)]
pub(crate) struct Page(String);

/// The number of events that took at most each bound in seconds, ascending; the last bound is
/// infinite.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Delays(Vec<(f64, u64)>);

impl Page {
    /// Fetches the page.
    pub(crate) fn get(address: SocketAddr) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut connection = Connection::open(address).await?;
            let request = encode_request("GET", "/metrics", address, &[], "");
            let answer = connection.exchange(request.as_bytes()).await?;
            ensure!(answer.status == 200, "/metrics answered {}", answer.status);
            Ok(Self(String::from_utf8(answer.body.to_vec())?))
        })
    }

    /// Returns the value of a metric, by its name including labels.
    pub(crate) fn value(&self, name: &str) -> anyhow::Result<u64> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = line.with_context(|| format!("/metrics has no {name}"))?;
        value.parse().with_context(|| format!("{name} is not a number: {value}"))
    }

    /// Returns the number of tokens in this state.
    pub(crate) fn tokens(&self, state: &str) -> anyhow::Result<u64> {
        self.value(&format!("paperbourse_venue_tokens{{state=\"{state}\"}}"))
    }

    /// Returns all delays so far in this histogram.
    pub(crate) fn delays(&self, name: &str) -> anyhow::Result<Delays> {
        let prefix = format!("{name}_bucket{{le=\"");
        let rows = self.0.lines().filter_map(|line| line.strip_prefix(&prefix)?.split_once("\"} "));
        let rows = rows.map(|(bound, count)| {
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse()? };
            Ok((bound, count.parse()?))
        });
        let rows = rows.collect::<anyhow::Result<Vec<(f64, u64)>>>()?;
        ensure!(!rows.is_empty(), "/metrics has no {name}");
        Ok(Delays(rows))
    }
}

impl Delays {
    /// Returns the delays since an earlier page.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let rows = self.0.iter().zip(&before.0);
        Self(rows.map(|(&(bound, count), (_, earlier))| (bound, count - earlier)).collect())
    }

    /// Returns a quantile of the delays in seconds, interpolated within its bucket; in the last
    /// bucket, the highest finite bound. NaN if there are no delays.
    #[expect(clippy::cast_precision_loss, reason = "counts of events, and shown with two digits")]
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let total = self.0.last().map_or(0, |&(_, count)| count);
        if total == 0 {
            return f64::NAN;
        }
        let wanted = part * total as f64;
        let (mut low, mut below) = (0.0, 0);
        for &(bound, count) in &self.0 {
            if count as f64 >= wanted && count > below {
                if bound.is_infinite() {
                    return low;
                }
                return low + (bound - low) * (wanted - below as f64) / (count - below) as f64;
            }
            (low, below) = (bound, count);
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(counts: [u64; 3]) -> Page {
        let [first, second, all] = counts;
        Page(format!(
            "# HELP {PUBLISHED} x\npaperbourse_venue_tokens{{state=\"live\"}} 4\n\
             paperbourse_venue_frames_total 9\n\
             {PUBLISHED}_bucket{{le=\"0.001\"}} {first}\n\
             {PUBLISHED}_bucket{{le=\"0.002\"}} {second}\n\
             {PUBLISHED}_bucket{{le=\"+Inf\"}} {all}\n{PUBLISHED}_sum 1\n\
             {PUBLISHED}_count {all}\n"
        ))
    }

    #[test]
    fn values_are_found_by_full_name() {
        let page = page([1, 2, 3]);
        assert_eq!(page.value("paperbourse_venue_frames_total").unwrap(), 9);
        assert_eq!(page.tokens("live").unwrap(), 4);
        assert!(page.value("paperbourse_venue_frames").is_err());
        assert!(page.tokens("stale").is_err());
    }

    #[test]
    fn quantiles_cover_the_frames_between_two_pages() {
        let delays = |counts| page(counts).delays(PUBLISHED).unwrap();
        let between = delays([10, 110, 120]).since(&delays([10, 10, 20]));
        assert_eq!(between, Delays(vec![(0.001, 0), (0.002, 100), (f64::INFINITY, 100)]));
        assert!((between.quantile(0.5) - 0.0015).abs() < 1e-9);
        let some = delays([50, 99, 100]);
        assert!((some.quantile(0.25) - 0.0005).abs() < 1e-9);
        assert!((some.quantile(1.0) - 0.002).abs() < 1e-9, "what is longer is not known");
        assert!(delays([5, 5, 5]).since(&delays([5, 5, 5])).quantile(0.5).is_nan());
    }
}
