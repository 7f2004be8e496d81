//! Snapshots: states at the end of a segment, so that a start need not read the whole journal.
//!
//! A snapshot is made from files only: the one before it and the segments closed since ([`fold`]).
//! The shards know nothing of it and never wait for it. It is a rehearsal of the next recovery,
//! with the same code: a state that does not have the hash that its shard wrote into the journal is
//! found out here, while the files that tell the truth are still there.
//!
//! Finished orders never change, so they are written once, into order files that later snapshots
//! name again; everything else is written anew each time ([`state`] draws the bytes, [`container`]
//! the files, [`folder`] where they lie).
//!
//! # What happens when
//!
//! 1. Enough segments are closed, or some and enough time has passed: the fold begins, with a
//!    share of one processor.
//! 2. Both files are written under other names and synced; the order file gets its name, then the
//!    snapshot. From here on it counts.
//! 3. Segments that it covers move into the archive; snapshots before the previous one and archived
//!    segments past the bound are removed. What is needed to go back by one snapshot stays.
//!
//! A crash between any two of these leaves the old state of affairs or the new one, and files that
//! the next start puts where they belong.
//!
//! # When something is wrong
//!
//! | what | reaction |
//! |---|---|
//! | the disk is full, an operation fails | no snapshot; what was begun is removed; tried again |
//! | a segment, record or hash is wrong | no snapshot; an error in the log; the files stay |
//! | a snapshot is damaged at start | the server refuses to start, and says how to go back by one |

mod container;
mod fold;
mod folder;
mod index;
mod keeper;
mod load;
mod manifest;
mod pace;
mod recover;
mod replay;
mod state;

pub use container::ContainerError;
pub use fold::{FoldError, FoldReport};
pub use folder::Folder;
pub(crate) use index::{RecordIndex, RefusedRecord};
pub use keeper::{SnapshotConfig, SnapshotKeeper, SnapshotMetrics};
pub use load::{LoadError, Snapshot};
pub use pace::Stopped;
pub use recover::{Opened, RecoverError, RecoverReport, Recovered, open};
pub use replay::{ReplayError, ShardState};
pub use state::ShardError;
#[cfg(test)]
pub(crate) use {keeper::Upkeep, pace::Pace, recover::open_stepped};

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
