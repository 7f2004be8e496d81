//! A whole server in one thread, over a journal whose disk the test holds.
//!
//! The runtime's clock stands still while any task can run, and jumps when none can. So a sleep of
//! a millisecond ends exactly when no task can continue: a request without an answer by then waits
//! for the disk, however fast or slow the machine is.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use paperbourse::auth::identity::embedded::{EMBEDDED_ISSUER, EmbeddedIssuer};
use paperbourse::auth::identity::{IdentitySource, identity_digest};
use paperbourse::auth::ws_token::WsTokens;
use paperbourse::clock::Clock;
use paperbourse::engine::Rules;
use paperbourse::engine::admin::acts::{Acted, OperatorCommand};
use paperbourse::engine::admin::standing::{Act, Operator};
use paperbourse::http::app::{AppState, ConnectionSlot, Server, Worker};
use paperbourse::http::connection::{Deadlines, serve_connection};
use paperbourse::http::handle::handle;
use paperbourse::http::hot::is_hot;
use paperbourse::ids::{AccountId, Lsn, ShardId, Timestamp};
use paperbourse::journal::{Gate, Journal, JournalConfig, MemoryJournal, Waiters};
use paperbourse::limits::bucket::AccountRates;
use paperbourse::limits::tier::{Tier, TierTable, Tiers};
use paperbourse::market::Markets;
use paperbourse::market::book::{Ladder, Level};
use paperbourse::market::catalogue::{MarketInfo, MarketStatus, Outcome};
use paperbourse::money::{Price, Shares};
use paperbourse::service::matcher::Matcher;
use paperbourse::service::settlement::Settler;
use paperbourse::service::{Parts, Service, key_observer, key_table};
use paperbourse::shard::Shards;
use paperbourse::snapshot::Recovered;
use paperbourse::venue::feed::{Feed, MismatchPolicy};
use paperbourse::venue::{BookReplaced, VenueChange, VenueEvent, VenueStatus};
use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::client::{Answer, answer, get, post};

/// The market that all trade: asks at 0.50 and 0.60, bids at 0.40, 100 shares each.
pub(crate) const MARKET: &str = "0xabc";
/// A market like [`MARKET`].
pub(crate) const OTHER_MARKET: &str = "0xdef";

/// A market like [`MARKET`] that delays marketable orders for [`DELAY`].
pub(crate) const DELAYED_MARKET: &str = "0x123";
pub(crate) const DELAY: Duration = Duration::from_secs(2);

/// A person with an access token.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) token: String,
    /// Their first key; empty if there is none.
    pub(crate) key: String,
    pub(crate) key_id: u64,
}

pub(crate) struct World {
    gate: Gate,
    journal: Arc<Journal>,
    worker: Arc<Worker>,
    feed: RefCell<Feed>,
    /// Has a key.
    pub(crate) ann: Person,
    /// Has a key, in the same shard as Ann.
    pub(crate) bob: Person,
    /// Has a key, in another shard.
    pub(crate) cat: Person,
    /// Has a token and nothing else yet, in the same shard as Ann.
    pub(crate) dan: Person,
}

impl World {
    /// A world whose records so far are durable.
    pub(crate) async fn new() -> Self {
        let issuer = EmbeddedIssuer::in_memory().expect("the system has random bytes");
        let person = |subject: &str| {
            let token =
                issuer.mint(subject, None, 3600, Timestamp::now()).expect("a short subject");
            Person { token, key: String::new(), key_id: 0 }
        };
        let shard_of =
            |subject: &str| ShardId::of_digest(identity_digest(EMBEDDED_ISSUER, subject)[0]);
        let named = |name: &str, is_with_ann: bool| {
            let mut subjects = (0..).map(|number| format!("{name}-{number}"));
            subjects
                .find(|subject| (shard_of(subject) == shard_of("ann")) == is_with_ann)
                .expect("one in 64")
        };
        let [ann, bob, cat, dan] = [
            person("ann"),
            person(&named("bob", true)),
            person(&named("cat", false)),
            person(&named("dan", true)),
        ];
        let (memory, gate) = MemoryJournal::gated(&JournalConfig::default());
        gate.release();
        let journal = Arc::new(Journal::from(memory));
        let (app, feed) = app(issuer, &journal);
        let (app, feed) = (Arc::new(app), RefCell::new(feed));
        tokio::spawn({
            let app = app.clone();
            async move { app.fanout.run().await }
        });
        let server = Arc::new(Server::new(1_000));
        server.open(app);
        let worker = Arc::new(Worker::new(server));
        let mut world = Self { gate, journal, worker, feed, ann, bob, cat, dan };
        world.ann = world.bootstrapped(&world.ann).await;
        world.bob = world.bootstrapped(&world.bob).await;
        world.cat = world.bootstrapped(&world.cat).await;
        world
    }

    async fn bootstrapped(&self, person: &Person) -> Person {
        let grant = json!({"permissions": ["read", "trade", "admin"]});
        let request = post("/v1/keys/bootstrap", grant).bearer(&person.token);
        let new = self.done(request, 201).await;
        Person { key: text(&new.get("raw_key")), key_id: number(&new.get("id")), ..person.clone() }
    }

    /// Does something to a person's account on behalf of an operator.
    pub(crate) async fn act(&self, person: &Person, act: Act) -> JoinHandle<Acted> {
        self.act_on(self.account_of(person).await, act)
    }

    /// The account of a person with a key.
    pub(crate) async fn account_of(&self, person: &Person) -> AccountId {
        let wallet = self.done(get("/v1/me/wallets/api").key(&person.key), 200).await;
        AccountId::from_raw(number(&wallet.get("id"))).expect("an account's id")
    }

    /// The same to the account with this id.
    pub(crate) fn act_on(&self, account: AccountId, act: Act) -> JoinHandle<Acted> {
        let by = Operator { uid: 0, user: None };
        let command = OperatorCommand { account, act, by, reason: "a test".into() };
        let worker = self.worker.clone();
        tokio::spawn(async move {
            let app = worker.server.app().expect("an open server");
            let (service, waiters) = (&app.service, worker.waiters(app));
            let acted = match command.act {
                Act::Erase => service.erase(command, waiters).await,
                _ => service.act(command, waiters).await,
            };
            acted.expect("an account")
        })
    }

    /// What requests are answered from, for a test that calls a use case itself.
    pub(crate) fn app(&self) -> &Arc<AppState> {
        self.worker.server.app().expect("an open server")
    }

    /// Wakes those that wait for the disk.
    pub(crate) fn waiters(&self) -> &Arc<Waiters> {
        self.worker.waiters(self.app())
    }

    /// Opens a connection that is served as by a worker.
    fn connect(&self) -> DuplexStream {
        let (client, server) = duplex(256 * 1024);
        let worker = self.worker.clone();
        tokio::spawn(async move {
            let counted = worker.server.connections.admit(None, 0).expect("fewer than the cap");
            let slot = Arc::new(ConnectionSlot::new(counted, mpsc::channel(1).0));
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let handler = |request| handle(&worker, &slot, address, request);
            let (deadlines, never) = (Deadlines::default(), std::future::pending());
            serve_connection(server, deadlines, Some(is_hot), handler, never).await
        });
        client
    }

    /// Sends a request, which may be answered at any time.
    pub(crate) fn send(&self, request: Request) -> JoinHandle<Answer> {
        tokio::spawn(answer(request, self.connect()))
    }

    /// Sends a request that must be answered at once, with this status.
    #[track_caller]
    pub(crate) fn done(&self, request: Request, status: u16) -> impl Future<Output = Answer> {
        let caller = std::panic::Location::caller();
        let answer = self.send(request);
        async move {
            until_idle().await;
            assert!(answer.is_finished(), "{caller}: no answer though nothing holds it back");
            let answer = answer.await.expect("reading it has not failed");
            let Response { status: answered, text, .. } = &answer.response;
            assert_eq!(*answered, status, "{caller}: {text}");
            answer
        }
    }

    /// Holds back all records from now on.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.gate.hold();
        Held { world: self, waiting: Vec::new() }
    }

    /// Publishes a book with this best ask.
    pub(crate) fn publish_ask(&self, ask_micros: i64) {
        self.publish_ask_in(MARKET, ask_micros);
    }

    /// The same in this market.
    pub(crate) fn publish_ask_in(&self, market: &str, ask_micros: i64) {
        self.feed.borrow_mut().apply(at_this_time(book(market, ask_micros)));
    }

    /// The same, and the orders that it reaches fill.
    pub(crate) async fn cross(&self, ask_micros: i64) {
        self.publish_ask(ask_micros);
        until_idle().await;
    }

    /// The venue reports that Yes has won, and the settler runs until it has to wait.
    pub(crate) async fn resolve(&self) {
        let (status, payouts) = (MarketStatus::Resolved, vec![Price::ONE, Price::ZERO]);
        let resolved = MarketInfo { status, payouts, ..info(MARKET) };
        self.feed.borrow_mut().apply(at_this_time(VenueChange::Listed(vec![resolved])));
        until_idle().await;
    }
}

/// A stalled disk, and the requests that wait for it.
pub(crate) struct Held<'w> {
    world: &'w World,
    waiting: Vec<Waiting>,
}

struct Waiting {
    name: &'static str,
    status: u16,
    answer: JoinHandle<Answer>,
}

impl Held<'_> {
    /// Sends a request that must be answered after the release only, with this status.
    pub(crate) async fn waits(&mut self, name: &'static str, request: Request, status: u16) {
        let answer = self.world.send(request);
        self.waiting.push(Waiting { name, status, answer });
        self.assert_all_wait().await;
    }

    /// Sends a request that depends on no held record, and so must be answered at once.
    #[track_caller]
    pub(crate) fn answers(&self, request: Request, status: u16) -> impl Future<Output = Answer> {
        self.world.done(request, status)
    }

    async fn assert_all_wait(&self) {
        until_idle().await;
        let early: Vec<_> =
            self.waiting.iter().filter(|w| w.answer.is_finished()).map(|w| w.name).collect();
        assert!(early.is_empty(), "answered while the record is held: {early:?}");
    }

    /// Releases some of the held records, and checks that every request still waits.
    pub(crate) async fn release_in_vain(&self, records: u64) {
        let position = self.world.journal.durable_lsn().position() + records;
        self.world.gate.release_to(Lsn::new(0, position));
        self.assert_all_wait().await;
    }

    /// Releases all records. Returns the answers in the order of the requests.
    pub(crate) async fn release(self) -> Vec<Answer> {
        self.assert_all_wait().await;
        self.world.gate.release();
        until_idle().await;
        let mut answers = Vec::new();
        for Waiting { name, status, answer } in self.waiting {
            assert!(answer.is_finished(), "{name}: no answer after the release");
            let answer = answer.await.expect("reading it has not failed");
            let Response { status: answered, text, .. } = &answer.response;
            assert_eq!(*answered, status, "{name}: {text}");
            answers.push(answer);
        }
        answers
    }
}

/// Returns when no task of this runtime can continue.
pub(crate) async fn until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// The text of a JSON value.
#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not text")).into()
}

/// The integer of a JSON value.
#[track_caller]
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a whole number"))
}

fn app(issuer: EmbeddedIssuer, journal: &Arc<Journal>) -> (AppState, Feed) {
    let markets = Arc::new(Markets::new());
    let mut feed = Feed::new(markets.clone(), MismatchPolicy::Count);
    for id in [MARKET, OTHER_MARKET, DELAYED_MARKET] {
        feed.apply(at_this_time(VenueChange::Listed(vec![info(id)])));
        feed.apply(at_this_time(book(id, 500_000)));
    }
    let mut tiers = Tiers::default();
    tiers.set("free=unlimited/unlimited/2/5".parse().expect("limits of a tier"));
    let recovered = Recovered::default();
    let keys = Arc::new(key_table(recovered.states(), &tiers).expect("no keys yet"));
    let tiers = Arc::new(TierTable::new(tiers));
    let shards = Arc::new(Shards::new(
        recovered,
        journal.clone(),
        markets.clone(),
        Rules::default(),
        Clock::System,
        Arc::default(),
        key_observer(keys.clone(), tiers.clone()),
    ));
    tokio::spawn(Settler::new(markets.clone(), shards.clone(), journal, Vec::new()).run());
    tokio::spawn(shards.clone().decide_delayed_orders(journal.register()));
    tokio::spawn(Matcher::new(markets.clone(), shards.clone(), Clock::System).run());
    let service = Service::new(Parts {
        markets,
        shards,
        keys,
        issuer: IdentitySource::Embedded(issuer),
        ws_tokens: WsTokens::generate().expect("the system has random bytes"),
        tiers,
        default_tier: Tier::Free,
        address_rules: None,
        account_rates: AccountRates::UNLIMITED,
    });
    (AppState::new(service, journal.clone(), VenueStatus::default()), feed)
}

fn info(id: &str) -> MarketInfo {
    let outcomes = ["Yes", "No"]
        .map(|label| Outcome { label: label.into(), token_id: format!("{id}-{label}").into() });
    let delay_ms = if id == DELAYED_MARKET { DELAY.as_millis() } else { 0 };
    let taker_delay_ms = u32::try_from(delay_ms).expect("a few seconds");
    MarketInfo { taker_delay_ms, ..MarketInfo::bare(id, outcomes) }
}

fn at_this_time(change: VenueChange) -> VenueEvent {
    VenueEvent { at: Timestamp::now(), change }
}

/// The book of Yes with this best ask.
fn book(id: &str, ask_micros: i64) -> VenueChange {
    let level =
        |price| Level { price: Price::from_micros(price), size: Shares::from_micros(100_000_000) };
    let asks = vec![level(600_000), level(ask_micros)];
    let ladder = Ladder::from_levels(vec![level(400_000)], asks).expect("levels of a book");
    VenueChange::Book(BookReplaced::new(format!("{id}-Yes").into(), ladder))
}
