//! Warns the operator once about each filter that matches nothing: a slug that no market has, which
//! may be an event's, and a filter that leaves no market at all.

use std::collections::HashSet;

use super::rest::Rest;

/// How many slugs of the filter are looked up among those of events.
const EVENTS_ASKED_MAX: usize = 10;

/// How many slugs a line of the log has.
const SLUGS_SHOWN_MAX: usize = 5;

/// What was told so far.
#[derive(Default)]
pub(super) struct Untold {
    /// Slugs that a market has had, or of which the operator was told.
    known_slugs: HashSet<String>,
    is_nothing_told: bool,
}

impl Untold {
    /// A whole list was read. `unknown` are the slugs of the filter that no market on it has, and
    /// `market_count` is how many markets passed.
    pub(super) async fn tell(&mut self, rest: &Rest, unknown: &[String], market_count: usize) {
        let is_new = |slug: &&String| self.known_slugs.insert((*slug).clone());
        let new: Vec<&str> = unknown.iter().filter(is_new).map(String::as_str).collect();
        if !new.is_empty() {
            let slugs = first_few(&new);
            tracing::warn!(slugs, "--venue-slug: no open market has this slug");
        }
        for slug in new.iter().take(EVENTS_ASKED_MAX) {
            match rest.market_slugs(slug).await {
                Ok(markets) if markets.is_empty() => {}
                Ok(markets) => tracing::warn!(
                    slug,
                    markets = first_few(&markets),
                    "--venue-slug: this is the slug of an event; name its markets instead"
                ),
                Err(error) => tracing::warn!(slug, %error, "request for an event failed"),
            }
        }
        let is_nothing = market_count == 0;
        if is_nothing && !self.is_nothing_told {
            tracing::warn!("no open market passes the --venue filters, so none is followed");
        }
        self.is_nothing_told = is_nothing;
    }

    /// Markets with these slugs were listed: if they close, that is no mistake.
    pub(super) fn note_known<'a>(&mut self, slugs: impl Iterator<Item = &'a String>) {
        self.known_slugs.extend(slugs.cloned());
    }
}

/// The first of these slugs, and how many more there are.
fn first_few(slugs: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = slugs.iter().take(SLUGS_SHOWN_MAX).map(AsRef::as_ref).collect();
    let more_count = slugs.len() - shown.len();
    let more = if more_count > 0 { format!(" and {more_count} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_first_few_slugs() {
        for (slugs, expected) in [
            (&["a"][..], "a"),
            (&["a", "b", "c", "d", "e"], "a, b, c, d, e"),
            (&["a", "b", "c", "d", "e", "f", "g"], "a, b, c, d, e and 2 more"),
        ] {
            assert_eq!(first_few(slugs), expected);
        }
    }
}
