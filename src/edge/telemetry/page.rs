//! The metrics page, in the Prometheus text format.

use std::fmt::{Display, Write as _};
use std::ops::RangeInclusive;

use super::scrape::Scrape;
use super::table::METRICS;
use paperbourse_core::histogram::Histogram;

/// A row of the metrics table: a name, a description, and the function that writes its samples.
pub struct Metric {
    /// The name, as on the page.
    pub name: &'static str,
    /// The kind: counter, gauge or histogram.
    pub kind: Kind,
    /// The help text: one sentence that says what is counted or measured.
    pub help: &'static str,
    /// The names of the metric's labels.
    pub labels: &'static [&'static str],
    write: fn(&Scrape<'_>, &mut Samples<'_>),
}

/// The kinds of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A count that only rises, from 0 at each start.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// Cumulative counts of values, by upper bound.
    Histogram,
}

/// The writer of one metric's samples.
pub(super) struct Samples<'p> {
    page: &'p mut String,
    metric: &'static Metric,
    has_head: bool,
}

/// The value of each label of a sample, in the order of [`Metric::labels`].
pub(super) type Labels<'v> = &'v [&'v str];

/// Renders the page. Metrics without samples are left out.
pub fn render(scrape: &Scrape<'_>) -> String {
    let mut page = String::with_capacity(64 * 1024);
    for metric in &METRICS {
        let mut samples = Samples { page: &mut page, metric, has_head: false };
        (metric.write)(scrape, &mut samples);
    }
    page
}

impl Metric {
    pub(super) const fn counter(
        name: &'static str,
        help: &'static str,
        write: fn(&Scrape<'_>, &mut Samples<'_>),
    ) -> Self {
        Self { name, kind: Kind::Counter, help, labels: &[], write }
    }

    pub(super) const fn gauge(
        name: &'static str,
        help: &'static str,
        write: fn(&Scrape<'_>, &mut Samples<'_>),
    ) -> Self {
        Self { kind: Kind::Gauge, ..Self::counter(name, help, write) }
    }

    pub(super) const fn histogram(
        name: &'static str,
        help: &'static str,
        write: fn(&Scrape<'_>, &mut Samples<'_>),
    ) -> Self {
        Self { kind: Kind::Histogram, ..Self::counter(name, help, write) }
    }

    pub(super) const fn by(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }
}

impl Kind {
    /// Returns the kind's name in the text format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Samples<'_> {
    /// Writes the only sample of a metric without labels.
    pub(super) fn value(&mut self, value: impl Display) {
        self.sample(&[], value);
    }

    /// Writes the only sample of a metric without labels, if there is a value.
    pub(super) fn maybe(&mut self, value: Option<impl Display>) {
        if let Some(value) = value {
            self.value(value);
        }
    }

    /// Writes one sample, with the values of its labels.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line("", labels, None, value);
    }

    /// Writes a histogram whose bucket bounds are powers of two of the recorded unit, with
    /// exponents in this range. `unit` recorded units make one unit of the metric.
    #[expect(clippy::cast_precision_loss, reason = "only the displayed value is rounded")]
    pub(super) fn histogram(
        &mut self,
        labels: Labels<'_>,
        histogram: &Histogram,
        exponents: RangeInclusive<usize>,
        unit: f64,
    ) {
        let counts = histogram.buckets();
        let cumulative = counts.iter().scan(0, |total, count| {
            *total += count;
            Some(*total)
        });
        let buckets = cumulative.enumerate().filter(|(exponent, _)| exponents.contains(exponent));
        let buckets = buckets.map(|(exponent, total)| ((1_u64 << exponent) as f64 / unit, total));
        self.buckets(labels, buckets, histogram.sum() as f64 / unit, counts.iter().sum());
    }

    /// Writes a histogram from cumulative buckets: each has its upper bound and the number of
    /// values up to it.
    pub(super) fn buckets(
        &mut self,
        labels: Labels<'_>,
        buckets: impl Iterator<Item = (f64, u64)>,
        sum: f64,
        count: u64,
    ) {
        for (bound, total) in buckets {
            self.line("_bucket", labels, Some(&bound), total);
        }
        self.line("_bucket", labels, Some(&"+Inf"), count);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count);
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: Labels<'_>,
        bound: Option<&dyn Display>,
        value: impl Display,
    ) {
        let Metric { name, kind, help, labels: names, .. } = self.metric;
        let (page, kind) = (&mut *self.page, kind.as_str());
        if !self.has_head {
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
            self.has_head = true;
        }
        debug_assert_eq!(names.len(), labels.len(), "{name} has the labels {names:?}");
        let _ = write!(page, "{name}{suffix}");
        let mut mark = '{';
        for (label, value) in names.iter().zip(labels) {
            debug_assert!(!value.contains(['"', '\\', '\n']), "{value:?} would need escapes");
            let _ = write!(page, "{mark}{label}=\"{value}\"");
            mark = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(page, "{mark}le=\"{bound}\"");
            mark = ',';
        }
        if mark == ',' {
            page.push('}');
        }
        let _ = writeln!(page, " {value}");
    }
}
