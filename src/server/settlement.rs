//! Settles the trades that trouble on demand has delayed, or undoes them.

use std::sync::Arc;

use crate::http::app::AppState;
use crate::journal::Waiters;
use crate::service::UndoOutcome;
use crate::trouble::{Due, Trouble, Unsettled};

/// Settles trades when they are due, until the process ends.
pub(super) async fn settle(app: Arc<AppState>, trouble: Arc<Trouble>) {
    let waiters = app.journal.register();
    tokio::spawn({
        let waiters = waiters.clone();
        async move { waiters.run().await }
    });
    loop {
        match trouble.next_due().await {
            Due::Retry(trade) => app.users.tell_retried(&trade),
            Due::Settle(trade) => {
                trouble.settle(&trade);
                app.users.tell_settled(&trade);
            }
            Due::Undo(trade) => {
                if !trouble.fail(&trade, undo(&app, &trade, &waiters)).await {
                    app.users.tell_settled(&trade);
                }
            }
        }
    }
}

/// Undoes the fill of a trade. Returns false if its shares or its money have moved on.
async fn undo(app: &AppState, trade: &Unsettled, waiters: &Arc<Waiters>) -> bool {
    let (account, order, part) = trade.id();
    match app.service.undo_fill(account, order, part, waiters).await {
        Ok(UndoOutcome::Undone) => true,
        outcome => {
            tracing::info!(%order, part, ?outcome, "a trade that was to fail is settled");
            false
        }
    }
}
