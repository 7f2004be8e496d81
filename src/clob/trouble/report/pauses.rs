//! Requests that were refused for a while, and came again at once.

use std::collections::VecDeque;

use super::found::Found;
use super::unanswered::has_same_terms;
use super::{Example, Mistake};
use crate::trouble::{Act, ActKind, Kind, Met};

/// The shortest pause before a refused request is sent again, in milliseconds.
const PAUSE_MS: u64 = 500;

/// Maximum number of refused requests of a party that are remembered at a time.
const REFUSED_MAX: usize = 64;

/// The statuses of refusals that pass.
const PASSING: [u16; 5] = [403, 425, 429, 500, 503];

/// The requests of a party that were refused a moment ago.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    refused: VecDeque<Refused>,
    /// When the party may send requests again, in milliseconds, as the last 429 said.
    limited_until_ms: u64,
}

#[derive(Debug)]
struct Refused {
    act: Act,
    until_ms: u64,
}

impl Pauses {
    pub(super) fn met(&mut self, met: &Met) {
        if met.trouble == Kind::Limited {
            self.limited_until_ms = met.at_ms.saturating_add(met.length_ms.into());
        }
    }

    pub(super) fn act(&mut self, act: &Act, found: &mut Found) {
        self.refused.retain(|refused| act.at_ms < refused.until_ms);
        if let Some(at) = self.refused.iter().position(|refused| refused.is_repeated_by(act)) {
            self.refused.remove(at);
            found.add(Mistake::NoPause, || Example::of_act(act));
        }
        if !PASSING.contains(&act.status) || act.act == ActKind::Other {
            return;
        }
        let until_ms = match act.status {
            429 if act.at_ms < self.limited_until_ms => self.limited_until_ms,
            _ => act.at_ms.saturating_add(PAUSE_MS),
        };
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(Refused { act: act.clone(), until_ms });
    }
}

impl Refused {
    /// Whether a request asks for the same once more. Orders of a list have the same time; requests
    /// that were sent side by side are for different orders or books.
    fn is_repeated_by(&self, act: &Act) -> bool {
        let is_later = self.act.at_ms < act.at_ms && self.act.act == act.act;
        is_later
            && match (&self.act.order, &act.order) {
                (Some(one), Some(other)) => one.salt == other.salt || has_same_terms(one, other),
                _ => self.act.tokens == act.tokens,
            }
    }
}
