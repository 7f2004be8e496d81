//! Reads and validates the fields of a JSON object. Errors are collected, so that a client gets all
//! of them at once.

mod unknown;

use std::borrow::Cow;

pub(super) use unknown::{KnownFields, NOT_OF_TRADES, OTHER_NAMES, closest, warnings};

use super::invalid::{FieldError, Location};
use super::json::read::{self as json, List, Object, RawText};
use paperbourse_core::money::{
    DECIMAL_TEXT_BYTES_MAX, DecimalError, MICROS_PER_UNIT, Rounding, micros_from_text,
};

/// Reads the fields of one object. The object's location comes first in the location of each error.
pub(super) struct Fields<'a, 'e> {
    object: Object<'a>,
    location: Location,
    errors: &'e mut Vec<FieldError>,
    /// Number of the object's fields that were read; each is read at most once.
    known_count: usize,
}

/// The range of a number, in millionths.
pub(super) struct Range {
    /// An exclusive lower bound, if there is one.
    pub(super) above: Option<i64>,
    /// The inclusive lower bound.
    pub(super) min: i64,
    /// The inclusive upper bound.
    pub(super) max: i64,
}

impl<'a, 'e> Fields<'a, 'e> {
    pub(super) fn new(
        object: Object<'a>,
        location: Location,
        errors: &'e mut Vec<FieldError>,
    ) -> Self {
        Self { object, location, errors, known_count: 0 }
    }

    /// Returns the raw value; `None` if it is absent or null.
    #[inline]
    pub(super) fn optional(&mut self, name: &str) -> Option<RawText<'a>> {
        let value = self.object.find(name)?;
        self.known_count += 1;
        (value != RawText::NULL).then_some(value)
    }

    /// Returns the raw value. Adds an error if it is absent or null.
    #[inline]
    pub(super) fn required(&mut self, name: &'static str) -> Option<RawText<'a>> {
        let value = self.optional(name);
        if value.is_none() {
            self.note(name, "missing", "the field is required");
        }
        value
    }

    /// Returns the raw value; `None` if it is null. Adds an error if it is absent.
    pub(super) fn nullable(&mut self, name: &'static str) -> Option<RawText<'a>> {
        if self.object.has(name) { self.optional(name) } else { self.required(name) }
    }

    /// Adds an error about a field.
    pub(super) fn note(
        &mut self,
        name: &'static str,
        kind: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) {
        let location = self.location.field(name);
        self.errors.push(FieldError { location, kind, message: message.into() });
    }

    /// Adds an error about the object itself.
    fn note_object(&mut self, kind: &'static str, message: String) {
        let location = self.location.clone();
        self.errors.push(FieldError { location, kind, message: message.into() });
    }

    /// Adds an error about an element of a list.
    pub(super) fn note_element(&mut self, name: &'static str, index: usize, mistake: Mistake) {
        let (kind, message) = mistake;
        let location = self.location.field(name).element(index);
        self.errors.push(FieldError { location, kind, message });
    }

    /// Reads text of any length.
    pub(super) fn text(&mut self, name: &'static str, value: RawText<'a>) -> Option<Cow<'a, str>> {
        let text = json::text(value);
        match &text {
            Some(_) => {}
            None if value.is_string() => {
                self.note(name, "string_unicode", "should be a string of valid Unicode");
            }
            None => self.note(name, "string_type", "should be a string"),
        }
        text
    }

    /// Reads text of `min` to `max` characters.
    pub(super) fn bounded_text(
        &mut self,
        name: &'static str,
        value: RawText<'a>,
        min: usize,
        max: usize,
    ) -> Option<Cow<'a, str>> {
        let text = self.text(name, value)?;
        self.check_length(name, &text, min, max).then_some(text)
    }

    /// Whether text has no control characters, except newlines and tabs if it may have several
    /// lines. Adds an error if not: control characters could move the cursor or change colours in a
    /// reader's terminal, or end a log line.
    pub(super) fn check_control_characters(
        &mut self,
        name: &'static str,
        text: &str,
        may_have_lines: bool,
    ) -> bool {
        let is_allowed = |character| may_have_lines && matches!(character, '\n' | '\t');
        if !text.contains(|character: char| character.is_control() && !is_allowed(character)) {
            return true;
        }
        let message = if may_have_lines {
            "should have no control characters but newlines and tabs"
        } else {
            "should have no control characters"
        };
        self.note(name, "string_pattern_mismatch", message);
        false
    }

    /// Whether text has `min` to `max` characters. Adds an error if not.
    pub(super) fn check_length(
        &mut self,
        name: &'static str,
        text: &str,
        min: usize,
        max: usize,
    ) -> bool {
        match check_length(text, min, max) {
            Ok(()) => true,
            Err((kind, message)) => {
                self.note(name, kind, message);
                false
            }
        }
    }

    /// Reads a number, in millionths. A JSON number is rounded as `noise` says; numeric text must
    /// be exact.
    #[inline]
    pub(super) fn micros(
        &mut self,
        name: &'static str,
        value: RawText<'a>,
        noise: Rounding,
        range: &Range,
    ) -> Option<i64> {
        let result = number(value, noise).and_then(|micros| range.check(micros));
        result.map_err(|(kind, message)| self.note(name, kind, message)).ok()
    }

    /// Reads a whole number, sent as a JSON number or as text. `5.0` counts as whole.
    #[inline]
    pub(super) fn integer(
        &mut self,
        name: &'static str,
        value: RawText<'a>,
        range: &Range,
    ) -> Option<i64> {
        let result = match number(value, Rounding::Exact) {
            // An out-of-range number is clamped to the greatest or least value, which has a
            // fraction. The range check below reports it instead.
            Ok(micros) if micros % MICROS_PER_UNIT != 0 && micros.abs() != i64::MAX => {
                Err(FRACTION)
            }
            Ok(micros) => range.check(micros).map(|micros| micros / MICROS_PER_UNIT),
            Err(("float_type", _)) => Err(("int_type", "should be an integer".into())),
            Err(("decimal_max_places", _)) => Err(FRACTION),
            Err((_, message)) => Err(("int_parsing", message)),
        };
        result.map_err(|(kind, message)| self.note(name, kind, message)).ok()
    }

    /// Reads true or false.
    pub(super) fn flag(&mut self, name: &'static str, value: RawText<'a>) -> Option<bool> {
        match value {
            RawText::Other("true") => Some(true),
            RawText::Other("false") => Some(false),
            _ => {
                self.note(name, "bool_type", "should be true or false");
                None
            }
        }
    }

    /// Reads one of several words, ignoring case.
    pub(super) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        value: RawText<'a>,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let text = json::text(value).unwrap_or_default();
        let choice = choices.iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
        if choice.is_none() {
            self.note(name, "enum", enum_message(choices));
        }
        choice.map(|(_, value)| *value)
    }

    /// Reads a list of `min` to `max` elements.
    pub(super) fn list(
        &mut self,
        name: &'static str,
        value: RawText<'a>,
        min: usize,
        max: usize,
    ) -> Option<Vec<RawText<'a>>> {
        let Some(list) = List::of_value(value, max) else {
            self.note(name, "list_type", "should be a list");
            return None;
        };
        let count = list.count;
        if count < min {
            self.note(
                name,
                "too_short",
                format!("should have at least {min} elements, not {count}"),
            );
            return None;
        }
        if count > max {
            self.note(name, "too_long", format!("should have at most {max} elements, not {count}"));
            return None;
        }
        Some(list.elements)
    }
}

/// The kind of an error, and its message.
pub(super) type Mistake = (&'static str, Cow<'static, str>);

const FRACTION: Mistake =
    ("int_from_float", Cow::Borrowed("should be an integer, without a fraction"));

impl Range {
    fn check(&self, micros: i64) -> Result<i64, Mistake> {
        let text = paperbourse_core::money::Shares::from_micros;
        if let Some(above) = self.above
            && micros <= above
        {
            Err(("greater_than", format!("should be greater than {}", text(above)).into()))
        } else if micros < self.min {
            let message = format!("should be greater than or equal to {}", text(self.min));
            Err(("greater_than_equal", message.into()))
        } else if micros > self.max {
            let message = format!("should be less than or equal to {}", text(self.max));
            Err(("less_than_equal", message.into()))
        } else {
            Ok(micros)
        }
    }
}

/// Returns the error message for text that is not one of these words.
pub(super) fn enum_message<T>(choices: &[(&str, T)]) -> String {
    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    format!("should be one of {}", words.join(", "))
}

/// Reads a number. A JSON number is rounded, because it may carry float noise; numeric text must be
/// exact.
#[inline]
fn number(value: RawText<'_>, noise: Rounding) -> Result<i64, Mistake> {
    let result = match value {
        RawText::Plain(text) => micros_from_text(text, Rounding::Exact),
        RawText::Other(text) => match text.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => micros_from_text(text, noise),
            Some(b'"') => match json::text(value) {
                Some(text) => micros_from_text(&text, Rounding::Exact),
                None => Err(DecimalError::Malformed),
            },
            _ => return Err(("float_type", "should be a number".into())),
        },
    };
    result.map_err(|error| match error {
        DecimalError::Malformed => ("float_parsing", "should be a decimal number".into()),
        DecimalError::TooLong => {
            let message =
                format!("should be a number of at most {DECIMAL_TEXT_BYTES_MAX} characters");
            ("float_parsing", message.into())
        }
        DecimalError::TooPrecise => {
            ("decimal_max_places", "should have at most 6 decimals when sent as a string".into())
        }
    })
}

/// Checks that text has `min` to `max` characters.
pub(super) fn check_length(text: &str, min: usize, max: usize) -> Result<(), Mistake> {
    // Text never has more characters than bytes, so the characters of most texts need not be
    // counted.
    let is_short_enough = text.len() <= max || text.chars().count() <= max;
    if !is_short_enough {
        Err(("string_too_long", format!("should have at most {max} characters").into()))
    } else if text.chars().take(min).count() < min {
        let plural = if min == 1 { "" } else { "s" };
        Err(("string_too_short", format!("should have at least {min} character{plural}").into()))
    } else {
        Ok(())
    }
}
