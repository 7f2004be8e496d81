//! Preparations for startup, made while another server still serves: reading the data folder, and
//! following the venue.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

use super::ready;
use super::start::{self, SPEED_CONTEXT};
use crate::auth::identity::IdentitySource;
use crate::config::ServeArgs;
use crate::config::venue::VenueConfig;
use crate::disk::Disk;
use crate::engine::State;
#[cfg(feature = "cluster")]
use crate::journal::Journal;
use crate::limits::tier::{TierTable, Tiers};
use crate::market::Markets;
use crate::service::{Keys, ServiceError, key_table};
use crate::snapshot::{self, Ahead};
#[cfg(feature = "cluster")]
use crate::snapshot::{Folder, Recovered, SnapshotKeeper};
use crate::venue::VenueError;
use crate::venue::live::LiveVenue;
use crate::venue::speed::Speed;

/// The state prepared while the predecessor still serves.
pub(super) struct Prepared {
    pub(super) data: Beforehand,
    /// The keys and tiers of the states in `data`.
    pub(super) keys: KeysAndTiers,
    pub(super) identity: IdentitySource,
    /// The live venue, which publishes to its own markets until startup; `None` for other venues.
    pub(super) live: Option<Box<dyn LiveVenue>>,
}

/// The part of opening the data folder that has already been done.
pub(super) enum Beforehand {
    /// The folder was read, and another process may still write to it.
    Read(Ahead),
    /// The folder is open, and holds all records of the cluster's log.
    #[cfg(feature = "cluster")]
    Followed(Followed),
}

/// The data folder of a node that has followed the log and now owns it.
#[cfg(feature = "cluster")]
pub(super) struct Followed {
    pub(super) journal: Arc<Journal>,
    pub(super) recovered: Recovered,
    pub(super) folder: Folder,
    pub(super) snapshots: SnapshotKeeper,
}

/// The table of all keys, and the limits of each tier.
pub(super) type KeysAndTiers = (Arc<Keys>, Arc<TierTable>);

/// Builds the table of the keys in these states.
pub(super) fn keys_of<'s>(
    states: impl Iterator<Item = &'s State>,
    tiers: Tiers,
) -> Result<KeysAndTiers, ServiceError> {
    let keys = key_table(states, &tiers)?;
    Ok((Arc::new(keys), Arc::new(TierTable::new(tiers))))
}

/// Reads the data folder while the predecessor still serves, and fails if this process could not
/// start with it. A failure does not affect the predecessor. With `waits`, first gives a live venue
/// and an identity provider some time to deliver their books and keys.
pub(super) async fn prepare(
    arguments: &ServeArgs,
    data: &Path,
    waits: bool,
) -> anyhow::Result<Prepared> {
    let mut live = try_venue(arguments)?;
    start::warn_of_newer_format(data)?;
    let identity = start::open_identity(arguments)?;
    if waits {
        ready::get_ready(&mut live, &identity).await;
    }
    // As late as possible: records written from now on are read while no process serves.
    let (folder, tiers) = (data.to_owned(), arguments.limits().tiers);
    let read = tokio::task::spawn_blocking(move || {
        let ahead = snapshot::read_ahead(Disk::System, &folder, start::thread_count())
            .with_context(|| format!("failed to read --data {}", folder.display()))?;
        let keys = keys_of(ahead.states(), tiers)?;
        anyhow::Ok((ahead, keys))
    });
    let read = ready::following(&mut live, read).await;
    let (ahead, keys) = read.context("failed to read ahead")??;
    tracing::info!(
        records = ahead.records,
        elapsed_ms = ahead.elapsed.as_millis(),
        "read the data folder ahead of the start"
    );
    Ok(Prepared { data: Beforehand::Read(ahead), keys, identity, live })
}

/// Opens the venue as far as that is possible without contacting it, to detect errors. Returns the
/// venue if it is live.
pub(super) fn try_venue(arguments: &ServeArgs) -> anyhow::Result<Option<Box<dyn LiveVenue>>> {
    match arguments.venue.config()? {
        VenueConfig::Simulated { speed: Speed::Max, .. } => {
            Err(VenueError::Endless).context(SPEED_CONTEXT)
        }
        VenueConfig::Simulated { .. } => Ok(None),
        VenueConfig::Recorded { folder, .. } => start::load_recording(&folder).map(|_| None),
        VenueConfig::Live(config) => start::open_live(config, &Arc::new(Markets::new())).map(Some),
    }
}
