//! The hash of each state that a shard ever had.

use crate::engine::State;
use crate::ids::ShardId;

/// The hashes of the states of all shards, by the record that made them.
#[derive(Default)]
pub(super) struct History {
    pub(super) shards: Vec<Vec<u64>>,
    /// A record after which a shard had two different states.
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
