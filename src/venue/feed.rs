//! Maintains the order books: applies a venue's events in order and publishes the books that
//! readers see.
//!
//! All changes of an event take effect together, and each book that the event touches is published
//! once. A book that may fill resting orders is queued for the shards of those orders; see
//! [`Markets::crossings`]. Books are checked against the venue's hashes, if it sends any. The feed
//! performs no I/O and reads no clock. It keeps counters, which its driver logs.
//!
//! The feed does not connect to the venue or repair gaps. It reports whether each touched book is
//! proven or contradicted, and leaves the resync to [`super::follow`].

pub mod counts;
mod token;
mod tracking;
pub mod verify;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::SmallVec;

pub use counts::FeedCounts;

use token::{AheadTop, Token};
use verify::Verifier;

use super::follow::books::{Books, Finding, Findings};
use super::{BookReplaced, LevelChanged, NewestTrade, Top, VenueChange, VenueEvent};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::{Ladder, LastTrade};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::{MARKETS_MAX, Markets};
use paperbourse_core::money::{Price, Shares};

/// Maximum number of tokens with a book: two for each market.
pub const TOKENS_MAX: usize = 2 * MARKETS_MAX;

/// The policy for a book that an event contradicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MismatchPolicy {
    /// Count the contradiction and keep the book fresh. Meant for recordings, which have no venue
    /// to request a new book from.
    Count,
    /// Mark the book stale until it is proven again. Also ignore events older than the book: they
    /// took a slower path, and the book already includes them.
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

/// The time of an event, as stated by the venue and as applied.
#[derive(Clone, Copy)]
struct EventTime {
    /// The venue's own timestamp, which its hashes cover.
    venue: Timestamp,
    /// The venue's timestamp, clamped if it is impossible.
    effective: Timestamp,
}

impl EventTime {
    /// Returns the time of a book after this event, given the book's time before the event. A
    /// clamped timestamp does not move a book back in time.
    fn after(self, updated_at: Timestamp) -> Timestamp {
        if self.venue == self.effective { self.venue } else { self.effective.max(updated_at) }
    }
}

impl Feed {
    /// Creates a feed that publishes to `markets` as their only writer. Hashes are not checked
    /// until [`Self::verify_with`] is called.
    pub fn new(markets: Arc<Markets>, policy: MismatchPolicy) -> Self {
        Self {
            markets,
            policy,
            tokens: HashMap::default(),
            verifier: None,
            counts: FeedCounts::default(),
        }
    }

    /// Sets the verifier that checks the venue's hashes from now on.
    pub fn verify_with(&mut self, verifier: impl Verifier + 'static) {
        self.verifier = Some(Box::new(verifier));
    }

    /// Returns the markets that this feed publishes to.
    pub fn markets(&self) -> &Arc<Markets> {
        &self.markets
    }

    /// Switches publication to `markets`, which must be empty. Copies the listing there and
    /// republishes every book. The books' lease carries over; if it has expired, the books count as
    /// stale until the lease is renewed.
    pub fn move_to(&mut self, markets: Arc<Markets>) {
        let before = std::mem::replace(&mut self.markets, markets);
        self.markets.continue_from(&before);
        let listed = before.listing();
        let infos = listed.markets().iter().map(|market| MarketInfo::clone(&market.info()));
        self.list(infos.collect(), before.newest_price_at());
        let listing = self.markets.listing();
        self.tokens.retain(|token_id, token| {
            let found = listing.by_token(token_id);
            found.inspect(|(market, outcome)| token.move_to(market, *outcome)).is_some()
        });
        drop(listing);
        for token in self.tokens.values_mut() {
            token.publish(&self.markets, &mut self.counts);
        }
    }

    /// Returns the counters since the feed was created.
    pub fn counts(&self) -> FeedCounts {
        self.counts
    }

    /// Applies an event as of its own timestamp and publishes the books that it changes.
    pub fn apply(&mut self, event: VenueEvent) -> Findings {
        let at = event.at;
        self.apply_as_of(event, at)
    }

    /// Lists the markets with valid descriptions and counts the others as refused.
    fn list(&mut self, mut infos: Vec<MarketInfo>, at: Timestamp) {
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
        let hashed = |info: &MarketInfo| (info.tick, info.order_size_min, info.neg_risk);
        let mut rehashed = Vec::new();
        for info in &infos {
            let Some(before) = listing.by_condition(&info.condition_id).map(|it| it.info()) else {
                continue;
            };
            if hashed(&before) == hashed(info) {
                continue;
            }
            for outcome in &info.outcomes {
                if let Some(token) = self.tokens.get_mut(&outcome.token_id) {
                    if before.tick != info.tick {
                        token.tick = Some(info.tick);
                    }
                    // The hash covered the old terms, so it no longer describes the book as readers
                    // see it.
                    token.hash = None;
                    rehashed.push(outcome.token_id.clone());
                }
            }
        }
        drop(listing);
        let resolved = infos.iter().filter(|info| info.status == MarketStatus::Resolved);
        let resolved: Vec<_> = resolved.map(|info| info.condition_id.clone()).collect();
        let listed = self.markets.list(infos);
        let listed = listed.expect("invalid descriptions were removed, and only the feed lists");
        self.counts.markets_refused += listed.withheld_count as u64;
        for market in resolved.iter().filter_map(|id| self.markets.by_condition(id)) {
            self.markets.record_payouts(&market, at);
        }
        for market in listed.left {
            for outcome in &market.info().outcomes {
                self.tokens.remove(&outcome.token_id);
            }
        }
        for token_id in rehashed {
            if let Some(token) = self.tokens.get_mut(&token_id) {
                token.publish(&self.markets, &mut self.counts);
            }
        }
    }

    fn replace(&mut self, time: EventTime, update: BookReplaced) -> Findings {
        let policy = self.policy;
        let Some(token) = token_of(&mut self.tokens, &self.markets, &update.token_id) else {
            self.counts.unlisted += 1;
            return Findings::new();
        };
        let at = time.after(token.updated_at);
        self.counts.books += 1;
        let has_book = token.ladder.is_some();
        let is_known = token.ladder.as_ref() == Some(&update.ladder);
        let is_late = policy == MismatchPolicy::Distrust
            && has_book
            && !token.is_unconfirmed
            && at < token.updated_at;
        self.counts.late += u64::from(is_late);
        // A late book proves nothing if it differs from our book, or if the venue has since
        // contradicted our book.
        if is_late && (!is_known || token.unmatched.is_some()) {
            return Findings::from_iter([(update.token_id, Finding::Unproven)]);
        }
        let is_unconfirmed = update.is_requested
            && (token.is_unconfirmed || !is_known)
            && !token.awaits(update.hash.as_deref());
        // A requested book never replaces one built from changes, not even a contradicted one.
        if is_unconfirmed && has_book {
            return Findings::from_iter([(update.token_id, Finding::Unconfirmed)]);
        }
        let mut findings = Findings::new();
        let finding = if is_late {
            Finding::Proven
        } else {
            let is_repeated = token.replace_levels(update.ladder, time.effective);
            if !is_known {
                // The new levels cannot explain why the old ones did not match their hash.
                token.unmatched = None;
            }
            token.newest_side = None;
            (token.updated_at, token.venue_time) = (at, time.venue);
            (token.stale, token.is_unconfirmed) = (is_unconfirmed, is_unconfirmed);
            token.drop_explained(time.venue);
            token.tick = update.tick.or(token.tick);
            if update.version.is_some() {
                token.version = update.version;
            }
            match update.newest_trade {
                Some(NewestTrade::At(price)) => {
                    if token.last_trade.is_none_or(|trade| trade.price != price) {
                        // The book states only the price of its newest trade.
                        let size = Shares::ZERO;
                        token.last_trade = Some(LastTrade { price, size, side: None, at });
                    }
                    self.note_market_price(&update.token_id, price, &mut findings);
                }
                Some(NewestTrade::Never) => token.is_trade_stated = true,
                None => {}
            }
            let id = &update.token_id;
            let token = self.tokens.get_mut(id).expect("the token was found above");
            let finding = token.check(update.hash, id, &mut self.verifier, &mut self.counts);
            if is_unconfirmed {
                // This hash came with the answer to a request, not with the socket's changes.
                (token.unmatched, token.hash) = (None, None);
            }
            match finding {
                _ if is_unconfirmed => Finding::Unconfirmed,
                Finding::Unproven => Finding::Proven,
                // After a trade the venue repeats the book with a hash that covers the trade's
                // price, and sends the trade itself later.
                Finding::Contradicted if is_repeated => Finding::Agrees,
                finding => finding,
            }
        };
        self.settle(&update.token_id, finding, &mut findings);
        self.prove_mirrors(&mut findings);
        findings
    }

    fn change_levels(&mut self, time: EventTime, changes: &[LevelChanged]) -> Findings {
        let mut touched: SmallVec<[&LevelChanged; 2]> = SmallVec::new();
        for change in changes {
            let known = self.tokens.get_mut(&change.token_id);
            let Some(token) = known.filter(|token| token.ladder.is_some()) else {
                self.counts.level_changes_without_book += 1;
                continue;
            };
            let updated_at = token.updated_at;
            if self.policy == MismatchPolicy::Distrust && time.after(updated_at) < updated_at {
                self.counts.late += 1;
                continue;
            }
            // Before `venue_time` is set: a new time clears the entry prices.
            token.note_entry(change.price, time.venue);
            token.venue_time = time.venue;
            let Token { market, ladder: Some(ladder), newest_side, tracking, .. } = token else {
                unreachable!("it has a ladder");
            };
            tracking.prepare(market, ladder);
            match ladder.set(change.side, change.price, change.size) {
                Ok(changed) => {
                    if changed {
                        tracking.set(change.side, change.price, change.size, time.effective);
                    }
                    self.counts.level_changes += 1;
                    let is_removal = change.size == Shares::ZERO;
                    self.counts.removals_of_nothing += u64::from(is_removal && !changed);
                    if !is_removal {
                        *newest_side = Some(change.side);
                    }
                }
                Err(_) => self.counts.level_changes_refused += 1,
            }
            // The hash and the top of a token's last entry describe the book after the whole event.
            match touched.iter_mut().find(|other| other.token_id == change.token_id) {
                Some(other) => *other = change,
                None => touched.push(change),
            }
        }
        let mut findings = Findings::new();
        for change in touched {
            let token = self.tokens.get_mut(&change.token_id).expect("the token was found above");
            token.updated_at = time.after(token.updated_at);
            let hash = change.hash.clone();
            let by_hash = token.check(hash, &change.token_id, &mut self.verifier, &mut self.counts);
            let finding = match (by_hash, change.top) {
                (Finding::Unproven, Some(top)) => token.check_top(top),
                (finding, _) => finding,
            };
            let finding = token.settle_ahead(finding, time.venue);
            let is_by_top = by_hash == Finding::Unproven && finding == Finding::Contradicted;
            self.counts.tops_mismatched += u64::from(is_by_top);
            let unstated = token.unstated_trade_price();
            self.settle(&change.token_id, finding, &mut findings);
            if let Some(price) = unstated {
                self.note_market_price(&change.token_id, price, &mut findings);
            }
        }
        self.prove_mirrors(&mut findings);
        findings
    }

    /// Compares a token's best prices with its book. The venue sends them separately from the
    /// changes that cause them, sometimes earlier, so a difference does not contradict the book
    /// yet: the change that explains it may follow. Publishes nothing, since most of these messages
    /// repeat known prices.
    fn compare_top(&mut self, token_id: &Arc<str>, top: Top, at: Timestamp) -> Findings {
        let mut findings = Findings::new();
        match self.tokens.get_mut(token_id) {
            Some(token) if token.ladder.is_some() => {
                let finding = match token.check_top(top) {
                    Finding::Contradicted if at < token.venue_time => Finding::Unproven,
                    Finding::Contradicted => {
                        token.ahead = Some(AheadTop { top, at });
                        Finding::Ahead
                    }
                    finding => {
                        token.ahead = None;
                        finding
                    }
                };
                findings.push((token_id.clone(), finding));
            }
            _ => self.counts.unlisted += 1,
        }
        findings
    }

    fn trade(&mut self, token_id: &Arc<str>, trade: LastTrade) -> Findings {
        let mut findings = Findings::new();
        let Some(token) = token_of(&mut self.tokens, &self.markets, token_id) else {
            self.counts.unlisted += 1;
            return findings;
        };
        self.counts.trades += 1;
        token.last_trade = Some(trade);
        token.market.note_trade(token.outcome, trade);
        self.note_market_price(token_id, trade.price, &mut findings);
        if findings.iter().all(|(judged, _)| judged != token_id) {
            let token = self.tokens.get_mut(token_id).expect("the token was found above");
            token.publish(&self.markets, &mut self.counts);
        }
        findings
    }

    /// Records the price of a market's newest trade for both of its tokens. Rechecks each token's
    /// book if its newest hash did not match.
    fn note_market_price(&mut self, token_id: &Arc<str>, price: Price, findings: &mut Findings) {
        let market = self.tokens[token_id].market.clone();
        for outcome in &market.info().outcomes {
            let id = &outcome.token_id;
            let Some(token) = self.tokens.get_mut(id) else { continue };
            token.note_market_price(price);
            if let Some(finding) = token.recheck(id, &mut self.verifier, &mut self.counts) {
                self.settle(id, finding, findings);
            }
        }
    }

    fn mark_stale(&mut self, token_id: &Arc<str>) {
        match token_of(&mut self.tokens, &self.markets, token_id) {
            Some(token) => {
                token.stale = true;
                // No change explained the best prices in time.
                self.counts.tops_mismatched += u64::from(token.ahead.take().is_some());
                token.publish(&self.markets, &mut self.counts);
            }
            None => self.counts.unlisted += 1,
        }
    }

    /// Marks a book fresh or stale according to the finding of its checks, and publishes it. A
    /// crossed book counts as contradicted.
    fn settle(&mut self, token_id: &Arc<str>, finding: Finding, findings: &mut Findings) {
        let token = self.tokens.get_mut(token_id).expect("settled tokens are known");
        let is_crossed = token.ladder.as_ref().is_some_and(Ladder::is_crossed);
        let finding = if is_crossed { Finding::Contradicted } else { finding };
        match (finding, self.policy) {
            (Finding::Proven, _) => (token.stale, token.is_unconfirmed) = (false, false),
            (Finding::Contradicted, MismatchPolicy::Distrust) => token.stale = true,
            _ => {}
        }
        token.publish(&self.markets, &mut self.counts);
        findings.push((token_id.clone(), finding));
        // Must follow the book's own finding: that finding's signal clears the tracker's record of
        // how long the best prices have been ahead.
        if token.ahead.is_some() {
            findings.push((token_id.clone(), Finding::Ahead));
        }
    }

    /// Extends each proof to the market's other token, whose book is the mirror image. A difference
    /// between the two books proves nothing, since one may be a few milliseconds ahead of the
    /// other.
    fn prove_mirrors(&mut self, findings: &mut Findings) {
        if self.policy == MismatchPolicy::Count {
            return;
        }
        // Findings added by this loop are mirrors themselves and need no check of their own.
        for index in 0..findings.len() {
            let (token_id, finding) = &findings[index];
            if *finding != Finding::Proven {
                continue;
            }
            let token = &self.tokens[token_id];
            let info = token.market.info();
            let [first, second] = &info.outcomes[..] else { continue };
            let is_first = first.token_id == *token_id;
            let other_id = if is_first { &second.token_id } else { &first.token_id };
            if findings.iter().any(|(id, _)| id == other_id) {
                continue;
            }
            let Some(other) = self.tokens.get(other_id) else { continue };
            let (Some(ladder), Some(mirror)) = (&token.ladder, &other.ladder) else { continue };
            if !ladder.is_mirror_of(mirror) {
                continue;
            }
            let (other_id, was_stale) = (other_id.clone(), other.stale);
            drop(info);
            if was_stale {
                self.settle(&other_id, Finding::Proven, findings);
            } else if self.tokens[&other_id].ahead.is_none() {
                findings.push((other_id, Finding::Proven));
            }
        }
    }
}

impl Books for Feed {
    fn apply_as_of(&mut self, event: VenueEvent, effective_at: Timestamp) -> Findings {
        let at = EventTime { venue: event.at, effective: effective_at };
        match event.change {
            VenueChange::Listed(infos) => {
                self.list(infos, effective_at);
                Findings::new()
            }
            VenueChange::Book(book) => self.replace(at, book),
            VenueChange::Levels(changes) => self.change_levels(at, &changes),
            VenueChange::Top { token_id, top } => self.compare_top(&token_id, top, event.at),
            VenueChange::Traded { token_id, price, size, side } => {
                self.trade(&token_id, LastTrade { price, size, side, at: effective_at })
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

/// Returns the state of a token, and creates it at first use. `None` if no listed market has the
/// token, or if [`TOKENS_MAX`] tokens already have a state.
fn token_of<'a>(
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

#[cfg(test)]
mod tests;
