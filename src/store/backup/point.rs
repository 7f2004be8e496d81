//! A point of a repository: the contents of one backup, as the text of its file.
//!
//! The first line is a JSON object, the second the SHA-256 of the first, in hexadecimal. A point
//! lists its snapshot and the segments from there to its end. If it follows another point without a
//! gap, it also lists the segments in between, so that any moment between the two can be restored.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::moment::Known;
use crate::journal::{ChainMark, LogId, SEGMENT_BYTES_MAX};
use crate::key_file::KEY_FILE_BYTES_MAX;
use paperbourse_core::ids::Timestamp;

/// The newest format version that this program reads. It writes the oldest that can say what a
/// point holds.
const FORMAT: u32 = 2;

/// The format version that added the master key of wallets. A program that did not know of the key
/// would restore a point without it, and remove its file.
const FORMAT_WITH_WALLETS_KEY: u32 = 2;

/// The greatest number that a point or a segment may have. No journal gets that far, and arithmetic
/// on these numbers does not overflow.
pub(super) const NUMBER_MAX: u64 = u64::MAX / 2;

/// Size limit of a file, in bytes. Keeps the sum of all files of all points far from overflowing.
const FILE_BYTES_MAX: u64 = 1 << 36;

/// One backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    format: u32,
    /// The point's number, counted from 1.
    pub(super) number: u64,
    /// Time at which the backup began. The point holds everything that was acknowledged by then.
    pub(super) taken_at: TimeText,
    /// The id of the journal.
    pub(super) log: LogText,
    /// The point that this one follows without a gap.
    pub(super) follows: Option<u64>,
    pub(super) snapshot: Option<StoredSnapshot>,
    /// The segments in order, without gaps.
    pub(super) segments: Vec<StoredSegment>,
    /// The newest record.
    pub(super) last: Record,
    pub(super) issuer_key: Option<StoredFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wallets_key: Option<StoredFile>,
    /// Kept for the newest point only.
    pub(super) price_hours: Option<StoredFile>,
}

/// A file of the repository. It never changes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct StoredFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The SHA-256 of the content, as 64 hexadecimal digits.
    pub(super) sha256: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct StoredSnapshot {
    /// The last segment that the snapshot covers.
    pub(super) segment: u64,
    pub(super) chain: Mark,
    /// Decision time of the newest record that the snapshot covers.
    pub(super) time: TimeText,
    pub(super) files: Vec<SnapshotFile>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SnapshotFile {
    /// The file's name in a data directory.
    pub(super) original: String,
    pub(super) stored: StoredFile,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct StoredSegment {
    pub(super) number: u64,
    /// Length of the segment, in bytes; zeros where its parts do not cover it.
    pub(super) bytes: u64,
    /// The chain that the segment's first block continues.
    pub(super) before: Mark,
    /// The chain after the segment's last block.
    pub(super) after: Mark,
    /// The segment's bytes from the start, one part for each backup that found new bytes.
    pub(super) parts: Vec<StoredFile>,
}

/// The end of a journal's chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Mark {
    epoch: u64,
    pub(super) position: u64,
    crc: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    position: u64,
    time: TimeText,
}

/// A time in RFC 3339, to the microsecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimeText(pub(super) Timestamp);

/// The id of a journal in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogText(pub(super) LogId);

/// Error decoding a point.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PointError {
    /// The text is cut off or has more than two lines.
    #[error("it does not consist of two lines")]
    Lines,
    /// The second line is not the checksum of the first.
    #[error("it does not match its checksum")]
    Checksum,
    /// The JSON does not describe a point.
    #[error("{0}")]
    Json(String),
    /// The point was written by a newer program.
    #[error("it has format version {0}, newer than {FORMAT}; use a newer paperbourse")]
    Newer(u32),
    /// A value contradicts another.
    #[error("its {0} cannot be right")]
    Value(&'static str),
}

impl Point {
    /// Creates a point without contents.
    pub(super) const fn new(number: u64, taken_at: Timestamp) -> Self {
        Self {
            format: 1,
            number,
            taken_at: TimeText(taken_at),
            log: LogText(LogId::from_bytes([0; 16])),
            follows: None,
            snapshot: None,
            segments: Vec::new(),
            last: Record { position: 0, time: TimeText(Timestamp::EPOCH) },
            issuer_key: None,
            wallets_key: None,
            price_hours: None,
        }
    }

    pub(super) fn encode(&self) -> String {
        let json = serde_json::to_string(self).expect("a point has no map with other keys");
        let sum = sha256(json.as_bytes());
        format!("{json}\n{sum}\n")
    }

    pub(super) fn decode(text: &[u8]) -> Result<Self, PointError> {
        /// The fields that every version has.
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let text = str::from_utf8(text).map_err(|_| PointError::Lines)?;
        let (json, sum) = text.split_once('\n').ok_or(PointError::Lines)?;
        if sum.strip_suffix('\n').ok_or(PointError::Lines)? != sha256(json.as_bytes()) {
            return Err(PointError::Checksum);
        }
        let wrong = |error: serde_json::Error| PointError::Json(error.to_string());
        let Head { format } = serde_json::from_str(json).map_err(wrong)?;
        if format > FORMAT {
            return Err(PointError::Newer(format));
        }
        let point: Self = serde_json::from_str(json).map_err(wrong)?;
        point.check()?;
        Ok(point)
    }

    /// Checks the invariants that the rest of the program relies on.
    fn check(&self) -> Result<(), PointError> {
        let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(PointError::Value(what)) };
        let covered = self.snapshot.iter().map(|snapshot| snapshot.segment);
        let segments = self.segments.iter().map(|segment| segment.number);
        let is_number = |number| (1..=NUMBER_MAX).contains(&number);
        ensure([self.number].into_iter().chain(covered).chain(segments).all(is_number), "numbers")?;
        // The segments reach from the snapshot to the end, so that a server can start on them.
        let first = self.segments.first().is_some_and(|it| it.number <= self.covered() + 1);
        let last = self.segments.last().is_some_and(|it| it.number > self.covered());
        ensure(first && last, "list of segments")?;
        for pair in self.segments.windows(2) {
            let follows = pair[0].number + 1 == pair[1].number && pair[0].after == pair[1].before;
            ensure(follows, "order of segments")?;
        }
        for segment in &self.segments {
            let written = segment.parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add);
            let fits = written <= segment.bytes && segment.bytes <= SEGMENT_BYTES_MAX;
            ensure(fits && !segment.parts.is_empty(), "parts of a segment")?;
        }
        for file in self.files() {
            ensure(is_plain(&file.name) && file.sha256.len() == 64, "file names")?;
            ensure(file.bytes <= FILE_BYTES_MAX, "lengths of files")?;
        }
        for (key, what) in [
            (&self.issuer_key, "length of the issuer's key"),
            (&self.wallets_key, "length of the wallets' key"),
        ] {
            ensure(key.as_ref().is_none_or(|key| key.bytes <= KEY_FILE_BYTES_MAX), what)?;
        }
        let is_new_enough = self.format >= FORMAT_WITH_WALLETS_KEY;
        ensure(self.wallets_key.is_none() || is_new_enough, "format version")?;
        for file in self.snapshot.iter().flat_map(|snapshot| &snapshot.files) {
            ensure(is_plain(&file.original), "file names")?;
        }
        Ok(())
    }

    /// Returns the newest record and the time of its decision.
    pub(super) const fn last(&self) -> Known {
        Known { position: self.last.position, time: self.last.time.0 }
    }

    pub(super) const fn set_last(&mut self, last: Known) {
        self.last = Record { position: last.position, time: TimeText(last.time) };
    }

    pub(super) fn set_wallets_key(&mut self, key: StoredFile) {
        self.format = FORMAT_WITH_WALLETS_KEY;
        self.wallets_key = Some(key);
    }

    /// Returns the last segment that the snapshot covers; 0 without a snapshot.
    pub(super) fn covered(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.segment)
    }

    /// Returns the size in bytes of the files that the point would need if it were the only point.
    pub(super) fn bytes_alone(&self, newest: u64) -> u64 {
        let files = super::repository::needed_files(std::slice::from_ref(self), newest);
        files.map(|(_, file)| file.bytes).sum()
    }

    /// Returns all files that the point lists.
    pub(super) fn files(&self) -> impl Iterator<Item = &StoredFile> {
        let snapshot = self.snapshot.iter().flat_map(|it| it.files.iter().map(|it| &it.stored));
        let parts = self.segments.iter().flat_map(|segment| &segment.parts);
        let keys = self.issuer_key.iter().chain(&self.wallets_key);
        snapshot.chain(parts).chain(keys).chain(&self.price_hours)
    }
}

impl StoredFile {
    /// Whether `bytes` are the content of this file.
    pub(super) fn holds(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes.len() as u64 && self.sha256 == sha256(bytes)
    }
}

impl StoredSnapshot {
    /// Returns the newest record that the snapshot covers.
    pub(super) const fn last(&self) -> Known {
        Known { position: self.chain.position, time: self.time.0 }
    }
}

impl StoredSegment {
    /// Returns the offset where the segment's last block ends.
    pub(super) fn end(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

impl From<ChainMark> for Mark {
    fn from(ChainMark { epoch, position, crc }: ChainMark) -> Self {
        Self { epoch, position, crc }
    }
}

impl From<Mark> for ChainMark {
    fn from(Mark { epoch, position, crc }: Mark) -> Self {
        Self { epoch, position, crc }
    }
}

/// Whether a name cannot lead out of the directory in which it is looked up.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    name.bytes().all(is_plain) && !name.starts_with('.') && !name.is_empty()
}

/// Returns the SHA-256 of these bytes in hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    hexadecimal(digest(&SHA256, bytes).as_ref())
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    text
}

impl Serialize for TimeText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TimeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl Serialize for LogText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for LogText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> StoredFile {
        StoredFile { name: name.into(), bytes: 7, sha256: "a".repeat(64) }
    }

    fn point() -> Point {
        let mark = |position| Mark { epoch: 2, position, crc: 9 };
        let segment = |number, before, after| StoredSegment {
            number,
            bytes: 64,
            before: mark(before),
            after: mark(after),
            parts: vec![file("segment-1"), file("segment-2")],
        };
        let at = Timestamp::from_millis(1_784_578_686_071);
        let mut point = Point::new(3, at);
        point.log = LogText(LogId::from_bytes([0xa7; 16]));
        point.follows = Some(2);
        point.snapshot = Some(StoredSnapshot {
            segment: 4,
            chain: mark(5),
            time: TimeText(at),
            files: vec![SnapshotFile { original: "4.snapshot".into(), stored: file("snapshot-4") }],
        });
        point.segments = vec![segment(5, 5, 8), segment(6, 8, 9)];
        point.set_last(Known { position: 9, time: at });
        point.issuer_key = Some(file("issuer-key-1"));
        point
    }

    #[test]
    fn a_point_survives_a_round_trip_and_every_change_is_detected() {
        let text = point().encode();
        assert_eq!(Point::decode(text.as_bytes()), Ok(point()));
        assert_eq!(point().files().count(), 6);
        assert!(text.starts_with(r#"{"format":1,"#) && !text.contains("wallets"), "{text}");
        let mut with_wallets = point();
        with_wallets.set_wallets_key(file("wallets-key-1"));
        assert_eq!(Point::decode(with_wallets.encode().as_bytes()), Ok(with_wallets.clone()));
        assert_eq!(with_wallets.files().count(), 7);
        for length in 0..text.len() {
            assert!(Point::decode(&text.as_bytes()[..length]).is_err(), "{length} bytes");
            let mut changed = text.clone().into_bytes();
            changed[length] ^= 1;
            assert!(Point::decode(&changed).is_err(), "byte {length}");
        }
    }

    #[test]
    fn a_contradictory_point_is_refused() {
        type Change = fn(&mut Point);
        let cases: [(&str, Change); 15] = [
            ("newer than 2", |point| point.format = 3),
            ("format version", |point| point.wallets_key = Some(file("wallets-key-1"))),
            ("length of the wallets' key", |point| {
                let mut key = file("wallets-key-1");
                key.bytes = 1 << 20;
                point.set_wallets_key(key);
            }),
            ("list of segments", |point| point.segments.clear()),
            ("list of segments", |point| point.snapshot.as_mut().unwrap().segment = 3),
            ("list of segments", |point| point.snapshot.as_mut().unwrap().segment = 6),
            ("order of segments", |point| point.segments[1].number = 7),
            ("order of segments", |point| point.segments[1].before.crc = 0),
            ("parts of a segment", |point| point.segments[0].parts[0].bytes = 60),
            ("file names", |point| point.issuer_key.as_mut().unwrap().name = "../key".into()),
            ("numbers", |point| point.number = u64::MAX),
            ("numbers", |point| point.snapshot.as_mut().unwrap().segment = u64::MAX),
            ("lengths of files", |point| point.issuer_key.as_mut().unwrap().bytes = u64::MAX),
            ("length of the issuer's key", |point| {
                point.issuer_key.as_mut().unwrap().bytes = 1 << 20;
            }),
            ("file names", |point| {
                point.snapshot.as_mut().unwrap().files[0].original = "../../x".into();
            }),
        ];
        for (expected, change) in cases {
            let mut wrong = point();
            change(&mut wrong);
            let error = Point::decode(wrong.encode().as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
