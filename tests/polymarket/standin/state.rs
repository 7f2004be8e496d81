//! The stand-in's whole state, behind one lock: sockets receive changes in the order in which they
//! are made.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::time::Instant;

use super::deliver::Socket;
use super::fault::{Endpoint, EndpointFault, Fault};
use super::history::{Change, History};
use super::market::{Market, Token};
use super::options::Options;
use super::server::{Host, RequestSeen};
use super::world::{MarketSeed, World};

/// The most requests kept; the oldest are dropped.
pub(crate) const REQUESTS_KEPT_MAX: usize = 200_000;
/// The most violations kept; later ones are dropped.
const VIOLATIONS_KEPT_MAX: usize = 1_000;

/// Something that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// A text frame on the socket with this number.
    Frame { socket: u64, text: Bytes },
    /// A service's answer.
    Answer { host: Host, get: String, status: u16, body: Bytes },
}

/// The state of the venue and its clients.
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) markets: Vec<Market>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) market_by_condition: HashMap<String, usize>,
    pub(crate) token_by_id: HashMap<String, usize>,
    pub(crate) sockets: BTreeMap<u64, Socket>,
    pub(crate) socket_count_ever: u64,
    /// The number of frames of events and books that were queued on sockets.
    pub(crate) message_count: u64,
    pub(crate) requests: VecDeque<RequestSeen>,
    pub(crate) violations: Vec<String>,
    /// In order; empty without [`Options::keeps_sent`].
    pub(crate) sent: Vec<Sent>,
    pub(crate) random: Random,
    pub(crate) pings_unanswered: usize,
    /// Whether `/books` shows books that never were.
    pub(crate) has_ghost_books: bool,
    /// Applied to every socket that opens.
    pub(crate) faults_to_come: Vec<Fault>,
    /// Each with the number of requests left; `u32::MAX` stands for all.
    pub(crate) endpoint_faults: HashMap<Endpoint, (EndpointFault, u32)>,
}

impl State {
    pub(crate) fn new(world: World, options: Options) -> Self {
        let mut state = Self {
            random: Random(options.seed | 1),
            options,
            markets: Vec::new(),
            tokens: Vec::new(),
            market_by_condition: HashMap::new(),
            token_by_id: HashMap::new(),
            sockets: BTreeMap::new(),
            socket_count_ever: 0,
            message_count: 0,
            requests: VecDeque::new(),
            violations: Vec::new(),
            sent: Vec::new(),
            pings_unanswered: 0,
            has_ghost_books: false,
            faults_to_come: Vec::new(),
            endpoint_faults: HashMap::new(),
        };
        for seed in world.markets {
            state.add_market(&seed);
        }
        state
    }

    /// Adds a market; returns its index.
    pub(crate) fn add_market(&mut self, seed: &MarketSeed) -> usize {
        let place = self.markets.len();
        let mut market = Market::of_seed(seed);
        for (index, id) in seed.token_ids.iter().enumerate() {
            market.tokens.push(self.tokens.len());
            self.token_by_id.insert(id.clone(), self.tokens.len());
            let sister = seed.books.iter().enumerate().find_map(|(other, book)| {
                book.as_ref().filter(|_| other != index && seed.token_ids.len() == 2)
            });
            let own = seed.books.get(index).and_then(Option::as_ref);
            let ladder = own
                .map(|book| book.ladder.clone())
                .or_else(|| sister.map(|book| book.ladder.mirrored()));
            let seeded_ms = own.or(sister).map_or(0, |book| book.timestamp_ms);
            let timestamp_ms = if seeded_ms == 0 { now_us() / 1000 } else { seeded_ms };
            let mut token = Token {
                id: id.clone(),
                market: place,
                has_book: ladder.is_some(),
                ladder: ladder.unwrap_or_default(),
                hash: String::new(),
                timestamp_ms,
                history: History::new(self.options.history_max),
                subscribers: Vec::new(),
            };
            token.hash = own
                .and_then(|book| book.hash.clone())
                .unwrap_or_else(|| token.ladder.hash(market.head(id, timestamp_ms)));
            if token.has_book {
                let whole = Change::Whole(Box::new(token.ladder.clone()));
                token.history.push(whole, &token.hash, timestamp_ms, now_us());
            }
            self.tokens.push(token);
        }
        self.market_by_condition.insert(seed.condition_id.clone(), place);
        self.markets.push(market);
        place
    }

    /// Keeps what was sent, if the options ask to.
    pub(crate) fn note(&mut self, sent: impl FnOnce() -> Sent) {
        if self.options.keeps_sent {
            self.sent.push(sent());
        }
    }

    /// The index of a token.
    #[track_caller]
    pub(crate) fn token(&self, id: &str) -> usize {
        *self.token_by_id.get(id).unwrap_or_else(|| panic!("the stand-in has no token {id}"))
    }

    /// The index of a market.
    #[track_caller]
    pub(crate) fn market(&self, condition_id: &str) -> usize {
        let place = self.market_by_condition.get(condition_id);
        *place.unwrap_or_else(|| panic!("the stand-in has no market {condition_id}"))
    }

    /// The other token of a market with two.
    pub(crate) fn sister(&self, token: usize) -> Option<usize> {
        match self.markets[self.tokens[token].market].tokens[..] {
            [first, second] => Some(if first == token { second } else { first }),
            _ => None,
        }
    }

    /// The endpoint's fault for this request, which is used up by one.
    pub(crate) fn take_endpoint_fault(&mut self, endpoint: Endpoint) -> Option<EndpointFault> {
        let (fault, left) = self.endpoint_faults.get_mut(&endpoint)?;
        let fault = *fault;
        *left -= 1;
        if *left == 0 {
            self.endpoint_faults.remove(&endpoint);
        }
        Some(fault)
    }

    /// Records something that the venue would object to.
    pub(crate) fn violation(&mut self, what: impl Into<String>) {
        if self.violations.len() < VIOLATIONS_KEPT_MAX {
            self.violations.push(what.into());
        }
    }
}

/// The clock of the runtime, in microseconds since 1970: the wall clock, unless a test has paused
/// it.
pub(crate) fn now_us() -> u64 {
    static START: LazyLock<(Duration, Instant)> = LazyLock::new(|| {
        let now = Instant::from_std(std::time::Instant::now());
        (SystemTime::now().duration_since(UNIX_EPOCH).unwrap(), now)
    });
    let (start, began) = *START;
    let now = Instant::now();
    let since_1970 = match now.checked_duration_since(began) {
        Some(elapsed) => start + elapsed,
        None => start.saturating_sub(began.duration_since(now)),
    };
    u64::try_from(since_1970.as_micros()).unwrap()
}

/// A seeded random number generator (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % bound
    }

    /// Shuffles the list.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap();
            list.swap(last, other);
        }
    }
}
