//! The credential that a request presents.
//!
//! Pure: it reads the values of two headers and does not check whether the credential is valid.

use super::api_key::KEY_MARKER;

/// The credential that identifies the caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Presented<'a> {
    /// No credential.
    Nothing,
    /// An API key, or whatever was sent in place of one.
    Key(&'a [u8]),
    /// An access token, or whatever was sent in place of one.
    Token(&'a str),
    /// An `Authorization` header other than `Bearer TEXT`; answered like a bad token.
    Unreadable,
}

/// The header that wins if both are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precedence {
    /// `X-API-Key`: everywhere but on bootstrap.
    Key,
    /// `Authorization`: on bootstrap.
    Bearer,
}

impl<'a> Presented<'a> {
    /// Reads the values of `X-API-Key` and `Authorization`.
    ///
    /// An empty value counts as absent, since clients send an empty header when their variable is
    /// unset. A bearer token that starts like an API key is treated as an API key.
    pub fn from_headers(
        api_key: Option<&'a [u8]>,
        authorization: Option<&'a [u8]>,
        precedence: Precedence,
    ) -> Self {
        let by_key = from_api_key(api_key.unwrap_or_default());
        let by_bearer = from_authorization(authorization.unwrap_or_default());
        let (first, second) = match precedence {
            Precedence::Key => (by_key, by_bearer),
            Precedence::Bearer => (by_bearer, by_key),
        };
        if first == Self::Nothing { second } else { first }
    }
}

/// Shows the kind of credential, never its text.
impl std::fmt::Debug for Presented<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Key(_) => "Key(…)",
            Self::Token(_) => "Token(…)",
            Self::Unreadable => "Unreadable",
        })
    }
}

fn from_api_key(value: &[u8]) -> Presented<'_> {
    match value.trim_ascii() {
        [] => Presented::Nothing,
        key => Presented::Key(key),
    }
}

fn from_authorization(value: &[u8]) -> Presented<'_> {
    let value = value.trim_ascii();
    if value.is_empty() {
        return Presented::Nothing;
    }
    let Some((scheme, rest)) = value.split_at_checked("Bearer".len()) else {
        return Presented::Unreadable;
    };
    if !scheme.eq_ignore_ascii_case(b"Bearer") || !rest.starts_with(b" ") {
        return Presented::Unreadable;
    }
    let credential = rest.trim_ascii_start();
    if credential.starts_with(KEY_MARKER.as_bytes()) {
        return Presented::Key(credential);
    }
    match std::str::from_utf8(credential) {
        Ok(token) => Presented::Token(token),
        Err(_) => Presented::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(api_key: Option<&str>, authorization: Option<&str>, expected: [Presented<'_>; 2]) {
        let found = [Precedence::Key, Precedence::Bearer].map(|precedence| {
            let api_key = api_key.map(str::as_bytes);
            Presented::from_headers(api_key, authorization.map(str::as_bytes), precedence)
        });
        assert!(found == expected, "{api_key:?} {authorization:?}: {found:?}");
    }

    #[test]
    fn a_single_header_decides() {
        use Presented::{Key, Nothing, Token, Unreadable};
        for (api_key, authorization, expected) in [
            (None, None, Nothing),
            (Some(""), None, Nothing),
            (Some("  "), Some(" "), Nothing),
            (Some(" ps_live_1\t"), None, Key(b"ps_live_1")),
            (Some("anything"), None, Key(b"anything")),
            (None, Some("Bearer a.b.c"), Token("a.b.c")),
            (None, Some("bEARER a.b.c"), Token("a.b.c")),
            (None, Some("Bearer   a.b.c "), Token("a.b.c")),
            (None, Some("Bearer a b"), Token("a b")),
            (None, Some("Bearer é"), Token("é")),
            (None, Some("Bearer ps_live_1"), Key(b"ps_live_1")),
            (None, Some("Bearer PS_LIVE_1"), Token("PS_LIVE_1")),
            (None, Some("Bearer"), Unreadable),
            (None, Some("Bearer "), Unreadable),
            (None, Some("Bearer\ta.b.c"), Unreadable),
            (None, Some("Bearera.b.c"), Unreadable),
            (None, Some("Basic dTpw"), Unreadable),
            (None, Some("a.b.c"), Unreadable),
            (None, Some("ps_live_1"), Unreadable),
            (None, Some("é"), Unreadable),
        ] {
            check(api_key, authorization, [expected; 2]);
        }
    }

    #[test]
    fn bootstrap_prefers_the_bearer_token() {
        use Presented::{Key, Token, Unreadable};
        check(Some("k"), Some("Bearer t"), [Key(b"k"), Token("t")]);
        check(Some("k"), Some("Bearer ps_live_2"), [Key(b"k"), Key(b"ps_live_2")]);
        check(Some("k"), Some("Basic x"), [Key(b"k"), Unreadable]);
        check(Some("k"), Some(""), [Key(b"k"); 2]);
        check(Some(""), Some("Bearer t"), [Token("t"); 2]);
    }

    #[test]
    fn a_token_must_be_utf_8() {
        let found = Presented::from_headers(None, Some(b"Bearer \xff\xfe"), Precedence::Bearer);
        assert_eq!(found, Presented::Unreadable);
    }

    #[test]
    fn debug_shows_no_credential() {
        let shown = [Presented::Key(b"hunter2"), Presented::Token("hunter2")];
        assert_eq!(format!("{shown:?}"), "[Key(…), Token(…)]");
    }
}
