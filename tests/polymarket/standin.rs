//! A server that plays the venue: its REST services and its market socket.
//!
//! A test starts one with a [`World`] of markets, passes its URLs to the connector, and then makes
//! things happen: levels change, trades are made, markets are listed and resolved, and, on request,
//! the venue misbehaves. It records every state of every book, when the state held, and whether a
//! client was shown it; and it records every request.
//!
//! Nothing here depends on the server under test: hashes, ladders and frames are computed
//! independently, from the texts on the wire.
//!
//! ```text
//!             ┌ gamma_url ─► gamma ─┐
//!  connector ─┼ clob_url ──► clob ──┼─► State: markets, books, log, sockets ◄─ the test
//!             └ ws_url ────► socket ┘        one lock, and the order of all that is published
//! ```

mod answer;
mod clob;
mod clob_market;
mod control;
mod data;
mod decimal;
mod deliver;
mod description;
mod fault;
mod frames;
mod gamma;
mod history;
mod ladder;
mod listing;
mod market;
mod misbehave;
mod options;
mod publish;
pub(crate) mod recordings;
mod replay;
mod server;
mod socket;
mod state;
mod tls;
mod walk;
pub(crate) mod world;

#[cfg(test)]
mod tests;

use std::path::Path;

pub(crate) use control::StandIn;
pub(crate) use decimal::micros;
pub(crate) use fault::{Edit, Endpoint, EndpointFault, Fault, Injection, Which};
pub(crate) use history::PublishedBook;
pub(crate) use ladder::{Ladder, Side};
pub(crate) use market::Payout;
pub(crate) use options::Options;
pub(crate) use recordings::{Played, Recordings};
pub(crate) use server::{Host, RequestSeen};
pub(crate) use state::{Sent, now_us};
pub(crate) use walk::Pace;
pub(crate) use world::World;

/// The root of the repository. This module is compiled into the tests and the load generator, whose
/// packages are in different folders.
fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders
        .find(|folder| folder.join("tests/fixtures").is_dir())
        .expect("the repository has fixtures")
}
