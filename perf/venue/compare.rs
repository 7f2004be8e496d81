//! Compares the books that the server serves with the stand-in's, level by level.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use paperbourse::money::{Rounding, micros_from_text};
use serde_json::Value;

use super::stand_in::TrueBook;
use crate::client::{Connection, encode_request};

/// Maximum time for the last messages to arrive.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// Prices and sizes in millionths, the best level last, as the server serves them.
type Levels = Vec<(i64, i64)>;

/// Returns the tokens whose served books are stale or differ from the stand-in's, after the last
/// messages had time to arrive.
pub(crate) fn unequal(address: SocketAddr, books: &[TrueBook]) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = Connection::open(address).await?;
        let deadline = Instant::now() + SETTLE_PATIENCE;
        let mut unequal = Vec::new();
        for book in books {
            while !is_served(&mut connection, address, book).await? {
                if Instant::now() > deadline {
                    unequal.push(book.token_id.clone());
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(unequal)
    })
}

async fn is_served(
    connection: &mut Connection,
    address: SocketAddr,
    book: &TrueBook,
) -> anyhow::Result<bool> {
    let path = format!("/v1/book?token_id={}", book.token_id);
    let request = encode_request("GET", &path, address, &[], "");
    let answer = connection.exchange(request.as_bytes()).await?;
    ensure!(answer.status == 200, "{path} failed with {}", answer.status);
    let served: Value = serde_json::from_slice(answer.body)?;
    let is_fresh = served["stale"] != true;
    let is_equal = levels(&served["bids"])? == of_texts(&book.bids)?
        && levels(&served["asks"])? == of_texts(&book.asks)?;
    Ok(is_fresh && is_equal)
}

fn levels(side: &Value) -> anyhow::Result<Levels> {
    let levels = side.as_array().context("a side is an array")?;
    let number = |value: &Value| micros(value.as_str().context("a number is a string")?);
    levels.iter().map(|level| Ok((number(&level["price"])?, number(&level["size"])?))).collect()
}

fn of_texts(best_first: &[(Box<str>, Box<str>)]) -> anyhow::Result<Levels> {
    best_first.iter().rev().map(|(price, size)| Ok((micros(price)?, micros(size)?))).collect()
}

fn micros(text: &str) -> anyhow::Result<i64> {
    Ok(micros_from_text(text, Rounding::Exact)?)
}
