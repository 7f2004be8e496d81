//! Flips bits on the disk.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{AtOnce, Condition, DATA, World, journal_config};
use crate::disk::DiskError;
use crate::journal::{segment_name, segment_number};
use crate::snapshot::{Upkeep, open_stepped};

impl World {
    /// Flips bits between two processes: each flip is refused by whoever reads it, or has no
    /// effect.
    pub(super) fn live_with_turned_bits(&mut self) -> Result<(), String> {
        let (mut process, mut upkeep) = self.open_well()?;
        // So that the journal ends in different blocks.
        for _ in 0..self.random.below(12) {
            if self.act(&mut process)? == Condition::Lost {
                return Err("the disk fails without a reason".to_owned());
            }
        }
        self.empty_disk();
        while process.flush().map_err(|error| error.to_string())? {}
        let open = process.journal.segment().expect("the journal is on disk");
        if self.random.one_in(3) {
            self.snapshot_of_turned_bit(open - 1, &mut upkeep)?;
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
        let turned = self.turn_bit(&path)?;
        let opened = open_stepped(self.disk(), Path::new(DATA), &journal_config());
        match opened {
            Ok((opened, _)) => {
                let states = opened.recovered.states();
                let is_same = states.zip(&found).all(|(state, &(sequence, hash))| {
                    (state.sequence(), state.hash().get()) == (sequence, hash)
                });
                if !is_same {
                    return Err(format!("{turned} changed the state, and nobody noticed"));
                }
                self.totals.flips_harmless += 1;
                // A flip after the newest block was taken for a torn write and is gone.
                if !turned.is_behind_all {
                    self.mend(&turned)?;
                }
            }
            Err(error) => {
                self.totals.flips_refused_at_end += u64::from(is_open_segment);
                self.refused(&turned, &error.to_string())?;
                self.mend(&turned)?;
            }
        }
        self.is_settled = true;
        Ok(())
    }

    /// Flips a bit in the newest closed segment before its snapshot is taken.
    fn snapshot_of_turned_bit(&mut self, closed: u64, upkeep: &mut Upkeep) -> Result<(), String> {
        let path = Path::new(DATA).join("journal").join(segment_name(closed));
        if !self.disk().exists(&path).map_err(|error| error.to_string())? {
            return Ok(());
        }
        let turned = self.turn_bit(&path)?;
        match upkeep.keep(closed, &mut AtOnce) {
            // It is already part of a snapshot.
            Ok(None) => {}
            Ok(Some(_)) => return Err(format!("a snapshot was taken of {turned}")),
            Err(error) => self.refused(&turned, &error.to_string())?,
        }
        self.mend(&turned)?;
        let kept = upkeep.keep(closed, &mut AtOnce);
        let kept =
            kept.map_err(|error| format!("no snapshot after {turned} was mended: {error}"))?;
        self.totals.snapshots += u64::from(kept.is_some());
        Ok(())
    }

    /// Flips the bit back. The segment may have moved to the archive.
    fn mend(&self, turned: &Turned) -> Result<(), String> {
        let name = turned.path.file_name().expect("it has a name");
        for path in [turned.path.clone(), Path::new(DATA).join("archive").join(name)] {
            if self.disk().exists(&path).map_err(|error| error.to_string())? {
                self.simulated.flip_bit(&path, turned.at, turned.bit);
                return Ok(());
            }
        }
        Err(format!("the file of {turned} is gone"))
    }

    fn refused(&mut self, turned: &Turned, error: &str) -> Result<(), String> {
        self.totals.flips_refused += 1;
        if error.contains(&*turned.path.to_string_lossy()) {
            return Ok(());
        }
        Err(format!("the refusal of {turned} does not name the file: {error}"))
    }

    /// A random closed segment, snapshot or order file.
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

    /// Flips a bit, usually in the written part of the file: most of an open segment is empty.
    fn turn_bit(&mut self, path: &Path) -> Result<Turned, String> {
        let content = self.read(path)?;
        let written = content.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let is_written = written > 0 && !self.random.one_in(4);
        let at = self.random.below(if is_written { written } else { content.len() });
        let bit = u8::try_from(self.random.below(8)).expect("a bit of a byte");
        self.simulated.flip_bit(path, at, bit);
        Ok(Turned { path: path.to_path_buf(), at, bit, is_behind_all: at >= written })
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
struct Turned {
    path: PathBuf,
    at: usize,
    bit: u8,
    /// Whether only zeros were there and after it.
    is_behind_all: bool,
}

impl fmt::Display for Turned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, at, bit, .. } = self;
        write!(formatter, "bit {bit} of byte {at} of {}", path.display())
    }
}
