//! The HTTP contract, row by row, against the real binary.
//!
//! Tests start their own servers, or share one where separate accounts keep them apart. Prices come
//! from a recording that is written here, so that every fill is known in advance.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod addresses;
mod asyncapi;
mod batches;
mod cancels;
mod candles;
mod clob;
mod clob_data;
mod clob_gamma;
mod clob_lists;
mod clob_market_socket;
mod clob_once;
mod clob_orders;
mod clob_trouble;
mod clob_trouble_sockets;
mod clob_user_socket;
mod clob_wallets;
mod comments;
mod conformance;
mod connections;
mod cors;
mod credentials;
mod data;
mod descriptors;
mod docs;
mod equity;
mod examples;
mod executions;
mod expect;
mod exports;
mod extremes;
mod flood;
mod full_disk;
mod history;
mod idempotency;
mod key_access;
mod key_fields;
mod key_life;
mod keys;
mod lifecycle;
mod limits;
mod malformed;
mod markets;
mod memory;
mod metrics;
mod misspelt;
mod mistakes;
mod once;
mod openapi;
mod order_of_checks;
mod orders;
mod placing;
mod preview;
#[path = "../crash/random.rs"]
mod random;
mod recording;
mod records;
mod reset;
mod secrets;
mod server;
#[cfg(target_os = "linux")]
mod slow_readers;
mod snapshots;
mod sockets;
mod streams;
mod trade_fields;
mod trades;
mod wallets;
