//! The data of a standalone server with which a log begins.

use std::fmt;
use std::path::PathBuf;

use paperbourse_store::disk::Disk;
use paperbourse_store::journal::{ChainMark, LogId, OpenError, SegmentReader};

/// The journal that a log continues, and its end when the log was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The id of the journal. Copies of its folder share it.
    pub journal: LogId,
    /// The end of the journal. Its epoch is at least as high as that of any record.
    pub end: ChainMark,
    /// The checksum of the newest record; `None` if its segment is in the archive.
    pub record_crc: Option<u32>,
}

impl Origin {
    /// Returns the origin of a log that is created now from a journal. `segments` are the journal's
    /// segments, newest first; no record has an epoch above `newest_epoch`. Returns `None` if the
    /// journal has no segments.
    pub fn of(
        disk: &Disk,
        segments: &[(u64, PathBuf)],
        newest_epoch: u64,
    ) -> Result<Option<Self>, OpenError> {
        let Some((number, path)) = segments.first() else { return Ok(None) };
        let mut reader = SegmentReader::anywhere();
        reader.read_open(disk, path, *number)?;
        let Some((journal, end)) = reader.end() else { return Ok(None) };
        let newest = newest_record(disk, segments)?;
        let record_crc = newest.map(|(_, record)| crc32c::crc32c(&record));
        let end = ChainMark { epoch: end.epoch.max(newest_epoch), ..end };
        Ok(Some(Self { journal, end, record_crc }))
    }

    /// Whether the folder whose origin is `folder` has the same records. The newest records are
    /// compared only if both checksums are known.
    pub fn is_origin_of(&self, folder: &Self) -> bool {
        let is_same = |(here, there)| here == there;
        self.journal == folder.journal
            && self.end.position == folder.end.position
            && self.record_crc.zip(folder.record_crc).is_none_or(is_same)
    }

    /// Parses the output of [`fmt::Display`].
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let checksum = |word: &str| u32::from_str_radix(word, 16).ok().filter(|_| word.len() == 8);
        let (journal, crc) = (words.next()?.parse().ok()?, checksum(words.next()?)?);
        let (position, epoch) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let record_crc = match words.next()? {
            "-" => None,
            word => Some(checksum(word)?),
        };
        let end = ChainMark { epoch, position, crc };
        words.next().is_none().then_some(Self { journal, end, record_crc })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChainMark { epoch, position, crc } = self.end;
        write!(f, "{} {crc:08x} {position} {epoch} ", self.journal)?;
        match self.record_crc {
            Some(record_crc) => write!(f, "{record_crc:08x}"),
            None => f.write_str("-"),
        }
    }
}

/// Returns the newest record in these segments and its position, or `None` if they hold no record.
/// The segments are given newest first.
pub fn newest_record(
    disk: &Disk,
    segments: &[(u64, PathBuf)],
) -> Result<Option<(u64, Vec<u8>)>, OpenError> {
    for (number, path) in segments {
        let read = SegmentReader::anywhere().read_open(disk, path, *number)?;
        if let Some((position, record)) = read.batch.iter().last() {
            return Ok(Some((position, record.to_vec())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use paperbourse_store::journal::{DataDirectory, Journal, JournalConfig, segment_name};

    #[test]
    fn an_origin_is_read_as_it_was_written() {
        let end = ChainMark { epoch: 7, position: 123, crc: 0x0a_bc };
        let known = Origin { journal: LogId::from_bytes([5; 16]), end, record_crc: Some(1) };
        let archived = Origin { record_crc: None, ..known };
        for (origin, last) in [(known, "00000001"), (archived, "-")] {
            let text = format!("{} 00000abc 123 7 {last}", "05".repeat(16));
            assert_eq!(origin.to_string(), text);
            assert_eq!(Origin::parse(&text), Some(origin));
            for wrong in [&text[..text.len() - last.len() - 1], &text[1..], &format!("{text} 1")] {
                assert_eq!(Origin::parse(wrong), None, "{wrong:?}");
            }
        }
        let other = Origin { record_crc: Some(2), ..known };
        let longer = Origin { end: ChainMark { position: 124, ..end }, ..known };
        let later = Origin { end: ChainMark { epoch: 9, crc: 1, ..end }, ..known };
        for (folder, expected) in
            [(known, true), (archived, true), (later, true), (other, false), (longer, false)]
        {
            assert_eq!(known.is_origin_of(&folder), expected, "{folder}");
        }
    }

    #[test]
    fn the_end_of_a_journal_is_behind_what_its_starts_have_written() {
        let data = TempDir::new().unwrap();
        let open = || {
            let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
            let config = JournalConfig { segment_bytes: 1 << 20, ..JournalConfig::default() };
            let opened =
                Journal::open(&directory, &config, |_, _, _| Ok::<_, std::convert::Infallible>(()));
            opened.unwrap().0
        };
        let segments = [(1, data.path().join("journal").join(segment_name(1)))];
        let newest = || newest_record(&Disk::System, &segments).unwrap();
        let origin = || Origin::of(&Disk::System, &segments, 5).unwrap().unwrap();
        drop(open());
        assert_eq!(newest(), None);
        let journal = open();
        for record in [&b"one"[..], b"two", b"three"] {
            let lsn = journal.reserve(record.len()).unwrap().fill_from(record);
            journal.wait_blocking(lsn);
        }
        drop(journal);
        let first = origin();
        for _ in 0..5 {
            drop(open());
            assert_eq!(newest(), Some((3, b"three".to_vec())));
        }
        let second = origin();
        assert!(first.is_origin_of(&second));
        assert_eq!((first.end.epoch, second.end.epoch), (5, 7), "whichever is greater");
        assert_eq!(Origin::of(&Disk::System, &[], 5).unwrap(), None);
    }
}
