//! A server that plays the venue: its two REST services and its market socket.
//!
//! A test starts one with a [`World`] of markets, gives the three URLs to the connector, and then
//! makes things happen: levels change, trades are made, markets are listed and resolved, and,
//! where it is told to, the venue misbehaves. It remembers every state of every book with the
//! times between which it was the venue's, whether anybody was shown it, and every request.
//!
//! Nothing here knows the server under test: the hash, the ladders and the frames are computed on
//! their own, from the texts on the wire.
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
mod recordings;
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
pub(crate) use fault::{Endpoint, EndpointFault, Fault, Injection, Which};
pub(crate) use history::PublishedBook;
pub(crate) use ladder::Side;
pub(crate) use market::Payout;
pub(crate) use options::Options;
pub(crate) use recordings::{Played, Recordings};
pub(crate) use server::{Host, RequestSeen};
pub(crate) use state::{Told, now_us};
pub(crate) use walk::Pace;
pub(crate) use world::World;

/// The root of the repository: this is compiled into the tests and into the load generator, whose
/// packages lie in different folders.
fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("tests/fixtures").is_dir()).expect("it has the fixtures")
}
