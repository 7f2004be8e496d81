//! Copies another node's data to a new node when the log alone is not enough: brokers trim old
//! blocks, and a log may begin with the data of a single server.
//!
//! The copy is made in a subfolder of the node's data folder, which may be the only place that the
//! node may write to. Once the copy is complete and verified, the subfolder is renamed to its final
//! name, and its contents are moved into the data folder, provided that no data is there. Only
//! copies are ever removed.
//!
//! ```text
//! incoming.tmp/   a copy that is being made, or was interrupted
//! incoming/       a whole copy, of which parts may have been moved
//! outrun/         a copy that the log no longer continues, while it is being removed
//! ```

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use tokio::runtime::Handle;

use super::{BROKERS_PAUSE, Tries};
use crate::backup::parts::{self, File, PIECE_BYTES_MAX, Part, Pieces};
use crate::cluster::copies::{ANSWER_BYTES_MAX, Answers, AskError, IDLE_MAX, Peer};
use crate::cluster::folder::Membership;
use crate::cluster::{ClusterFile, OpenLog};
use crate::disk::{Disk, DiskError, temporary_name};
use crate::inspect::{message, verify};
use crate::journal::replicated::{Extent, Log, NodeName, ReadError};
use crate::journal::{ARCHIVE_NAME, DataDirectory, LogId, SEGMENT_BYTES_MAX};
use crate::snapshot::Folder;

const _: () = assert!(PIECE_BYTES_MAX <= ANSWER_BYTES_MAX);

const INCOMING_NAME: &str = "incoming";
const OUTRUN_NAME: &str = "outrun";

/// Maximum number of times to request the same piece.
const ASKED_MAX: u32 = 3;

/// Maximum pause before the next try after a failed copy.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A question from a new node to the node that it copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    /// The list of a copy's files.
    Parts,
    /// `bytes` bytes of a file, starting at `offset`.
    Read { file: File, offset: u64, bytes: usize },
    /// The copy is complete, so other nodes may ask for one.
    Done,
}

/// A node's data, offered to one other node at a time.
pub(super) struct Offered {
    folder: Folder,
    log: LogId,
    /// The node that is copying, the pieces that it copies, and the time of its last question.
    copying: Option<(String, Pieces, Instant)>,
}

impl Offered {
    /// Offers the data in this folder. A node may be running on it.
    pub(super) const fn new(folder: Folder, log: LogId) -> Self {
        Self { folder, log, copying: None }
    }
}

impl Answers for Offered {
    fn answer(&mut self, asker: &str, question: &str) -> Result<Vec<u8>, String> {
        let question = Question::from_str(question).map_err(|error| format!("{error:#}"))?;
        let other = self.copying.as_ref().filter(|(known, ..)| known != asker);
        if other.is_some_and(|(.., asked)| asked.elapsed() <= IDLE_MAX) {
            return Err("another node is copying from it".to_owned());
        }
        match question {
            Question::Parts => {
                let listed = Pieces::of(self.folder.clone());
                let (parts, pieces) = listed.map_err(|error| message(&error))?;
                self.copying = Some((asker.to_owned(), pieces, Instant::now()));
                let mut text = format!("log {}\n", self.log);
                for Part { file, bytes, room_bytes } in parts {
                    writeln!(text, "{} {bytes} {room_bytes}", Named(file)).expect("text grows");
                }
                Ok(text.into_bytes())
            }
            Question::Read { file, offset, bytes } => {
                let known = self.copying.as_mut().filter(|(known, ..)| known == asker);
                let (_, pieces, asked) = known.ok_or("it was not asked for its parts")?;
                *asked = Instant::now();
                let mut piece = vec![0; bytes];
                pieces.read(file, offset, &mut piece).map_err(|error| message(&error))?;
                Ok(piece)
            }
            Question::Done => {
                self.copying = None;
                Ok(Vec::new())
            }
        }
    }

    fn idle(&mut self) {
        self.copying = None;
    }
}

/// Whether the node needs a copy: an earlier copy was interrupted, or the folder is empty and the
/// log does not begin with the first record. A folder with any content, even unreadable, is not
/// empty. Waits for the brokers.
pub(super) async fn is_needed<L: Log>(folder: &Folder, log: &OpenLog<L>) -> anyhow::Result<bool> {
    for name in [INCOMING_NAME, OUTRUN_NAME] {
        if folder.disk.exists(&folder.path().join(name))? {
            return Ok(true);
        }
    }
    Ok(is_empty(folder)? && (log.origin.is_some() || first_block(&log.log).await > 1))
}

fn is_empty(folder: &Folder) -> Result<bool, DiskError> {
    for place in places(folder) {
        if holds_something(folder, &place)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn holds_something(folder: &Folder, place: &Path) -> Result<bool, DiskError> {
    let is_file = place == folder.price_hours();
    Ok(folder.disk.exists(place)? && (is_file || !folder.disk.names(place)?.is_empty()))
}

/// Returns the locations of the data in a folder. The journal is last: without it, the folder holds
/// no data.
fn places(folder: &Folder) -> [PathBuf; 4] {
    let archive = folder.path().join(ARCHIVE_NAME);
    [archive, folder.price_hours(), folder.snapshots(), folder.journal()]
}

/// Returns the sequence of the log's first block. Waits until the brokers answer.
async fn first_block(log: &impl Log) -> u64 {
    let mut tries = Tries::default();
    loop {
        match log.extent().await {
            Ok(Extent { first, .. }) => return first,
            Err(error) => {
                if tries.is_told() {
                    tracing::warn!(%error, "waiting for the brokers");
                }
                tokio::time::sleep(BROKERS_PAUSE).await;
            }
        }
    }
}

/// Fills an empty data folder with a copy of another node's data, however long that takes. Blocks
/// on the disk, and on the brokers through their runtime. Returns whether the folder now holds that
/// copy and nothing else. Fails if the folder or its disk is unusable.
pub(super) fn fill(
    folder: &Path,
    (node, log): (&NodeName, LogId),
    file: &ClusterFile,
    brokers: &Handle,
) -> anyhow::Result<bool> {
    let directory = DataDirectory::open(Disk::System, folder)?;
    let (disk, to) = (directory.disk(), Folder::new(Disk::System, folder));
    let outrun = Folder::new(disk.clone(), &folder.join(OUTRUN_NAME));
    if disk.exists(outrun.path())? {
        move_out(&outrun, &to)?;
    }
    let incoming = Folder::new(disk.clone(), &folder.join(INCOMING_NAME));
    if !disk.exists(incoming.path())? {
        // Another process may have filled the folder since the last check.
        if !is_empty(&to)? {
            return Ok(false);
        }
        Membership::require(disk, folder, log, node, true)?;
        copy_until_whole(&incoming, (node, log), file, brokers)?;
    }
    move_in(&incoming, &to)
}

/// Retries until a copy succeeds, with longer and longer pauses after failures.
fn copy_until_whole(
    incoming: &Folder,
    (node, log): (&NodeName, LogId),
    file: &ClusterFile,
    brokers: &Handle,
) -> anyhow::Result<()> {
    let (mut tries, mut pause, mut failed) = (Tries::default(), BROKERS_PAUSE, None);
    loop {
        let error = match brokers.block_on(Peer::find(file, node.clone(), failed.as_ref())) {
            Ok(peer) => {
                let ask = |question: Question| {
                    let mut asked = 1;
                    loop {
                        match brokers.block_on(peer.ask(&question.to_string())) {
                            Err(AskError::Silence(_)) if asked < ASKED_MAX => asked += 1,
                            answer => return answer,
                        }
                    }
                };
                let copied = copy(incoming, &peer.node, log, ask);
                failed = Some(peer.node);
                match copied {
                    Ok(()) => return Ok(()),
                    Err(error) if error.is::<DiskError>() => return Err(error),
                    Err(error) => error,
                }
            }
            Err(error @ (AskError::Nobody | AskError::Cluster(_))) => {
                if tries.is_told() {
                    tracing::warn!(
                        %error,
                        "waiting for a node to copy from: the log alone is not enough"
                    );
                }
                thread::sleep(BROKERS_PAUSE);
                continue;
            }
            Err(error) => error.into(),
        };
        let error = format!("{error:#}");
        tracing::warn!(error, ?pause, "cannot copy another node's data, trying again");
        thread::sleep(pause);
        pause = PAUSE_MAX.min(2 * pause);
    }
}

/// Copies the data of node `from`, and verifies the copy as startup would.
fn copy(
    incoming: &Folder,
    from: &NodeName,
    log: LogId,
    ask: impl Fn(Question) -> Result<Bytes, AskError>,
) -> anyhow::Result<()> {
    let ask = |question| ask(question).with_context(|| format!("node {from}"));
    let began = Instant::now();
    let listed = ask(Question::Parts)?;
    let (has, parts) = parse_parts(&listed).with_context(|| format!("node {from}"))?;
    ensure!(has == log, "node {from} has the data of another log");
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    tracing::info!(%from, files = parts.len(), bytes, "copying another node's data");
    let disk = &incoming.disk;
    let unfinished = Folder::new(disk.clone(), &temporary_name(incoming.path()));
    disk.remove_directory(unfinished.path())?;
    disk.create_directory(unfinished.path())?;
    parts::write(&unfinished, &parts, |file, offset, piece: &mut [u8]| {
        let answer = ask(Question::Read { file, offset, bytes: piece.len() })?;
        ensure!(answer.len() == piece.len(), "a piece of {} has another length", Named(file));
        piece.copy_from_slice(&answer);
        anyhow::Ok(())
    })?;
    // The result does not matter: the other node frees the copy after a timeout.
    let _ = ask(Question::Done);
    let verified = verify(unfinished.path())?;
    if let Some(damage) = verified.damage {
        bail!("the copy is damaged: {}", damage.message);
    }
    disk.rename(unfinished.path(), incoming.path())?;
    disk.sync_directory(incoming.path().parent().expect("it is in a data folder"))?;
    let (position, elapsed_ms) = (verified.last_position, began.elapsed().as_millis());
    tracing::info!(%from, position, elapsed_ms, "copied another node's data");
    Ok(())
}

/// Moves a complete copy, or the rest of one, into the data folder. Returns whether the journal
/// still had to be moved. Fails before anything is moved if a destination holds data.
fn move_in(incoming: &Folder, to: &Folder) -> anyhow::Result<bool> {
    let disk = &to.disk;
    let has_journal = disk.exists(&incoming.journal())?;
    for (from, place) in places(incoming).into_iter().zip(places(to)) {
        let is_free = !disk.exists(&from)? || !holds_something(to, &place)?;
        ensure!(is_free, "{}", both_hold_data(&from, &place));
    }
    move_all(incoming, to)?;
    disk.remove_directory(incoming.path())?;
    disk.sync_directory(to.path())?;
    Ok(has_journal)
}

fn move_all(from: &Folder, to: &Folder) -> Result<(), DiskError> {
    for (from, place) in places(from).into_iter().zip(places(to)) {
        if to.disk.exists(&from)? {
            to.disk.rename(&from, &place)?;
        }
    }
    to.disk.sync_directory(from.path())?;
    to.disk.sync_directory(to.path())
}

/// Removes a copy that was made recently, because the log no longer continues it. No server may be
/// running on it.
pub(super) fn discard(folder: &Path) -> anyhow::Result<()> {
    let directory = DataDirectory::open(Disk::System, folder)?;
    let (disk, from) = (directory.disk(), Folder::new(Disk::System, folder));
    let outrun = Folder::new(disk.clone(), &folder.join(OUTRUN_NAME));
    disk.create_directory(outrun.path())?;
    // Move the journal first: any data without a journal belongs to the removed copy.
    disk.rename(&from.journal(), &outrun.journal())?;
    disk.sync_directory(folder)?;
    move_out(&outrun, &from)
}

/// Removes the rest of a copy whose journal was moved to `outrun`. A journal in the folder belongs
/// to other data, which is kept.
fn move_out(outrun: &Folder, from: &Folder) -> anyhow::Result<()> {
    let disk = &from.disk;
    if holds_something(from, &from.journal())? {
        let (gone, journal) = (outrun.journal(), from.journal());
        ensure!(!disk.exists(&gone)?, "{}", both_hold_data(&gone, &journal));
    } else {
        move_all(from, outrun)?;
    }
    disk.remove_directory(outrun.path())?;
    Ok(disk.sync_directory(from.path())?)
}

fn both_hold_data(one: &Path, other: &Path) -> String {
    format!(
        "{} and {} both hold data: remove the one that is not wanted",
        one.display(),
        other.display()
    )
}

/// Whether the error means that the log no longer continues the folder's records.
pub(super) fn is_outrun(error: &anyhow::Error) -> bool {
    let halted = |error: &ReadError| match error {
        ReadError::Halted(halt) => halt.reason.lies_before_the_log(),
        ReadError::Unreachable { .. } => false,
    };
    error.downcast_ref().is_some_and(halted)
}

/// Parses the id of the log that the data belongs to, and the parts of the copy.
fn parse_parts(text: &[u8]) -> anyhow::Result<(LogId, Vec<Part>)> {
    let (log, lines) = str::from_utf8(text)?.split_once('\n').context("a line is missing")?;
    let log = log.strip_prefix("log ").context("no log is named")?.parse()?;
    let parse = |line: &str| {
        let (file, bytes, room_bytes) = parse_file_and_numbers(line)?;
        let room_max = match file {
            File::Segment(_) => SEGMENT_BYTES_MAX,
            _ => bytes,
        };
        ensure!((bytes..=room_max).contains(&room_bytes), "{bytes} bytes in {room_bytes}");
        anyhow::Ok(Part { file, bytes, room_bytes })
    };
    let parts = lines.lines().map(|line| parse(line).with_context(|| format!("part {line:?}")));
    Ok((log, parts.collect::<anyhow::Result<_>>()?))
}

/// Parses a file name and two numbers.
fn parse_file_and_numbers(text: &str) -> anyhow::Result<(File, u64, u64)> {
    let mut words = text.rsplitn(3, ' ');
    let mut next = || words.next().context("a word is missing");
    let (second, first) = (next()?.parse()?, next()?.parse()?);
    Ok((next()?.parse::<Named>()?.0, first, second))
}

/// The text form of a file in questions and answers.
struct Named(File);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            File::Snapshot(number) => write!(f, "snapshot {number}"),
            File::Orders(number) => write!(f, "orders {number}"),
            File::Segment(number) => write!(f, "segment {number}"),
            File::PriceHours => f.write_str("price-hours"),
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
            _ => bail!("{text:?} is no file"),
        }))
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Parts => f.write_str("parts"),
            Self::Done => f.write_str("done"),
            Self::Read { file, offset, bytes } => {
                write!(f, "read {} {offset} {bytes}", Named(file))
            }
        }
    }
}

impl FromStr for Question {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "parts" => return Ok(Self::Parts),
            "done" => return Ok(Self::Done),
            _ => {}
        }
        let rest = text.strip_prefix("read ").context("an unknown question")?;
        let (file, offset, bytes) = parse_file_and_numbers(rest)?;
        let bytes = usize::try_from(bytes)?;
        ensure!(bytes <= PIECE_BYTES_MAX, "{bytes} bytes are too many");
        Ok(Self::Read { file, offset, bytes })
    }
}

#[cfg(test)]
mod tests;
