//! Everything that the stand-in knows, behind one lock: the order in which it changes is the order
//! in which sockets are told.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::deliver::Socket;
use super::fault::{Endpoint, EndpointFault, Fault};
use super::history::{Change, History};
use super::market::{Market, Token};
use super::options::Options;
use super::server::{Host, RequestSeen};
use super::world::{MarketSeed, World};

/// So many requests are remembered, the newest.
pub(crate) const REQUESTS_KEPT_MAX: usize = 200_000;
/// So many wrongs of clients are remembered, the first.
const VIOLATIONS_KEPT_MAX: usize = 1_000;

/// Something that was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// A text on the socket of this number.
    Frame { socket: u64, text: Bytes },
    /// What a service answered.
    Answer { host: Host, get: String, status: u16, body: Bytes },
}

/// What the stand-in knows.
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) markets: Vec<Market>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) market_by_condition: HashMap<String, usize>,
    pub(crate) token_by_id: HashMap<String, usize>,
    pub(crate) sockets: BTreeMap<u64, Socket>,
    pub(crate) socket_count_ever: u64,
    /// Frames of events and books that were put on sockets.
    pub(crate) message_count: u64,
    pub(crate) requests: VecDeque<RequestSeen>,
    pub(crate) violations: Vec<String>,
    /// In order, where [`Options::keeps_told`] asks for it.
    pub(crate) told: Vec<Told>,
    pub(crate) random: Random,
    pub(crate) pings_unanswered: usize,
    /// Put on every socket that opens.
    pub(crate) faults_to_come: Vec<Fault>,
    /// For so many requests, or for all.
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
            told: Vec::new(),
            pings_unanswered: 0,
            faults_to_come: Vec::new(),
            endpoint_faults: HashMap::new(),
        };
        for seed in world.markets {
            state.add_market(&seed);
        }
        state
    }

    /// A market from now on; its place.
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
            let told = own.or(sister).map_or(0, |book| book.timestamp_ms);
            let timestamp_ms = if told == 0 { now_us() / 1000 } else { told };
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

    /// Remembers what is told, if somebody wants to know.
    pub(crate) fn note(&mut self, told: impl FnOnce() -> Told) {
        if self.options.keeps_told {
            self.told.push(told());
        }
    }

    /// The place of a token.
    #[track_caller]
    pub(crate) fn token(&self, id: &str) -> usize {
        *self.token_by_id.get(id).unwrap_or_else(|| panic!("the stand-in has no token {id}"))
    }

    /// The place of a market.
    #[track_caller]
    pub(crate) fn market(&self, condition_id: &str) -> usize {
        let place = self.market_by_condition.get(condition_id);
        *place.unwrap_or_else(|| panic!("the stand-in has no market {condition_id}"))
    }

    /// The other token of the same market, where there are two.
    pub(crate) fn sister(&self, token: usize) -> Option<usize> {
        match self.markets[self.tokens[token].market].tokens[..] {
            [first, second] => Some(if first == token { second } else { first }),
            _ => None,
        }
    }

    /// What is wrong with this endpoint for this request.
    pub(crate) fn take_endpoint_fault(&mut self, endpoint: Endpoint) -> Option<EndpointFault> {
        let (fault, left) = self.endpoint_faults.get_mut(&endpoint)?;
        let fault = *fault;
        *left -= 1;
        if *left == 0 {
            self.endpoint_faults.remove(&endpoint);
        }
        Some(fault)
    }

    /// A client did what the venue would hold against it.
    pub(crate) fn violation(&mut self, what: impl Into<String>) {
        if self.violations.len() < VIOLATIONS_KEPT_MAX {
            self.violations.push(what.into());
        }
    }
}

/// The clock on the wall, in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

/// Chance that a seed repeats (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below this.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % bound
    }

    /// In another order.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap();
            list.swap(last, other);
        }
    }
}
