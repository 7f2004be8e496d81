//! Flips bits on the disk.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Condition, World};
use crate::disk::DiskError;
use crate::journal::{segment_name, segment_number};
use crate::simulation::small::{DATA, Uninterrupted, journal_config};
use crate::snapshot::{Upkeep, open_stepped};

/// About the length of a short block.
const END_BYTES: usize = 512;

impl World {
    /// Flips bits between two processes. Each flip must be detected when it is read, or have no
    /// effect.
    pub(super) fn live_with_flipped_bits(&mut self) -> Result<(), String> {
        let (mut process, mut upkeep) = self.open_without_faults()?;
        // Random requests, so that the journal ends in a different block each time.
        for _ in 0..self.random.below(12) {
            if self.act(&mut process)? == Condition::DiskFailed {
                return Err("the disk fails without a reason".to_owned());
            }
        }
        self.empty_disk();
        while process.flush().map_err(|error| error.to_string())? {}
        let open = process.journal.segment().expect("the journal is on disk");
        if self.random.one_in(3) {
            self.snapshot_of_flipped_bit(open - 1, &mut upkeep)?;
        }
        self.end_orderly(process)?;
        let found = self.auditor.newest_states();
        let is_open_segment = self.random.one_in(2);
        let path = if is_open_segment {
            Path::new(DATA).join("journal").join(segment_name(open))
        } else {
            let Some(path) = self.some_file(open - 1) else { return Ok(()) };
            path
        };
        let flipped = self.flip_random_bit(&path)?;
        let opened = open_stepped(self.disk(), Path::new(DATA), &journal_config());
        match opened {
            Ok((opened, _)) => {
                let states = opened.recovered.states();
                let is_same = states.zip(&found).all(|(state, &(sequence, hash))| {
                    (state.sequence(), state.hash().get()) == (sequence, hash)
                });
                if !is_same {
                    return Err(format!("{flipped} changed the state undetected"));
                }
                self.totals.flips_harmless += 1;
                // A flip after the newest block was treated as a torn write and truncated.
                if !flipped.is_past_content {
                    self.mend(&flipped)?;
                }
            }
            Err(error) => {
                self.totals.flips_refused_at_end += u64::from(is_open_segment);
                self.refused(&flipped, &error.to_string())?;
                self.mend(&flipped)?;
            }
        }
        self.is_settled = true;
        Ok(())
    }

    /// Flips a bit in the newest closed segment before a snapshot is taken of it.
    fn snapshot_of_flipped_bit(&mut self, closed: u64, upkeep: &mut Upkeep) -> Result<(), String> {
        let path = Path::new(DATA).join("journal").join(segment_name(closed));
        if !self.disk().exists(&path).map_err(|error| error.to_string())? {
            return Ok(());
        }
        let flipped = self.flip_random_bit(&path)?;
        match upkeep.keep(closed, &mut Uninterrupted) {
            // The segment is already part of a snapshot.
            Ok(None) => {}
            Ok(Some(_)) => return Err(format!("a snapshot was taken of {flipped}")),
            Err(error) => self.refused(&flipped, &error.to_string())?,
        }
        self.mend(&flipped)?;
        let kept = upkeep.keep(closed, &mut Uninterrupted);
        let kept =
            kept.map_err(|error| format!("no snapshot after {flipped} was mended: {error}"))?;
        self.totals.snapshots += u64::from(kept.is_some());
        Ok(())
    }

    /// Flips the bit back. The segment may have been moved to the archive.
    fn mend(&self, flipped: &FlippedBit) -> Result<(), String> {
        let name = flipped.path.file_name().expect("it has a name");
        for path in [flipped.path.clone(), Path::new(DATA).join("archive").join(name)] {
            if self.disk().exists(&path).map_err(|error| error.to_string())? {
                self.simulated.flip_bit(&path, flipped.at, flipped.bit);
                return Ok(());
            }
        }
        Err(format!("the file of {flipped} is gone"))
    }

    fn refused(&mut self, flipped: &FlippedBit, error: &str) -> Result<(), String> {
        self.totals.flips_refused += 1;
        if error.contains(&*flipped.path.to_string_lossy()) {
            return Ok(());
        }
        Err(format!("the refusal of {flipped} does not name the file: {error}"))
    }

    /// Picks a random closed segment, snapshot or order file.
    fn some_file(&mut self, closed: u64) -> Option<PathBuf> {
        let mut paths = Vec::new();
        for directory in ["journal", "snapshots"] {
            let directory = Path::new(DATA).join(directory);
            let names = self.disk().names(&directory).unwrap_or_default();
            let names = names.into_iter().filter(|name| match segment_number(name) {
                Some(number) => number <= closed,
                None => name.ends_with(".snapshot") || name.ends_with(".orders"),
            });
            paths.extend(names.map(|name| directory.join(name)));
        }
        let count = paths.len();
        if count == 0 { None } else { Some(paths.swap_remove(self.random.below(count))) }
    }

    /// Flips a bit. Usually picks one in the written part of the file, since most of an open
    /// segment is empty, and often one at the end of that part, since only the newest block may be
    /// truncated.
    fn flip_random_bit(&mut self, path: &Path) -> Result<FlippedBit, String> {
        let content = self.read(path)?;
        let written = content.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let is_written = written > 0 && !self.random.one_in(4);
        let from = if self.random.one_in(2) { written.saturating_sub(END_BYTES) } else { 0 };
        let at = if is_written {
            from + self.random.below(written - from)
        } else {
            self.random.below(content.len())
        };
        let bit = u8::try_from(self.random.below(8)).expect("a bit of a byte");
        self.simulated.flip_bit(path, at, bit);
        Ok(FlippedBit { path: path.to_path_buf(), at, bit, is_past_content: at >= written })
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        let read = || {
            let file = self.disk().open_read(path)?;
            let mut content = vec![0; usize::try_from(file.bytes()?).expect("it is short")];
            file.read_at(&mut content, 0)?;
            Ok(content)
        };
        read().map_err(|error: DiskError| error.to_string())
    }
}

/// A flipped bit.
struct FlippedBit {
    path: PathBuf,
    at: usize,
    bit: u8,
    /// Whether the bit was in the zeros after the written part.
    is_past_content: bool,
}

impl fmt::Display for FlippedBit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, at, bit, .. } = self;
        write!(formatter, "bit {bit} of byte {at} of {}", path.display())
    }
}
