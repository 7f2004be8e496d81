//! A journal whose blocks are safe elsewhere before they reach its own disk.

use bytes::Bytes;

use super::ReplicatedChain;
use crate::journal::block::Builder;

/// Gets each block of records before a journal writes it. Whatever is on the journal's disk, and so
/// whatever was answered, was safe here first.
pub trait Upstream: Send + Sync {
    /// The epoch of the journal's records. The journal's own is that of its folder, of which each
    /// node has another.
    fn epoch(&self) -> u64;

    /// Returns once the block is safe, however long that takes. If the journal may not go on, never
    /// returns: the process ends. Called on the journal's own thread.
    fn append(&self, block: NextBlock<'_>);
}

/// The records of the block that a journal is about to write.
pub struct NextBlock<'a>(pub(in crate::journal) &'a mut Builder);

impl NextBlock<'_> {
    /// Makes the records the next block of a replicated log, and advances the chain past it.
    pub fn seal(self, chain: &mut ReplicatedChain) -> Bytes {
        chain.seal(self.0)
    }
}
