//! The container file format of snapshots and order files: a list of sections.
//!
//! A file is written once from front to back, so its table is at the end. All numbers are little
//! endian.
//!
//! ```text
//!    0               8      12      16                              32
//!    ┌───────────────┬───────┬───────┬───────────────────────────────┐
//!  0 │ magic         │version│ zero  │ id of the journal             │
//!    ├───────────────┼───────┴───────┴───────────────────────────────┤
//! 32 │ number of the │ reserved (0)                                  │
//!    │ last segment  │                                               │
//!    ├───────────────┴───────────────────────────────────────┬───────┤
//!  … │ reserved (0)                                  to 508  │ crc   │
//!    ├───────────────────────────────────────────────────────┴───────┤
//! 512│ sections, each from a multiple of 8, zeros between them       │
//!    ├───────────────────────────────────────────────────────────────┤
//!  T │ table: for each section  offset u64, bytes u64, crc u32, 0 u32│
//!    ├───────────────┬───────┬───────┬───────────────────────────────┤
//! -24│ T             │section│ crc of│ magic of the end              │
//!    │               │ count │ table │ PBENDEND                      │
//!    └───────────────┴───────┴───────┴───────────────────────────────┘
//! ```
//!
//! The crc of the table also covers T and the count. All crcs are CRC-32C. A file gets its final
//! name only after it has been synced, so any mismatch is damage.
//!
//! # Versions
//!
//! The version applies to the file and to everything in its sections. A server reads every version
//! from the oldest it supports up to its own, writes only its own, and refuses any other.

use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskError, DiskFile};
use crate::journal::{LogId, u32_at, u64_at};
use paperbourse_core::faults::{self, Fault};

/// The format version that this server writes.
pub const VERSION: u32 = 8;

/// The oldest format version that this server reads.
const OLDEST_VERSION: u32 = 1;

/// Files are synced in parts of this size, so that no flush of the journal waits for a whole
/// snapshot.
const SYNC_BYTES: usize = 1 << 20;

const SECTOR_BYTES: usize = 512;
const ALIGNMENT_BYTES: usize = 8;

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = MAGIC_AT + 8;
const ZERO_AT: usize = VERSION_AT + size_of::<u32>();
const LOG_AT: usize = ZERO_AT + size_of::<u32>();
const NUMBER_AT: usize = LOG_AT + size_of::<LogId>();
const RESERVED_AT: usize = NUMBER_AT + size_of::<u64>();
const CRC_AT: usize = SECTOR_BYTES - size_of::<u32>();

const ENTRY_BYTES: usize = 24;
const END_BYTES: usize = 24;
const END_MAGIC: [u8; 8] = *b"PBENDEND";

/// Maximum number of sections: one for each shard and the manifest.
const SECTION_COUNT_MAX: u32 = 1024;

const _: () = assert!(RESERVED_AT == 40);

/// The kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The mutable state of all shards.
    Snapshot,
    /// Finished orders, which never change.
    Orders,
}

impl Kind {
    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Snapshot => *b"PBSNAPSH",
            Self::Orders => *b"PBORDERS",
        }
    }
}

/// The header of a file, which identifies it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) log: LogId,
    /// The last segment whose records the file includes.
    pub(super) number: u64,
}

/// Error reading a file.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file is damaged.
    #[error("{} at offset {offset}: {damage}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// File offset of the damage, in bytes.
        offset: u64,
        /// The problem at that offset.
        damage: &'static str,
    },
    /// The file was written by a newer server.
    #[error(
        "{} has format version {version}, newer than {VERSION}; use a newer server",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's version.
        version: u32,
    },
    /// The file was written by a server too old for this one to read.
    #[error(
        "{} has format version {version}, older than {OLDEST_VERSION}, the oldest this server \
         reads; run the server version that wrote it",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The file's version.
        version: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    offset: u64,
    bytes: u64,
    crc: u32,
}

/// Writes a file from front to back.
pub(super) struct Writer {
    file: DiskFile,
    offset: u64,
    synced: u64,
    table: Vec<Entry>,
}

impl Writer {
    /// Creates a file. `path` must not be a name that readers look for.
    pub(super) fn create(disk: &Disk, path: &Path, header: Header) -> Result<Self, DiskError> {
        let file = disk.create(path)?;
        file.write_at(&header.to_bytes(), 0)?;
        Ok(Self { file, offset: SECTOR_BYTES as u64, synced: 0, table: Vec::new() })
    }

    /// Writes the next section. Calls `after_part` after syncing each part.
    pub(super) fn section<E: From<DiskError>>(
        &mut self,
        bytes: &[u8],
        mut after_part: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.table.push(Entry {
            offset: self.offset,
            bytes: bytes.len() as u64,
            crc: crc32c::crc32c(bytes),
        });
        for part in bytes.chunks(SYNC_BYTES) {
            self.write(part)?;
            after_part()?;
        }
        let end = self.offset.next_multiple_of(ALIGNMENT_BYTES as u64);
        let zeros = [0; ALIGNMENT_BYTES];
        let padding = usize::try_from(end - self.offset).expect("less than the alignment");
        self.write(&zeros[..padding])?;
        Ok(())
    }

    /// Writes the table and syncs the file. Returns the length of the file in bytes.
    pub(super) fn finish(mut self) -> Result<u64, DiskError> {
        let table_at = self.offset;
        let mut end = Vec::with_capacity(self.table.len() * ENTRY_BYTES + END_BYTES);
        for entry in &self.table {
            end.extend_from_slice(&entry.offset.to_le_bytes());
            end.extend_from_slice(&entry.bytes.to_le_bytes());
            end.extend_from_slice(&entry.crc.to_le_bytes());
            end.extend_from_slice(&[0; 4]);
        }
        end.extend_from_slice(&table_at.to_le_bytes());
        let count = u32::try_from(self.table.len()).expect("a file has few sections");
        assert!(count <= SECTION_COUNT_MAX, "a file has few sections");
        end.extend_from_slice(&count.to_le_bytes());
        let crc = crc32c::crc32c(&end);
        end.extend_from_slice(&crc.to_le_bytes());
        end.extend_from_slice(&END_MAGIC);
        self.write(&end)?;
        if !faults::is_on(Fault::SnapshotRenamedBeforeSync) {
            self.file.sync_all()?;
        }
        Ok(self.offset)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        if self.offset - self.synced >= SYNC_BYTES as u64 {
            self.file.sync_data()?;
            self.synced = self.offset;
        }
        Ok(())
    }
}

/// An open file whose header and table are valid.
pub(super) struct Container {
    file: DiskFile,
    header: Header,
    version: u32,
    bytes: u64,
    table: Vec<Entry>,
}

impl Container {
    /// Opens a file and checks everything except the contents of its sections.
    pub(super) fn open(disk: &Disk, path: &Path, kind: Kind) -> Result<Self, ContainerError> {
        let file = disk.open_read(path)?;
        let bytes = file.bytes()?;
        let damaged =
            |offset, damage| ContainerError::Damaged { path: path.to_path_buf(), offset, damage };
        if bytes < (SECTOR_BYTES + END_BYTES) as u64 {
            return Err(damaged(bytes, "the file is too short"));
        }
        let mut head = [0; SECTOR_BYTES];
        file.read_at(&mut head, 0)?;
        let (header, version) = match Header::read(&head, kind) {
            Ok(read) => read,
            Err(HeaderError::Damaged(damage)) => return Err(damaged(0, damage)),
            Err(HeaderError::Newer(version)) => {
                return Err(ContainerError::Newer { path: path.to_path_buf(), version });
            }
            Err(HeaderError::Older(version)) => {
                return Err(ContainerError::Older { path: path.to_path_buf(), version });
            }
        };
        let table = read_table(&file, bytes)?
            .ok_or_else(|| damaged(bytes - END_BYTES as u64, "the table is damaged"))?;
        Ok(Self { file, header, version, bytes, table })
    }

    pub(super) const fn header(&self) -> Header {
        self.header
    }

    pub(super) const fn version(&self) -> u32 {
        self.version
    }

    /// Returns the length of the file, in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn section_count(&self) -> usize {
        self.table.len()
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Reads a section into the buffer and checks its checksum.
    pub(super) fn read(&self, index: usize, buffer: &mut Vec<u8>) -> Result<(), ContainerError> {
        let Some(entry) = self.table.get(index) else {
            return Err(self.damaged(self.bytes, "a section is missing"));
        };
        let bytes = usize::try_from(entry.bytes).expect("the table was checked against the file");
        buffer.clear();
        buffer.resize(bytes, 0);
        self.file.read_at(buffer, entry.offset)?;
        if crc32c::crc32c(buffer) != entry.crc {
            return Err(self.damaged(entry.offset, "the section does not match its checksum"));
        }
        Ok(())
    }

    fn damaged(&self, offset: u64, damage: &'static str) -> ContainerError {
        ContainerError::Damaged { path: self.file.path().to_path_buf(), offset, damage }
    }
}

/// Reads the table at the end of the file. Returns `None` if the table is malformed.
fn read_table(file: &DiskFile, bytes: u64) -> Result<Option<Vec<Entry>>, DiskError> {
    let mut end = [0; END_BYTES];
    let end_at = bytes - END_BYTES as u64;
    file.read_at(&mut end, end_at)?;
    let table_at = u64_at(&end, 0);
    let count = u32_at(&end, 8);
    if end[16..] != END_MAGIC || count > SECTION_COUNT_MAX {
        return Ok(None);
    }
    let table_bytes = u64::from(count) * ENTRY_BYTES as u64;
    if table_at < SECTOR_BYTES as u64 || table_at.checked_add(table_bytes) != Some(end_at) {
        return Ok(None);
    }
    let mut table = vec![0; count as usize * ENTRY_BYTES];
    file.read_at(&mut table, table_at)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&table), &end[..12]);
    if crc != u32_at(&end, 12) {
        return Ok(None);
    }
    let entries: Vec<Entry> = table
        .chunks_exact(ENTRY_BYTES)
        .map(|entry| Entry {
            offset: u64_at(entry, 0),
            bytes: u64_at(entry, 8),
            crc: u32_at(entry, 16),
        })
        .collect();
    // Each section starts where the previous one ends, so none overlap and none are skipped.
    let mut offset = SECTOR_BYTES as u64;
    for entry in &entries {
        let Some(section_end) = entry.offset.checked_add(entry.bytes) else { return Ok(None) };
        if entry.offset != offset || section_end > table_at {
            return Ok(None);
        }
        offset = section_end.next_multiple_of(ALIGNMENT_BYTES as u64);
    }
    Ok((offset == table_at).then_some(entries))
}

enum HeaderError {
    Damaged(&'static str),
    Newer(u32),
    Older(u32),
}

impl Header {
    fn to_bytes(self) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        bytes[MAGIC_AT..VERSION_AT].copy_from_slice(&self.kind.magic());
        bytes[VERSION_AT..ZERO_AT].copy_from_slice(&VERSION.to_le_bytes());
        bytes[LOG_AT..NUMBER_AT].copy_from_slice(&self.log.to_bytes());
        bytes[NUMBER_AT..RESERVED_AT].copy_from_slice(&self.number.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header and the format version.
    fn read(bytes: &[u8; SECTOR_BYTES], kind: Kind) -> Result<(Self, u32), HeaderError> {
        if bytes[MAGIC_AT..VERSION_AT] != kind.magic() {
            return Err(HeaderError::Damaged("the file does not start with its magic number"));
        }
        if crc32c::crc32c(&bytes[..CRC_AT]) != u32_at(bytes, CRC_AT) {
            return Err(HeaderError::Damaged("the header does not match its checksum"));
        }
        let version = match u32_at(bytes, VERSION_AT) {
            version if version > VERSION => return Err(HeaderError::Newer(version)),
            version if version < OLDEST_VERSION => return Err(HeaderError::Older(version)),
            version => version,
        };
        let zeros = bytes[ZERO_AT..LOG_AT].iter().chain(&bytes[RESERVED_AT..CRC_AT]);
        if zeros.into_iter().any(|&byte| byte != 0) {
            return Err(HeaderError::Damaged("reserved bytes of the header are not zero"));
        }
        let log = bytes[LOG_AT..].first_chunk().expect("the id lies in the header");
        let header = Self { kind, log: LogId::from_bytes(*log), number: u64_at(bytes, NUMBER_AT) };
        Ok((header, version))
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const HEADER: Header =
        Header { kind: Kind::Snapshot, log: LogId::from_bytes([9; 16]), number: 7 };

    fn write(path: &Path, sections: &[&[u8]]) -> u64 {
        let mut writer = Writer::create(&Disk::System, path, HEADER).unwrap();
        for section in sections {
            writer.section(section, || Ok::<_, DiskError>(())).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read_all(path: &Path) -> Result<Vec<Vec<u8>>, ContainerError> {
        let container = Container::open(&Disk::System, path, Kind::Snapshot)?;
        let mut sections = Vec::new();
        for index in 0..container.section_count() {
            let mut section = Vec::new();
            container.read(index, &mut section)?;
            sections.push(section);
        }
        Ok(sections)
    }

    #[test]
    fn sections_survive_a_round_trip() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("file");
        let long = vec![5; SYNC_BYTES + 3];
        let sections: [&[u8]; 4] = [b"first", b"", &long, b"12345678"];
        let bytes = write(&path, &sections);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
        assert_eq!(read_all(&path).unwrap(), sections);
        let container = Container::open(&Disk::System, &path, Kind::Snapshot).unwrap();
        assert_eq!((container.header(), container.bytes()), (HEADER, bytes));
        assert!(container.read(4, &mut Vec::new()).is_err());
        assert!(Container::open(&Disk::System, &path, Kind::Orders).is_err());
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_detected() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("file");
        write(&path, &[b"12345678", b"second section, 24 bytes"]);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            assert!(read_all(&path).is_err(), "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(read_all(&path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn an_unsupported_version_is_refused() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("file");
        write(&path, &[]);
        let mut bytes = std::fs::read(&path).unwrap();
        for (version, expected) in [
            (9, "format version 9, newer than 8; use a newer server"),
            (0, "format version 0, older than 1, the oldest this server reads; run the server"),
        ] {
            bytes[VERSION_AT] = version;
            let crc = crc32c::crc32c(&bytes[..CRC_AT]);
            bytes[CRC_AT..SECTOR_BYTES].copy_from_slice(&crc.to_le_bytes());
            std::fs::write(&path, &bytes).unwrap();
            let error = read_all(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
