//! Reads segments that a running server writes, moves and removes at the same time.
//!
//! - A segment is closed when the next one is begun: its last block was on disk before that. So
//!   whether the next one is begun is looked up *before* a segment is read, and what is wrong with
//!   a closed one is damage.
//! - The newest segment may be written while it is read: a block may be half there, and of two
//!   blocks the second whole and the first not. Such a reading is repeated until it is clean or
//!   shows the same several times in a row: then it is what the disk holds.
//! - Closed segments move from the journal to the archive, and leave that in the end. A file that
//!   is not where it was is looked up again; who relies on one that is gone starts over
//!   ([`start_over_when_gone`]).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::{InspectError, is_not_found};
use crate::disk::DiskError;
use crate::engine::event::Events;
use crate::journal::record::{self, RecordHeader};
use crate::journal::{
    Batch, ChainMark, LogId, OpenBatch, OpenError, RecordAt, SegmentReader, segment_name,
};
use crate::snapshot::Folder;

/// A file moves once in its life, from the journal to the archive.
const LOOKS_MAX: usize = 3;

/// How often what was gone is begun again.
pub(super) const ATTEMPTS_MAX: usize = 5;

/// A reading that is not clean is believed when it was the same so many times in a row.
const SAME_READINGS_MIN: u32 = 3;

/// So many readings are enough in any case.
const READINGS_MAX: u32 = 100;

/// Between two readings: longer than the writing of a block takes.
const READING_PAUSE: Duration = Duration::from_millis(20);

/// Where the journal ended when it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End {
    /// The newest segment that was read.
    pub(crate) segment: u64,
    /// Where its last whole block ends.
    pub(crate) offset: u64,
    /// How many bytes of a block that is not whole follow.
    pub(crate) torn_bytes: usize,
    /// The newest segment that was begun by then: those behind it are prepared.
    pub(crate) begun: u64,
    /// Which log, and where its chain stands.
    pub(crate) chain: (LogId, ChainMark),
}

/// Does something again from its start as long as files vanish under it, within reason.
pub(crate) fn start_over_when_gone<T>(
    mut attempt: impl FnMut() -> Result<T, InspectError>,
) -> Result<T, InspectError> {
    for _ in 1..ATTEMPTS_MAX {
        match attempt() {
            Err(error) if error.is_gone() => {}
            result => return result,
        }
    }
    attempt()
}

/// The numbers of all segments that there are, with the journal and in the archive, oldest first.
pub(crate) fn numbers(folder: &Folder) -> Result<Vec<u64>, DiskError> {
    // In this order: a segment that moves meanwhile is seen twice rather than not at all.
    let mut numbers = folder.segment_numbers()?;
    numbers.extend(folder.archived_numbers()?);
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// The first of the segments that lead up to this one without a gap.
pub(crate) fn first_before(numbers: &[u64], last: u64) -> Option<u64> {
    let at = numbers.binary_search(&last).ok()?;
    let run = numbers[..=at].iter().rev().zip((0..=last).rev());
    run.take_while(|(number, expected)| **number == *expected).last().map(|(&number, _)| number)
}

/// The oldest segment from which a reader comes to the newest without a gap.
pub(crate) fn first_segment(folder: &Folder) -> Result<u64, InspectError> {
    let numbers = numbers(folder)?;
    let first = numbers.last().and_then(|&newest| first_before(&numbers, newest));
    Ok(first.ok_or_else(|| OpenError::NoSegments { directory: folder.journal() })?)
}

/// A reader for a log that begins, as far as it is there, with this segment.
pub(crate) fn reader_from(first: u64) -> SegmentReader {
    if first == 1 { SegmentReader::after(None) } else { SegmentReader::anywhere() }
}

/// What one of a batch's records says.
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

/// Where a segment is now, or was.
pub(crate) fn path_of(folder: &Folder, number: u64) -> PathBuf {
    let path = folder.segment_path(number).ok().flatten();
    path.unwrap_or_else(|| folder.journal().join(segment_name(number)))
}

/// Does something with a segment, wherever it is.
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

/// Reads closed segments in order and shows each.
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

/// Reads all segments from this one on, to where the journal ends, and shows each that is begun,
/// and the first in any case. What a server begins after that is left out: it may write faster than
/// this reads.
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
        let newest = newest_begun(folder, last)?;
        if newest > last {
            // It was closed meanwhile.
            let batch = closed(folder, &mut reader, last)?;
            show(&batch)?;
            let offset = batch.end().into();
            let chain = chain_of(&reader);
            return Ok(End { segment: last, offset, torn_bytes: 0, begun: newest, chain });
        }
        let is_clean = matches!(&reading, Ok((_, end)) if end.torn_bytes == 0);
        if is_clean || patience.has_seen(&reading) {
            let (batch, end) = reading?;
            show(&batch)?;
            return Ok(end);
        }
        pause();
    }
}

/// The newest segment that holds anything, from this one on; this one when none does.
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

/// Reads the newest segment that is begun, and those behind it, which must be blank.
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
        // A block whose first sector is not there yet.
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

/// Tells what the disk holds from what a writer is about to change.
#[derive(Default)]
struct Patience {
    /// What was seen the last time, and how often in a row.
    seen: String,
    same: u32,
    readings: u32,
}

impl Patience {
    /// Whether this was seen often enough to be believed.
    fn has_seen(&mut self, reading: &Result<(Batch, End), InspectError>) -> bool {
        let seen = match reading {
            Ok((_, end)) => format!("{end:?}"),
            Err(error) => error.to_string(),
        };
        self.readings += 1;
        self.same = if seen == self.seen { self.same + 1 } else { 1 };
        self.seen = seen;
        self.same >= SAME_READINGS_MIN || self.readings >= READINGS_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;
    use crate::disk::Disk;
    use crate::journal::{DataDirectory, Journal, JournalConfig};

    /// Makes a journal in which these many records of several sectors stand alone in their blocks.
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
            let place = loop {
                if let Ok(reservation) = journal.reserve(record.len()) {
                    break reservation.fill_from(&record);
                }
                thread::yield_now();
            };
            journal.wait_blocking(place);
        }
    }

    /// Where the record in the last block ends.
    fn end_of(content: &[u8]) -> usize {
        content.iter().rposition(|&byte| byte == 7).unwrap() + 1
    }

    /// Reads to the end while somebody acts at each pause. Returns the records that were shown, the
    /// end, and how many pauses there were.
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
    fn a_block_that_is_being_written_is_waited_for() {
        let data = TempDir::new().unwrap();
        write(data.path(), 5);
        let path = data.path().join("journal").join(segment_name(1));
        let whole = fs::read(&path).unwrap();
        let last = end_of(&whole) - 1_000;
        // Torn, damaged, and whole again: only what stays is believed.
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
    fn a_segment_that_is_closed_while_it_is_read_is_the_last() {
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
    fn the_segments_that_lead_up_to_one_are_found() {
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
