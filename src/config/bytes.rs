//! Sizes in bytes, as operators write them: `4096`, `64M`, `2G`.

use std::ops::RangeInclusive;

/// The units, each 1024 times as large as the one before it.
const UNITS: [char; 4] = ['K', 'M', 'G', 'T'];

/// Returns a parser for sizes within `bounds`: a whole number, alone or with a unit. `K`, `k`, `Ki`
/// and `KiB` all mean 1024 bytes. `KB` is rejected, since it can also mean 1000.
pub(super) fn bytes(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let bytes = parse(text).ok_or(
            "not a number of bytes: use a whole number, alone or with K, M, G or T (powers of \
             1024), such as 512M",
        )?;
        match bytes {
            bytes if bytes < *bounds.start() => {
                Err(format!("too little: use {} or more", display(*bounds.start())))
            }
            bytes if bytes > *bounds.end() => {
                Err(format!("too much: use {} or less", display(*bounds.end())))
            }
            bytes => Ok(bytes),
        }
    }
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|char: char| !char.is_ascii_digit());
    // `parse` would also read a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    let mut unit = text[digits.len()..].chars();
    let Some(letter) = unit.next() else { return Some(number) };
    let index = UNITS.iter().position(|known| *known == letter.to_ascii_uppercase())?;
    let is_unit = matches!(unit.as_str(), "" | "i" | "iB");
    is_unit.then(|| number.checked_mul(1 << (10 * (index + 1))))?
}

/// Formats a size with the largest unit that divides it, in the syntax that [`bytes()`] reads.
pub fn display(bytes: u64) -> String {
    let (mut number, mut unit) = (bytes, None);
    for next in UNITS {
        if number == 0 || !number.is_multiple_of(1024) {
            break;
        }
        (number, unit) = (number / 1024, Some(next));
    }
    unit.map_or_else(|| number.to_string(), |unit| format!("{number}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_a_power_of_1024() {
        for (text, expected) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("0010", Some(10)),
            ("1K", Some(1 << 10)),
            ("64k", Some(64 << 10)),
            ("3Ki", Some(3 << 10)),
            ("3KiB", Some(3 << 10)),
            ("512M", Some(512 << 20)),
            ("2G", Some(2 << 30)),
            ("2gi", Some(2 << 30)),
            ("1T", Some(1 << 40)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16777216T", None),
            ("2GB", None),
            ("2 G", None),
            ("1.5G", None),
            ("1e9", None),
            ("-1", None),
            ("+1", None),
            ("-1K", None),
            ("G", None),
            ("", None),
            ("2P", None),
            ("2KK", None),
            ("2é", None),
            ("é2", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_displayed_reads_as_the_same() {
        for (bytes, expected) in [
            (0, "0"),
            (1, "1"),
            (1023, "1023"),
            (1025, "1025"),
            (64 << 10, "64K"),
            (1536 << 10, "1536K"),
            (256 << 20, "256M"),
            (10 << 30, "10G"),
            (2048 << 40, "2048T"),
        ] {
            assert_eq!(display(bytes), expected);
            assert_eq!(parse(expected), Some(bytes));
        }
    }

    #[test]
    fn a_size_out_of_bounds_is_told_the_bound() {
        let size = bytes(64 << 10..=1 << 30);
        assert_eq!((size("64K"), size("1G")), (Ok(64 << 10), Ok(1 << 30)));
        for (text, expected) in [
            ("65535", "too little: use 64K or more"),
            ("1025M", "too much: use 1G or less"),
            ("x", "not a number of bytes: use a whole number"),
        ] {
            let error = size(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
