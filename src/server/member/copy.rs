//! The data of a new node: a copy of another one's, when the log alone is not enough. Brokers
//! remove blocks in time, and a log may begin with the data of a single server.
//!
//! The copy is made in the node's data folder itself, which may be all that the node may write to.
//! Until it is complete and verified, a file says that it is not: a start begins anew.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::str::FromStr;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use tokio::runtime::Handle;

use super::{BROKERS_PAUSE, TRIES_PER_WARNING};
use crate::backup::parts::{self, File, PIECE_BYTES_MAX, Part, Pieces};
use crate::cluster::copies::{ANSWER_BYTES_MAX, AskError, Peer};
use crate::cluster::origin::newest_record;
use crate::cluster::{ClusterFile, OpenLog};
use crate::disk::Disk;
use crate::inspect::verify;
use crate::journal::replicated::{Extent, Log, NodeName};
use crate::journal::{
    ARCHIVE_NAME, CLUSTER_COPY_NAME, DataDirectory, SEGMENT_BYTES_MAX, UNFINISHED_NAME,
};
use crate::snapshot::Folder;

const _: () = assert!(PIECE_BYTES_MAX <= ANSWER_BYTES_MAX);

/// What a new node asks another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    /// What a copy consists of.
    Parts,
    /// This many bytes of a file, from this offset.
    Read { file: File, offset: u64, bytes: usize },
}

/// Answers questions about the data in this folder, while a node runs on it.
pub(super) fn answers(folder: Folder) -> impl FnMut(&str) -> Result<Vec<u8>, String> {
    let mut pieces = Pieces::of(folder.clone());
    move |question| match Question::from_str(question).map_err(|error| error.to_string())? {
        Question::Parts => {
            pieces = Pieces::of(folder.clone());
            let parts = parts::parts(&folder).map_err(|error| error.to_string())?;
            let mut text = String::new();
            for part in parts {
                writeln!(text, "{} {} {}", Named(part.file), part.bytes, part.room_bytes)
                    .expect("text grows");
            }
            Ok(text.into_bytes())
        }
        Question::Read { file, offset, bytes } => {
            let mut piece = vec![0; bytes];
            pieces.read(file, offset, &mut piece).map_err(|error| error.to_string())?;
            Ok(piece)
        }
    }
}

/// Whether the folder has no data, and the log does not begin with the first record.
pub(super) async fn is_needed<L: Log>(folder: &Folder, log: &OpenLog<L>) -> anyhow::Result<bool> {
    let disk = &folder.disk;
    let is_unfinished = disk.exists(&folder.path().join(UNFINISHED_NAME))?;
    let has_data = !folder.snapshot_numbers()?.is_empty()
        || !folder.archived_numbers()?.is_empty()
        || newest_record(disk, &folder.begun_segments()?)?.is_some();
    if has_data && !is_unfinished {
        return Ok(false);
    }
    Ok(is_unfinished || log.origin.is_some() || first_block(&log.log).await > 1)
}

/// The sequence of the first block, once the brokers say what it is.
async fn first_block(log: &impl Log) -> u64 {
    let mut tries = 0;
    loop {
        match log.extent().await {
            Ok(Extent { first, .. }) => return first,
            Err(error) => {
                if tries % TRIES_PER_WARNING == 0 {
                    tracing::warn!(%error, "waiting for the brokers");
                }
                tries += 1;
                tokio::time::sleep(BROKERS_PAUSE).await;
            }
        }
    }
}

/// Fills a data folder that holds nothing of value with a copy of another node's, however long that
/// takes. Waits for the disk, and for the brokers on their thread.
pub(super) fn fill(folder: &Path, file: &ClusterFile, brokers: &Handle) -> anyhow::Result<()> {
    let directory = DataDirectory::open(Disk::System, folder)?;
    let disk = directory.disk();
    let unfinished = folder.join(UNFINISHED_NAME);
    disk.create(&unfinished)?;
    disk.sync_directory(folder)?;
    let to = Folder::new(disk.clone(), folder);
    for tries in 0.. {
        let copied = brokers.block_on(Peer::find(file)).map_err(anyhow::Error::from);
        let copied = copied.and_then(|peer| {
            let ask = |question: Question| brokers.block_on(peer.ask(question.to_string()));
            copy(&to, &peer.node, ask)
        });
        match copied {
            Ok(()) => break,
            Err(error) if is_nobody(&error) => {
                if tries % TRIES_PER_WARNING == 0 {
                    tracing::warn!(
                        "no other node offers its data yet, and the brokers no longer have the \
                         beginning of the log: start a node that has data"
                    );
                }
            }
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "the copy failed, beginning anew");
            }
        }
        thread::sleep(BROKERS_PAUSE);
    }
    disk.remove_file(&unfinished)?;
    Ok(disk.sync_directory(folder)?)
}

fn is_nobody(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(AskError::Nobody))
}

/// Copies the data of this node, and checks it as a start would.
fn copy(
    to: &Folder,
    from: &NodeName,
    ask: impl Fn(Question) -> Result<Bytes, AskError>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    clear(to)?;
    let parts = parse_parts(&ask(Question::Parts)?)?;
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    tracing::info!(%from, files = parts.len(), bytes, "copying another node's data");
    parts::write(to, &parts, |file, offset, piece: &mut [u8]| {
        let answer = ask(Question::Read { file, offset, bytes: piece.len() })?;
        ensure!(answer.len() == piece.len(), "a piece of {} has another length", Named(file));
        piece.copy_from_slice(&answer);
        anyhow::Ok(())
    })?;
    let verified = verify(to.path())?;
    if let Some(damage) = verified.damage {
        bail!("the copy is damaged: {}", damage.message);
    }
    let (position, elapsed_ms) = (verified.last_position, began.elapsed().as_millis());
    tracing::info!(%from, position, elapsed_ms, "copied another node's data");
    Ok(())
}

/// Removes what an unfinished copy has left.
fn clear(folder: &Folder) -> anyhow::Result<()> {
    let disk = &folder.disk;
    for directory in [folder.snapshots(), folder.journal(), folder.path().join(ARCHIVE_NAME)] {
        disk.remove_directory(&directory)?;
    }
    for file in [folder.price_hours(), folder.path().join(CLUSTER_COPY_NAME)] {
        if disk.exists(&file)? {
            disk.remove_file(&file)?;
        }
    }
    Ok(disk.sync_directory(folder.path())?)
}

fn parse_parts(text: &[u8]) -> anyhow::Result<Vec<Part>> {
    let text = str::from_utf8(text)?;
    let parse = |line: &str| {
        let mut words = line.rsplitn(3, ' ');
        let mut next = || words.next().context("a word is missing");
        let (room_bytes, bytes) = (next()?.parse()?, next()?.parse()?);
        let part = Part { file: next()?.parse::<Named>()?.0, bytes, room_bytes };
        let room_max = match part.file {
            File::Segment(_) => SEGMENT_BYTES_MAX,
            _ => bytes,
        };
        ensure!((bytes..=room_max).contains(&room_bytes), "{bytes} bytes in {room_bytes}");
        anyhow::Ok(part)
    };
    let parts = text.lines().map(|line| parse(line).with_context(|| format!("part {line:?}")));
    parts.collect()
}

/// A file, as questions and answers name it.
struct Named(File);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            File::Snapshot(number) => write!(f, "snapshot {number}"),
            File::Orders(number) => write!(f, "orders {number}"),
            File::Segment(number) => write!(f, "segment {number}"),
            File::PriceHours => f.write_str("price-hours"),
            File::Mark => f.write_str("mark"),
        }
    }
}

impl FromStr for Named {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (kind, number) = text.split_once(' ').unwrap_or((text, ""));
        Ok(Self(match (kind, number) {
            ("snapshot", number) => File::Snapshot(number.parse()?),
            ("orders", number) => File::Orders(number.parse()?),
            ("segment", number) => File::Segment(number.parse()?),
            ("price-hours", "") => File::PriceHours,
            ("mark", "") => File::Mark,
            _ => bail!("{text:?} is no file"),
        }))
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Parts => f.write_str("parts"),
            Self::Read { file, offset, bytes } => {
                write!(f, "read {} {offset} {bytes}", Named(file))
            }
        }
    }
}

impl FromStr for Question {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if text == "parts" {
            return Ok(Self::Parts);
        }
        let rest = text.strip_prefix("read ").context("an unknown question")?;
        let mut words = rest.rsplitn(3, ' ');
        let mut next = || words.next().context("a word is missing");
        let (bytes, offset) = (next()?.parse()?, next()?.parse()?);
        ensure!(bytes <= PIECE_BYTES_MAX, "{bytes} bytes are too many");
        Ok(Self::Read { file: next()?.parse::<Named>()?.0, offset, bytes })
    }
}

#[cfg(test)]
mod tests;
