//! Orders of any kind: placing, reading and cancelling them. Amounts of money are strings.

pub(super) mod answer;
pub(super) mod cancel;
pub(super) mod list;
pub mod place;
pub(super) mod preview;
