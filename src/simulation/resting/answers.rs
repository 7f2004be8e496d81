//! Delivers answers about resting orders to clients and the auditor.

use super::venue::Venue;
use crate::engine::order::payload::PayloadFlaw;
use crate::engine::order::place::Placed;
use crate::engine::rejection::Rejection;
use crate::shard::Refusal;
use crate::simulation::auditor::Auditor;
use crate::simulation::clients::{Clients, Request};
use crate::simulation::process::{Answer, Noted};
use crate::simulation::totals::Totals;

/// Delivers an answer to the client that sent the request, and records it with the auditor.
pub(in crate::simulation) fn deliver(
    request: &Request,
    answer: Answer,
    noted: Noted,
    clients: &mut Clients,
    venue: &Venue,
    auditor: &mut Auditor,
    totals: &mut Totals,
) -> Result<(), String> {
    let unexpected = |what: &dyn std::fmt::Debug| Err(format!("{request:?} was answered {what:?}"));
    match (request, answer) {
        (&Request::Place(number), Answer::Placed(answer)) => {
            deliver_placed(number, answer, noted, clients, venue, auditor, totals)?;
        }
        (_, Answer::Cancelled(Err(refusal)) | Answer::CancelledAll(Err(refusal))) => {
            match (request, refusal) {
                (_, Refusal::Busy) => {}
                (_, Refusal::JournalFull) => totals.journal_full += 1,
                (
                    &Request::Cancel { trader, order },
                    Refusal::Rejected(Rejection::NotCancellable { status }),
                ) => {
                    totals.cancelled_too_late += 1;
                    auditor.resting.saw_ended(trader, order, status)?;
                }
                (_, refusal) => return unexpected(&refusal),
            }
        }
        (&Request::Cancel { trader, .. }, Answer::Cancelled(Ok(cancelled))) => {
            totals.acknowledged += 1;
            totals.cancelled += 1;
            auditor.acknowledged(noted.shard, noted.sequence);
            auditor.resting.saw_cancelled(trader, &cancelled, &clients.resting, venue)?;
        }
        (&Request::CancelAll { trader, newest }, Answer::CancelledAll(Ok(cancelled))) => {
            if noted.is_write {
                totals.acknowledged += 1;
                auditor.acknowledged(noted.shard, noted.sequence);
            }
            totals.cancelled += cancelled.orders.len() as u64;
            auditor.resting.saw_all_cancelled(trader, newest, &cancelled)?;
        }
        (&Request::ReadResting { trader, .. }, Answer::Order(Some(receipt))) => {
            totals.read += 1;
            auditor.resting.saw_reread(trader, &receipt, &clients.resting, venue)?;
        }
        _ => return Err(format!("{request:?} got an answer of another kind")),
    }
    Ok(())
}

fn deliver_placed(
    number: usize,
    answer: Result<Placed, Refusal>,
    noted: Noted,
    clients: &mut Clients,
    venue: &Venue,
    auditor: &mut Auditor,
    totals: &mut Totals,
) -> Result<(), String> {
    let sent = &mut clients.resting.orders[number];
    let (trader, was_answered) = (sent.trader, sent.is_answered);
    clients.traders[trader].in_flight -= 1;
    match answer {
        Ok(Placed { receipt, is_replay }) => {
            if was_answered && !is_replay {
                return Err(format!("order {number} was placed twice: {receipt:?}"));
            }
            if is_replay {
                totals.replayed += 1;
            } else {
                totals.acknowledged += 1;
                totals.placed += 1;
                let order_state = receipt.order_state.as_ref();
                totals.delayed += u64::from(
                    order_state.is_some_and(|order_state| order_state.terms.delayed_ms > 0),
                );
                auditor.acknowledged(noted.shard, noted.sequence);
            }
            auditor.resting.saw(number, &receipt, &clients.resting, venue)?;
            clients.traders[trader].account = Some(receipt.account);
            clients.resting.placed(receipt.order, number);
        }
        Err(refusal) if was_answered => {
            return Err(format!("order {number} was placed, and is now refused: {refusal}"));
        }
        Err(Refusal::Rejected(rejection)) => {
            totals.rejected += 1;
            (sent.is_answered, sent.is_refused) = (true, true);
            totals.dropped += u64::from(auditor.resting.saw_refused(trader, number)?);
            let is_expected = match rejection {
                Rejection::InsufficientBalance { .. }
                | Rejection::InsufficientPosition { .. }
                | Rejection::OpenOrderLimitExceeded { .. }
                | Rejection::VenueUnavailable { .. } => true,
                Rejection::PostOnlyWouldCross { .. } => sent.order.post_only,
                Rejection::Payload(PayloadFlaw::Expiration) => sent.order.expiration.is_some(),
                Rejection::MarketClosed { .. } => venue.is_resolved(sent.market),
                _ => false,
            };
            if !is_expected {
                return Err(format!("order {number} was refused: {rejection}"));
            }
        }
        Err(refusal @ (Refusal::Busy | Refusal::JournalFull)) => {
            totals.journal_full += u64::from(refusal == Refusal::JournalFull);
            clients.traders[trader].unanswered.push(number);
        }
        other => return Err(format!("order {number} was answered {other:?}")),
    }
    Ok(())
}
