//! Which requests, fills and frames meet trouble.

use std::collections::HashMap;

use super::{Extent, Kind, Plan, Scope};

/// Maximum number of subjects whose draws are counted: wallets, sockets, markets. Others meet no
/// trouble.
pub const SUBJECTS_MAX: usize = 100_000;

/// Trouble that was drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// The number of the draw, counted from 1 for its kind and subject.
    pub number: u64,
    /// The length, in milliseconds; 0 for kinds without one. Of a window that began before, what
    /// is left of it.
    pub length_ms: u32,
    /// Whether a window began before.
    pub goes_on: bool,
}

/// Decides what meets trouble. The n-th draw of a kind for a subject depends on the seed alone, so
/// the same seed and the same requests give the same trouble.
#[derive(Clone, Debug, Default)]
pub struct Draws {
    plan: Plan,
    counts: HashMap<(Kind, Box<str>), Count>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    draws: u64,
    /// When the open window ends, in milliseconds; in the past if none is open.
    open_until_ms: u64,
}

impl Draws {
    /// Creates draws that follow a plan.
    pub fn new(plan: Plan) -> Self {
        Self { plan, counts: HashMap::new() }
    }

    /// Returns the plan.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Follows another plan from now on. Open windows of kinds that the plan no longer has end.
    /// A new seed starts all counts again.
    pub fn follow(&mut self, plan: Plan) {
        if plan.seed != self.plan.seed {
            self.counts.clear();
        }
        let ended = self.counts.iter_mut().filter(|((kind, _), _)| !plan.has(*kind));
        ended.for_each(|(_, count)| count.open_until_ms = 0);
        self.plan = plan;
    }

    /// Draws once for a request, fill or frame of `subject` at `now_ms`. `wallet` is the wallet
    /// whose rules apply, if any. Returns the trouble that it meets.
    pub fn draw(
        &mut self,
        kind: Kind,
        subject: &str,
        wallet: Option<&str>,
        now_ms: u64,
    ) -> Option<Drawn> {
        let rule = self.plan.rule(kind, wallet)?;
        let key = (kind, Box::from(subject));
        if self.counts.len() >= SUBJECTS_MAX && !self.counts.contains_key(&key) {
            return None;
        }
        let count = self.counts.entry(key).or_default();
        count.draws += 1;
        let number = count.draws;
        if let Some(left_ms) = count.open_until_ms.checked_sub(now_ms).filter(|left| *left > 0) {
            let length_ms = u32::try_from(left_ms).unwrap_or(u32::MAX);
            return Some(Drawn { number, length_ms, goes_on: true });
        }
        let [chance, place] = random(self.plan.seed, kind, subject, number);
        if chance % 1_000_000 >= u64::from(rule.probability_ppm) {
            return None;
        }
        let (shortest, longest) = (*rule.length_ms.start(), *rule.length_ms.end());
        let span = u64::from(longest - shortest) + 1;
        let length_ms = shortest + u32::try_from(place % span).expect("the range is one of u32");
        if let Extent::Window(_) = kind.extent() {
            count.open_until_ms = now_ms + u64::from(length_ms);
        }
        Some(Drawn { number, length_ms, goes_on: false })
    }

    /// Returns what is left of an open window that all wallets meet, whichever wallet's draw has
    /// opened it, in milliseconds.
    pub fn open_to_all_ms(&self, kind: Kind, subject: &str, now_ms: u64) -> u64 {
        let count = self.counts.get(&(kind, Box::from(subject)));
        count.map_or(0, |count| count.open_until_ms.saturating_sub(now_ms))
    }

    /// Forgets the draws for frames of market sockets whose subjects begin like this.
    pub fn forget_frames(&mut self, prefix: &str) {
        self.counts.retain(|(kind, subject), _| {
            kind.scope() != Scope::MarketFrame || !subject.starts_with(prefix)
        });
    }
}

/// Returns two numbers that depend on all arguments, and look random.
fn random(seed: u64, kind: Kind, subject: &str, number: u64) -> [u64; 2] {
    let mut state = mixed(seed ^ 0x9e37_79b9_7f4a_7c15);
    for byte in kind.name().bytes().chain([0]).chain(subject.bytes()) {
        state = mixed(state ^ u64::from(byte));
    }
    let first = mixed(state ^ number);
    [first, mixed(first ^ 0xd1b5_4a32_d192_ed03)]
}

/// The finalizer of `SplitMix64`.
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
