//! A journal whose blocks are safe elsewhere before they reach its own disk.

use bytes::Bytes;

use super::ReplicatedChain;
use crate::journal::block::Builder;

/// Receives each block of records before a journal writes it. So any record on the journal's disk,
/// and any acknowledged record, was safe upstream first.
pub trait Upstream: Send + Sync {
    /// Returns the epoch of the journal's records. It replaces the epoch of the folder, which
    /// differs between nodes.
    fn epoch(&self) -> u64;

    /// Returns once the block is safe, however long that takes. If the journal must not continue,
    /// the process exits instead. Called on the journal's own thread.
    fn append(&self, block: NextBlock<'_>);
}

/// The records of the block that a journal is about to write.
pub struct NextBlock<'a>(pub(in crate::journal) &'a mut Builder);

impl NextBlock<'_> {
    /// Seals the records as the next block of a replicated log, and advances the chain past it.
    pub fn seal(self, chain: &mut ReplicatedChain) -> Bytes {
        chain.seal(self.0)
    }
}
