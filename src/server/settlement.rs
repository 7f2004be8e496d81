//! Settles the trades that trouble on demand has delayed, or undoes them.

use std::sync::Arc;

use crate::http::app::AppState;
use crate::trouble::{Due, Trouble};

/// Settles trades when they are due, until the process ends.
pub(super) async fn settle(app: Arc<AppState>, trouble: Arc<Trouble>) {
    loop {
        match trouble.next_due().await {
            Due::Retry(_) => {}
            Due::Settle(trade) | Due::Undo(trade) => trouble.end(&trade, false),
        }
        let _ = &app;
    }
}
