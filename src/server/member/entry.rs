//! Admits a data folder to a cluster, provided that the log continues the folder's records.

use std::path::Path;

use anyhow::ensure;

use crate::cluster::OpenLog;
use crate::cluster::folder::Membership;
use crate::cluster::origin::{Origin, newest_record};
use crate::cluster::standby::retry_halted;
use crate::disk::Disk;
use crate::journal::Journal;
use crate::journal::replicated::{Log, NodeName, Owner, ReadError, Reader};
use crate::snapshot::{Folder, Recovered};
use paperbourse_core::faults::{self, Fault};

/// A node with its log and its open data folder.
pub(crate) struct Entry<'a, L> {
    pub(crate) node: &'a NodeName,
    pub(crate) log: &'a OpenLog<L>,
    pub(crate) disk: &'a Disk,
    pub(crate) folder: &'a Folder,
    /// The position of the folder's newest record.
    pub(crate) position: u64,
}

/// The result of comparing the newest record of a folder with the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Overlap {
    /// The log has the same record at that position.
    Same,
    /// The log has a different record at that position, or none.
    Different,
    /// The folder has no records, or its newest record is gone from the folder or the log.
    Unknown,
}

impl<L: Log + Clone> Entry<'_, L> {
    /// Returns a reader positioned after the folder's newest record, and the membership that the
    /// folder is now marked with. Refuses a folder whose records are not a prefix of the log.
    ///
    /// While no broker has an intact copy of a block, retries the read and calls `halted` each
    /// time.
    pub(crate) async fn enter(&self, halted: impl Fn()) -> anyhow::Result<(Reader<L>, Membership)> {
        let overlap = self.overlap(&halted).await?;
        let is_continued = self.position == 0 || overlap == Overlap::Same;
        // Seek before the folder is marked: a log that begins after this position needs another
        // folder.
        let seek = || Reader::seek(self.log.log.clone(), self.log.start(), self.position);
        let reader = until_whole(seek, halted).await?;
        let membership =
            Membership::require(self.disk, self.path(), self.log.id, self.node, is_continued)?;
        ensure!(
            overlap != Overlap::Different,
            "{} and the log of the cluster differ at record {}: the brokers have lost blocks that \
             this node has. Keep their files and this folder, and find out which of the two is \
             right: `paperbourse cluster repair` recreates the log from a folder",
            self.path().display(),
            self.position
        );
        Ok((reader, membership))
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Compares the folder's newest record with that of the log, or with the log's origin if the
    /// folder ends there.
    async fn overlap(&self, halted: impl Fn()) -> anyhow::Result<Overlap> {
        let Self { log, disk, position, .. } = *self;
        if position == 0 {
            return Ok(Overlap::Unknown);
        }
        let segments = self.folder.begun_segments()?;
        if let Some(origin) = log.origin.filter(|origin| origin.end.position == position) {
            let here = Origin::of(disk, &segments, 0)?;
            let is_same = here.is_some_and(|here| origin.is_origin_of(&here));
            return Ok(if is_same { Overlap::Same } else { Overlap::Different });
        }
        let read = || Reader::record(log.log.clone(), log.start(), position);
        let in_log = match until_whole(read, halted).await {
            Err(ReadError::Halted(halt)) if halt.reason.lies_before_the_log() => {
                return Ok(Overlap::Unknown);
            }
            in_log => in_log?,
        };
        let here = newest_record(disk, &segments)?.filter(|&(at, _)| at == position);
        Ok(match (in_log, here) {
            (Some(in_log), Some((_, here))) if in_log == here => Overlap::Same,
            (Some(_), None) => Overlap::Unknown,
            _ => Overlap::Different,
        })
    }
}

/// Retries a read while no broker has an intact copy of a block, and calls `halted` each time.
async fn until_whole<T, F>(read: impl Fn() -> F, halted: impl Fn()) -> Result<T, ReadError>
where
    F: Future<Output = Result<T, ReadError>>,
{
    loop {
        match read().await {
            Err(ReadError::Halted(halt)) => retry_halted(halt)?,
            other => return other,
        }
        halted();
    }
}

/// Refuses ownership of the log unless the folder holds exactly the log's records below the fence.
pub(crate) fn require_whole<L: Log>(
    owner: &Owner<L>,
    journal: &Journal,
    recovered: &Recovered,
) -> anyhow::Result<()> {
    if faults::is_on(Fault::FenceUnread) {
        return Ok(());
    }
    let (epoch, newest) = (owner.epoch(), recovered.newest_epoch());
    ensure!(
        newest <= epoch,
        "the folder has records of epoch {newest}, and the log is at {epoch}: set it aside and \
         start this node on an empty one"
    );
    let (position, found) = (owner.position(), journal.newest_lsn().position);
    ensure!(
        found == position,
        "the data folder ends at record {found}, and the log of the cluster at {position}: set it \
         aside and start this node on an empty one"
    );
    Ok(())
}
