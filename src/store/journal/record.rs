//! The record: the effect of one command on one shard, as bytes.
//!
//! ```text
//!  0        1         2             4          8       16               24         32
//! ┌────────┬─────────┬─────────────┬──────────┬───────┬────────────────┬──────────┬────────
//! │ shard  │ 0       │ event count │ 0        │ epoch │ shard sequence │ time     │ events…
//! │ u8     │ u8      │ u16         │ u32      │ u64   │ u64            │ i64 ns   │
//! └────────┴─────────┴─────────────┴──────────┴───────┴────────────────┴──────────┴────────
//!
//! each event:
//!  0       2      4             8
//! ┌───────┬──────┬─────────────┬───────────────────────────┐
//! │ kind  │ 0    │ body bytes  │ body, zeros to 8 bytes    │
//! │ u16   │ u16  │ u32         │                           │
//! └───────┴──────┴─────────────┴───────────────────────────┘
//! ```
//!
//! All numbers are little endian and of fixed width. A text is its length in bytes (`u32`) followed
//! by its bytes. Zeros are checked and leftover bytes are an error: a record reads back exactly as
//! it was written, or not at all. Checksums are left to the block.
//!
//! **Versions.** The format version is in the segment header. An event kind never changes once
//! records on disk may contain it: a new form gets a new number, and the old one stays readable
//! forever. A server that finds a kind it does not support refuses to start.

pub(crate) mod field;
pub(crate) mod kind;
mod operator;
pub(crate) mod order;
pub(crate) mod order_state;
mod settlement;

use field::{Fields, Reader};

use paperbourse_core::engine::event::{Event, Events};
use paperbourse_core::ids::{ShardId, Timestamp};

const SHARD_AT: usize = 0;
const ZERO_AT: usize = SHARD_AT + 1;
const COUNT_AT: usize = ZERO_AT + 1;
const ZEROS_AT: usize = COUNT_AT + 2;
const EPOCH_AT: usize = ZEROS_AT + 4;
const SEQUENCE_AT: usize = EPOCH_AT + 8;
const TIME_AT: usize = SEQUENCE_AT + 8;
/// Length of the header before the events.
const HEADER_BYTES: usize = TIME_AT + 8;
const _: () = assert!(HEADER_BYTES == 32);
/// Length of the header before an event's body.
const EVENT_HEADER_BYTES: usize = 8;
/// Bodies are padded to a multiple of this.
const ALIGNMENT_BYTES: usize = 8;

/// The header of a record, which precedes its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// The shard that the events belong to.
    pub shard: ShardId,
    /// The epoch in which the record was written.
    pub epoch: u64,
    /// The record's sequence number within the shard, from 1.
    pub sequence: u64,
    /// The time at which the command was decided.
    pub at: Timestamp,
}

/// Error decoding a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The record ends too early.
    #[error("the record ends at byte {offset}, before {field}")]
    Short {
        /// Where the record ends, in bytes.
        offset: usize,
        /// The field that should have followed.
        field: &'static str,
    },
    /// A field has an invalid value.
    #[error("the record has no valid {field} at byte {offset}")]
    Invalid {
        /// Offset of the field, in bytes.
        offset: usize,
        /// The field's name.
        field: &'static str,
    },
    /// An event has a kind that this version does not support.
    #[error(
        "the record has an event of kind {kind} at byte {offset}, which this version does not \
             know: it was written by a newer one"
    )]
    UnknownKind {
        /// Offset of the event, in bytes.
        offset: usize,
        /// The kind.
        kind: u16,
    },
}

/// Appends an encoded record to `out`.
pub fn encode(header: RecordHeader, events: &[Event], out: &mut Vec<u8>) {
    let count = u16::try_from(events.len()).expect("a command has few events");
    out.push(header.shard.get());
    out.push(0);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&header.epoch.to_le_bytes());
    out.extend_from_slice(&header.sequence.to_le_bytes());
    out.extend_from_slice(&header.at.nanos().to_le_bytes());
    for event in events {
        encode_event(event, out);
    }
}

/// Appends an encoded event to `out`: exactly the bytes that it takes up in a record.
pub fn encode_event(event: &Event, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; EVENT_HEADER_BYTES]);
    let kind = Fields(out).event(event);
    let body_bytes = out.len() - start - EVENT_HEADER_BYTES;
    out.resize(start + EVENT_HEADER_BYTES + body_bytes.next_multiple_of(ALIGNMENT_BYTES), 0);
    out[start..start + 2].copy_from_slice(&kind.to_le_bytes());
    let body_bytes = u32::try_from(body_bytes).expect("a record is below 256 KiB");
    out[start + 4..start + 8].copy_from_slice(&body_bytes.to_le_bytes());
}

/// Returns the shard of a record without decoding the rest. `None` if the bytes cannot be a record.
pub fn shard_of(bytes: &[u8]) -> Option<ShardId> {
    ShardId::new(*bytes.first()?)
}

/// Decodes only the header of a record.
pub fn decode_header(bytes: &[u8]) -> Result<RecordHeader, RecordError> {
    read_header(&mut Reader::new(bytes)).map(|(header, _)| header)
}

/// Decodes a record.
pub fn decode(bytes: &[u8]) -> Result<(RecordHeader, Events), RecordError> {
    let mut reader = Reader::new(bytes);
    let (header, count) = read_header(&mut reader)?;
    let mut events =
        Events::with_capacity(usize::from(count).min(bytes.len() / EVENT_HEADER_BYTES));
    for _ in 0..count {
        events.push(read_event(&mut reader)?);
    }
    reader.end("end of the record")?;
    Ok((header, events))
}

/// Reads the header and the event count.
fn read_header(reader: &mut Reader<'_>) -> Result<(RecordHeader, u16), RecordError> {
    let fixed = reader.chunk::<HEADER_BYTES>("header of the record")?;
    let invalid = |offset, field| RecordError::Invalid { offset, field };
    let shard = ShardId::new(fixed.u8(SHARD_AT)).ok_or_else(|| invalid(SHARD_AT, "shard"))?;
    if fixed.u8(ZERO_AT) != 0 {
        return Err(invalid(ZERO_AT, "zero after the shard"));
    }
    if fixed.u32(ZEROS_AT) != 0 {
        return Err(invalid(ZEROS_AT, "zeros after the event count"));
    }
    let count = fixed.u16(COUNT_AT);
    let header = RecordHeader {
        shard,
        epoch: fixed.u64(EPOCH_AT),
        sequence: fixed.u64(SEQUENCE_AT),
        at: Timestamp::from_nanos(fixed.u64(TIME_AT).cast_signed()),
    };
    Ok((header, count))
}

fn read_event(reader: &mut Reader<'_>) -> Result<Event, RecordError> {
    let start = reader.offset();
    let fixed = reader.chunk::<EVENT_HEADER_BYTES>("header of an event")?;
    let kind = fixed.u16(0);
    if fixed.u16(2) != 0 {
        let (offset, field) = (start + 2, "zeros after the event kind");
        return Err(RecordError::Invalid { offset, field });
    }
    let body_bytes = fixed.u32(4) as usize;
    let mut body = reader.part(body_bytes, "event body")?;
    let event = body.event(kind)?.ok_or(RecordError::UnknownKind { offset: start, kind })?;
    body.end("end of the event")?;
    reader.zeros(body_bytes.next_multiple_of(ALIGNMENT_BYTES) - body_bytes, "padding")?;
    Ok(event)
}

#[cfg(test)]
pub(crate) mod tests;
