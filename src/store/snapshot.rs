//! Snapshots: checkpoints of all shards at the end of a segment, so that startup need not read the
//! whole journal.
//!
//! A snapshot is folded from files only: the previous snapshot and the segments closed since
//! ([`fold`]). The shards are not involved and never wait for it. Each fold rehearses the next
//! recovery with the same code: if a state does not match the hash that its shard wrote into the
//! journal, the fold detects it while the correct files still exist.
//!
//! Finished orders never change, so they are written once, into order files that later snapshots
//! refer to; everything else is rewritten each time. [`state`] defines the bytes, [`container`] the
//! files, [`folder`] the directories.
//!
//! # Steps
//!
//! 1. Once enough bytes of the journal are in closed segments, or once any segment is closed and
//!    enough time has passed, the fold begins, on a limited share of one processor.
//! 2. Both files are written under temporary names and synced. The order file is renamed first,
//!    then the snapshot; from then on the snapshot is valid.
//! 3. Covered segments move into the archive. Snapshots older than the previous one and archived
//!    segments beyond the limit are removed, but never the files needed to go back by one snapshot.
//!
//! A crash between two steps leaves either the old state or the new one, plus files that the next
//! startup removes or moves into place.
//!
//! # Failures
//!
//! | what | reaction |
//! |---|---|
//! | disk full, or an operation fails | no snapshot; partial files are removed; retried later |
//! | wrong segment, record or hash | no snapshot; an error is logged; the files stay |
//! | damaged snapshot at start | the server refuses to start and says how to go back by one |

mod ahead;
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

pub use ahead::{Ahead, read_ahead};
pub use container::{ContainerError, VERSION as SNAPSHOT_VERSION};
pub use fold::{FoldError, FoldReport};
pub use folder::Folder;
pub(crate) use index::{RecordIndex, RefusedRecord};
pub use keeper::{SnapshotConfig, SnapshotKeeper, SnapshotMetrics, Upkeep};
pub use load::{LoadError, Snapshot};
pub use pace::{Pace, Stopped};
#[cfg(any(test, feature = "test-util"))]
pub use recover::open_stepped;
pub use recover::{
    Opened, RecoverError, RecoverReport, Recovered, open, open_ahead, raises_format,
};
pub use replay::{RecordObserver, ReplayError, ShardState};
pub use state::ShardError;

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
