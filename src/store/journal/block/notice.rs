//! The blocks of a replicated log: blocks of records, as in any journal, and notices. Pure: bytes
//! in, bytes out.
//!
//! A notice states who owns the log from this block on. It is a block without records; its header
//! has a flag, and in place of the records it holds
//!
//! ```text
//!        ┌───────────────────────────────┬───────────────────────────────┐
//!     64 │ nonce, 16 bytes               │ the node's name, UTF-8        │
//!        └───────────────────────────────┴───────────────────────────────┘
//! ```
//!
//! - *fence* (flag 1): the node takes the log and begins an epoch, one above the last.
//! - *release* (flag 2): the owner gives up the log. The epoch stays the same.
//! - *heartbeat* (flag 4): the owner is alive and has nothing to write. The epoch stays the same.
//!
//! The nonce is random and distinguishes two attempts, even by the same node: the bytes of a fence
//! in the log prove which attempt wrote it.
//!
//! The journal of a single server has no notices and treats a block with a flag as damage.

use std::fmt;

use bytes::Bytes;

use super::{
    Block, Builder, Chain, Damage, FLAGS_AT, HEADER_BYTES, HEADER_CRC_AT, Header, LogId,
    PAGE_BYTES, Reading, put_u32, to_u32, u32_at,
};
use crate::journal::ChainMark;

/// Longest block of a replicated log, in bytes. A broker's messages are at most 1 MiB.
pub const REPLICATED_BLOCK_BYTES_MAX: usize = 512 << 10;

/// Maximum position and epoch of a block that is trusted without its predecessors. No log gets that
/// far, and arithmetic on these values does not overflow.
const COUNT_MAX: u64 = 1 << 62;

/// Longest name of a node, in bytes.
const NAME_BYTES_MAX: usize = 64;

const NONCE_BYTES: usize = 16;
const NAME_AT: usize = HEADER_BYTES + NONCE_BYTES;

const _: () = assert!(super::alone_bytes(super::RECORD_BYTES_MAX) <= REPLICATED_BLOCK_BYTES_MAX);

/// The name of a node: 1 to 64 letters, digits, dots, hyphens and underscores.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeName(String);

/// Error for text that cannot be the name of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the name of a node is 1 to {NAME_BYTES_MAX} letters, digits, dots, hyphens or underscores"
)]
pub struct NotAName;

impl NodeName {
    /// Validates the name.
    pub fn new(name: &str) -> Result<Self, NotAName> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_allowed) {
            return Err(NotAName);
        }
        Ok(Self(name.to_owned()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The announcement that a notice makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoticeKind {
    /// The node takes the log and begins an epoch.
    Fence,
    /// The node gives up the log.
    Release,
    /// The node owns the log and has nothing to write.
    Heartbeat,
}

impl NoticeKind {
    const fn flag(self) -> u32 {
        match self {
            Self::Fence => 1,
            Self::Release => 2,
            Self::Heartbeat => 4,
        }
    }

    fn of_flags(flags: u32) -> Option<Self> {
        let mut kinds = [Self::Fence, Self::Release, Self::Heartbeat].into_iter();
        kinds.find(|kind| kind.flag() == flags)
    }
}

/// A block without records that states who owns the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The announcement.
    pub kind: NoticeKind,
    /// The node that wrote the notice.
    pub node: NodeName,
    /// A random number, unique to this notice.
    pub nonce: [u8; NONCE_BYTES],
}

/// The content of a block of a replicated log.
#[derive(Clone, Debug)]
pub enum Entry<'a> {
    /// Records.
    Records(Records<'a>),
    /// A notice of who owns the log.
    Notice(Notice),
}

/// The records of a block.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a>(Block<'a>);

impl<'a> Records<'a> {
    /// Returns the position of the first record.
    pub const fn first_position(&self) -> u64 {
        self.0.first_position
    }

    /// Iterates over the records in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.0.records()
    }
}

/// The checksum chain of a replicated log, which its next block must continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicatedChain(Chain);

impl ReplicatedChain {
    /// Returns the chain of a log that has no blocks yet.
    pub fn start(log: LogId) -> Self {
        Self(Chain::start(log))
    }

    /// Returns the chain at the mark stored in a snapshot.
    pub fn at(log: LogId, mark: ChainMark) -> Self {
        Self(Chain::at(log, mark))
    }

    /// Returns the mark that a snapshot stores.
    pub const fn mark(&self) -> ChainMark {
        self.0.mark()
    }

    /// Returns the chain that this block claims to continue. `None` if it is not a block of this
    /// log, or claims a position or an epoch that no log reaches.
    pub(in crate::journal) fn before(&self, block: &[u8]) -> Option<Self> {
        let flags = u32_at(block.get(..HEADER_BYTES)?, FLAGS_AT);
        let header = Header::read_flagged(block, self.0.log_crc, flags).ok()?;
        if header.first_position > COUNT_MAX || header.epoch > COUNT_MAX {
            return None;
        }
        let begins_epoch = flags == NoticeKind::Fence.flag();
        Some(Self(Chain {
            log_crc: self.0.log_crc,
            previous_crc: header.previous_crc,
            epoch: header.epoch.checked_sub(u64::from(begins_epoch))?,
            position: header.first_position.checked_sub(1)?,
        }))
    }

    /// Returns the chain after this block if it is an intact block of this log, at any position.
    pub(in crate::journal) fn behind(&self, block: &[u8]) -> Option<Self> {
        let mut chain = self.before(block)?;
        chain.read(block).ok().map(|_| chain)
    }

    /// Reads the block and, if it is intact, advances the chain past it. `block` must be one
    /// complete block and nothing else.
    pub fn read<'a>(&mut self, block: &'a [u8]) -> Result<Entry<'a>, Damage> {
        if block.len() < HEADER_BYTES || block.len() > REPLICATED_BLOCK_BYTES_MAX {
            return Err(Damage::NoBlock);
        }
        if let Some(kind) = NoticeKind::of_flags(u32_at(block, FLAGS_AT)) {
            return self.read_notice(kind, block).map(Entry::Notice);
        }
        // `block::read` requires at least a page.
        if block.len() < PAGE_BYTES {
            return Err(Damage::NoBlock);
        }
        let mut after = self.0;
        match super::read(block, PAGE_BYTES, &mut after) {
            // Only a fence begins an epoch.
            Reading::Block(read) if read.payload.is_empty() => Err(Damage::Records),
            Reading::Block(read) if read.bytes == block.len() => {
                self.0 = after;
                Ok(Entry::Records(Records(read)))
            }
            Reading::Block(_) => Err(Damage::Beyond),
            Reading::Blank => Err(Damage::NoBlock),
            Reading::Incomplete { .. } => Err(Damage::PayloadChecksum),
            Reading::Damaged(damage) => Err(damage),
        }
    }

    fn read_notice(&mut self, kind: NoticeKind, block: &[u8]) -> Result<Notice, Damage> {
        let chain = &mut self.0;
        let header = Header::read_flagged(block, chain.log_crc, kind.flag())?;
        let end = HEADER_BYTES + header.payload_bytes as usize;
        if block.len() != end || end <= NAME_AT || end > NAME_AT + NAME_BYTES_MAX {
            return Err(Damage::Length { payload_bytes: header.payload_bytes });
        }
        let epoch = chain.epoch + u64::from(kind == NoticeKind::Fence);
        if header.previous_crc != chain.previous_crc
            || header.first_position != chain.position + 1
            || header.epoch != epoch
        {
            return Err(Damage::Chain { position: chain.position });
        }
        let payload = &block[HEADER_BYTES..];
        if crc32c::crc32c(payload) != header.payload_crc {
            return Err(Damage::PayloadChecksum);
        }
        let (nonce, name) = payload.split_first_chunk().ok_or(Damage::Records)?;
        let name = str::from_utf8(name).ok().and_then(|name| NodeName::new(name).ok());
        let node = name.filter(|_| header.record_count == 0).ok_or(Damage::Records)?;
        chain.advance(header.crc, header.epoch, 0);
        Ok(Notice { kind, node, nonce: *nonce })
    }

    /// Seals the records as the next block, and advances the chain past it. There must be at least
    /// one record.
    pub(in crate::journal) fn seal(&mut self, records: &mut Builder) -> Bytes {
        assert!(records.record_count > 0, "only a fence begins an epoch");
        let unsealed_bytes = records.buffer.len();
        let block = Bytes::copy_from_slice(records.seal(&mut self.0));
        // The records stay in the builder unsealed: they can be sealed again, in another chain.
        records.buffer.truncate(unsealed_bytes);
        block
    }

    /// Seals the notice as the next block, and advances the chain past it.
    pub fn seal_notice(&mut self, notice: &Notice) -> Bytes {
        let chain = &mut self.0;
        let name = notice.node.as_str().as_bytes();
        let mut block = vec![0; HEADER_BYTES];
        block.extend_from_slice(&notice.nonce);
        block.extend_from_slice(name);
        let payload = &block[HEADER_BYTES..];
        let header = Header {
            record_count: 0,
            payload_bytes: to_u32(payload.len()),
            first_position: chain.position + 1,
            epoch: chain.epoch + u64::from(notice.kind == NoticeKind::Fence),
            previous_crc: chain.previous_crc,
            payload_crc: crc32c::crc32c(payload),
            zero_sector_count: 0,
            crc: 0,
        };
        let head = block.first_chunk_mut().expect("it begins with a header");
        header.write(head, chain.log_crc);
        put_u32(head, FLAGS_AT, notice.kind.flag());
        let crc = crc32c::crc32c_append(chain.log_crc, &head[..HEADER_CRC_AT]);
        put_u32(head, HEADER_CRC_AT, crc);
        chain.advance(crc, header.epoch, 0);
        Bytes::from(block)
    }
}

/// Collects the records of the next block.
pub struct ReplicatedBuilder(Builder);

impl ReplicatedBuilder {
    /// Creates a builder without records.
    pub fn new() -> Self {
        Self(Builder::new())
    }

    /// Appends a record. Returns false, without appending it, if the block would exceed
    /// [`REPLICATED_BLOCK_BYTES_MAX`]. An empty block accepts any record of at most
    /// [`RECORD_BYTES_MAX`](crate::journal::RECORD_BYTES_MAX) bytes.
    pub fn push(&mut self, record: &[u8]) -> bool {
        self.0.push(record, REPLICATED_BLOCK_BYTES_MAX)
    }

    /// Whether there are no records.
    pub const fn is_empty(&self) -> bool {
        self.0.record_count == 0
    }

    /// Seals the records as the next block, advances the chain past it, and starts another block.
    /// There must be at least one record.
    pub fn seal(&mut self, chain: &mut ReplicatedChain) -> Bytes {
        let block = chain.seal(&mut self.0);
        self.0.clear();
        block
    }
}

impl Default for ReplicatedBuilder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::FIRST_POSITION_AT;
    use super::*;

    const LOG: LogId = LogId([7; 16]);

    fn notice(kind: NoticeKind) -> Notice {
        Notice { kind, node: NodeName::new("node-1.example").unwrap(), nonce: [9; NONCE_BYTES] }
    }

    /// Returns a log of a fence, a block with these records, and a release.
    fn log(records: &[&[u8]]) -> Vec<Bytes> {
        let mut chain = ReplicatedChain::start(LOG);
        let fence = chain.seal_notice(&notice(NoticeKind::Fence));
        let mut builder = ReplicatedBuilder::new();
        for record in records {
            assert!(builder.push(record));
        }
        let block = builder.seal(&mut chain);
        vec![fence, block, chain.seal_notice(&notice(NoticeKind::Release))]
    }

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let mut chain = ReplicatedChain::start(LOG);
        let blocks = log(&[b"one", b"two"]);
        let fence = chain.read(&blocks[0]).unwrap();
        assert!(matches!(fence, Entry::Notice(read) if read == notice(NoticeKind::Fence)));
        assert_eq!((chain.mark().epoch, chain.mark().position), (1, 0));
        let Entry::Records(records) = chain.read(&blocks[1]).unwrap() else { panic!("records") };
        assert_eq!(records.first_position(), 1);
        assert!(records.iter().eq([b"one", b"two"]));
        let release = chain.read(&blocks[2]).unwrap();
        assert!(matches!(release, Entry::Notice(read) if read == notice(NoticeKind::Release)));
        assert_eq!((chain.mark().epoch, chain.mark().position), (1, 2));
    }

    #[test]
    fn every_changed_byte_of_a_notice_is_detected() {
        let blocks = log(&[b"record"]);
        let mut before_release = ReplicatedChain::start(LOG);
        for block in &blocks[..2] {
            before_release.read(block).unwrap();
        }
        let start = ReplicatedChain::start(LOG);
        for (before, block) in [(start, &blocks[0]), (before_release, &blocks[2])] {
            for at in 0..block.len() {
                for flip in [1, 2, 3, 0x40] {
                    let mut damaged = block.to_vec();
                    damaged[at] ^= flip;
                    let mut chain = before;
                    assert!(chain.read(&damaged).is_err(), "byte {at}");
                    assert_eq!(chain, before, "byte {at}");
                }
            }
            for bytes in [&block[..64], &block[..0], &[&block[..], &[0; 4096]].concat()] {
                assert!(before.clone().read(bytes).is_err(), "{} bytes", bytes.len());
            }
            assert_eq!(start.before(block), Some(before));
        }
        assert_ne!(start, before_release);
    }

    #[test]
    fn a_block_that_claims_an_absurd_place_is_not_believed() {
        let start = ReplicatedChain::start(LOG);
        for (position, epoch) in [(u64::MAX - 1, 1), (1, u64::MAX - 1), (COUNT_MAX, COUNT_MAX)] {
            let chain = ReplicatedChain(Chain { position, epoch, ..start.0 });
            let mut builder = ReplicatedBuilder::new();
            assert!(builder.push(b"record"));
            for block in [
                builder.seal(&mut chain.clone()),
                chain.clone().seal_notice(&notice(NoticeKind::Fence)),
            ] {
                assert_eq!(start.behind(&block), None, "{position} {epoch}");
            }
        }
        // A block of two records whose first position is `u64::MAX`.
        let chain = ReplicatedChain(Chain { position: COUNT_MAX - 1, epoch: 1, ..start.0 });
        let mut builder = ReplicatedBuilder::new();
        assert!(builder.push(b"one") && builder.push(b"two"));
        let mut block = builder.seal(&mut chain.clone()).to_vec();
        assert!(start.behind(&block).is_some());
        block[FIRST_POSITION_AT..FIRST_POSITION_AT + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        let crc = crc32c::crc32c_append(start.0.log_crc, &block[..HEADER_CRC_AT]);
        put_u32(&mut block, HEADER_CRC_AT, crc);
        assert_eq!(start.behind(&block), None);
    }

    #[test]
    fn a_block_without_records_begins_no_epoch() {
        let start = ReplicatedChain::start(LOG);
        let block = Builder::new().seal(&mut start.0.clone()).to_vec();
        let mut chain = start;
        assert!(matches!(chain.read(&block), Err(Damage::Records)));
        assert_eq!((chain, start.behind(&block)), (start, None));
    }

    #[test]
    fn two_attempts_of_a_node_differ() {
        let fence = |nonce| {
            let notice = Notice { nonce, ..notice(NoticeKind::Fence) };
            ReplicatedChain::start(LOG).seal_notice(&notice)
        };
        assert_ne!(fence([1; NONCE_BYTES]), fence([2; NONCE_BYTES]));
    }

    #[test]
    fn the_journal_of_a_single_server_takes_a_notice_for_damage() {
        let fence = &log(&[b"record"])[0];
        let mut segment = fence.to_vec();
        segment.resize(PAGE_BYTES, 0);
        let reading = super::super::read(&segment, PAGE_BYTES, &mut Chain::start(LOG));
        assert!(matches!(reading, Reading::Damaged(Damage::Reserved)), "{reading:?}");
    }

    #[test]
    fn a_name_is_short_and_plain() {
        for name in ["a", "node-1", "rack_2.node-3", &"n".repeat(64)] {
            assert_eq!(NodeName::new(name).unwrap().as_str(), name);
        }
        for name in ["", "a b", "é", "a/b", "a\n", &"n".repeat(65)] {
            assert_eq!(NodeName::new(name), Err(NotAName), "{name:?}");
        }
    }
}
