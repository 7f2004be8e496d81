//! The content of one file: the visible bytes, the durable ones, and those that may become durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use super::random::Random;

pub(super) const SECTOR_BYTES: usize = 512;

/// The unit in which the operating system writes.
pub(super) const PAGE_BYTES: usize = 4096;

const PAGE_SECTORS: usize = PAGE_BYTES / SECTOR_BYTES;

type Sector = [u8; SECTOR_BYTES];

#[derive(Default, Debug)]
pub(super) struct Content {
    /// The bytes that readers see.
    cached: Vec<u8>,
    /// The bytes that survive a power loss if nothing else reaches the disk.
    durable: Vec<u8>,
    /// All versions of a sector written since the last sync, newest last: any of them may have
    /// reached the disk.
    pending: BTreeMap<usize, Vec<Sector>>,
}

impl Content {
    pub(super) fn bytes(&self) -> u64 {
        self.cached.len() as u64
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: usize) -> io::Result<()> {
        let range = offset..offset + buffer.len();
        let bytes = self.cached.get(range).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn truncate(&mut self) {
        self.cached.clear();
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        // A gap is filled with zeros, which also have to reach the disk.
        let start = offset.min(self.cached.len());
        if self.cached.len() < end {
            self.cached.resize(end, 0);
        }
        self.cached[offset..end].copy_from_slice(bytes);
        for index in start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let mut sector = [0; SECTOR_BYTES];
            let range = sector_range(index, self.cached.len());
            sector[..range.len()].copy_from_slice(&self.cached[range]);
            self.pending.entry(index).or_default().push(sector);
        }
    }

    /// Makes all dirty data durable.
    pub(super) fn sync(&mut self) {
        self.durable.resize(self.cached.len(), 0);
        for (index, versions) in std::mem::take(&mut self.pending) {
            self.put(index, versions.last().expect("a sector is pending when it was written"));
        }
    }

    /// Simulates a failed sync: makes part of the pending data durable, and marks all of it clean.
    /// Readers still see the written bytes.
    pub(super) fn fail_sync(&mut self, random: &mut Random, is_torn: bool) {
        let (durable, cached) = (self.durable.len(), self.cached.len());
        let shorter = durable.min(cached);
        let length = match random.below(4) {
            0 => durable,
            1 => cached,
            _ => shorter + random.below(durable.max(cached) - shorter + 1),
        };
        self.durable.resize(length, 0);
        // The density is random, so that writing all or none of many sectors is not too rare.
        let density = random.below(5);
        // The operating system writes whole pages, but some disks write single sectors.
        let unit = if random.one_in(2) { PAGE_SECTORS } else { 1 };
        let mut newest = None;
        for (index, versions) in std::mem::take(&mut self.pending) {
            let is_written = match newest {
                Some((number, is_written)) if number == index / unit => is_written,
                _ => random.below(4) < density,
            };
            newest = Some((index / unit, is_written));
            if !is_written {
                continue;
            }
            let mut sector = versions[random.below(versions.len())];
            if is_torn && random.one_in(2) {
                self.tear(index, &mut sector, random);
            }
            self.put(index, &sector);
        }
    }

    /// Simulates a power failure: only the data that reaches the disk survives.
    pub(super) fn lose(&mut self, random: &mut Random, is_torn: bool, is_faded: bool) {
        let changing = if is_faded { self.changing_pages() } else { BTreeSet::new() };
        self.fail_sync(random, is_torn);
        for page in changing {
            if random.one_in(2) {
                self.fade(page, random);
            }
        }
        self.cached.clone_from(&self.durable);
    }

    /// Returns the pages that a pending write would change if it reached the disk.
    fn changing_pages(&self) -> BTreeSet<usize> {
        let is_change = |index: usize, versions: &[Sector]| {
            let old = &self.durable[sector_range(index, self.durable.len())];
            versions.iter().any(|new| new != old)
        };
        let pending = self.pending.iter();
        let changing = pending.filter(|&(&index, versions)| is_change(index, versions));
        changing.map(|(index, _)| index / PAGE_SECTORS).collect()
    }

    /// Zeroes some of a page's sectors, whether or not they are durable.
    fn fade(&mut self, page: usize, random: &mut Random) {
        for index in page * PAGE_SECTORS..(page + 1) * PAGE_SECTORS {
            if random.one_in(2) {
                self.put(index, &[0; SECTOR_BYTES]);
            }
        }
    }

    /// Keeps the old bytes in some of a sector's words: in all words after some offset, or in a
    /// random subset.
    fn tear(&self, index: usize, sector: &mut Sector, random: &mut Random) {
        const WORD_BYTES: usize = 8;
        let mut old = [0; SECTOR_BYTES];
        let range = sector_range(index, self.durable.len());
        old[..range.len()].copy_from_slice(&self.durable[range]);
        let point = random.below(SECTOR_BYTES / WORD_BYTES);
        let is_prefix = random.one_in(2);
        for (number, (new, old)) in
            sector.chunks_mut(WORD_BYTES).zip(old.chunks(WORD_BYTES)).enumerate()
        {
            if if is_prefix { number >= point } else { random.one_in(2) } {
                new.copy_from_slice(old);
            }
        }
    }

    fn put(&mut self, index: usize, sector: &Sector) {
        let range = sector_range(index, self.durable.len());
        let length = range.len();
        self.durable[range].copy_from_slice(&sector[..length]);
    }

    /// Flips a bit of the durable content.
    pub(super) fn flip_bit(&mut self, at: usize, bit: u8) {
        for bytes in [&mut self.durable, &mut self.cached] {
            bytes[at] ^= 1 << bit;
        }
    }
}

/// Returns the range of a sector in a file of this length.
fn sector_range(index: usize, length: usize) -> Range<usize> {
    let start = (index * SECTOR_BYTES).min(length);
    start..(start + SECTOR_BYTES).min(length)
}
