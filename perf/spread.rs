//! The median and the range of several values.

use serde::Serialize;

/// The median, lowest and highest of several values; NaN if there are none.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) lowest: f64,
    pub(crate) median: f64,
    pub(crate) highest: f64,
}

impl Spread {
    /// Calculates the spread of these values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(&lowest), Some(&highest)) = (values.first(), values.last()) else {
            return Self { lowest: f64::NAN, median: f64::NAN, highest: f64::NAN };
        };
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Self { lowest, median, highest }
    }

    /// Formats a table cell: the median, and the range unless all values are equal.
    pub(crate) fn cell(self, digits: usize) -> String {
        self.cell_of(|value| format!("{value:.digits$}"))
    }

    /// Like [`Self::cell`], with `text` as the format of each value.
    pub(crate) fn cell_of(self, text: impl Fn(f64) -> String) -> String {
        if self.median.is_nan() {
            return String::new();
        }
        let [lowest, median, highest] = [self.lowest, self.median, self.highest].map(&text);
        if lowest == highest { median } else { format!("{median} ({lowest}–{highest})") }
    }
}

/// Wraps a single value.
impl From<f64> for Spread {
    fn from(value: f64) -> Self {
        Self::of([value])
    }
}

/// Returns the median of a figure of these items.
pub(crate) fn median<'a, T: 'a>(
    samples: impl IntoIterator<Item = &'a T>,
    value: impl Fn(&T) -> f64,
) -> f64 {
    Spread::of(samples.into_iter().map(value)).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_value() {
        for (values, expected, cell) in [
            (&[3.0, 1.0, 2.0][..], (1.0, 2.0, 3.0), "2.0 (1.0–3.0)"),
            (&[4.0, 1.0, 2.0, 3.0], (1.0, 2.5, 4.0), "2.5 (1.0–4.0)"),
            (&[5.0], (5.0, 5.0, 5.0), "5.0"),
        ] {
            let (lowest, median, highest) = expected;
            let spread = Spread::of(values.iter().copied());
            assert_eq!(spread, Spread { lowest, median, highest });
            assert_eq!(spread.cell(1), cell);
        }
        assert_eq!(Spread::of([]).cell(0), "");
        assert!(median(&[], |value: &f64| *value).is_nan());
    }
}
