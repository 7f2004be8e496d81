//! Cuts off the journal after a given record. Pure: bytes in, bytes out.
//!
//! Everything up to the record stays the same, byte for byte, except for the block that holds it:
//! if later records share that block, it is resealed without them. The result is a segment as a
//! server would write it, so readers need no special case.

use super::block::{self, BLOCK_BYTES_MAX, Builder, Chain, Reading};
use super::reader::Batch;
use super::segment::Header;

impl Batch {
    /// Returns the segment up to the end of its blocks, as if the journal ended with the record at
    /// `position`. Returns only the header if the segment has no record at or before `position`.
    pub fn cut(&self, position: u64) -> Vec<u8> {
        let header = Header::read(self.content()).expect("the header was read before");
        let (page_bytes, blocks_at) = (header.page_bytes(), header.blocks_at());
        let blocks = &self.content()[blocks_at..self.end() as usize];
        let mut kept = self.content()[..blocks_at].to_vec();
        // The block's predecessors were checked when the segment was read.
        let Some(mut chain) = block::chain_before(blocks, &Chain::start(header.log)) else {
            return kept;
        };
        let mut rest = blocks;
        while !rest.is_empty() && chain.position < position {
            let before = chain;
            let Reading::Block(block) = block::read(rest, page_bytes, &mut chain) else {
                unreachable!("the block was read before");
            };
            if chain.position <= position {
                kept.extend_from_slice(&rest[..block.bytes]);
            } else {
                let mut shorter = Builder::new();
                let count = usize::try_from(position - before.position).expect("it fits a block");
                for record in block.records().take(count) {
                    assert!(shorter.push(record, BLOCK_BYTES_MAX), "it is shorter than before");
                }
                kept.extend_from_slice(shorter.seal_in(page_bytes, &mut before.clone()));
            }
            rest = &rest[block.bytes..];
        }
        kept
    }
}
