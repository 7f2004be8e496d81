//! Handles the fields of an order that its operation does not read. A near miss of a field that
//! moves money is refused; any other field is named in the answer's `warnings`.
//!
//! None of this runs for a request whose fields are all known.

use super::Fields;
use crate::http::json::read::RawText;

/// Maximum number of warnings about one object; the last one counts the rest.
pub(in crate::http) const WARNINGS_MAX: usize = 8;

/// Maximum number of characters of an unknown name that a warning repeats. A credential is longer,
/// so a warning never repeats one in full.
const SHOWN_CHARACTERS_MAX: usize = 40;

/// Names that other services use for fields of an order, each with the name used here.
pub(in crate::http) const OTHER_NAMES: [(&str, &str); 9] = [
    ("limit_price", "price"),
    ("type", "order_type"),
    ("size", "quantity"),
    ("qty", "quantity"),
    ("shares", "quantity"),
    ("max_slippage", "max_slippage_bps"),
    ("slippage_bps", "max_slippage_bps"),
    ("slippage", "max_slippage_bps"),
    ("tif", "time_in_force"),
];

/// Fields of `POST /v1/orders` that `POST /trade` does not take. The value beside each field is
/// accepted, because it only describes what a trade does anyway.
pub(in crate::http) const NOT_OF_TRADES: [(&str, &str); 7] = [
    ("price", ""),
    ("limit_price", ""),
    ("amount", ""),
    ("order_type", "market"),
    ("time_in_force", "FOK"),
    ("expiration", ""),
    ("post_only", "false"),
];

/// Fields that known clients send but that have no effect here: an account has one wallet.
const WITHOUT_EFFECT: [&str; 1] = ["wallet_id"];

/// The fields that an operation reads.
pub(in crate::http) struct KnownFields {
    /// The names of the fields.
    pub(in crate::http) names: &'static [&'static str],
    /// The names to consider as corrections of a misspelt name.
    pub(in crate::http) meant: &'static [&'static str],
    /// Names used by other services, each with the name used here.
    pub(in crate::http) other_names: &'static [(&'static str, &'static str)],
    /// The fields that only `POST /v1/orders` takes, each with a value that changes nothing.
    pub(in crate::http) not_taken: &'static [(&'static str, &'static str)],
}

impl Fields<'_, '_> {
    /// Refuses near misses of the known fields, and returns a warning about each other unknown
    /// field, which is ignored. Must be called after all known fields have been read.
    #[inline]
    pub(in crate::http) fn judge_unknown(&mut self, known: &KnownFields) -> Vec<String> {
        if self.known_count == self.object.field_count() {
            return Vec::new();
        }
        self.judge_each_unknown(known)
    }

    #[cold]
    fn judge_each_unknown(&mut self, known: &KnownFields) -> Vec<String> {
        let mut ignored = Vec::new();
        let sent = std::mem::take(&mut self.object);
        for (name, value) in sent.fields() {
            let is_silent = WITHOUT_EFFECT.contains(&name) || value == RawText::NULL;
            if is_silent || known.names.contains(&name) {
                continue;
            }
            match known.near_miss(name, value) {
                Some((listed, advice)) => {
                    let message = format!("`{}` is not a field of this request{advice}", cut(name));
                    match listed {
                        Some(listed) => self.note(listed, "extra_forbidden", message),
                        None => self.note_object("extra_forbidden", message),
                    }
                }
                None => ignored.push(name),
            }
        }
        let sentences = warnings(&ignored, "is not a field of this request and was ignored");
        self.object = sent;
        sentences
    }
}

impl KnownFields {
    /// If the name is a near miss, returns advice on what to do instead. The advice comes with the
    /// name if a table lists the name exactly.
    fn near_miss(&self, name: &str, value: RawText<'_>) -> Option<(Option<&'static str>, String)> {
        if let Some((listed, harmless)) = listed(self.not_taken, name) {
            let is_harmless = match value {
                RawText::Plain(text) => text.eq_ignore_ascii_case(harmless),
                RawText::Other(text) => text == harmless,
            };
            let advice = if listed.ends_with("price") {
                "; did you mean `expected_price`? A limit price goes to POST /v1/orders, as `price`"
            } else {
                "; POST /v1/orders takes it"
            };
            return (!is_harmless).then(|| (exact(listed, name), advice.to_owned()));
        }
        let (listed, meant) = match listed(self.other_names, name) {
            Some((listed, meant)) => (exact(listed, name), meant),
            None => (None, closest(name, self.meant).filter(|meant| *meant != name)?),
        };
        Some((listed, format!("; did you mean `{meant}`?")))
    }
}

/// Returns the row of a table whose name differs from this one at most in case and punctuation.
fn listed(
    rows: &[(&'static str, &'static str)],
    name: &str,
) -> Option<(&'static str, &'static str)> {
    let letters = letters(name);
    rows.iter().copied().find(|(row, _)| self::letters(row) == letters)
}

fn exact(listed: &'static str, name: &str) -> Option<&'static str> {
    (listed == name).then_some(listed)
}

/// Returns the known name that this one most likely misspells: one with the same letters, with one
/// mistake if it has at least five letters, or with two if it has at least ten.
pub(in crate::http) fn closest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    // A name this long is not close to any known one.
    if name.len() > SHOWN_CHARACTERS_MAX {
        return None;
    }
    let sent = letters(name);
    let distances = known.iter().filter_map(|&known| {
        let letters = letters(known);
        let mistakes_max = letters.len() / 5;
        // A swap of two neighbours is one mistake.
        let mistakes = strsim::osa_distance(&sent, &letters);
        (mistakes <= mistakes_max.min(2)).then_some((mistakes, known))
    });
    distances.min_by_key(|(mistakes, _)| *mistakes).map(|(_, known)| known)
}

/// Returns the letters and digits of a name, in lower case, so that `limitPrice` and `limit_price`
/// are the same name.
fn letters(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.take(SHOWN_CHARACTERS_MAX).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Returns a sentence about each name. If there are more than [`WARNINGS_MAX`] names, the last
/// sentence counts those that are left out.
pub(in crate::http) fn warnings(names: &[impl AsRef<str>], fault: &str) -> Vec<String> {
    let shown = if names.len() > WARNINGS_MAX { WARNINGS_MAX - 1 } else { names.len() };
    let mut sentences: Vec<String> =
        names[..shown].iter().map(|name| format!("`{}` {fault}.", cut(name.as_ref()))).collect();
    if names.len() > shown {
        sentences.push(format!("{} more were ignored.", names.len() - shown));
    }
    sentences
}

/// Makes a name safe to show anywhere: in ASCII, without control characters, and not too long.
fn cut(name: &str) -> String {
    let mut shown: String = name.chars().take(SHOWN_CHARACTERS_MAX).collect();
    if shown.len() < name.len() {
        shown.push_str("...");
    }
    shown.escape_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_has_few_mistakes() {
        let known = ["price", "quantity", "post_only", "max_slippage_bps", "side", "outcome"];
        for (name, expected) in [
            ("pirce", Some("price")),
            ("Price", Some("price")),
            ("prices", Some("price")),
            ("prize", Some("price")),
            ("pric", Some("price")),
            ("pr", None),
            ("quanity", Some("quantity")),
            ("quantiyt", Some("quantity")),
            ("postOnly", Some("post_only")),
            ("post-only", Some("post_only")),
            ("maxSlipageBps", Some("max_slippage_bps")),
            ("max_slipage_bp", Some("max_slippage_bps")),
            // Too short for a mistake.
            ("site", None),
            ("SIDE", Some("side")),
            ("income", None),
            ("note", None),
            ("", None),
            ("é", None),
            (&"price".repeat(20), None),
        ] {
            assert_eq!(closest(name, &known), expected, "{name}");
        }
    }

    #[test]
    fn what_is_named_is_bounded_and_printable() {
        let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
        let sentences = warnings(&names, "is odd");
        assert_eq!(sentences.len(), WARNINGS_MAX);
        assert_eq!((&*sentences[0], &*sentences[7]), ("`n0` is odd.", "13 more were ignored."));
        assert_eq!(warnings(&names[..8], "is odd").len(), 8);
        let odd = warnings(&["a\r\nb\u{1b}é\"", &"k".repeat(72)], "is odd");
        assert_eq!(odd[0], r#"`a\r\nb\u{1b}\u{e9}\"` is odd."#);
        assert_eq!(odd[1], format!("`{}...` is odd.", "k".repeat(40)));
    }
}
