//! Writes the notices of a follower to the log.

use std::time::Duration;

use crate::follow::request::Notice;

pub(super) fn log(notice: &Notice) {
    match notice {
        Notice::Opened { socket, tokens } => {
            tracing::info!(socket, tokens, "venue connection opened");
        }
        // Later timestamps of the same connection are clamped too, but not logged.
        Notice::Ahead { socket, ahead } => tracing::warn!(
            socket,
            ahead_ms = millis(*ahead),
            "venue timestamp in the future, clamping this connection's timestamps"
        ),
        Notice::UnknownMessage { socket, error } => {
            tracing::debug!(socket, error, "unknown venue message ignored");
        }
        Notice::UnreadableMessage { socket, error } => {
            tracing::warn!(socket, error, "unreadable venue message");
        }
        Notice::UnknownFrame { socket, text } => {
            tracing::warn!(socket, text, "unknown venue frame");
        }
        Notice::UnreadableAnswer { error } => tracing::warn!(error, "unreadable answer with books"),
        Notice::UnreadableBooks { books, first_error } => {
            tracing::warn!(books, first_error, "unreadable books ignored");
        }
        Notice::Following { markets, is_held } => {
            tracing::info!(markets, is_held, "following more markets");
        }
        Notice::UnknownStage { stage, market } => tracing::warn!(
            stage = &**stage,
            market = &**market,
            "unknown resolution stage, its markets stay unresolved"
        ),
        Notice::EndRetracted { market } => {
            tracing::warn!(market = &**market, "market reopened");
        }
        Notice::Contradiction { market } => tracing::warn!(
            market = &**market,
            "sources disagree on payouts, market stays unresolved"
        ),
        Notice::Resolved { market, evidence } => {
            tracing::info!(market = &**market, evidence = &**evidence, "market resolved");
        }
        Notice::TokensChanged { market } => {
            tracing::warn!(market = &**market, "description names other tokens, market suspended");
        }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
