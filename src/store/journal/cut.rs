//! Ends the journal at an earlier record. Pure: bytes in, bytes out.
//!
//! Everything up to the record stays as it is, byte for byte, except for the block that holds it:
//! if later records share that block, it is sealed anew without them. What comes out is a segment
//! as a server writes it, so nothing needs to know that it was cut.

use super::block::{self, BLOCK_BYTES_MAX, Builder, Chain, Reading};
use super::reader::Batch;
use super::segment::Header;

impl Batch {
    /// The bytes of the segment, up to the end of its blocks, if the journal ended with the record
    /// at `position`. Without that record and any before it, only the header is left.
    pub fn cut(&self, position: u64) -> Vec<u8> {
        let header = Header::read(self.content()).expect("the header was read before");
        let (page_bytes, blocks_at) = (header.page_bytes(), header.blocks_at());
        let blocks = &self.content()[blocks_at..self.end() as usize];
        let mut kept = self.content()[..blocks_at].to_vec();
        // Its predecessors were checked when the segment was read.
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
