//! Market names that are 32 bytes in hexadecimal, and their spellings.
//!
//! Version 2 of Polymarket's protocol has names of 31 bytes. The catalogue writes them as 62
//! digits; Polymarket's other services write 64, with `00` at the end. A market is listed under the
//! catalogue's spelling, and found under either width and in any case.

use std::borrow::Cow;
use std::fmt;

const BYTES: usize = 32;

/// A market's name as bytes, so that all spellings of a name compare equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConditionId([u8; BYTES]);

impl ConditionId {
    /// Parses `0x` followed by 62 or 64 hexadecimal digits. Returns `None` for anything else, such
    /// as another venue's names.
    pub fn of(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?.as_bytes();
        if !matches!(digits.len(), 62 | 64) {
            return None;
        }
        let mut id = [0; BYTES];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
        }
        Some(Self(id))
    }

    /// Returns the 62-digit spelling, which the catalogue uses for names of 31 bytes. Returns
    /// `None` if all 32 bytes are needed.
    fn narrow(self) -> Option<String> {
        (self.0[BYTES - 1] == 0).then(|| {
            let mut text = self.to_string();
            text.truncate(text.len() - 2);
            text
        })
    }
}

/// Formats as 64 digits in lower case, the way all services but the catalogue write names.
impl fmt::Display for ConditionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for ConditionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// Returns the name as 64 digits in lower case. Other kinds of names are returned unchanged.
pub fn wide(name: &str) -> Cow<'_, str> {
    let is_wide = name.len() == 2 + 2 * BYTES && !has_upper_case(name);
    match ConditionId::of(name) {
        Some(id) if !is_wide => Cow::Owned(id.to_string()),
        _ => Cow::Borrowed(name),
    }
}

fn has_upper_case(name: &str) -> bool {
    name.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Whether both names refer to the same market.
pub fn is_same(name: &str, other: &str) -> bool {
    // Lists are searched with this function, so it compares the leading digits before it parses.
    let [start, other_start] = [name, other].map(|name| name.as_bytes().get(..64));
    let is_alike =
        || start.zip(other_start).is_some_and(|(start, other)| start.eq_ignore_ascii_case(other));
    name == other
        || is_alike() && ConditionId::of(name).is_some_and(|id| ConditionId::of(other) == Some(id))
}

/// Calls `get` with each spelling of this name, beginning with the given one, and returns the first
/// result that is not `None`.
pub fn find<T>(name: &str, mut get: impl FnMut(&str) -> Option<T>) -> Option<T> {
    get(name).or_else(|| others(name).find_map(|other| get(&other)))
}

/// Iterates over the spellings to look up in the catalogue: the name as given, then its 62-digit
/// form if it may be a padded version of one.
pub fn catalogued(name: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let narrow = others(name).filter(|other| other.len() < name.len());
    std::iter::once(Cow::Borrowed(name)).chain(narrow.map(Cow::Owned))
}

/// Whether a name may have other spellings. Most names have none, and are recognised without being
/// parsed.
pub fn has_others(name: &str) -> bool {
    match name.len() {
        64 => true,
        66 => name.ends_with("00") || has_upper_case(name),
        _ => false,
    }
}

/// Iterates over a name's other spellings, in lower case.
pub fn others(name: &str) -> impl Iterator<Item = String> {
    let id = if has_others(name) { ConditionId::of(name) } else { None };
    let spellings = [id.map(|id| id.to_string()), id.and_then(ConditionId::narrow)];
    spellings.into_iter().flatten().filter(move |other| other != name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 31-byte name, written as 62 digits.
    fn narrow() -> String {
        format!("0x{}", "a1".repeat(31))
    }

    #[test]
    fn a_name_is_the_same_in_both_widths_and_in_any_case() {
        let (narrow, wide) = (narrow(), format!("{}00", narrow()));
        let other = format!("{narrow}01");
        for (name, same, is_expected) in [
            (&*narrow, &*wide, true),
            (&wide, &wide.to_uppercase().replace('X', "x"), true),
            (&narrow, &narrow.to_uppercase(), true),
            (&narrow, &other, false),
            (&narrow, &narrow[..62], false),
            ("m", "m", true),
            ("m", "M", false),
            ("0xa", "0xa00", false),
            ("", "0x", false),
        ] {
            assert_eq!(is_same(name, same), is_expected, "{name} {same}");
            assert_eq!(is_same(same, name), is_expected, "{same} {name}");
        }
        let other = format!("0x{}", "g".repeat(62));
        assert_eq!(ConditionId::of(&other), None);
        assert_eq!(ConditionId::of(&wide).map(|id| id.to_string()), Some(wide));
    }

    #[test]
    fn each_service_gets_its_width() {
        let (narrow, of_32_bytes) = (narrow(), format!("0x{}", "0B".repeat(32)));
        assert_eq!(super::wide(&narrow), format!("{narrow}00"));
        assert_eq!(super::wide(&of_32_bytes), of_32_bytes.to_lowercase());
        assert_eq!(super::wide("0xa"), "0xa");
        let spelled = |name: &str| others(name).collect::<Vec<_>>();
        assert_eq!(spelled(&narrow), [format!("{narrow}00")]);
        assert!(spelled(&format!("{narrow}00")).iter().eq([&narrow]));
        assert_eq!(spelled(&of_32_bytes), [of_32_bytes.to_lowercase()]);
        assert!(spelled("0xa").is_empty());
        assert!(catalogued(&narrow).eq([narrow.as_str()]));
        assert!(catalogued(&format!("{narrow}00")).eq([format!("{narrow}00"), narrow.clone()]));
        let listed = |name: &str| (name == narrow).then_some(7);
        assert_eq!(
            find(&format!("{}00", narrow.to_uppercase()).replace('X', "x"), listed),
            Some(7)
        );
        assert_eq!(find("0xa", listed), None);
    }
}
