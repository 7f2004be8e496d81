//! Distinguishes a torn tail, which is cut, from damage, which is reported. Pure.
//!
//! Segments are zero-filled before use and at most one block is in flight. So after a crash, only a
//! part of one block can follow the last intact one: any subset of its sectors, with zeros in place
//! of the others. None of it was acknowledged, unless the disk lost a write it had confirmed, which
//! looks the same. Anything else is damage to records that may have been acknowledged, and the
//! server must not start on it.

use super::block::{
    self, BLOCK_BYTES_MAX, Chain, Damage, Reading, SECTOR_BYTES, is_zero, zero_sector_count,
};
use paperbourse_core::faults::{self, Fault};

/// The remainder of a segment after its last intact block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Tail {
    /// Zeros only.
    Clean,
    /// Part of a block, with its length in bytes: a whole number of sectors.
    Torn(usize),
}

/// Classifies the remainder of a segment after its last intact block, given what [`block::read`]
/// found there. `rest` holds the longest possible block, or the whole remainder if that is shorter.
/// `written` is the end of the segment's last sector that is not all zeros, counted from the start
/// of `rest`.
pub(super) fn judge(
    rest: &[u8],
    written: usize,
    reading: &Reading<'_>,
    chain: &Chain,
) -> Result<Tail, Damage> {
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
        // Sectors are written atomically, so a sector with half a header was changed later.
        Reading::Damaged(ref damage) => Err(damage.clone()),
    }
}

/// Returns the end of the last sector that is not all zeros; 0 if there is none.
pub(super) fn written_bytes(bytes: &[u8]) -> usize {
    let last = bytes.chunks(SECTOR_BYTES).rposition(|sector| !is_zero(sector));
    last.map_or(0, |last| ((last + 1) * SECTOR_BYTES).min(bytes.len()))
}
