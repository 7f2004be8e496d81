//! Formatting of values in reports.

use std::fmt;

use serde::{Serialize, Serializer};

/// A value that is a string in JSON: amounts of money and sizes must not become floats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text<T>(pub T);

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<T: fmt::Display> fmt::Display for Text<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A number with thousands separators: `1,234,567`.
pub(super) struct Grouped(pub(super) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        formatter.pad_integral(true, "", &text)
    }
}

/// Formats a count with its noun, which takes a plural `s` unless the count is 1.
pub fn count(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", Grouped(count), if count == 1 { "" } else { "s" })
}

/// Formats a range of numbered items.
pub fn run(noun: &str, first: u64, last: u64) -> String {
    if first == last { format!("{noun} {first}") } else { format!("{noun}s {first} to {last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, expected) in [
            (0, "0 records"),
            (1, "1 record"),
            (999, "999 records"),
            (1_000, "1,000 records"),
            (1_234_567, "1,234,567 records"),
            (u64::MAX, "18,446,744,073,709,551,615 records"),
        ] {
            assert_eq!(count(number, "record"), expected);
        }
        assert_eq!(format!("{:>7}", Grouped(1_000)), "  1,000");
        assert_eq!(run("segment", 3, 3), "segment 3");
        assert_eq!(run("segment", 3, 4), "segments 3 to 4");
    }
}
