//! The history of each shard: the hash of every state that it was in.

use crate::engine::State;
use crate::ids::ShardId;

/// State hashes of all shards, indexed by the record that produced them.
#[derive(Default)]
pub(super) struct History {
    pub(super) shards: Vec<Vec<u64>>,
    /// A record after which a shard had two different states, if any.
    pub(super) contradiction: Option<(ShardId, u64)>,
}

impl History {
    pub(super) fn new() -> Self {
        let start = |shard| vec![State::new(shard).hash().get()];
        Self { shards: ShardId::all().map(start).collect(), contradiction: None }
    }

    pub(super) fn note(&mut self, state: &State) {
        let (shard, hash) = (state.shard(), state.hash().get());
        let hashes = &mut self.shards[shard.index()];
        let sequence = usize::try_from(state.sequence()).expect("a short history");
        if sequence == hashes.len() {
            hashes.push(hash);
        } else if hashes.get(sequence) != Some(&hash) {
            self.contradiction = Some((shard, state.sequence()));
        }
    }
}
