//! Delivers answers to the clients and the auditor.

use super::auditor::Auditor;
use super::clients::{Clients, Request};
use super::command::Done;
use super::operated::Ask;
use super::process::{Answer, Noted};
use super::resting::{self, venue::Venue};
use super::totals::Totals;
use crate::engine::admin::standing::Act;
use crate::engine::order::place::Placed;
use crate::engine::rejection::Rejection;
use crate::shard::Refusal;

/// Delivers an answer to the client that sent the request, and records it with the auditor.
pub(super) fn deliver(
    request: &Request,
    answer: Answer,
    noted: Noted,
    clients: &mut Clients,
    venue: &Venue,
    auditor: &mut Auditor,
    totals: &mut Totals,
) -> Result<(), String> {
    if request.is_about_resting() {
        return resting::answers::deliver(request, answer, noted, clients, venue, auditor, totals);
    }
    let unexpected = |what: &dyn std::fmt::Debug| Err(format!("{request:?} was answered {what:?}"));
    match (request, answer) {
        (Request::Trade(numbers), Answer::Orders(answers)) => {
            let is_new = |answer: &&Result<Placed, Refusal>| {
                matches!(answer, Ok(Placed { is_replay: false, .. }))
            };
            let mut noted = noted;
            noted.order_count -= answers.iter().filter(is_new).count() as u64;
            assert_eq!(numbers.len(), answers.len(), "one answer for each order");
            for (&number, answer) in numbers.iter().zip(answers) {
                noted.order_count += u64::from(is_new(&&answer));
                deliver_order(number, answer, noted, clients, auditor, totals)?;
            }
        }
        (request, Answer::Command(Err(refusal @ (Refusal::Busy | Refusal::JournalFull)))) => {
            totals.journal_full += u64::from(refusal == Refusal::JournalFull);
            clients.lost([request.clone()].into_iter());
        }
        (_, Answer::Command(Ok(done))) => {
            // A command that changed nothing may depend on a record older than the newest.
            if noted.is_write {
                totals.acknowledged += 1;
                auditor.acknowledged(noted.shard, noted.sequence);
            } else {
                totals.already += 1;
            }
            if let Done::Reset(_) = done {
                totals.resets += u64::from(noted.is_write);
            }
            if let (Request::Operated { ask: Ask::Act(act), .. }, true) = (request, noted.is_write)
            {
                totals.acts += 1;
                totals.erased += u64::from(*act == Act::Erase);
            }
            deliver_done(request, done, noted, clients, auditor)?;
        }
        (_, Answer::Command(Err(Refusal::Rejected(rejection)))) => {
            totals.rejected += 1;
            match (request, &rejection) {
                (&Request::Operated { trader, .. }, _) => {
                    clients.operated(trader).refused(&rejection)?;
                }
                (&Request::DeleteComment { comment, .. }, Rejection::CommentNotFound) => {
                    auditor.saw_deleted(comment);
                }
                (
                    &Request::CreateKey { trader, .. },
                    Rejection::KeyLimitExceeded { .. }
                    | Rejection::MakerEnded
                    | Rejection::MakerRotated,
                )
                | (
                    &Request::RotateKey { trader, .. },
                    Rejection::KeyRotated { .. }
                    | Rejection::KeyEnded
                    | Rejection::OverlapLimitExceeded { .. },
                ) => auditor.saw_order_count(trader, noted.order_count),
                // The server keeps only the newest of an account's ended keys.
                (
                    Request::RevokeKey { .. }
                    | Request::RenameKey { .. }
                    | Request::RotateKey { .. },
                    Rejection::KeyNotFound,
                ) => {}
                _ => return unexpected(&rejection),
            }
        }
        (&Request::ReadAccount { trader }, Answer::Account(Some(page))) => {
            totals.read += 1;
            auditor.saw_account(trader, noted.order_count, &page);
        }
        (&Request::ReadOrder { trader, .. }, Answer::Order(Some(receipt))) => {
            totals.read += 1;
            auditor.saw_reread(trader, &receipt)?;
        }
        (&Request::ReadComments { order }, Answer::Comments(found)) => {
            totals.read += 1;
            if let Some(comments) = found {
                auditor.saw_comments(order, &comments)?;
            }
        }
        (&Request::ReadKeys { trader }, Answer::Keys(Some(keys))) => {
            totals.read += 1;
            auditor.saw_order_count(trader, noted.order_count);
            for key in &keys {
                auditor.saw_key(key)?;
            }
        }
        _ => return Err(format!("{request:?} got an answer of another kind")),
    }
    Ok(())
}

/// Records a command that succeeded.
fn deliver_done(
    request: &Request,
    done: Done,
    noted: Noted,
    clients: &mut Clients,
    auditor: &mut Auditor,
) -> Result<(), String> {
    match (request, done) {
        (&Request::Comment { trader, .. }, Done::Comment(comment)) => {
            auditor.saw_comment(&comment)?;
            clients.commented(comment.id, trader);
        }
        (&Request::CreateKey { trader, .. }, Done::Key(key)) => {
            auditor.saw_key(&key)?;
            clients.made_key(key.id, trader);
        }
        (&Request::DeleteComment { comment, .. }, Done::Nothing) => {
            auditor.saw_deleted(comment);
        }
        (Request::RenameKey { .. }, Done::Key(key)) => auditor.saw_key(&key)?,
        (&Request::RotateKey { trader, key: old, overlap_seconds }, Done::Key(key)) => {
            auditor.saw_key(&key)?;
            auditor.saw_rotated(old, overlap_seconds);
            clients.made_key(key.id, trader);
        }
        (Request::Beat { .. }, Done::Nothing) => {}
        (&Request::Operated { trader, .. }, Done::Opened(account)) => {
            clients.operated(trader).opened(account)?;
        }
        (&Request::Operated { trader, .. }, Done::Key(key)) => {
            clients.operated(trader).made_key(&key)?;
        }
        (&Request::Operated { trader, ask: Ask::Act(ref act) }, Done::Acted(acted)) => {
            clients.operated(trader).acted(act, acted)?;
        }
        (&Request::Reset { trader, newest }, Done::Reset(reset)) => {
            auditor.resting.saw_reset(trader, newest, &reset, noted.is_write)?;
        }
        (&Request::RevokeKey { key, .. }, Done::Nothing) => {
            auditor.saw_revoked(key);
        }
        (_, done) => return Err(format!("{request:?} was answered {done:?}")),
    }
    Ok(())
}

fn deliver_order(
    number: usize,
    answer: Result<Placed, Refusal>,
    noted: Noted,
    clients: &mut Clients,
    auditor: &mut Auditor,
    totals: &mut Totals,
) -> Result<(), String> {
    let (trader, market) = (clients.orders[number].trader, clients.orders[number].market);
    let was_answered = clients.is_answered[number];
    clients.traders[trader].in_flight -= 1;
    match answer {
        Ok(Placed { receipt, is_replay }) => {
            if was_answered && !is_replay {
                return Err(format!("order {number} was executed twice: {receipt:?}"));
            }
            if is_replay {
                totals.replayed += 1;
            } else {
                totals.acknowledged += 1;
                auditor.acknowledged(noted.shard, noted.sequence);
                auditor.saw_time(trader, &receipt, noted)?;
                totals.several_levels += u64::from(receipt.level_count > 1);
                totals.with_fee += u64::from(receipt.fill.fee.micros() > 0);
            }
            auditor.saw_order(clients, number, &receipt)?;
            clients.is_answered[number] = true;
            clients.traders[trader].account = Some(receipt.account);
            clients.traders[trader].executed(receipt.order, number);
        }
        Err(refusal) if was_answered => {
            return Err(format!("order {number} was executed, and is now refused: {refusal}"));
        }
        Err(Refusal::Rejected(rejection)) => {
            totals.rejected += 1;
            clients.is_answered[number] = true;
            match rejection {
                Rejection::InsufficientBalance { available, .. } => {
                    auditor.saw_balance(trader, noted.order_count, available.micros());
                }
                Rejection::MarketClosed { .. } if clients.resolved().contains(&market) => {
                    totals.refused_resolved += 1;
                }
                Rejection::InsufficientPosition { available: held, .. } => {
                    auditor.saw_position(trader, noted.order_count, market, held.micros());
                }
                other => return Err(format!("order {number} was refused: {other}")),
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
