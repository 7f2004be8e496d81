//! The data of a single server with which a log begins.

use std::fmt;
use std::path::Path;

use crate::disk::Disk;
use crate::journal::{ChainMark, LogId, OpenError, SegmentReader};

/// A journal, and its end when the log was made. The first block of the log continues it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The id of the journal. Copies of its folder have the same.
    pub journal: LogId,
    /// Its end.
    pub end: ChainMark,
}

impl Origin {
    /// What a log would begin with that is made now from the journal whose newest segment this is;
    /// `None` if it has no block.
    pub fn of(disk: &Disk, segment: &Path, number: u64) -> Result<Option<Self>, OpenError> {
        let mut reader = SegmentReader::anywhere();
        reader.read_open(disk, segment, number)?;
        Ok(reader.end().map(|(journal, end)| Self { journal, end }))
    }

    /// Reads what [`fmt::Display`] writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (journal, rest) = text.split_once(' ')?;
        let journal = u128::from_str_radix(journal, 16).ok().filter(|_| journal.len() == 32)?;
        let (position, rest) = rest.split_once(' ')?;
        let (epoch, crc) = rest.split_once(' ')?;
        let (position, epoch) = (position.parse().ok()?, epoch.parse().ok()?);
        let crc = u32::from_str_radix(crc, 16).ok().filter(|_| crc.len() == 8)?;
        let journal = LogId::from_bytes(journal.to_be_bytes());
        Some(Self { journal, end: ChainMark { epoch, position, crc } })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChainMark { epoch, position, crc } = self.end;
        let journal = u128::from_be_bytes(self.journal.to_bytes());
        write!(f, "{journal:032x} {position} {epoch} {crc:08x}")
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::journal::{DataDirectory, Journal, JournalConfig, segment_name};

    #[test]
    fn an_origin_is_read_as_it_was_written() {
        let end = ChainMark { epoch: 7, position: 123, crc: 0x0a_bc };
        let origin = Origin { journal: LogId::from_bytes([5; 16]), end };
        assert_eq!(origin.to_string(), format!("{} 123 7 00000abc", "05".repeat(16)));
        assert_eq!(Origin::parse(&origin.to_string()), Some(origin));
        for wrong in ["", "05 123 7 00000abc", "05 123 7", &origin.to_string()[..40]] {
            assert_eq!(Origin::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_end_of_a_journal_is_that_of_its_newest_segment() {
        let data = TempDir::new().unwrap();
        let run = |epoch| {
            let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
            let config = JournalConfig { segment_bytes: 1 << 20, ..JournalConfig::default() };
            let opened =
                Journal::open(&directory, &config, |_, _, _| Ok::<_, std::convert::Infallible>(()));
            let journal = opened.unwrap().0;
            let place = journal.reserve(3).unwrap().fill_from(b"one");
            journal.wait_blocking(place);
            let segment = data.path().join("journal").join(segment_name(1));
            let origin = Origin::of(&Disk::System, &segment, 1).unwrap().unwrap();
            assert_eq!((origin.end.position, origin.end.epoch), (epoch, epoch));
            origin.journal
        };
        assert_eq!(run(1), run(2));
    }
}
