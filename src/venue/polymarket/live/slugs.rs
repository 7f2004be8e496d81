//! Warns the operator once about filters that match nothing: a slug that no market has (it may be
//! that of an event), or filters that no market passes.

use std::collections::HashSet;

use super::rest::Rest;

/// Maximum number of unknown slugs looked up as slugs of events, per list.
const EVENTS_ASKED_MAX: usize = 10;

/// Maximum number of slugs in one line of the log.
const SLUGS_SHOWN_MAX: usize = 5;

/// The warnings already given, and the slugs that need no warning.
#[derive(Default)]
pub(super) struct Untold {
    /// Slugs that a market has had, or that the operator was warned about.
    known_slugs: HashSet<String>,
    is_nothing_told: bool,
}

impl Untold {
    /// Warns about a list after all of its pages were read. `unknown` holds the filter's slugs that
    /// no listed market has, and `market_count` is the number of markets that passed the filter.
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

    /// Records the slugs of listed markets, which need no warning if these markets close later.
    pub(super) fn note_known<'a>(&mut self, slugs: impl Iterator<Item = &'a String>) {
        self.known_slugs.extend(slugs.cloned());
    }
}

/// Formats the first of these slugs and the number of the others.
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
