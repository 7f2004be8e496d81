//! Memory accounting of the service.

use std::sync::Arc;

use super::Service;
use crate::shard::{Refusal, Shards};
use paperbourse_core::engine::state::footprint::Footprint;
use paperbourse_store::journal::Waiters;

/// Memory outside the shards, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TablesFootprint {
    /// The table that looks up each request's key.
    pub keys: usize,
    /// The rate-limit windows of keys and access tokens.
    pub key_windows: usize,
    /// The catalogue.
    pub markets: usize,
    /// The books that readers see, and the feed's copies of them.
    pub books: usize,
    /// Price histories.
    pub price_histories: usize,
    /// The queues of the shards.
    pub shard_queues: usize,
}

impl Service {
    /// Adds up the memory of all shards. Commands may run in between.
    pub async fn shards_footprint(&self, waiters: &Arc<Waiters>) -> Result<Footprint, Refusal> {
        self.shards.footprint(waiters).await
    }

    /// Adds up the memory outside the shards. Visits every key and every market, so it should be
    /// called off the request path.
    pub fn tables_footprint(&self) -> TablesFootprint {
        let markets = self.markets.footprint();
        TablesFootprint {
            keys: self.keys.bytes(),
            key_windows: self.token_window_bytes() + self.keys.window_bytes(),
            markets: markets.catalogue,
            books: markets.books,
            price_histories: markets.price_histories,
            shard_queues: Shards::QUEUE_BYTES,
        }
    }
}
