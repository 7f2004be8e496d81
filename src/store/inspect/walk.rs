//! Reads segments while a running server writes, moves and removes them.
//!
//! - A segment is closed once the next one is begun: its last block was durable before that. So we
//!   check whether the next one is begun *before* reading a segment, and any flaw in a closed
//!   segment is damage.
//! - The newest segment may be written while we read it: a block may be half visible, or the second
//!   of two blocks may be visible and the first not. We repeat the reading until it is clean, or
//!   until it has been identical several times in a row, and so is settled on disk.
//! - Closed segments move from the journal to the archive, and are eventually removed from there.
//!   We look up a missing file again; a caller that depends on a removed file starts over
//!   ([`start_over_when_gone`]).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;

use super::{InspectError, is_not_found};
use crate::disk::DiskError;
use crate::journal::record::{self, RecordHeader};
use crate::journal::{
    Batch, ChainMark, LogId, OpenBatch, OpenError, Patience, READING_PAUSE, RecordAt,
    SegmentReader, segment_name,
};
use crate::snapshot::Folder;
use paperbourse_core::engine::event::Events;

/// Maximum number of lookups of a file, which moves only once, from the journal to the archive.
const LOOKS_MAX: usize = 3;

/// Maximum number of attempts when files disappear.
const ATTEMPTS_MAX: usize = 5;

/// The end of the journal at the time it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End {
    /// The newest segment that was read.
    pub(crate) segment: u64,
    /// Offset where the last complete block of that segment ends.
    pub(crate) offset: u64,
    /// Length in bytes of an incomplete block after the last complete one; 0 if there is none.
    pub(crate) torn_bytes: usize,
    /// The newest segment that was begun at that time; later segments are preallocated.
    pub(crate) begun: u64,
    /// The log and the end of its chain.
    pub(crate) chain: (LogId, ChainMark),
}

/// An error that may mean that a file was moved or removed while it was being opened.
pub(crate) trait Gone {
    /// Whether the error may mean that a file was moved or removed.
    fn is_gone(&self) -> bool;
}

/// Runs `attempt`, and runs it again if files disappeared meanwhile, up to [`ATTEMPTS_MAX`] times
/// in total.
pub(crate) fn start_over_when_gone<T, E: Gone>(
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for _ in 1..ATTEMPTS_MAX {
        match attempt() {
            Err(error) if error.is_gone() => {}
            result => return result,
        }
    }
    attempt()
}

/// Returns the numbers of all segments in the journal and the archive, oldest first.
pub(crate) fn numbers(folder: &Folder) -> Result<Vec<u64>, DiskError> {
    // List the journal first: a segment that moves in the meantime is then seen twice rather than
    // not at all.
    let mut numbers = folder.segment_numbers()?;
    numbers.extend(folder.archived_numbers()?);
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// Returns the first segment of the gapless range that ends at `last`.
pub(crate) fn first_before(numbers: &[u64], last: u64) -> Option<u64> {
    let at = numbers.binary_search(&last).ok()?;
    let run = numbers[..=at].iter().rev().zip((0..=last).rev());
    run.take_while(|(number, expected)| **number == *expected).last().map(|(&number, _)| number)
}

/// Returns the first segment of the gapless range that ends at the newest segment.
pub(crate) fn first_segment(folder: &Folder) -> Result<u64, InspectError> {
    let numbers = numbers(folder)?;
    let first = numbers.last().and_then(|&newest| first_before(&numbers, newest));
    Ok(first.ok_or_else(|| OpenError::NoSegments { directory: folder.journal() })?)
}

/// Creates a reader for a log whose oldest existing segment is `first`.
pub(crate) fn reader_from(first: u64) -> SegmentReader {
    if first == 1 { SegmentReader::after(None) } else { SegmentReader::anywhere() }
}

/// Decodes a record of a batch.
pub(crate) fn decode(
    folder: &Folder,
    batch: &Batch,
    at: RecordAt,
) -> Result<(RecordHeader, Events), InspectError> {
    record::decode(batch.record(at)).map_err(|source| InspectError::Replay {
        path: path_of(folder, batch.segment()),
        offset: at.offset.into(),
        source: source.into(),
    })
}

/// Returns the current or former path of a segment.
pub(crate) fn path_of(folder: &Folder, number: u64) -> PathBuf {
    let path = folder.segment_path(number).ok().flatten();
    path.unwrap_or_else(|| folder.journal().join(segment_name(number)))
}

/// Calls `read` with the path of a segment, whether it is in the journal or the archive.
pub(crate) fn with_segment<T>(
    folder: &Folder,
    number: u64,
    mut read: impl FnMut(&Path) -> Result<T, OpenError>,
) -> Result<T, InspectError> {
    for _ in 0..LOOKS_MAX {
        let Some(path) = folder.segment_path(number)? else { break };
        match read(&path) {
            Err(OpenError::Disk(error)) if is_not_found(&error) => {}
            result => return Ok(result?),
        }
    }
    Err(OpenError::MissingSegment { path: path_of(folder, number) }.into())
}

/// Reads closed segments in order and passes each to `show`.
pub(crate) fn read_closed<E: From<InspectError>>(
    folder: &Folder,
    reader: &mut SegmentReader,
    numbers: Range<u64>,
    show: &mut impl FnMut(&Batch) -> Result<(), E>,
) -> Result<(), E> {
    for number in numbers {
        show(&closed(folder, reader, number)?)?;
    }
    Ok(())
}

fn closed(folder: &Folder, reader: &mut SegmentReader, number: u64) -> Result<Batch, InspectError> {
    with_segment(folder, number, |path| reader.read_closed(&folder.disk, path, number))
}

/// Reads all segments from `first` to the end of the journal, and passes segment `first` and each
/// later one that holds a block to `show`. Segments begun after the start of the call are left out,
/// since a server may write faster than this function reads.
pub(crate) fn read_to_end<E: From<InspectError>>(
    folder: &Folder,
    reader: SegmentReader,
    first: u64,
    show: &mut impl FnMut(&Batch) -> Result<(), E>,
) -> Result<End, E> {
    read_to_end_with(folder, reader, first, show, || thread::sleep(READING_PAUSE))
}

fn read_to_end_with<E: From<InspectError>>(
    folder: &Folder,
    mut reader: SegmentReader,
    first: u64,
    show: &mut impl FnMut(&Batch) -> Result<(), E>,
    mut pause: impl FnMut(),
) -> Result<End, E> {
    let last = newest_begun(folder, first)?;
    read_closed(folder, &mut reader, first..last, show)?;
    let mut patience = Patience::default();
    loop {
        let reading = read_end(folder, &reader, last);
        // Check after reading: if a later segment was begun in between, this one is closed.
        let newest = newest_begun(folder, last)?;
        if newest > last {
            // The segment was closed in the meantime.
            let batch = closed(folder, &mut reader, last)?;
            show(&batch)?;
            let offset = batch.end().into();
            let chain = chain_of(&reader);
            return Ok(End { segment: last, offset, torn_bytes: 0, begun: newest, chain });
        }
        let is_clean = matches!(&reading, Ok((_, end)) if end.torn_bytes == 0);
        if is_clean || patience.has_seen(described(&reading)) {
            let (batch, end) = reading?;
            show(&batch)?;
            return Ok(end);
        }
        pause();
    }
}

/// Returns the newest segment after `from` that holds a block; `from` if there is none.
fn newest_begun(folder: &Folder, from: u64) -> Result<u64, InspectError> {
    let numbers = numbers(folder)?;
    for &number in numbers.iter().rev().take_while(|&&number| number > from) {
        let is_begun = with_segment(folder, number, |path| {
            SegmentReader::is_begun(&folder.disk, path).map_err(OpenError::from)
        })?;
        if is_begun {
            return Ok(number);
        }
    }
    Ok(from)
}

/// Reads the newest begun segment and the later ones, which must be blank.
fn read_end(
    folder: &Folder,
    reader: &SegmentReader,
    number: u64,
) -> Result<(Batch, End), InspectError> {
    let mut reader = reader.clone();
    let newest = numbers(folder)?.last().map_or(number, |&newest| newest.max(number));
    let mut read =
        |number| with_segment(folder, number, |path| reader.read_open(&folder.disk, path, number));
    let OpenBatch { batch, torn_bytes } = read(number)?;
    let (mut segment, mut offset, mut torn) = (number, batch.end(), torn_bytes);
    for blank in number + 1..=newest {
        // A torn block here is one whose first sector has not been written yet.
        let OpenBatch { batch, torn_bytes } = read(blank)?;
        if torn_bytes > 0 {
            (segment, offset, torn) = (blank, batch.end(), torn_bytes);
        }
    }
    let end = End {
        segment,
        offset: offset.into(),
        torn_bytes: torn,
        begun: segment,
        chain: chain_of(&reader),
    };
    Ok((batch, end))
}

fn chain_of(reader: &SegmentReader) -> (LogId, ChainMark) {
    reader.end().expect("a segment was read")
}

/// Describes a reading. The descriptions of two readings are equal if nothing changed in between.
fn described(reading: &Result<(Batch, End), InspectError>) -> String {
    match reading {
        Ok((_, end)) => format!("{end:?}"),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;
    use crate::disk::Disk;
    use crate::journal::{DataDirectory, Journal, JournalConfig, SAME_READINGS_MIN};

    /// Creates a journal with `count` records of several sectors, each in a block of its own.
    fn write(data: &Path, count: usize) {
        let config = JournalConfig {
            segment_bytes: 64 << 10,
            record_bytes_max: 8 << 10,
            ..JournalConfig::default()
        };
        let directory = DataDirectory::open(Disk::System, data).unwrap();
        let replay = |_, _, _: &[u8]| Ok::<_, std::convert::Infallible>(());
        let (journal, _) = Journal::open(&directory, &config, replay).unwrap();
        for _ in 0..count {
            let record = [7; 2_000];
            let lsn = loop {
                if let Ok(reservation) = journal.reserve(record.len()) {
                    break reservation.fill_from(&record);
                }
                thread::yield_now();
            };
            journal.wait_blocking(lsn);
        }
    }

    /// Returns the end of the record in the last block.
    fn end_of(content: &[u8]) -> usize {
        content.iter().rposition(|&byte| byte == 7).unwrap() + 1
    }

    /// Reads to the end, calling `act` at each pause. Returns the number of records shown, the end,
    /// and the number of pauses.
    fn read_while(data: &Path, mut act: impl FnMut(u32)) -> (u64, Result<End, InspectError>, u32) {
        let folder = Folder::new(Disk::System, data);
        let (mut records, mut pauses) = (0, 0);
        let mut show = |batch: &Batch| {
            records += batch.records().len() as u64;
            Ok(())
        };
        let reader = SegmentReader::after(None);
        let end = read_to_end_with(&folder, reader, 1, &mut show, || {
            pauses += 1;
            act(pauses);
        });
        (records, end, pauses)
    }

    #[test]
    fn a_block_being_written_is_waited_for() {
        let data = TempDir::new().unwrap();
        write(data.path(), 5);
        let path = data.path().join("journal").join(segment_name(1));
        let whole = fs::read(&path).unwrap();
        let last = end_of(&whole) - 1_000;
        // Torn, damaged, and intact again: only a stable reading is accepted.
        let mut torn = whole.clone();
        torn[last..].fill(0);
        let mut damaged = whole.clone();
        damaged[last] ^= 1;
        fs::write(&path, &torn).unwrap();
        let act = |pause| match pause {
            1 => fs::write(&path, &damaged).unwrap(),
            3 => fs::write(&path, &whole).unwrap(),
            _ => {}
        };
        let (records, end, pauses) = read_while(data.path(), act);
        let end = end.unwrap();
        assert_eq!((records, end.torn_bytes, pauses), (5, 0, 3));
        assert_eq!((end.segment, end.begun, end.chain.1.position), (1, 1, 5));

        fs::write(&path, &torn).unwrap();
        let (records, end, pauses) = read_while(data.path(), |_| {});
        let end = end.unwrap();
        assert_eq!((records, pauses), (4, SAME_READINGS_MIN - 1));
        assert!(end.torn_bytes > 0 && end.chain.1.position == 4);

        fs::write(&path, &damaged).unwrap();
        let (records, end, pauses) = read_while(data.path(), |_| {});
        assert_eq!((records, pauses), (0, SAME_READINGS_MIN - 1));
        assert!(end.unwrap_err().is_damage());
    }

    #[test]
    fn a_segment_closed_during_the_reading_is_the_last() {
        let data = TempDir::new().unwrap();
        write(data.path(), 5);
        let first = data.path().join("journal").join(segment_name(1));
        let mut torn = fs::read(&first).unwrap();
        let last = end_of(&torn) - 1_000;
        let content = torn.split_off(last);
        torn.resize(last + content.len(), 0);
        fs::write(&first, &torn).unwrap();
        let act = |_| {
            torn[last..].copy_from_slice(&content);
            fs::write(&first, &torn).unwrap();
            write(data.path(), 60);
        };
        let (records, end, pauses) = read_while(data.path(), act);
        let end = end.unwrap();
        assert_eq!((end.segment, end.torn_bytes, pauses), (1, 0, 1));
        assert!(end.begun > 2, "more was written meanwhile");
        assert!(records > 5 && end.chain.1.position == records, "{records}");
    }

    #[test]
    fn the_gapless_range_before_a_segment_is_found() {
        for (numbers, last, expected) in [
            (&[1, 2, 3][..], 3, Some(1)),
            (&[1, 2, 3], 2, Some(1)),
            (&[1, 3, 4], 4, Some(3)),
            (&[1, 2, 4], 4, Some(4)),
            (&[7, 8], 6, None),
            (&[], 1, None),
        ] {
            assert_eq!(first_before(numbers, last), expected, "{numbers:?} up to {last}");
        }
    }
}
