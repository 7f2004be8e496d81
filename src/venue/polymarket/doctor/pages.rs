//! Assumptions about the pages of a listing.

use std::collections::BTreeSet;

use super::assumption::{Assumption, RestsOn, Tally};
use super::seen::{Observation, PageSeen};

/// Returns the assumptions of this module.
pub(super) fn all() -> Vec<Box<dyn Assumption>> {
    vec![Box::new(CursorMoves::default()), Box::new(PageSize)]
}

/// Assumes that a cursor leads to different markets.
#[derive(Default)]
struct CursorMoves {
    listed: BTreeSet<String>,
}

impl Assumption for CursorMoves {
    fn name(&self) -> &'static str {
        "cursors lead to the next page"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Nothing
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Page(PageSeen { after, ids, next_cursor, origin, .. }) = seen else {
            return;
        };
        let known = ids.iter().filter(|id| self.listed.contains(*id)).count();
        self.listed.extend(ids.iter().cloned());
        if after.is_none() {
            return;
        }
        // A few markets may move from one page to another while the pages are read.
        if after == next_cursor {
            tally.breaks("the page has its own cursor", *origin);
        } else if known * 2 > ids.len() {
            tally.breaks(
                format!("{known} of {} markets were on the first page", ids.len()),
                *origin,
            );
        } else {
            tally.holds_with(format!("{} new markets", ids.len() - known));
        }
    }
}

/// Assumes that every page before the last one is full.
struct PageSize;

impl Assumption for PageSize {
    fn name(&self) -> &'static str {
        "pages have the requested size"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Nothing
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Page(PageSeen { limit, ids, next_cursor, origin, .. }) = seen else {
            return;
        };
        let is_last = next_cursor.is_none_or(|cursor| cursor.is_empty() || cursor == "LTE=");
        let count = ids.len();
        if count > *limit || (count < *limit && !is_last) {
            tally.breaks(format!("{count} markets of {limit}"), *origin);
        } else {
            tally.holds_with(format!("{count} of {limit}"));
        }
    }
}
