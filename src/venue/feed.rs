//! Keeps the books: takes what a venue tells, in order, and publishes what readers see.
//!
//! All changes of one event take effect together and each touched book is published once. A book is
//! checked against the venue's hash wherever one is told. The feed performs no I/O and reads no
//! clock; it counts what happens, and whoever drives it logs the counts.
//!
//! It does not know how a venue is reached, nor what to do about a gap: it finds whether each book
//! that an event touched is proven or contradicted, and leaves the resync to [`super::follow`].

pub mod counts;
pub mod verify;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::SmallVec;

pub use counts::FeedCounts;

use verify::{HashedBook, Verifier};

use super::follow::books::{Books, Finding, Findings};
use super::{BookReplaced, LevelChanged, Top, VenueChange, VenueEvent};
use crate::ids::{OutcomeIndex, Timestamp};
use crate::market::book::{Book, Ladder, LastTrade, Side};
use crate::market::catalogue::{MarketInfo, MarketStatus};
use crate::market::{MARKETS_MAX, Market, Markets};
use crate::money::{Price, Shares};

/// Books are kept of at most this many tokens: both of every market.
pub const TOKENS_MAX: usize = 2 * MARKETS_MAX;

/// What becomes of a book that something the venue told contradicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MismatchPolicy {
    /// It is counted and the book stays as it is: a recording is its own present, and nothing
    /// could be asked again.
    Count,
    /// The book is stale from that event on, until it is proven. What is older than the book is
    /// left out: it was told on another way, and the book holds it already.
    Distrust,
}

/// The only writer of [`Markets`].
pub struct Feed {
    markets: Arc<Markets>,
    policy: MismatchPolicy,
    tokens: HashMap<Arc<str>, Token, foldhash::fast::RandomState>,
    verifier: Option<Box<dyn Verifier>>,
    counts: FeedCounts,
}

/// What is known of one token, and how to reach its place in the market.
struct Token {
    market: Arc<Market>,
    outcome: OutcomeIndex,
    /// As the venue keeps it, crossed levels included; `None` until a full book was told.
    ladder: Option<Ladder>,
    /// The side of the newest level that was added, on which a crossed book can be trusted.
    newest_side: Option<Side>,
    updated_at: Timestamp,
    /// The venue's time of that, which its hash covers.
    told_at: Timestamp,
    hash: Option<Box<str>>,
    last_trade: Option<LastTrade>,
    /// The price of the newest trade of the market, of whichever token: hashes of both cover it.
    market_trade_price: Option<Price>,
    /// The one before: a hash may still cover it.
    earlier_trade_price: Option<Price>,
    tick: Option<Price>,
    /// A told hash was reproduced once, so that all that hashes cover was known.
    has_matched: bool,
    /// A told hash that contradicted the book, until the next one: a trade that is told after the
    /// book it caused may yet explain it.
    contradiction: Option<Box<str>>,
    sequence: u64,
    stale: bool,
}

/// When something happened.
#[derive(Clone, Copy)]
struct EventTime {
    /// As the venue tells it.
    told: Timestamp,
    /// As far as that can be believed.
    believed: Timestamp,
}

impl EventTime {
    /// The time of a book that was of this one before and that this has happened to.
    fn since(self, updated_at: Timestamp) -> Timestamp {
        if self.told == self.believed { self.told } else { self.believed.max(updated_at) }
    }
}

impl Feed {
    /// Publishes to `markets`. There is one feed for them. Hashes are not checked.
    pub fn new(markets: Arc<Markets>, policy: MismatchPolicy) -> Self {
        Self {
            markets,
            policy,
            tokens: HashMap::default(),
            verifier: None,
            counts: FeedCounts::default(),
        }
    }

    /// Checks the hashes that are told from now on.
    pub fn verify_with(&mut self, verifier: impl Verifier + 'static) {
        self.verifier = Some(Box::new(verifier));
    }

    /// Where it publishes.
    pub fn markets(&self) -> &Arc<Markets> {
        &self.markets
    }

    /// What has happened so far.
    pub fn counts(&self) -> FeedCounts {
        self.counts
    }

    /// Takes one event and publishes what it changes.
    pub fn apply(&mut self, event: VenueEvent) -> Findings {
        let at = event.at;
        self.apply_as_of(event, at)
    }

    /// Lists what can be listed: one bad description does not keep the others of its page out.
    fn list(&mut self, mut infos: Vec<MarketInfo>) {
        let listing = self.markets.listing();
        let mut room = MARKETS_MAX.saturating_sub(listing.markets().len());
        let mut added: HashSet<Arc<str>> = HashSet::new();
        infos.retain(|info| {
            let is_known = listing.by_condition(&info.condition_id).is_some()
                || added.contains(&info.condition_id);
            let is_accepted = info.check().is_ok() && (is_known || room > 0);
            if is_accepted && !is_known {
                room -= 1;
                added.insert(info.condition_id.clone());
            }
            self.counts.markets_refused += u64::from(!is_accepted);
            is_accepted
        });
        for info in &infos {
            let before = listing.by_condition(&info.condition_id).map(|market| market.info().tick);
            if before.is_none_or(|tick| tick == info.tick) {
                continue;
            }
            for outcome in &info.outcomes {
                if let Some(token) = self.tokens.get_mut(&outcome.token_id) {
                    token.tick = Some(info.tick);
                }
            }
        }
        drop(listing);
        let listed = self.markets.list(infos);
        let listed = listed.expect("what cannot be listed was left out, and only we list");
        self.counts.markets_refused += listed.withheld_count as u64;
        for market in listed.left {
            for outcome in &market.info().outcomes {
                self.tokens.remove(&outcome.token_id);
            }
        }
    }

    fn replace(&mut self, time: EventTime, told: BookReplaced) -> Findings {
        let policy = self.policy;
        let Some(token) = known(&mut self.tokens, &self.markets, &told.token_id) else {
            self.counts.unlisted += 1;
            return Findings::new();
        };
        let at = time.since(token.updated_at);
        self.counts.books += 1;
        let mut findings = Findings::new();
        let finding = match &token.ladder {
            Some(ladder) if policy == MismatchPolicy::Distrust && at < token.updated_at => {
                self.counts.late += 1;
                // An older book that differs says nothing of the present.
                if *ladder != told.ladder {
                    return Findings::from_iter([(told.token_id, Finding::Unproven)]);
                }
                Finding::Proven
            }
            known => {
                let is_known = !token.stale && known.as_ref() == Some(&told.ladder);
                token.ladder = Some(told.ladder);
                token.newest_side = None;
                (token.updated_at, token.told_at) = (at, time.told);
                token.stale = false;
                token.tick = told.tick.or(token.tick);
                if let Some(price) = told.last_trade_price {
                    if token.last_trade.is_none_or(|trade| trade.price != price) {
                        let size = Shares::ZERO;
                        token.last_trade = Some(LastTrade { price, size, side: None, at });
                    }
                    self.note_market_price(&told.token_id, price, &mut findings);
                }
                let token = self.tokens.get_mut(&told.token_id).expect("it was found above");
                match token.check(told.hash, &told.token_id, &mut self.verifier, &mut self.counts) {
                    Finding::Unproven => Finding::Proven,
                    // After a trade the book comes again, with a hash that covers the trade's
                    // price; the trade itself is told later.
                    Finding::Contradicted if is_known => Finding::Agrees,
                    finding => finding,
                }
            }
        };
        self.settle(&told.token_id, finding, &mut findings);
        self.judge_sisters(&mut findings);
        findings
    }

    fn change_levels(&mut self, time: EventTime, changes: &[LevelChanged]) -> Findings {
        let mut touched: SmallVec<[&LevelChanged; 2]> = SmallVec::new();
        for change in changes {
            let Some(Token { ladder: Some(ladder), newest_side, updated_at, .. }) =
                self.tokens.get_mut(&change.token_id)
            else {
                self.counts.level_changes_without_book += 1;
                continue;
            };
            if self.policy == MismatchPolicy::Distrust && time.since(*updated_at) < *updated_at {
                self.counts.late += 1;
                continue;
            }
            match ladder.set(change.side, change.price, change.size) {
                Ok(changed) => {
                    self.counts.level_changes += 1;
                    let is_removal = change.size == Shares::ZERO;
                    self.counts.removals_of_nothing += u64::from(is_removal && !changed);
                    if !is_removal {
                        *newest_side = Some(change.side);
                    }
                }
                Err(_) => self.counts.level_changes_refused += 1,
            }
            // What the last entry of a token tells is so after the whole event.
            match touched.iter_mut().find(|other| other.token_id == change.token_id) {
                Some(other) => *other = change,
                None => touched.push(change),
            }
        }
        let mut findings = Findings::new();
        for change in touched {
            let token = self.tokens.get_mut(&change.token_id).expect("it was found above");
            (token.updated_at, token.told_at) = (time.since(token.updated_at), time.told);
            let hash = change.hash.clone();
            let by_hash = token.check(hash, &change.token_id, &mut self.verifier, &mut self.counts);
            let finding = match (by_hash, change.top) {
                (Finding::Unproven, Some(top)) => token.check_top(top, &mut self.counts),
                (finding, _) => finding,
            };
            self.settle(&change.token_id, finding, &mut findings);
        }
        self.judge_sisters(&mut findings);
        findings
    }

    fn compare_top(&mut self, token_id: &Arc<str>, top: Top) -> Findings {
        let mut findings = Findings::new();
        match self.tokens.get_mut(token_id) {
            Some(token) if token.ladder.is_some() => {
                let finding = token.check_top(top, &mut self.counts);
                // Most frames of this kind only repeat what is known.
                if finding == Finding::Contradicted {
                    self.settle(token_id, finding, &mut findings);
                } else {
                    findings.push((token_id.clone(), finding));
                }
            }
            _ => self.counts.unlisted += 1,
        }
        findings
    }

    fn trade(&mut self, token_id: &Arc<str>, trade: LastTrade) -> Findings {
        let mut findings = Findings::new();
        let Some(token) = known(&mut self.tokens, &self.markets, token_id) else {
            self.counts.unlisted += 1;
            return findings;
        };
        self.counts.trades += 1;
        token.last_trade = Some(trade);
        self.note_market_price(token_id, trade.price, &mut findings);
        if findings.iter().all(|(judged, _)| judged != token_id) {
            let token = self.tokens.get_mut(token_id).expect("it was found above");
            token.publish(&self.markets, &mut self.counts);
        }
        findings
    }

    /// Tells both tokens of a market the price of its newest trade, which may explain a hash that
    /// contradicted one of their books.
    fn note_market_price(&mut self, token_id: &Arc<str>, price: Price, findings: &mut Findings) {
        let market = self.tokens[token_id].market.clone();
        for outcome in &market.info().outcomes {
            let Some(token) = self.tokens.get_mut(&outcome.token_id) else { continue };
            token.note_market_price(price);
            let Some(told) = token.contradiction.take() else { continue };
            // Counted as a mismatch before: it is judged anew.
            self.counts.hashes_mismatched -= 1;
            let id = &outcome.token_id;
            let finding = token.check(Some(told), id, &mut self.verifier, &mut self.counts);
            self.settle(id, finding, findings);
        }
    }

    fn mark_stale(&mut self, token_id: &Arc<str>) {
        match known(&mut self.tokens, &self.markets, token_id) {
            Some(token) => {
                token.stale = true;
                token.publish(&self.markets, &mut self.counts);
            }
            None => self.counts.unlisted += 1,
        }
    }

    /// Judges a token by the checks that went before, and publishes its book.
    fn settle(&mut self, token_id: &Arc<str>, finding: Finding, findings: &mut Findings) {
        let token = self.tokens.get_mut(token_id).expect("only known tokens are settled");
        let is_crossed = token.ladder.as_ref().is_some_and(Ladder::is_crossed);
        let finding = if is_crossed { Finding::Contradicted } else { finding };
        match (finding, self.policy) {
            (Finding::Proven, _) => token.stale = false,
            (Finding::Contradicted, MismatchPolicy::Distrust) => token.stale = true,
            _ => {}
        }
        token.publish(&self.markets, &mut self.counts);
        findings.push((token_id.clone(), finding));
    }

    /// The two tokens of a market are one book: what proves one of them proves the other, where
    /// they mirror each other. Where they do not, one may be some milliseconds ahead.
    fn judge_sisters(&mut self, findings: &mut Findings) {
        if self.policy == MismatchPolicy::Count {
            return;
        }
        for index in 0..findings.len() {
            let (token_id, finding) = &findings[index];
            if *finding != Finding::Proven {
                continue;
            }
            let token = &self.tokens[token_id];
            let info = token.market.info();
            let [first, second] = &info.outcomes[..] else { continue };
            let is_first = first.token_id == *token_id;
            let sister_id = if is_first { &second.token_id } else { &first.token_id };
            if findings.iter().any(|(judged, _)| judged == sister_id) {
                continue;
            }
            let Some(sister) = self.tokens.get(sister_id) else { continue };
            let (Some(ladder), Some(other)) = (&token.ladder, &sister.ladder) else { continue };
            if !ladder.is_mirror_of(other) {
                continue;
            }
            let (sister_id, was_stale) = (sister_id.clone(), sister.stale);
            drop(info);
            if was_stale {
                self.settle(&sister_id, Finding::Proven, findings);
            } else {
                findings.push((sister_id, Finding::Proven));
            }
        }
    }
}

impl Books for Feed {
    fn apply_as_of(&mut self, event: VenueEvent, believed_at: Timestamp) -> Findings {
        let at = EventTime { told: event.at, believed: believed_at };
        match event.change {
            VenueChange::Listed(infos) => {
                self.list(infos);
                Findings::new()
            }
            VenueChange::Book(book) => self.replace(at, book),
            VenueChange::Levels(changes) => self.change_levels(at, &changes),
            VenueChange::Top { token_id, top } => self.compare_top(&token_id, top),
            VenueChange::Traded { token_id, price, size, side } => {
                self.trade(&token_id, LastTrade { price, size, side, at: believed_at })
            }
            VenueChange::Stale { token_id } => {
                self.mark_stale(&token_id);
                Findings::new()
            }
        }
    }

    fn updated_at(&self, token_id: &str) -> Option<Timestamp> {
        let token = self.tokens.get(token_id)?;
        token.ladder.as_ref().map(|_| token.updated_at)
    }

    fn has_levels(&self, token_id: &str, ladder: &Ladder) -> bool {
        self.tokens.get(token_id).is_some_and(|token| token.ladder.as_ref() == Some(ladder))
    }

    fn forget_levels(&mut self, token_id: &str) {
        if let Some(token) = self.tokens.get_mut(token_id) {
            token.ladder = None;
        }
    }

    fn is_resolved(&self, condition_id: &str) -> bool {
        let listing = self.markets.listing();
        listing
            .by_condition(condition_id)
            .is_some_and(|market| market.info().status == MarketStatus::Resolved)
    }
}

/// The state of a token, made when a listed market has it.
fn known<'a>(
    tokens: &'a mut HashMap<Arc<str>, Token, foldhash::fast::RandomState>,
    markets: &Markets,
    token_id: &Arc<str>,
) -> Option<&'a mut Token> {
    if !tokens.contains_key(token_id) {
        if tokens.len() >= TOKENS_MAX {
            return None;
        }
        let listing = markets.listing();
        let (market, outcome) = listing.by_token(token_id)?;
        tokens.insert(token_id.clone(), Token::new(market.clone(), outcome));
    }
    tokens.get_mut(token_id)
}

impl Token {
    fn new(market: Arc<Market>, outcome: OutcomeIndex) -> Self {
        Self {
            market,
            outcome,
            ladder: None,
            newest_side: None,
            updated_at: Timestamp::EPOCH,
            told_at: Timestamp::EPOCH,
            hash: None,
            last_trade: None,
            market_trade_price: None,
            earlier_trade_price: None,
            tick: None,
            has_matched: false,
            contradiction: None,
            sequence: 0,
            stale: false,
        }
    }

    /// Takes the price of the newest trade of the market.
    fn note_market_price(&mut self, price: Price) {
        if self.market_trade_price != Some(price) {
            self.earlier_trade_price = self.market_trade_price.replace(price);
        }
    }

    /// Compares the book with a told hash.
    fn check(
        &mut self,
        told: Option<Box<str>>,
        token_id: &str,
        verifier: &mut Option<Box<dyn Verifier>>,
        counts: &mut FeedCounts,
    ) -> Finding {
        self.contradiction = None;
        self.hash = told;
        let (Some(told), Some(ladder)) = (&self.hash, &self.ladder) else {
            return Finding::Unproven;
        };
        let info = self.market.info();
        let book = HashedBook {
            market: &info.condition_id,
            token_id,
            at: self.told_at,
            ladder,
            order_size_min: info.order_size_min,
            tick: self.tick.unwrap_or(info.tick),
            neg_risk: info.neg_risk,
        };
        let newest = self.market_trade_price;
        let candidates = [newest, self.earlier_trade_price];
        let candidate_count = if self.earlier_trade_price.is_some() { 2 } else { 1 };
        let is_verified = verifier
            .as_mut()
            .is_some_and(|verifier| verifier.verifies(book, told, &candidates[..candidate_count]));
        if is_verified {
            counts.hashes_verified += 1;
            self.has_matched = true;
            Finding::Proven
        } else if verifier.is_none() || (newest.is_none() && !self.has_matched) {
            counts.hashes_unchecked += 1;
            Finding::Unproven
        } else {
            counts.hashes_mismatched += 1;
            self.contradiction = self.hash.take();
            Finding::Contradicted
        }
    }

    /// Compares the best prices with those that were told.
    fn check_top(&self, told: Top, counts: &mut FeedCounts) -> Finding {
        let Some(ladder) = &self.ladder else { return Finding::Unproven };
        let sides = [(told.bid, ladder.best_bid()), (told.ask, ladder.best_ask())];
        let mut finding = Finding::Unproven;
        for (told, ours) in sides {
            let Some(told) = told else { continue };
            if ours.map(|level| level.price) != Some(told) {
                counts.tops_mismatched += 1;
                return Finding::Contradicted;
            }
            finding = Finding::Agrees;
        }
        finding
    }

    /// Publishes the book, if one is known, without what is crossed in it.
    fn publish(&mut self, markets: &Markets, counts: &mut FeedCounts) {
        let Some(ladder) = &self.ladder else { return };
        self.sequence += 1;
        let uncrossed = ladder.is_crossed().then(|| uncrossed(ladder, self.newest_side));
        counts.crossed += u64::from(uncrossed.is_some());
        let hash = if uncrossed.is_some() { None } else { self.hash.clone() };
        let mut book = Book::new(uncrossed.unwrap_or_else(|| ladder.clone()), self.updated_at);
        book.sequence = self.sequence;
        book.hash = hash;
        book.last_trade = self.last_trade;
        book.stale = self.stale;
        markets.publish(&self.market, self.outcome, Arc::new(book));
    }
}

/// A crossed ladder without the levels that a trade has consumed and no change has removed yet:
/// those opposite to the newest level, or on both sides where no level is known to be newer.
fn uncrossed(ladder: &Ladder, newest_side: Option<Side>) -> Ladder {
    let (Some(bid), Some(ask)) = (ladder.best_bid(), ladder.best_ask()) else {
        unreachable!("only a ladder with both sides is crossed");
    };
    let mut bids = ladder.bids().to_vec();
    let mut asks = ladder.asks().to_vec();
    if newest_side != Some(Side::Buy) {
        bids.retain(|level| level.price < ask.price);
    }
    if newest_side != Some(Side::Sell) {
        asks.retain(|level| level.price > bid.price);
    }
    Ladder::from_levels(bids, asks).expect("levels of a ladder make a ladder")
}

#[cfg(test)]
mod tests;
