//! What a test holds in its hand.

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
use super::state::{State, Told};
use super::tls::{authority_path, server_config};
use super::walk::{Pace, Walk};
use super::world::{MarketSeed, World};

/// A venue that is up; it goes down when this is dropped.
pub(crate) struct StandIn {
    /// Base of the metadata service, without a slash at its end.
    pub(crate) gamma_url: String,
    /// Base of the order book service, without a slash at its end.
    pub(crate) clob_url: String,
    /// Base of the data API, without a slash at its end.
    pub(crate) data_url: String,
    /// The market socket, with its path.
    pub(crate) ws_url: String,
    /// Who has signed the certificate, in PEM; nothing without TLS.
    pub(crate) authority_path: Option<PathBuf>,
    shared: Arc<Shared>,
    /// The listeners with their connections, which end with it.
    _listeners: JoinSet<()>,
}

impl StandIn {
    /// Opens the venue on ports of its own.
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

    /// The level of this token at this price has this size from now on; `"0"` takes it away. The
    /// other token shows the same. One `price_change`.
    pub(crate) fn change_level(&self, token: &str, side: Side, price: &str, size: &str) {
        self.change_levels(token, &[(side, price, size)]);
    }

    /// Several levels in one `price_change`.
    pub(crate) fn change_levels(&self, token: &str, changes: &[(Side, &str, &str)]) {
        let mut state = self.shared.state.lock();
        let token = state.token(token);
        state.change_levels(token, changes);
    }

    /// Somebody takes this size from the other side of this token's book, as far as it goes: a
    /// `price_change`, a `book` of each token, and a `last_trade_price` for each level. Returns
    /// prices and sizes.
    pub(crate) fn trade(&self, token: &str, taker: Side, size: &str) -> Vec<(String, String)> {
        let mut state = self.shared.state.lock();
        let token = state.token(token);
        state.trade(token, taker, size)
    }

    /// The market's prices have this step from now on: told twice for each token, then both books.
    pub(crate) fn change_tick_size(&self, condition_id: &str, tick_size: &str) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.change_tick_size(market, tick_size);
    }

    /// Another book for this token, and its mirror image for the other; told as `book`.
    pub(crate) fn replace_book(&self, token: &str, ladder: &Ladder) {
        let mut state = self.shared.state.lock();
        let token = state.token(token);
        state.replace_book(token, ladder);
    }

    /// Lists a market, and tells every socket that asked for more than books.
    pub(crate) fn list_market(&self, seed: &MarketSeed) {
        self.shared.state.lock().list_market(seed);
    }

    /// Resolves a market everywhere at once: no books, closed on both services, and a
    /// `market_resolved` if somebody has won.
    pub(crate) fn resolve(&self, condition_id: &str, payout: Payout) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.resolve(market, payout);
    }

    /// The venue has no books of this market any more, and says nothing.
    pub(crate) fn remove_books(&self, condition_id: &str) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.remove_books(market);
    }

    /// Only the CLOB tells the market as closed and paid so.
    pub(crate) fn resolve_on_clob(&self, condition_id: &str, payout: Payout) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.resolve_on_clob(market, payout);
    }

    /// Only the data API tells that the chain has resolved the market like this.
    pub(crate) fn resolve_on_chain(&self, condition_id: &str, payout: Payout) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.markets[market].payout_on_chain = Some(payout);
    }

    /// Only Gamma tells the market as closed and paid so.
    pub(crate) fn resolve_on_gamma(&self, condition_id: &str, payout: Payout) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.resolve_on_gamma(market, payout);
    }

    /// Only a `market_resolved` for this outcome.
    pub(crate) fn tell_resolved(&self, condition_id: &str, winner: usize) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.tell_resolved(market, winner);
    }

    /// Lets something recorded happen again; to how many sockets it was told.
    pub(crate) fn play(&self, played: &Played) -> usize {
        self.shared.state.lock().play(played)
    }

    /// Moves books by chance, so many changes at once.
    pub(crate) fn walk(&self, seed: u64, step_count: u32) {
        let mut state = self.shared.state.lock();
        let mut walk = Walk::new(&state, seed, true);
        for _ in 0..step_count {
            walk.step(&mut state);
        }
    }

    /// Moves books by chance, so many changes a second, for so long; how many were made. Without
    /// trades each change is one message to whoever has the market, and more where a top moves.
    pub(crate) async fn run_walk(
        &self,
        (seed, has_trades): (u64, bool),
        steps_per_second: u32,
        duration: Duration,
    ) -> u64 {
        let mut walk = Walk::new(&self.shared.state.lock(), seed, has_trades);
        walk.run(&self.shared, steps_per_second, duration).await
    }

    /// Moves books by chance, with trades, and so many messages a second for so long.
    pub(crate) async fn run_messages(
        &self,
        seed: u64,
        messages_per_second: u32,
        duration: Duration,
    ) -> Pace {
        let mut walk = Walk::new(&self.shared.state.lock(), seed, true);
        walk.run_evenly(&self.shared, messages_per_second, duration).await
    }

    /// Moves all books but those of this market, without trades and without an end.
    pub(crate) async fn run_walk_but(&self, condition_id: &str, seed: u64, steps_per_second: u32) {
        let mut walk = {
            let state = self.shared.state.lock();
            let quiet = state.market(condition_id);
            Walk::new(&state, seed, false).but(&state.markets[quiet].tokens)
        };
        walk.run(&self.shared, steps_per_second, Duration::MAX).await;
    }

    /// These sockets misbehave, from the next frame on.
    pub(crate) fn misbehave(&self, which: Which<'_>, fault: Fault) {
        self.shared.state.lock().misbehave(which, fault);
    }

    /// These sockets behave again. What was withheld stays withheld.
    pub(crate) fn behave(&self, which: Which<'_>) {
        self.shared.state.lock().behave(which);
    }

    /// Sends a frame that no event has caused; to how many sockets.
    pub(crate) fn inject(&self, which: Which<'_>, injection: Injection<'_>) -> usize {
        self.shared.state.lock().inject(which, injection)
    }

    /// The next so many requests for this endpoint meet this fault; it replaces another. With
    /// `u32::MAX` all do, until [`Self::behave_at`].
    pub(crate) fn misbehave_at(&self, endpoint: Endpoint, fault: EndpointFault, requests: u32) {
        assert!(requests > 0, "a fault for no request is none");
        self.shared.state.lock().endpoint_faults.insert(endpoint, (fault, requests));
    }

    /// This endpoint behaves again.
    pub(crate) fn behave_at(&self, endpoint: Endpoint) {
        self.shared.state.lock().endpoint_faults.remove(&endpoint);
    }

    /// Every state of this token's book that is remembered, oldest first; the last is its book
    /// now.
    pub(crate) fn published(&self, token: &str) -> Vec<PublishedBook> {
        let state = self.shared.state.lock();
        state.tokens[state.token(token)].history.published()
    }

    /// Every request so far, upgrades included, in the order of the answers.
    pub(crate) fn requests(&self) -> Vec<RequestSeen> {
        self.shared.state.lock().requests.iter().cloned().collect()
    }

    /// Everything that was told so far, in order, where [`Options::keeps_told`] asks for it.
    pub(crate) fn told(&self) -> Vec<Told> {
        self.shared.state.lock().told.clone()
    }

    /// What clients did that the venue would hold against them; empty for a good one.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.shared.state.lock().violations.clone()
    }

    /// How many a `PING` was heard and not answered, because its socket was told not to.
    pub(crate) fn pings_unanswered(&self) -> usize {
        self.shared.state.lock().pings_unanswered
    }

    /// The open sockets, oldest first, each with its number of tokens.
    pub(crate) fn sockets(&self) -> Vec<(u64, usize)> {
        let state = self.shared.state.lock();
        state.sockets.iter().map(|(&id, socket)| (id, socket.tokens.len())).collect()
    }

    /// The open sockets that have this token.
    pub(crate) fn sockets_of(&self, token: &str) -> Vec<u64> {
        let state = self.shared.state.lock();
        state.tokens[state.token(token)].subscribers.clone()
    }

    /// The next so many answers of Gamma leave out the tokens of this market.
    pub(crate) fn hydrate_after(&self, condition_id: &str, answer_count: u32) {
        let mut state = self.shared.state.lock();
        let market = state.market(condition_id);
        state.markets[market].hydration_left = answer_count;
    }

    /// Changes what Gamma tells of a market.
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
        // The writers of the sockets end with their queues.
        self.shared.state.lock().sockets.clear();
    }
}
