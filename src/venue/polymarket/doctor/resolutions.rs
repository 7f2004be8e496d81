//! Assumptions about the resolution sources.

use super::assumption::{Assumption, RestsOn, Tally};
use super::seen::Observation;
use crate::polymarket::resolution::{Pending, Resolution};

/// Returns the assumptions of this module.
pub(super) fn all() -> Vec<Box<dyn Assumption>> {
    vec![Box::new(SourcesAgree)]
}

/// Assumes that no two sources contradict each other about a closed market.
struct SourcesAgree;

impl Assumption for SourcesAgree {
    fn name(&self) -> &'static str {
        "resolution sources agree"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Payouts
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Resolution { id, reports, decision, origin } = seen else { return };
        match decision {
            Resolution::Pending(Pending::Contradiction) => {
                let said: Vec<String> = reports.iter().map(ToString::to_string).collect();
                tally.breaks(format!("{id}: {}", said.join("; ")), *origin);
            }
            // A pending resolution proves nothing yet.
            Resolution::Pending(why) => tally.note(format!("pending: {why:?}")),
            Resolution::Final { .. } => {
                tally.holds_with(format!("{} sources", reports.len()));
            }
        }
    }
}
