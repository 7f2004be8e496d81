//! What deciders have for the log, as lines of it.

use std::time::Duration;

use crate::venue::follow::request::Notice;

pub(super) fn log(notice: &Notice) {
    match notice {
        Notice::Opened { socket, tokens } => {
            tracing::info!(socket, tokens, "venue connection opened");
        }
        Notice::Ahead { socket, ahead } => tracing::warn!(
            socket,
            ahead_ms = millis(*ahead),
            "the venue sends a time that is yet to come; it is clamped, and so are later ones of \
             this connection, which are not logged"
        ),
        Notice::UnknownMessage { socket, error } => {
            tracing::debug!(socket, error, "venue message of an unknown kind left out");
        }
        Notice::UnreadableMessage { socket, error } => {
            tracing::warn!(socket, error, "venue message cannot be read");
        }
        Notice::UnknownFrame { socket, text } => {
            tracing::warn!(socket, text, "venue frame is not a message");
        }
        Notice::UnreadableBooks { error } => tracing::warn!(error, "books cannot be read"),
        Notice::UnreadableBook { error } => tracing::warn!(error, "a book is left out"),
        Notice::Following { markets, is_held: false } => {
            tracing::info!(markets, "following more markets of the venue");
        }
        Notice::Following { markets, is_held: true } => {
            tracing::info!(markets, "following markets in which somebody holds shares");
        }
        Notice::UnknownStage { stage, market } => tracing::warn!(
            stage = &**stage,
            market = &**market,
            "unknown stage of a resolution: its markets pay nothing until it is another"
        ),
        Notice::EndRetracted { market } => {
            tracing::warn!(market = &**market, "the end of a market is taken back");
        }
        Notice::Contradiction { market } => tracing::warn!(
            market = &**market,
            "a market stays closed: its sources contradict each other on what it pays"
        ),
        Notice::Resolved { market, evidence } => {
            tracing::info!(market = &**market, evidence = &**evidence, "market resolved");
        }
        Notice::TokensChanged { market } => tracing::warn!(
            market = &**market,
            "a description names other tokens than before: no order fills until it names the known \
             ones"
        ),
    }
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
