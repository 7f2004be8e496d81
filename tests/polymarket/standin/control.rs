//! The stand-in's interface for tests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::fault::{Endpoint, EndpointFault, Fault, Injection, Which};
use super::history::PublishedBook;
use super::ladder::{Ladder, Side};
use super::market::Payout;
use super::options::Options;
use super::recordings::Played;
use super::server::{Host, RequestSeen, Shared, listen, serve};
use super::state::{Sent, State};
use super::tls::{authority_path, server_config};
use super::walk::{Pace, Walk};
use super::world::{MarketSeed, World};

/// A running venue; dropping it shuts it down.
pub(crate) struct StandIn {
    /// Base URL of the metadata service, without a trailing slash.
    pub(crate) gamma_url: String,
    /// Base URL of the order book service, without a trailing slash.
    pub(crate) clob_url: String,
    /// Base URL of the data API, without a trailing slash.
    pub(crate) data_url: String,
    /// URL of the market socket, path included.
    pub(crate) ws_url: String,
    /// The PEM file of the authority that signed the certificate; `None` without TLS.
    pub(crate) authority_path: Option<PathBuf>,
    shared: Arc<Shared>,
    /// The listeners and their connections, which end with the set.
    _listeners: JoinSet<()>,
}

impl StandIn {
    /// Starts the venue on free ports.
    pub(crate) async fn start(world: World, options: Options) -> Self {
        let tls = options.is_tls.then(server_config);
        let secure = if options.is_tls { "s" } else { "" };
        let authority_path = options.is_tls.then(authority_path);
        let shared = Arc::new(Shared { state: Mutex::new(State::new(world, options)) });
        let mut listeners = JoinSet::new();
        let mut addresses = Vec::new();
        for host in [Host::Gamma, Host::Clob, Host::Data, Host::Socket] {
            let (listener, address) = listen().await;
            listeners.spawn(serve(listener, host, shared.clone(), tls.clone()));
            addresses.push(address);
        }
        Self {
            gamma_url: format!("http{secure}://{}", addresses[0]),
            clob_url: format!("http{secure}://{}", addresses[1]),
            data_url: format!("http{secure}://{}", addresses[2]),
            ws_url: format!("ws{secure}://{}/ws/market", addresses[3]),
            authority_path,
            shared,
            _listeners: listeners,
        }
    }

    /// Sets the size of this token's level at this price; `"0"` removes the level. The other token
    /// mirrors the change. Sends one `price_change`.
    pub(crate) fn change_level(&self, token: &str, side: Side, price: &str, size: &str) {
        self.change_levels(token, &[(side, price, size)]);
    }

    /// Changes several levels in one `price_change`.
    pub(crate) fn change_levels(&self, token: &str, changes: &[(Side, &str, &str)]) {
        let mut state = self.shared.state.lock();
        let token = state.token(token);
        state.change_levels(token, changes);
    }

    /// Sets the size of a level as it was at this time, unless either book is newer.
    pub(crate) fn change_level_at(
        &self,
        timestamp_ms: u64,
        token: &str,
        change: (Side, &str, &str),
    ) {
        let mut state = self.shared.state.lock();
        let token = state.token(token);
        state.change_levels_at(timestamp_ms, token, &[change]);
    }

    /// Changes levels of this token, each in a frame of its own, all with one timestamp and the
    /// hashes of the last books; those before the last frame have this hash instead, if any.
    pub(crate) fn change_group(
        &self,
        token: &str,
        changes: &[(Side, &str, &str)],
        other_hash: Option<&str>,
    ) {
        let mut state = self.shared.state.lock();
        let token = state.token(token);
        state.change_group(token, changes, other_hash);
    }

    /// Whether best prices are sent before the change that moves them, from now on.
    pub(crate) fn send_tops_first(&self, is_top_first: bool) {
        self.shared.state.lock().options.is_top_first = is_top_first;
    }

    /// A taker takes this size, or what there is, from the other side of this token's book: a
    /// `price_change`, a `book` of each token, and a `last_trade_price` for each level. Returns
    /// prices and sizes.
    pub(crate) fn trade(&self, token: &str, taker: Side, size: &str) -> Vec<(String, String)> {
        let mut state = self.shared.state.lock();
        let token = state.token(token);
        state.trade(token, taker, size)
    }

    /// The same as the venue sends a match: a `price_change` for each level, all with the hash of
    /// the last book and its trade, and a `book` of each token. Returns the trades, for
    /// [`Self::report`].
    pub(crate) fn trade_in_pieces(
        &self,
        token: &str,
        taker: Side,
        size: &str,
    ) -> Vec<(String, String)> {
        let mut state = self.shared.state.lock();
        let token = state.token(token);
        state.trade_in_pieces(token, taker, size)
    }

    /// Sends a `last_trade_price` for each of these trades.
    pub(crate) fn report(&self, token: &str, taker: Side, trades: &[(String, String)]) {
        let mut state = self.shared.state.lock();
        let token = state.token(token);
        state.report(token, taker, trades);
    }

    /// From now on `/books` answers with books that never were, or no longer.
    pub(crate) fn serve_ghosts(&self, is_on: bool) {
        self.shared.state.lock().has_ghost_books = is_on;
    }

    /// Changes the market's tick size: announced twice for each token, followed by both books.
    pub(crate) fn change_tick_size(&self, condition_id: &str, tick_size: &str) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.change_tick_size(market, tick_size);
    }

    /// Replaces this token's book, and the other token's with its mirror image; both are sent as
    /// `book`.
    pub(crate) fn replace_book(&self, token: &str, ladder: &Ladder) {
        let mut state = self.shared.state.lock();
        let token = state.token(token);
        state.replace_book(token, ladder);
    }

    /// Lists a market, and announces it on every socket that requested custom events.
    pub(crate) fn list_market(&self, seed: &MarketSeed) {
        self.shared.state.lock().list_market(seed);
    }

    /// Resolves a market everywhere at once: its books are removed, both services show it as
    /// closed, and a `market_resolved` is sent if there is a winner.
    pub(crate) fn resolve(&self, condition_id: &str, payout: Payout) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.resolve(market, payout);
    }

    /// Removes this market's books without announcing it.
    pub(crate) fn remove_books(&self, condition_id: &str) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.remove_books(market);
    }

    /// Closes the market with this payout on the CLOB only.
    pub(crate) fn resolve_on_clob(&self, condition_id: &str, payout: Payout) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.resolve_on_clob(market, payout);
    }

    /// Resolves the market on the chain only, as the data API reports it.
    pub(crate) fn resolve_on_chain(&self, condition_id: &str, payout: Payout) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.markets[market].payout_on_chain = Some(payout);
    }

    /// Closes the market with this payout on Gamma only.
    pub(crate) fn resolve_on_gamma(&self, condition_id: &str, payout: Payout) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.resolve_on_gamma(market, payout);
    }

    /// Sends a `market_resolved` for this outcome, and changes nothing else.
    pub(crate) fn announce_resolved(&self, condition_id: &str, winner: usize) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.announce_resolved(market, winner);
    }

    /// Replays a recorded event; returns the number of sockets it was sent to.
    pub(crate) fn play(&self, played: &Played) -> usize {
        self.shared.state.lock().play(played)
    }

    /// Makes this many random changes to the books, all at once.
    pub(crate) fn walk(&self, seed: u64, step_count: u32) {
        let mut state = self.shared.state.lock();
        let mut walk = Walk::new(&state, seed, true);
        for _ in 0..step_count {
            walk.step(&mut state);
        }
    }

    /// Makes random changes to the books at this rate, and returns their number. Without trades
    /// each change is one message to each subscriber of the market, and more if a best price moves.
    pub(crate) async fn run_walk(
        &self,
        (seed, has_trades): (u64, bool),
        steps_per_second: u32,
        duration: Duration,
    ) -> u64 {
        let mut walk = Walk::new(&self.shared.state.lock(), seed, has_trades);
        walk.run(&self.shared, steps_per_second, duration).await
    }

    /// Makes random changes and trades at the rate that yields this many messages a second.
    pub(crate) async fn run_messages(
        &self,
        seed: u64,
        messages_per_second: u32,
        duration: Duration,
    ) -> Pace {
        let mut walk = Walk::new(&self.shared.state.lock(), seed, true);
        walk.run_evenly(&self.shared, messages_per_second, duration).await
    }

    /// How many frames have been queued on sockets.
    pub(crate) fn message_count(&self) -> u64 {
        self.shared.state.lock().message_count
    }

    /// Whether a socket has more than this many unsent frames.
    pub(crate) fn is_behind(&self, frames: usize) -> bool {
        self.shared.state.lock().sockets.values().any(|socket| socket.unsent_frames() > frames)
    }

    /// Moves all books except this market's, without trades, forever.
    pub(crate) async fn run_walk_but(&self, condition_id: &str, seed: u64, steps_per_second: u32) {
        let mut walk = {
            let state = self.shared.state.lock();
            let quiet = state.market(condition_id);
            Walk::new(&state, seed, false).but(&state.markets[quiet].tokens)
        };
        walk.run(&self.shared, steps_per_second, Duration::MAX).await;
    }

    /// Makes these sockets misbehave from the next frame on.
    pub(crate) fn misbehave(&self, which: Which<'_>, fault: Fault) {
        self.shared.state.lock().misbehave(which, fault);
    }

    /// Ends the faults of these sockets. What was withheld stays withheld.
    pub(crate) fn behave(&self, which: Which<'_>) {
        self.shared.state.lock().behave(which);
    }

    /// Sends a frame that no event caused; returns the number of sockets.
    pub(crate) fn inject(&self, which: Which<'_>, injection: Injection<'_>) -> usize {
        self.shared.state.lock().inject(which, injection)
    }

    /// Applies this fault to the next `requests` requests for this endpoint, replacing any earlier
    /// fault. With `u32::MAX` it applies to all, until [`Self::behave_at`].
    pub(crate) fn misbehave_at(&self, endpoint: Endpoint, fault: EndpointFault, requests: u32) {
        assert!(requests > 0, "a fault must apply to at least one request");
        self.shared.state.lock().endpoint_faults.insert(endpoint, (fault, requests));
    }

    /// Ends the fault of this endpoint.
    pub(crate) fn behave_at(&self, endpoint: Endpoint) {
        self.shared.state.lock().endpoint_faults.remove(&endpoint);
    }

    /// Every recorded state of this token's book, oldest first; the last is the current book.
    pub(crate) fn published(&self, token: &str) -> Vec<PublishedBook> {
        let state = self.shared.state.lock();
        state.tokens[state.token(token)].history.published()
    }

    /// The venue's timestamp of this token's book, in milliseconds since 1970, and its best bid and
    /// ask; `"0"` and `"1"` stand for an empty side.
    pub(crate) fn top(&self, token: &str) -> (u64, String, String) {
        let state = self.shared.state.lock();
        let token = &state.tokens[state.token(token)];
        let (bid, ask) = token.ladder.top();
        (token.timestamp_ms, bid.to_owned(), ask.to_owned())
    }

    /// Every request so far, upgrades included, in the order in which they were answered.
    pub(crate) fn requests(&self) -> Vec<RequestSeen> {
        self.shared.state.lock().requests.iter().cloned().collect()
    }

    /// Everything sent so far, in order; recorded only with [`Options::keeps_sent`].
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.shared.state.lock().sent.clone()
    }

    /// What clients did that the venue would object to; empty if they behaved.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.shared.state.lock().violations.clone()
    }

    /// The number of `PING`s that were not answered, because of a fault.
    pub(crate) fn pings_unanswered(&self) -> usize {
        self.shared.state.lock().pings_unanswered
    }

    /// The open sockets, oldest first, each with its number of tokens.
    pub(crate) fn sockets(&self) -> Vec<(u64, usize)> {
        let state = self.shared.state.lock();
        state.sockets.iter().map(|(&id, socket)| (id, socket.tokens.len())).collect()
    }

    /// The open sockets subscribed to this token.
    pub(crate) fn sockets_of(&self, token: &str) -> Vec<u64> {
        let state = self.shared.state.lock();
        state.tokens[state.token(token)].subscribers.clone()
    }

    /// Omits this market's tokens from Gamma's next `answer_count` descriptions of it.
    pub(crate) fn hydrate_after(&self, condition_id: &str, answer_count: u32) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.markets[market].hydration_left = answer_count;
    }

    /// Edits Gamma's description of a market.
    pub(crate) fn describe(
        &self,
        condition_id: &str,
        change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>),
    ) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        let description = state.markets[market].description.as_mut();
        description.expect("the market has a description").edit(change);
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // The sockets' writers end with their queues.
        self.shared.state.lock().sockets.clear();
    }
}
