//! The query parameters of an operation, as described in its row.

use super::query::OFFSET_MAX;

/// A query parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name in the query.
    pub name: &'static str,
    /// The values that the parameter accepts.
    pub kind: ParameterKind,
    /// Whether a request without it is refused.
    pub is_required: bool,
    /// The purpose of the parameter, for the documentation; empty where the name is clear.
    pub summary: &'static str,
}

/// The kind of values that a parameter takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParameterKind {
    /// A whole number.
    Number {
        /// The minimum value.
        min: usize,
        /// The maximum value.
        max: usize,
        /// The value of an absent parameter.
        default: Option<usize>,
    },
    /// Any text.
    Text {
        /// The minimum number of characters.
        min: usize,
        /// The maximum number of characters.
        max: usize,
    },
    /// True or false.
    Flag,
    /// One of these words, in any case.
    Choice {
        /// The words.
        words: &'static [&'static str],
    },
    /// A time in RFC 3339, or a day.
    Time,
    /// Seconds since 1970, a time in RFC 3339, or a day.
    Seconds,
    /// A cursor that came with the previous page.
    Cursor,
    /// The id of a wallet, `api` or `all`.
    Wallet,
    /// Text in a form that only this operation reads.
    Own {
        /// The form, as a regular expression.
        pattern: &'static str,
    },
}

impl Parameter {
    /// The `offset` parameter, for lists that are paged by row number.
    pub(super) const OFFSET: Self =
        Self::number("offset", 0, OFFSET_MAX, "how many rows to skip").default(0);

    /// The `wallet_id` parameter.
    pub(super) const WALLET: Self = Self::new(
        "wallet_id",
        ParameterKind::Wallet,
        "the account's wallet, by its id or as `api` or `all`; there is only one",
    );

    const fn new(name: &'static str, kind: ParameterKind, summary: &'static str) -> Self {
        Self { name, kind, is_required: false, summary }
    }

    /// Describes a `limit` parameter with a minimum of 1.
    pub(super) const fn limit(default: usize, max: usize) -> Self {
        let kind = ParameterKind::Number { min: 1, max, default: Some(default) };
        Self::new("limit", kind, "the most rows to return")
    }

    pub(super) const fn number(
        name: &'static str,
        min: usize,
        max: usize,
        summary: &'static str,
    ) -> Self {
        Self::new(name, ParameterKind::Number { min, max, default: None }, summary)
    }

    pub(super) const fn text(
        name: &'static str,
        min: usize,
        max: usize,
        summary: &'static str,
    ) -> Self {
        Self::new(name, ParameterKind::Text { min, max }, summary)
    }

    pub(super) const fn flag(name: &'static str, summary: &'static str) -> Self {
        Self::new(name, ParameterKind::Flag, summary)
    }

    pub(super) const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        summary: &'static str,
    ) -> Self {
        Self::new(name, ParameterKind::Choice { words }, summary)
    }

    pub(super) const fn time(name: &'static str, summary: &'static str) -> Self {
        Self::new(name, ParameterKind::Time, summary)
    }

    pub(super) const fn seconds(name: &'static str, summary: &'static str) -> Self {
        Self::new(name, ParameterKind::Seconds, summary)
    }

    pub(super) const fn cursor(name: &'static str) -> Self {
        let summary = "the `next_cursor` of the page before";
        Self::new(name, ParameterKind::Cursor, summary)
    }

    pub(super) const fn own(
        name: &'static str,
        pattern: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(name, ParameterKind::Own { pattern }, summary)
    }

    pub(super) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// Sets the value of an absent parameter. Only number parameters have one.
    pub(super) const fn default(self, default: usize) -> Self {
        let kind = match self.kind {
            ParameterKind::Number { min, max, .. } => {
                ParameterKind::Number { min, max, default: Some(default) }
            }
            kind => kind,
        };
        Self { kind, ..self }
    }
}

/// Returns the words of a list of choices.
pub(super) const fn words<T: Copy, const N: usize>(
    choices: &[(&'static str, T); N],
) -> [&'static str; N] {
    let mut words = [""; N];
    let mut index = 0;
    while index < N {
        words[index] = choices[index].0;
        index += 1;
    }
    words
}
