use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use proptest::prelude::*;

use super::*;
use crate::NewestTrade;
use crate::feed::{Feed, MismatchPolicy};
use crate::speed::Speed;
use paperbourse_core::market::book::{Ladder, Level, Side};
use paperbourse_core::market::catalogue::{FeeCurve, FeeExponent, Fees, MarketInfo};
use paperbourse_core::market::{Market, Markets};
use paperbourse_core::money::{FeeRate, MICROS_PER_UNIT, Price, Shares};

const START: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// About 525 seconds of venue time in steps of 175 ms on average. The last market resolves after
/// 480 seconds.
const BATCHES: usize = 3_000;

fn tape(seed: u64) -> impl Iterator<Item = VenueEvent> {
    let mut venue = SimulatedVenue::new(seed, START);
    let opening = venue.opening();
    opening.into_iter().chain(std::iter::repeat_with(move || venue.next_batch().1).flatten())
}

/// An event as one line, without the fields of a market that the tape does not change: a new field
/// elsewhere must not change the pinned digest.
fn line(event: &VenueEvent) -> String {
    let mut text = format!("{} ", event.at.millis());
    match &event.change {
        VenueChange::Listed(infos) => {
            for info in infos {
                let MarketInfo { condition_id, status, payouts, .. } = info;
                write!(text, "{condition_id} {status:?} {payouts:?} ").unwrap();
            }
        }
        VenueChange::Book(book) => {
            write!(text, "{} {:?} ", book.token_id, book.newest_trade.and_then(NewestTrade::price))
                .unwrap();
            for levels in [book.ladder.bids(), book.ladder.asks()] {
                for level in levels {
                    write!(text, "{} {} ", level.price, level.size).unwrap();
                }
                text.push_str("/ ");
            }
        }
        VenueChange::Levels(levels) => {
            for level in levels {
                let side = level.side.as_str();
                write!(text, "{} {side} {} {} ", level.token_id, level.price, level.size).unwrap();
            }
        }
        VenueChange::Traded { token_id, price, size, side } => {
            write!(text, "{token_id} {price} {size} {side:?}").unwrap();
        }
        VenueChange::Top { .. } | VenueChange::Stale { .. } => {
            unreachable!("a simulated venue sends no best prices and no stale marks")
        }
    }
    text
}

/// The SHA-256 of the first 10,000 events, one line each.
fn tape_digest(seed: u64) -> String {
    let lines: Vec<String> = tape(seed).take(10_000).map(|event| line(&event)).collect();
    let digest = digest(&SHA256, lines.join("\n").as_bytes());
    digest.as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn a_seed_always_gives_the_same_tape() {
    for (seed, expected) in [
        (DEFAULT_SEED, "505553cd1bf5864f5da7ed58c27ae0e08223452d93e064cfc2fead214f634f2b"),
        (u64::MAX, "886bd06f8ab294617d5fe65de899b5f1b8be80264a37542d88b17aa3c4fe32a6"),
    ] {
        assert_eq!(tape_digest(seed), expected, "seed {seed}");
    }
}

#[test]
fn another_seed_gives_another_tape_of_the_same_markets() {
    let markets = |seed| match tape(seed).next().unwrap().change {
        VenueChange::Listed(infos) => infos,
        other => panic!("a tape begins with its markets, not with {other:?}"),
    };
    assert_eq!(markets(1), markets(2));
    assert_ne!(tape_digest(1), tape_digest(2));
}

#[test]
fn another_start_moves_the_tape_in_time() {
    let venues = [START, Timestamp::EPOCH].map(|start| SimulatedVenue::new(7, start));
    let [mut late, mut early] = venues;
    let apart_ns = START.nanos() - Timestamp::EPOCH.nanos();
    for _ in 0..500 {
        let ((late_at, late_events), (early_at, early_events)) =
            (late.next_batch(), early.next_batch());
        assert_eq!(late_at.nanos() - early_at.nanos(), apart_ns);
        let changes =
            |events: Vec<VenueEvent>| events.into_iter().map(|e| e.change).collect::<Vec<_>>();
        assert_eq!(changes(late_events), changes(early_events));
    }
}

#[test]
fn ids_are_unique_and_in_the_format_of_polymarket() {
    let venue = SimulatedVenue::new(DEFAULT_SEED, START);
    let mut seen = HashSet::new();
    for maker in &venue.makers {
        let info = maker.info();
        let digits = info.condition_id.strip_prefix("0x").unwrap();
        assert_eq!(digits.len(), 64);
        assert!(digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{digits}");
        assert!(seen.insert(info.condition_id.to_string()));
        assert!(seen.insert(info.slug.as_deref().unwrap().to_owned()));
        for outcome in &info.outcomes {
            assert!((60..=77).contains(&outcome.token_id.len()), "{}", outcome.token_id);
            assert!(outcome.token_id.bytes().all(|b| b.is_ascii_digit()));
            assert!(seen.insert(outcome.token_id.to_string()));
        }
    }
}

/// The documentation of the module promises these kinds.
#[test]
fn there_are_markets_of_every_kind() {
    let venue = SimulatedVenue::new(DEFAULT_SEED, START);
    let count =
        |matches: &dyn Fn(&Maker) -> bool| venue.makers.iter().filter(|m| matches(m)).count();
    let fee = |maker: &Maker| match maker.info().fees {
        Fees::Curve(FeeCurve { rate, exponent: FeeExponent::One }) => rate.micros(),
        Fees::Curve(curve) => panic!("the venue charges no {curve:?}"),
        Fees::Free => 0,
        Fees::Unsupported => panic!("{:?} cannot be traded", maker.info().slug),
    };
    for (kind, expected, counted) in [
        ("paused", 1, count(&|m| m.info().status == MarketStatus::Paused)),
        ("open at first", 21, count(&|m| m.info().status == MarketStatus::Open)),
        ("open for ever", 17, count(&|m| m.script().life == Life::Open)),
        ("neg-risk", 8, count(&|m| m.info().neg_risk)),
        ("on a tick of 0.001", 4, count(&|m| m.info().tick.micros() == 1_000)),
        ("up or down", 2, count(&|m| &*m.info().outcomes[0].label == "Up")),
        ("free", 1, count(&|m| fee(m) == 0)),
        ("0.04", 1, count(&|m| fee(m) == 40_000)),
        ("0.05", 16, count(&|m| fee(m) == 50_000)),
        ("0.07", 4, count(&|m| fee(m) == 70_000)),
    ] {
        assert_eq!(counted, expected, "{kind}");
    }
    let deep = &venue.makers[0];
    assert_eq!(&*deep.info().condition_id, DEEP_MARKET_CONDITION_ID);
    assert_eq!((deep.script().life, deep.info().fees), (Life::Open, Fees::Free));
}

/// The venue's table of July 2026.
#[test]
fn a_fee_is_that_of_the_category() {
    for (category, rate_micros) in [
        ("Crypto", 70_000),
        ("Sports", 50_000),
        ("Finance", 40_000),
        ("Politics", 40_000),
        ("Mentions", 40_000),
        ("Tech", 40_000),
        ("Economy", 50_000),
        ("Culture", 50_000),
        ("Weather", 50_000),
        ("Science", 50_000),
        ("Geopolitics", 0),
    ] {
        let rate = FeeRate::from_micros(rate_micros);
        assert_eq!(script::fees_of(category), Fees::from_schedule(rate, 1), "{category}");
    }
}

/// Both quotes stay within the price range wherever the fair value goes, and the fair values of an
/// event sum to 1.
#[test]
fn the_scripts_leave_room_for_every_quote() {
    let mut sums: HashMap<&str, i64> = HashMap::new();
    for script in &SCRIPTS {
        let (tick, spread) = (script.tick.micros(), script.spread_ticks_max);
        let low = script.fair.micros() - script.fair_range_micros;
        let high = script.fair.micros() + script.fair_range_micros;
        assert!(low >= tick + (spread - 1) * tick / 2, "{}", script.slug);
        assert!(high + tick + (spread + 1) * tick / 2 <= MICROS_PER_UNIT, "{}", script.slug);
        assert_eq!(MICROS_PER_UNIT % tick, 0);
        if let Some((event, _)) = script.event {
            *sums.entry(event).or_default() += script.fair.micros();
        }
    }
    assert_eq!(sums.len(), 2);
    assert!(sums.values().all(|&sum| sum == MICROS_PER_UNIT), "{sums:?}");
}

/// A reader of the tape that sees only the events.
#[derive(Default)]
struct Replay {
    at: Timestamp,
    infos: HashMap<Arc<str>, MarketInfo>,
    /// The market of each token.
    markets: HashMap<Arc<str>, Arc<str>>,
    /// The markets that have changed since the last check of their books.
    changed: HashSet<Arc<str>>,
    ladders: HashMap<Arc<str>, Ladder>,
    last_trades: HashMap<Arc<str>, Price>,
    statuses: HashMap<Arc<str>, Vec<MarketStatus>>,
    /// What the newest trade must leave at its level, until the level changes.
    traded: Option<(Arc<str>, Level)>,
    trades: usize,
    repeated_books: usize,
    /// The spreads in ticks after each batch.
    spreads_seen: HashMap<Arc<str>, Vec<i64>>,
}

impl Replay {
    fn read(&mut self, events: &[VenueEvent]) {
        for event in events {
            self.read_event(event);
        }
    }

    fn read_event(&mut self, event: &VenueEvent) {
        assert!(event.at >= self.at, "time goes back");
        self.at = event.at;
        match &event.change {
            VenueChange::Listed(infos) => infos.iter().for_each(|info| self.list(info)),
            VenueChange::Book(book) => {
                assert_eq!(book.tick, Some(self.info_of(&book.token_id).tick));
                let last_trade = book.newest_trade.and_then(NewestTrade::price);
                let last_trade = last_trade.expect("a market begins with a last trade");
                let known = self.last_trades.entry(book.token_id.clone()).or_insert(last_trade);
                assert_eq!(last_trade, *known);
                if let Some(known) = self.ladders.get(&book.token_id) {
                    assert_eq!(known, &book.ladder, "a full book must repeat the known levels");
                    self.repeated_books += 1;
                }
                self.ladders.insert(book.token_id.clone(), book.ladder.clone());
            }
            VenueChange::Levels(levels) => {
                assert!(!levels.is_empty());
                let mut seen = HashSet::new();
                for level in levels {
                    assert_eq!(self.info_of(&level.token_id).status, MarketStatus::Open);
                    assert!(seen.insert((level.token_id.clone(), level.side, level.price)));
                    let ladder = self.ladders.get_mut(&level.token_id).expect("a known book");
                    let changed = ladder.set(level.side, level.price, level.size).unwrap();
                    assert!(changed, "a level change must change something");
                    assert!(!ladder.is_crossed(), "crossed between two changes");
                }
                if let Some((token_id, left)) = self.traded.take() {
                    let change = levels.iter().find(|level| level.token_id == token_id).unwrap();
                    assert_eq!((change.price, change.size), (left.price, left.size));
                    assert_eq!(levels.len(), 2, "one level of both tokens");
                }
            }
            VenueChange::Traded { token_id, price, size, side } => {
                assert_eq!(self.info_of(token_id).status, MarketStatus::Open);
                let taken = *self.ladders[token_id].taken_by(side.unwrap()).last().unwrap();
                assert_eq!(*price, taken.price, "a trade prints at the best price");
                assert!(*size > Shares::ZERO);
                assert!(*size <= taken.size);
                let left = Level { size: taken.size - *size, ..taken };
                assert_eq!(self.traded.replace((token_id.clone(), left)), None);
                self.last_trades.insert(token_id.clone(), *price);
                self.trades += 1;
            }
            VenueChange::Top { .. } | VenueChange::Stale { .. } => panic!("{event:?}"),
        }
    }

    fn list(&mut self, info: &MarketInfo) {
        if let Some(before) = self.infos.get(&info.condition_id) {
            assert!(before.status.may_become(info.status));
            let unchanged =
                MarketInfo { status: info.status, payouts: info.payouts.clone(), ..before.clone() };
            assert_eq!(info, &unchanged, "only status and payouts change");
        }
        assert_eq!(info.payouts.is_empty(), info.status != MarketStatus::Resolved);
        self.statuses.entry(info.condition_id.clone()).or_default().push(info.status);
        for outcome in &info.outcomes {
            self.markets.insert(outcome.token_id.clone(), info.condition_id.clone());
        }
        self.infos.insert(info.condition_id.clone(), info.clone());
    }

    fn info_of(&mut self, token_id: &str) -> &MarketInfo {
        let condition_id = self.markets.get(token_id).expect("a token of a listed market");
        self.changed.insert(condition_id.clone());
        &self.infos[condition_id]
    }

    /// The invariants of every book between two batches.
    fn check_books(&mut self) {
        assert_eq!(self.traded, None, "a trade must change the book in the same batch");
        for condition_id in self.changed.drain() {
            let info = &self.infos[&condition_id];
            let [first, second] =
                [0, 1].map(|outcome| &self.ladders[&info.outcomes[outcome].token_id]);
            assert_eq!(first.mirrored(), *second);
            assert!(!first.is_crossed());
            for levels in [first.bids(), first.asks()] {
                assert!(!levels.is_empty(), "both sides are quoted");
                assert!(levels.len() <= 15, "{} levels", levels.len());
                for level in levels {
                    assert!(level.price.is_quotable());
                    assert_eq!(level.price.micros() % info.tick.micros(), 0, "on tick");
                    assert!(level.size > Shares::ZERO);
                    assert_eq!(level.size.micros() % 10_000, 0, "at most two decimals");
                }
            }
            let [ask, bid] =
                [first.best_ask(), first.best_bid()].map(|l| l.unwrap().price.micros());
            let spreads = self.spreads_seen.entry(condition_id).or_default();
            spreads.push((ask - bid) / info.tick.micros());
        }
        self.check_depth(&self.infos[DEEP_MARKET_CONDITION_ID]);
    }

    /// The documented depth of the deep market.
    fn check_depth(&self, deep: &MarketInfo) {
        for outcome in &deep.outcomes {
            let ladder = &self.ladders[&outcome.token_id];
            for side in [Side::Buy, Side::Sell] {
                let levels = ladder.taken_by(side);
                let touch = levels.last().unwrap().price.micros();
                let near = levels.iter().filter(|l| (l.price.micros() - touch).abs() <= 100_000);
                let shares: Shares = near.map(|level| level.size).sum();
                assert!(shares.micros() >= DEEP_MARKET_SHARES_MIN * MICROS_PER_UNIT, "{shares}");
            }
        }
    }

    /// The statuses and payouts at the end of the tape.
    fn check_lives(&self) {
        use MarketStatus::{Closed, Open, Paused, Resolved};
        for script in &SCRIPTS {
            let condition_id = names::condition_id(script.slug);
            let info = &self.infos[condition_id.as_str()];
            let statuses = &self.statuses[condition_id.as_str()][..];
            match script.life {
                Life::Open => assert_eq!(statuses, [Open]),
                Life::Paused => assert_eq!(statuses, [Paused]),
                Life::Closes { .. } => assert_eq!(statuses, [Open, Closed]),
                Life::Resolves { ending, .. } => {
                    assert_eq!(statuses, [Open, Closed, Resolved]);
                    let paid: i64 = info.payouts.iter().map(|payout| payout.micros()).sum();
                    assert_eq!((info.payouts.len(), paid), (2, MICROS_PER_UNIT));
                    let is_split = info.payouts[0] == info.payouts[1];
                    assert_eq!(is_split, ending == Ending::Split);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn every_tape_can_be_traded_on(seed: u64) {
        let mut venue = SimulatedVenue::new(seed, START);
        let mut replay = Replay::default();
        replay.read(&venue.opening());
        replay.check_books();
        for _ in 0..BATCHES {
            let before = replay.at;
            let (at, events) = venue.next_batch();
            assert!(!events.is_empty());
            assert!(events.iter().all(|event| event.at == at));
            assert!(at.millis() - before.millis() <= 1_000);
            replay.read(&events);
            replay.check_books();
        }
        replay.check_lives();
        assert!(replay.trades > 500, "{} trades", replay.trades);
        assert!(replay.repeated_books > 100, "{} repeated books", replay.repeated_books);
        for (condition_id, spreads) in &replay.spreads_seen {
            let moves = spreads.iter().any(|spread| spread != &spreads[0]);
            let is_open = replay.statuses[condition_id][0] == MarketStatus::Open;
            assert_eq!(moves, is_open, "the spread of {condition_id}");
        }
    }
}

#[test]
fn the_fair_values_of_an_event_always_sum_to_1() {
    let mut venue = SimulatedVenue::new(11, START);
    let mut is_moved = false;
    for _ in 0..2_000 {
        venue.next_batch();
        for event in SCRIPTS.iter().filter_map(|script| script.event) {
            let members = venue.makers.iter().filter(|maker| maker.script().event == Some(event));
            let sum: i64 = members.map(|maker| maker.fair().micros()).sum();
            assert_eq!(sum, MICROS_PER_UNIT, "{event:?}");
        }
        is_moved |= venue.makers[1].fair() != SCRIPTS[1].fair;
    }
    assert!(is_moved);
}

/// A late joiner needs only the opening of that moment.
#[test]
fn the_opening_equals_the_state_of_a_replay() {
    let mut venue = SimulatedVenue::new(5, START);
    let mut replay = Replay::default();
    replay.read(&venue.opening());
    for _ in 0..BATCHES {
        replay.read(&venue.next_batch().1);
    }
    let mut joined = Replay::default();
    for event in venue.opening() {
        if let VenueChange::Book(book) = event.change {
            joined.ladders.insert(book.token_id, book.ladder);
        } else {
            joined.read_event(&event);
        }
    }
    assert_eq!(joined.infos, replay.infos);
    assert_eq!(joined.ladders, replay.ladders);
}

/// However many trades come before the next quote, both sides stay and the deep market keeps its
/// depth.
#[test]
fn trades_alone_do_not_empty_a_book() {
    let mut random = Random::new(2);
    for script in &SCRIPTS {
        let mut maker = Maker::new(script, START, &mut random);
        for _ in 0..1_000 {
            maker.trade(&mut random);
        }
        let [VenueChange::Book(first), _] = maker.books() else {
            panic!("`books` returns full books");
        };
        for levels in [first.ladder.bids(), first.ladder.asks()] {
            assert!(!levels.is_empty(), "{}", script.slug);
            let shares: Shares = levels.iter().map(|level| level.size).sum();
            let is_deep = shares.micros() >= DEEP_MARKET_SHARES_MIN * MICROS_PER_UNIT;
            assert!(is_deep || script.slug != DEEP_MARKET_SLUG, "{shares}");
        }
    }
}

/// The markets hold no orders. The time of one that did would pass as the venue's does.
#[test]
fn orders_would_wait_at_the_speed_of_the_venue() {
    let markets = Arc::new(Markets::new());
    let feed = Feed::new(markets.clone(), MismatchPolicy::Count);
    let Ok(Speed::Times(ratio)) = "4".parse() else { panic!("a number is a speed") };
    let _player = Player::new(DEFAULT_SEED, START, ratio, feed);
    let is_held = |market: &Arc<Market>| market.info().taker_delay_ms > 0;
    assert!(!markets.listing().markets().iter().any(is_held));
    let held = MarketInfo { taker_delay_ms: 1_000, ..MarketInfo::bare_yes_no("0xa") };
    markets.list(vec![held]).unwrap();
    let market = markets.by_condition("0xa").unwrap();
    assert_eq!(market.snapshot().quote().taker_delay_ms, 250);
}
