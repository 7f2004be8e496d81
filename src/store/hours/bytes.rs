//! The format of the file of hourly prices. Pure: bytes in, bytes out.
//!
//! ```text
//!  0               8      12      16
//! ┌───────────────┬───────┬───────┬──────────┬─────┬──────────┬───┬──────────────┐
//! │ magic         │version│ 0     │ token    │  …  │ token    │ 0 │ token count  │
//! │ PBPRICES      │ u32   │ u32   │          │     │          │u32│ u32          │
//! └───────────────┴───────┴───────┴──────────┴─────┴──────────┴───┴──────────────┘
//!
//! each token:
//! ┌───────┬───────┬────────┬───────────┬────────────────────────┬────────────┬────────────┐
//! │ bytes │ crc   │ token  │ bar count │ bars: hour, open,      │ volume     │ volumes:   │
//! │ u32   │ u32   │ text   │ u32       │ high, low, close (u32) │ count, u32 │ u32, i64   │
//! └───────┴───────┴────────┴───────────┴────────────────────────┴────────────┴────────────┘
//! ```
//!
//! All numbers are little endian. `bytes` is the length of the part after the crc and is never 0
//! for a token; the crc is the CRC-32C of that part. Prices and shares are in millionths; hours are
//! counted since 1970 and ascend.

use std::sync::Arc;

use crate::journal::record::RecordError;
use crate::journal::record::field::{Fields, Reader};
use paperbourse_core::market::catalogue::ID_BYTES_MAX;
use paperbourse_core::market::history::volume::{Volume, Volumes};
use paperbourse_core::market::history::{Bar, HOURS_KEPT, History, PriceRecord};
use paperbourse_core::money::Shares;

const MAGIC: [u8; 8] = *b"PBPRICES";
const VERSION: u32 = 1;

/// Reason a file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Flaw {
    /// The path is a directory, a pipe or the like.
    #[error("it is not a regular file")]
    Kind,
    /// The file is not a file of hourly prices, or has another version.
    #[error("it is not a file of hourly prices in version {VERSION}")]
    Header,
    /// The file is longer than the maximum.
    #[error("it is too long")]
    TooLong,
    /// A checksum does not match.
    #[error("a checksum at byte {offset} does not match")]
    Checksum {
        /// File offset of the token.
        offset: usize,
    },
    /// A field is missing or malformed.
    #[error(transparent)]
    Field(#[from] RecordError),
}

/// Appends the header of the file.
pub(super) fn put_header(out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    Fields(out).u32(VERSION);
    Fields(out).u32(0);
}

/// Appends a token. Returns false, without appending it, if it has no bars or its name is too long.
pub(super) fn put_token(out: &mut Vec<u8>, token_id: &str, record: &PriceRecord) -> bool {
    let (bars, volumes) = (record.history.hours(), record.volumes.hours());
    if bars.len() == 0 || token_id.len() > ID_BYTES_MAX {
        return false;
    }
    let mut body = Vec::with_capacity(64 + token_id.len() + 20 * bars.len() + 12 * volumes.len());
    let mut fields = Fields(&mut body);
    fields.text(token_id);
    fields.length(bars.len());
    for bar in bars {
        for number in [bar.start, bar.open, bar.high, bar.low, bar.close] {
            fields.u32(number);
        }
    }
    fields.length(volumes.len());
    for volume in volumes {
        fields.u32(volume.start);
        fields.i64(volume.shares.micros());
    }
    Fields(out).length(body.len());
    Fields(out).u32(crc32c::crc32c(&body));
    out.extend_from_slice(&body);
    true
}

/// Appends the end of the file: a zero instead of a token's length, and the token count.
pub(super) fn put_end(out: &mut Vec<u8>, token_count: usize) {
    Fields(out).u32(0);
    Fields(out).length(token_count);
}

/// Decodes a whole file.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<(Arc<str>, PriceRecord)>, Flaw> {
    let mut reader = Reader::new(bytes);
    let is_ours = reader.array("magic") == Ok(MAGIC)
        && reader.u32("version") == Ok(VERSION)
        && reader.u32("zero") == Ok(0);
    if !is_ours {
        return Err(Flaw::Header);
    }
    let mut records = Vec::new();
    loop {
        let offset = reader.offset();
        let count = reader.u32("length of a token")? as usize;
        if count == 0 {
            break;
        }
        let crc = reader.u32("checksum of a token")?;
        let start = reader.offset();
        let body = reader.part(count, "token")?;
        if crc32c::crc32c(&bytes[start..start + count]) != crc {
            return Err(Flaw::Checksum { offset });
        }
        records.push(read_token(body)?);
    }
    reader.valid("count of tokens", |reader| {
        Ok((reader.u32("count of tokens")? as usize == records.len()).then_some(()))
    })?;
    reader.end("end of the file")?;
    Ok(records)
}

fn read_token(mut reader: Reader<'_>) -> Result<(Arc<str>, PriceRecord), RecordError> {
    let token_id = reader.valid("token", |reader| {
        Ok(Some(reader.shared_text("token")?).filter(|token| token.len() <= ID_BYTES_MAX))
    })?;
    let bars = read_hours(
        &mut reader,
        "bar",
        |bar: &Bar| bar.start,
        |reader| {
            let bar = Bar {
                start: reader.u32("hour of a bar")?,
                open: reader.u32("opening price")?,
                high: reader.u32("highest price")?,
                low: reader.u32("lowest price")?,
                close: reader.u32("closing price")?,
            };
            Ok(Some(bar).filter(Bar::is_valid))
        },
    )?;
    let volumes = read_hours(
        &mut reader,
        "volume",
        |volume: &Volume| volume.start,
        |reader| {
            let start = reader.u32("hour of a volume")?;
            let shares = Shares::from_micros(reader.i64("shares")?);
            Ok(Some(Volume { start, shares }).filter(|_| shares >= Shares::ZERO))
        },
    )?;
    reader.end("end of a token")?;
    let history = Arc::new(History::resuming(bars));
    Ok((token_id, PriceRecord { history, volumes: Volumes::resuming(volumes) }))
}

/// Reads at most [`HOURS_KEPT`] items, whose hours must be in ascending order.
fn read_hours<'a, T>(
    reader: &mut Reader<'a>,
    field: &'static str,
    hour_of: impl Fn(&T) -> u32,
    read: impl Fn(&mut Reader<'a>) -> Result<Option<T>, RecordError>,
) -> Result<Vec<T>, RecordError> {
    let count = reader.valid(field, |reader| {
        let count = reader.u32(field)?;
        Ok((count <= HOURS_KEPT).then_some(count as usize))
    })?;
    let mut items: Vec<T> = Vec::with_capacity(count);
    for _ in 0..count {
        let item = reader.valid(field, &read)?;
        let newest = items.last().map(&hour_of);
        reader.valid(field, |_| Ok(newest.is_none_or(|it| it < hour_of(&item)).then_some(())))?;
        items.push(item);
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::ids::Timestamp;
    use paperbourse_core::money::Price;

    fn record(seed: i64) -> PriceRecord {
        let mut record = PriceRecord::default();
        let mut history = History::default();
        for hour in 0..seed {
            let at = Timestamp::from_seconds(hour * 3_600);
            history.record(at, Price::from_micros((hour * seed * 7_919) % 1_000_001), true);
            record.volumes.add(at, Shares::from_micros(hour * 1_000_000));
        }
        let hours = history.hours().copied().collect();
        record.history = Arc::new(History::resuming(hours));
        record.volumes = Volumes::resuming(record.volumes.hours().copied().collect());
        record
    }

    fn file(records: &[(Arc<str>, PriceRecord)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_header(&mut bytes);
        let mut count = 0;
        for (token_id, record) in records {
            count += usize::from(put_token(&mut bytes, token_id, record));
        }
        put_end(&mut bytes, count);
        bytes
    }

    #[test]
    fn a_file_reads_back_as_what_was_written() {
        let records: Vec<(Arc<str>, PriceRecord)> =
            (1..20).map(|seed| (format!("token {seed}").into(), record(seed))).collect();
        assert_eq!(read(&file(&records)), Ok(records));
        let nothing = [
            ("quiet".into(), PriceRecord::default()),
            ("x".repeat(ID_BYTES_MAX + 1).into(), record(3)),
        ];
        assert_eq!(read(&file(&nothing)), Ok(Vec::new()));
        let longest = ["y".repeat(ID_BYTES_MAX).into()].map(|token| (token, record(2)));
        assert_eq!(read(&file(&longest)), Ok(longest.to_vec()));
    }

    #[test]
    fn a_changed_or_truncated_file_is_refused() {
        let bytes = file(&[("a".into(), record(3)), ("b".into(), record(2))]);
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length} bytes");
        }
        for index in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[index] ^= 1 << bit;
                assert!(read(&changed).is_err(), "bit {bit} of byte {index}");
            }
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err());
        assert_eq!(read(b"PBPRICES\x02\0\0\0\0\0\0\0"), Err(Flaw::Header));
    }

    /// Implausible values are refused even if the checksum matches.
    #[test]
    fn bars_that_cannot_exist_are_refused() {
        let body = |bars: &[[u32; 5]], volumes: &[(u32, i64)]| {
            let mut body = Vec::new();
            let mut fields = Fields(&mut body);
            fields.text("a");
            fields.length(bars.len());
            bars.iter().flatten().for_each(|&number| fields.u32(number));
            fields.length(volumes.len());
            for &(hour, shares) in volumes {
                fields.u32(hour);
                fields.i64(shares);
            }
            let mut bytes = Vec::new();
            put_header(&mut bytes);
            Fields(&mut bytes).length(body.len());
            Fields(&mut bytes).u32(crc32c::crc32c(&body));
            bytes.extend_from_slice(&body);
            put_end(&mut bytes, 1);
            read(&bytes).is_ok()
        };
        assert!(body(&[[1, 5, 9, 2, 7], [2, 7, 7, 7, 7]], &[(1, 0), (3, 9)]));
        for bar in [[1, 5, 4, 2, 3], [1, 1, 9, 2, 7], [1, 5, 9, 2, 1], [1, 5, 6, 2, 7]] {
            assert!(!body(&[bar], &[]), "{bar:?}");
        }
        assert!(!body(&[[1, 5, 1_000_001, 2, 7]], &[]), "a price above a dollar");
        assert!(!body(&[[2, 5, 9, 2, 7], [2, 7, 7, 7, 7]], &[]), "an hour twice");
        assert!(!body(&[[1, 5, 9, 2, 7]], &[(1, -1)]), "negative shares");
        assert!(!body(&[[1, 5, 9, 2, 7]], &[(2, 1), (1, 1)]), "hours that fall");
        let many: Vec<[u32; 5]> = (0..=HOURS_KEPT).map(|hour| [hour, 1, 1, 1, 1]).collect();
        assert!(body(&many[1..], &[]) && !body(&many, &[]), "more hours than are kept");
    }
}
