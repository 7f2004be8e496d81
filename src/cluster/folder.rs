//! The file in a data folder that names the log to which the folder's records belong.
//!
//! Two folders that hold different records at the same position can never be reconciled. So a
//! folder joins a cluster only while it is empty or holds the log's own records, and is never
//! served standalone afterwards. A copy of the folder may be served standalone, but then no longer
//! belongs to the cluster.

use std::path::{Path, PathBuf};

use paperbourse_store::disk::{Disk, DiskError, temporary_name};
use paperbourse_store::journal::replicated::NodeName;
use paperbourse_store::journal::{CLUSTER_COPY_NAME, CLUSTER_NAME, LogId};

/// The maximum size of the file, in bytes. A longer file is damaged.
const FILE_BYTES_MAX: u64 = 1 << 10;

/// The log that a folder belongs to, and the last epoch its node owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// The id of the log.
    pub log: LogId,
    /// The node that uses the folder.
    pub node: NodeName,
    /// The last epoch that this node owned; 0 if it never owned the log.
    pub owned_epoch: u64,
}

/// Why a folder cannot be used in a cluster.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file is not in the format this server writes.
    #[error(
        "{} is damaged: set this node's folder aside and start it on an empty one",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The folder belongs to another log.
    #[error(
        "{} belongs to another log: start this node with the file of its cluster. If the log was \
         recreated from another node's folder, set this one aside and start on an empty one",
        folder.display()
    )]
    Foreign {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds records that are not known to belong to the log.
    #[error(
        "{} holds records that are not those of the cluster's log: start this node on an empty \
         folder. To begin a new cluster with these records, choose a cluster name that was never \
         used and run `paperbourse cluster init FILE --from DIR`",
        folder.display()
    )]
    Alone {
        /// The folder.
        folder: PathBuf,
    },
}

impl Membership {
    /// Reads the file in this folder; `None` if there is none.
    pub fn read(disk: &Disk, folder: &Path) -> Result<Option<Self>, FolderError> {
        Self::read_file(disk, folder.join(CLUSTER_NAME))
    }

    fn read_file(disk: &Disk, path: PathBuf) -> Result<Option<Self>, FolderError> {
        if !disk.exists(&path)? {
            return Ok(None);
        }
        let file = disk.open_read(&path)?;
        let mut bytes = Vec::new();
        let is_whole = file.read_into(&mut bytes, FILE_BYTES_MAX)?.is_some();
        let parsed = str::from_utf8(&bytes).ok().filter(|_| is_whole).and_then(Self::parse);
        parsed.map(Some).ok_or(FolderError::Damaged { path })
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("log ")?.strip_suffix('\n')?;
        let (log, rest) = rest.split_once(" node ")?;
        let (node, epoch) = rest.split_once(" epoch ")?;
        Some(Self {
            log: log.parse().ok()?,
            node: NodeName::new(node).ok()?,
            owned_epoch: epoch.parse().ok()?,
        })
    }

    /// Writes the file to the folder. It is durable when this returns.
    pub fn write(&self, disk: &Disk, folder: &Path) -> Result<(), FolderError> {
        let path = folder.join(CLUSTER_NAME);
        let Self { log, node, owned_epoch } = self;
        let text = format!("log {log} node {node} epoch {owned_epoch}\n");
        let temporary = temporary_name(&path);
        let file = disk.create(&temporary)?;
        file.append(text.as_bytes())?;
        file.sync_all()?;
        disk.rename(&temporary, &path)?;
        Ok(disk.sync_directory(folder)?)
    }

    /// Checks that a folder belongs to this log, and returns its membership. A folder without a
    /// membership file joins the log if it is a copy of a node's folder, or if `is_continued`: the
    /// folder is empty, or its newest record is in the log. The membership of a copy starts with no
    /// owned epoch.
    pub fn require(
        disk: &Disk,
        folder: &Path,
        log: LogId,
        node: &NodeName,
        is_continued: bool,
    ) -> Result<Self, FolderError> {
        match Self::read(disk, folder)? {
            Some(membership) if membership.log == log && membership.node == *node => Ok(membership),
            Some(membership) if membership.log == log => {
                Ok(Self { node: node.clone(), owned_epoch: 0, ..membership })
            }
            Some(_) => Err(FolderError::Foreign { folder: folder.to_owned() }),
            None => {
                let original = Self::read_file(disk, folder.join(CLUSTER_COPY_NAME))?;
                let is_copy = original.is_some_and(|original| original.log == log);
                if !is_copy && !is_continued {
                    return Err(FolderError::Alone { folder: folder.to_owned() });
                }
                let membership = Self { log, node: node.clone(), owned_epoch: 0 };
                membership.write(disk, folder)?;
                Ok(membership)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LOG: LogId = LogId::from_bytes([0xa5; 16]);

    #[test]
    fn a_folder_belongs_to_one_log() {
        let folder = tempfile::tempdir().unwrap();
        let node = |name| NodeName::new(name).unwrap();
        let require_as = |name, log, is_continued| {
            Membership::require(&Disk::System, folder.path(), log, &node(name), is_continued)
                .map(|membership| membership.owned_epoch)
                .map_err(|error| error.to_string())
        };
        let require = |log, is_continued| require_as("a", log, is_continued);
        assert!(require(LOG, false).unwrap_err().contains("not those of the cluster's log"));
        assert_eq!(require(LOG, true), Ok(0));
        assert_eq!(require(LOG, false), Ok(0), "it says so itself now");
        let owned = Membership { log: LOG, node: node("a"), owned_epoch: 12 };
        owned.write(&Disk::System, folder.path()).unwrap();
        assert_eq!(require(LOG, true), Ok(12));
        assert_eq!(require_as("b", LOG, true), Ok(0), "a copy has owned nothing");
        let copy = tempfile::tempdir().unwrap();
        fs::copy(folder.path().join(CLUSTER_NAME), copy.path().join(CLUSTER_COPY_NAME)).unwrap();
        for (log, expected) in [(LogId::from_bytes([1; 16]), None), (LOG, Some(0))] {
            let copied = Membership::require(&Disk::System, copy.path(), log, &node("c"), false);
            assert_eq!(copied.ok().map(|copied| copied.owned_epoch), expected);
        }
        let other = LogId::from_bytes([1; 16]);
        assert!(require(other, true).unwrap_err().contains("belongs to another log"));
        for damaged in ["", "log a5 node a epoch 1\n", "log a5", &"x".repeat(2_000)] {
            fs::write(folder.path().join(CLUSTER_NAME), damaged).unwrap();
            assert!(require(LOG, true).unwrap_err().contains("is damaged"), "{damaged}");
        }
    }
}
