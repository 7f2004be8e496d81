//! Tells a torn end of the journal, which is cut, from damage, which is not. Pure.
//!
//! Segments are zeros before they are written and at most one block is in flight. So after a crash
//! all that can lie behind the last whole block is a part of one block: some of its sectors, in any
//! selection, and zeros for the others. None of it was ever acknowledged, unless the disk has lost
//! what it had confirmed, which looks the same. Everything else is damage to records that may have
//! been acknowledged, and the server must not start on it.

use super::block::{
    self, BLOCK_BYTES_MAX, Chain, Damage, Reading, SECTOR_BYTES, is_zero, zero_sector_count,
};
use crate::faults::{self, Fault};

/// What lies behind the last whole block of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Tail {
    /// Zeros only.
    Clean,
    /// A part of a block in its first so many bytes, a whole number of sectors.
    Torn(usize),
}

/// Judges `rest`, the bytes from the last whole block to the end of the segment, where `reading`
/// is what [`block::read`] found at its start.
pub(super) fn judge(rest: &[u8], reading: &Reading<'_>, chain: &Chain) -> Result<Tail, Damage> {
    let written = written_bytes(rest);
    match *reading {
        Reading::Block(_) => unreachable!("a whole block is not the end"),
        Reading::Blank if written == 0 => Ok(Tail::Clean),
        Reading::Blank => {
            if written > BLOCK_BYTES_MAX {
                return Err(Damage::Beyond);
            }
            let mut sectors = rest[..written].chunks(SECTOR_BYTES);
            if sectors.any(|sector| block::is_header(sector, chain)) {
                return Err(Damage::Followed);
            }
            Ok(Tail::Torn(written))
        }
        Reading::Incomplete { block_bytes, zero_sector_count: expected } => {
            if written > block_bytes {
                return Err(Damage::Beyond);
            }
            let is_torn = zero_sector_count(&rest[..block_bytes]) > expected;
            if !is_torn && !faults::is_on(Fault::DamagedEndCut) {
                return Err(Damage::PayloadChecksum);
            }
            Ok(Tail::Torn(written))
        }
        // A sector is written whole or not at all: one that holds half a header was changed later.
        Reading::Damaged(ref damage) => Err(damage.clone()),
    }
}

/// How far the bytes reach that are not zero, up to the end of their sector.
fn written_bytes(bytes: &[u8]) -> usize {
    let last = bytes.chunks(SECTOR_BYTES).rposition(|sector| !is_zero(sector));
    last.map_or(0, |last| ((last + 1) * SECTOR_BYTES).min(bytes.len()))
}
