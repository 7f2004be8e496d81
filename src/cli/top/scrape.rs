//! Parses pages of metrics for `top`, and computes rates and quantiles between two of them.

use std::collections::BTreeMap;
use std::time::Instant;

/// The samples of a page, keyed by name and labels as written on the page.
pub(super) struct Page {
    samples: BTreeMap<String, f64>,
    read_at: Instant,
}

/// Two pages of the same server, and the changes between them.
pub(super) struct Between<'a> {
    before: &'a Page,
    after: &'a Page,
}

impl Page {
    /// Parses the text format of Prometheus. Lines of another form are skipped.
    pub(super) fn parse(text: &str, read_at: Instant) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        });
        Self { samples: samples.collect(), read_at }
    }

    pub(super) fn is_of_paperbourse(&self) -> bool {
        self.label("paperbourse_build_info", "version").is_some()
    }

    /// Returns the value of a metric without labels.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        self.samples.get(name).copied()
    }

    /// Returns the series of a metric with labels, each as its labels and its value.
    pub(super) fn series<'p>(&'p self, name: &'p str) -> impl Iterator<Item = (&'p str, f64)> {
        let from = self.samples.range(name.to_owned()..);
        from.map_while(move |(series, &value)| Some((series.strip_prefix(name)?, value)))
            .filter(|(labels, _)| labels.starts_with('{'))
    }

    /// Returns the value of this label in the metric's first series.
    pub(super) fn label(&self, name: &str, label: &str) -> Option<&str> {
        let (series, _) = self.samples.range(name.to_owned()..).next()?;
        label_of(series.strip_prefix(name)?, label)
    }
}

/// Returns the value of a label in `{a="x",b="y"}`. The server's label values need no escapes.
pub(super) fn label_of<'t>(labels: &'t str, name: &str) -> Option<&'t str> {
    let mut pairs = labels.trim_matches(['{', '}']).split("\",");
    pairs.find_map(|pair| {
        let value = pair.strip_prefix(name)?.strip_prefix("=\"")?;
        Some(value.trim_end_matches('"'))
    })
}

impl<'a> Between<'a> {
    pub(super) fn new(before: &'a Page, after: &'a Page) -> Self {
        Self { before, after }
    }

    /// Returns the increase of a counter, or its full value if the server restarted in between.
    fn increase(&self, series: &str) -> f64 {
        let after = self.after.samples.get(series).copied().unwrap_or(0.0);
        let before = self.before.samples.get(series).copied().unwrap_or(0.0);
        if after < before { after } else { after - before }
    }

    fn seconds(&self) -> f64 {
        self.after.read_at.saturating_duration_since(self.before.read_at).as_secs_f64()
    }

    /// Returns the rate of a counter without labels, per second; `None` if the page lacks it.
    pub(super) fn rate(&self, name: &str) -> Option<f64> {
        self.after.value(name)?;
        Some(self.increase(name) / self.seconds())
    }

    /// Returns the summed rate, per second, of the counter's series whose labels pass.
    pub(super) fn rate_where(&self, name: &str, passes: impl Fn(&str) -> bool) -> f64 {
        let series = self.after.series(name).filter(|(labels, _)| passes(labels));
        let risen = series.map(|(labels, _)| self.increase(&format!("{name}{labels}")));
        // The sum of no floats is -0.0.
        (risen.sum::<f64>() + 0.0) / self.seconds()
    }

    /// Returns a quantile of the values that a histogram counted between the pages; `None` without
    /// samples. Interpolates within the quantile's bucket. A quantile above the highest finite
    /// bound is returned as that bound. `passes` selects the series by their labels.
    pub(super) fn quantile(
        &self,
        part: f64,
        name: &str,
        passes: impl Fn(&str) -> bool,
    ) -> Option<f64> {
        let name = format!("{name}_bucket");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (labels, _) in self.after.series(&name).filter(|(labels, _)| passes(labels)) {
            // Rust parses "+Inf" as a number.
            let bound: f64 = label_of(labels, "le")?.parse().ok()?;
            buckets.push((bound, self.increase(&format!("{name}{labels}"))));
        }
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let &(_, total) = buckets.last()?;
        if total <= 0.0 {
            return None;
        }
        let wanted = part * total;
        let (mut low, mut below) = (0.0, 0.0);
        for (bound, count) in buckets {
            if count >= wanted && count > below {
                let is_last = bound.is_infinite();
                let within = (bound - low) * (wanted - below) / (count - below);
                return Some(if is_last { low } else { low + within });
            }
            (low, below) = (bound, count);
        }
        Some(low)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    pub(in crate::cli::top) fn pages(before: &str, after: &str, seconds: u64) -> (Page, Page) {
        let began = Instant::now();
        let ended = began + Duration::from_secs(seconds);
        (Page::parse(before, began), Page::parse(after, ended))
    }

    #[test]
    fn a_page_is_read_by_series() {
        let text = "# HELP a x\n# TYPE a counter\na 1\na{b=\"x y\",c=\"POST /trade\"} 2.5\n\
                    ab 3\nbroken\nd{le=\"+Inf\"} nonsense\n\ne NaN\n";
        let page = Page::parse(text, Instant::now());
        assert_eq!(
            (page.value("a"), page.value("ab"), page.value("d")),
            (Some(1.0), Some(3.0), None)
        );
        let series: Vec<_> = page.series("a").collect();
        assert_eq!(series, [("{b=\"x y\",c=\"POST /trade\"}", 2.5)]);
        for (name, expected) in [("b", Some("x y")), ("c", Some("POST /trade")), ("d", None)] {
            assert_eq!(label_of(series[0].0, name), expected, "{name}");
        }
        assert!(!page.is_of_paperbourse());
        let ours = Page::parse("paperbourse_build_info{version=\"1.2\"} 1\n", Instant::now());
        assert_eq!(ours.label("paperbourse_build_info", "version"), Some("1.2"));
    }

    #[test]
    fn rates_are_per_second_and_survive_a_restart() {
        let (before, after) =
            pages("a 10\nb{x=\"1\"} 4\n", "a 30\nb{x=\"1\"} 2\nb{x=\"2\"} 6\n", 2);
        let between = Between::new(&before, &after);
        assert_eq!((between.rate("a"), between.rate("missing")), (Some(10.0), None));
        assert!(between.rate_where("none", |_| true).is_sign_positive());
        assert!((between.rate_where("b", |_| true) - 4.0).abs() < 1e-9);
        assert!((between.rate_where("b", |labels| labels.contains('2')) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn quantiles_are_of_the_values_between_the_pages() {
        let page = |counts: [u32; 3]| {
            let [one, two, all] = counts;
            format!(
                "h_bucket{{le=\"0.001\"}} {one}\nh_bucket{{le=\"0.002\"}} {two}\n\
                 h_bucket{{le=\"+Inf\"}} {all}\n"
            )
        };
        for (before, after, part, expected) in [
            ([10, 10, 20], [10, 110, 120], 0.5, Some(0.0015)),
            ([0, 0, 0], [50, 99, 100], 0.25, Some(0.0005)),
            ([0, 0, 0], [50, 99, 100], 1.0, Some(0.002)),
            ([5, 5, 5], [5, 5, 5], 0.5, None),
            ([90, 90, 90], [10, 10, 10], 0.5, Some(0.0005)),
        ] {
            let (before, after) = pages(&page(before), &page(after), 1);
            let found = Between::new(&before, &after).quantile(part, "h", |_| true);
            let is_close = match (found, expected) {
                (Some(found), Some(expected)) => f64::abs(found - expected) < 1e-9,
                (found, expected) => found == expected,
            };
            assert!(is_close, "{found:?} is not {expected:?}");
        }
        let (before, after) = pages("", "", 1);
        assert_eq!(Between::new(&before, &after).quantile(0.5, "h", |_| true), None);
    }
}
