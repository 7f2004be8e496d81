//! Measures the memory use of each part of the server, for the metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;

use crate::http::app::AppState;
use crate::journal::Waiters;
use crate::shard::Refusal;

/// Minimum pause between two counts.
const REST_MIN: Duration = Duration::from_secs(5);

/// Pause after a long count, as a multiple of its duration. Counting thus takes at most 1 % of one
/// core, however many accounts there are.
const REST_FACTOR: u32 = 99;

/// Counts periodically until the process ends.
pub(super) async fn watch(app: Arc<AppState>) {
    let waiters = app.journal.register();
    let counts = async {
        loop {
            let began = Instant::now();
            // If a shard refuses, the old counts stay: a shard whose queue remains full has more
            // urgent work.
            if let Ok(counted) = count(&app, &waiters).await {
                *app.memory.lock() = counted;
            }
            tokio::time::sleep(REST_MIN.max(began.elapsed() * REST_FACTOR)).await;
        }
    };
    tokio::select! {
        () = waiters.run() => {}
        () = counts => {}
    }
}

async fn count(
    app: &Arc<AppState>,
    waiters: &Arc<Waiters>,
) -> Result<Vec<(&'static str, usize)>, Refusal> {
    let shards = app.service.shards_footprint(waiters).await?;
    let of_tables = app.clone();
    // Off the runtime, since it visits every key and every market.
    let tables = spawn_blocking(move || of_tables.service.tables_footprint()).await;
    let tables = tables.expect("counting does not panic");
    Ok(vec![
        ("accounts", shards.accounts),
        ("fills", shards.fills),
        ("orders", shards.orders),
        ("open_orders", shards.open_orders),
        ("keys", shards.keys + tables.keys),
        ("key_windows", tables.key_windows),
        ("comments", shards.comments),
        ("markets", shards.markets + tables.markets),
        ("books", tables.books),
        ("price_histories", tables.price_histories),
        ("shard_queues", tables.shard_queues),
        ("journal", app.journal.buffer_bytes()),
    ])
}
