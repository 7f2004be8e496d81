//! What the catalogue's words change: which markets are followed, by which socket, and how they are
//! described.

use std::sync::Arc;
use std::time::Duration;

use super::catalogue::{Described, Urgent};
use super::slot::Slot;
use super::socket::{self, Handle};
use super::{Followed, Live, STAGES_NAMED_MAX};
use crate::ids::Timestamp;
use crate::market::catalogue::{MarketInfo, MarketStatus};
use crate::money::Price;
use crate::venue::follow::freshness::{Freshness, Signal};
use crate::venue::polymarket::resolution::{self, Pending, Resolution, Stage, Told};
use crate::venue::polymarket::wire::clob::BookMessage;
use crate::venue::polymarket::wire::socket::MarketResolved;
use crate::venue::polymarket::wire::{Description, UNTOLD};
use crate::venue::{VenueChange, VenueEvent};

impl Live {
    /// Follows these markets too, by their condition ids: whatever the filter says, and closed ones
    /// until they are resolved. Somebody holds shares of them.
    pub fn hold(&mut self, condition_ids: impl IntoIterator<Item = Arc<str>>) {
        self.held.extend(condition_ids);
        self.tell_cataloguer();
    }

    pub(super) fn change_tick(&mut self, condition_id: &str, tick: Price, at: Timestamp) {
        let Some(market) = self.markets.get_mut(condition_id) else { return };
        market.tick_told_at = Some(at);
        if market.info.tick != tick {
            market.info.tick = tick;
            let info = market.info.clone();
            self.publish(vec![info]);
        }
    }

    /// A market has a winner, says one source: it is not traded any more, and the catalogue is
    /// asked.
    pub(super) fn hear_of_end(&mut self, told: &MarketResolved<'_>, now: Timestamp) {
        let condition_id = told.market;
        let Some(market) = self.markets.get_mut(condition_id) else { return };
        // Nothing has happened later than now.
        let at = if told.at == UNTOLD { now } else { told.at.min(now) };
        market.winner_told = Some(Told::winner(told.winning_asset_id, at, &market.info.outcomes));
        let _ = self.urgent.try_send(Urgent::Followed(market.info.condition_id.clone()));
        if !market.info.status.is_closed() {
            market.info.status = MarketStatus::Closed;
            let info = market.info.clone();
            self.end(condition_id);
            self.publish(vec![info]);
        }
    }

    /// A market is new: where there is room for it, the catalogue is asked whether it is one to
    /// follow.
    pub(super) fn hear_of_market(&mut self, condition_id: &Arc<str>) {
        let Some(carriers) = &self.carriers else { return };
        let filter = &carriers.config.filter;
        // The most traded of all leave no room; those of a choice take what a list would give them.
        let room = filter.count_max * if filter.is_selective() { 2 } else { 1 };
        // Nobody has traded in it yet.
        let is_wanted = filter.volume_24h_min.is_none()
            && !self.markets.contains_key(condition_id)
            && self.subscribed_count() < room;
        if is_wanted {
            let _ = self.urgent.try_send(Urgent::Announced(condition_id.clone()));
        }
    }

    fn subscribed_count(&self) -> usize {
        self.markets.values().filter(|it| it.is_subscribed).count()
    }

    fn publish(&mut self, infos: Vec<MarketInfo>) {
        if !infos.is_empty() {
            let change = VenueChange::Listed(infos);
            self.feed.apply(VenueEvent { at: self.clock.now().time, change });
        }
    }

    /// Follows what is new in a list, as far as there is room.
    pub(super) fn list(&mut self, told: Vec<Description>) {
        let room = 2 * self.market_count_max;
        let mut subscribed = self.subscribed_count();
        let mut known = Vec::with_capacity(told.len());
        let mut fresh = Vec::new();
        let listing = self.feed.markets().listing();
        let is_resolved = |condition_id: &str| {
            listing.by_condition(condition_id).is_some_and(|market| {
                // A page of the catalogue may be older than the end of a market.
                market.info().status == MarketStatus::Resolved
            })
        };
        for told in told {
            if self.markets.contains_key(&told.info.condition_id) {
                known.push(told);
            } else if self.held.remove(&told.info.condition_id)
                || (subscribed < room && !is_resolved(&told.info.condition_id))
            {
                subscribed += 1;
                fresh.push(told);
            }
        }
        drop(listing);
        if !fresh.is_empty() {
            tracing::info!("following {} more markets of the venue", fresh.len());
        }
        self.follow(fresh);
        self.describe(known.into_iter().map(Described::from).collect());
    }

    fn follow(&mut self, told: Vec<Description>) {
        self.publish(told.iter().map(|told| told.info.clone()).collect());
        let now = self.clock.now().time;
        for Description { info, updated_at, .. } in told {
            let (condition_id, is_closed) = (info.condition_id.clone(), info.status.is_closed());
            let market = Followed {
                info,
                described_at: updated_at.map(|at| at.min(now)),
                tick_told_at: None,
                winner_told: None,
                is_withheld: false,
                is_subscribed: false,
            };
            self.markets.insert(condition_id.clone(), market);
            if !is_closed {
                self.subscribe(&condition_id);
            }
        }
    }

    /// Begins to follow those of these markets that somebody holds shares of.
    fn follow_held(&mut self, told: &[Described]) {
        let is_described = |info: &MarketInfo| info.status != MarketStatus::Hydrating;
        let told = told.iter().map(|told| &told.gamma).filter(|told| is_described(&told.info));
        let held = told.filter(|told| self.held.remove(&told.info.condition_id));
        let held: Vec<Description> = held.cloned().collect();
        if !held.is_empty() {
            tracing::info!(count = held.len(), "following markets in which somebody holds shares");
            self.follow(held);
        }
    }

    /// Takes what is told of markets that are followed.
    pub(super) fn describe(&mut self, told: Vec<Described>) {
        self.follow_held(&told);
        let (now, retraction_after) = (self.clock.now().time, self.timing.retraction_after);
        let mut changed = Vec::new();
        for described in told {
            let told = &described.gamma;
            let Some(market) = self.markets.get_mut(&told.info.condition_id) else { continue };
            // A page may come out of a cache, and be older than what was told before it.
            if told.updated_at.is_some() && told.updated_at < market.described_at {
                continue;
            }
            // What is from the future would keep out all that comes until then.
            let described_at = told.updated_at.map(|at| at.min(now));
            market.described_at = described_at.or(market.described_at);
            if let Stage::Unknown(word) = &told.stage
                && self.stages_named.len() < STAGES_NAMED_MAX
                && self.stages_named.insert(word.clone())
            {
                tracing::warn!(
                    stage = &**word,
                    market = &*told.info.condition_id,
                    "unknown stage of a resolution: its markets pay nothing until it is another"
                );
            }
            let was_open = !market.info.status.is_closed();
            let mut info = told.info.clone();
            if info.align(&market.info.outcomes).is_ok() {
                market.is_withheld = false;
                if market.is_end_taken_back(&told.info, described_at, retraction_after) {
                    tracing::warn!(market = %told.info.condition_id, "its end is taken back");
                    market.winner_told = None;
                }
                if market.winner_told.is_some() && !info.status.is_closed() {
                    // The catalogue is behind its socket.
                    info.status = MarketStatus::Closed;
                }
                match resolution_of(market, &described).describe(&mut info) {
                    Some(Pending::Contradiction) if was_open => tracing::warn!(
                        "market {} stays closed: its sources contradict each other on what it pays",
                        info.condition_id
                    ),
                    Some(_) => {}
                    None => tracing::info!(
                        "market {} is resolved: {}",
                        info.condition_id,
                        info.evidence.as_deref().unwrap_or_default()
                    ),
                }
            } else {
                info = market.withheld(info.status);
            }
            let is_older = match (market.tick_told_at, told.updated_at) {
                (Some(tick_told_at), Some(updated_at)) => updated_at < tick_told_at,
                (tick_told_at, None) => tick_told_at.is_some(),
                (None, Some(_)) => false,
            };
            if is_older {
                let known = &market.info;
                (info.tick, info.order_size_min) = (known.tick, known.order_size_min);
                info.neg_risk = known.neg_risk;
            }
            if info == market.info {
                continue;
            }
            let (condition_id, status) = (info.condition_id.clone(), info.status);
            market.info = info.clone();
            changed.push(info);
            match (was_open, !status.is_closed()) {
                (true, false) => self.end(&condition_id),
                (false, true) => self.subscribe(&condition_id),
                _ => {}
            }
            if status == MarketStatus::Resolved {
                // It stays so, and nothing more is asked about it.
                self.markets.remove(&condition_id);
            }
        }
        self.publish(changed);
        self.tell_sockets();
        self.tell_cataloguer();
    }

    /// Gives the tokens of a market to a socket with room for all of them.
    fn subscribe(&mut self, condition_id: &str) {
        let Some(market) = self.markets.get_mut(condition_id) else { return };
        market.is_subscribed = true;
        let tokens: Vec<_> =
            market.info.outcomes.iter().map(|outcome| outcome.token_id.clone()).collect();
        let room = socket::TOKENS_MAX.saturating_sub(tokens.len());
        let number = self.sockets.iter().position(|slot| slot.tokens.len() <= room);
        let number = number.unwrap_or_else(|| {
            let number = self.sockets.len();
            let handle = self.carriers.as_ref().map_or_else(Handle::unconnected, |carriers| {
                Handle::open(
                    number,
                    carriers.config.clone(),
                    carriers.door.clone(),
                    carriers.queue_bytes.clone(),
                    carriers.events.clone(),
                )
            });
            self.sockets.push(Slot::new(handle));
            number
        });
        self.tap.follow(number, &tokens);
        let now = self.now();
        let slot = &mut self.sockets[number];
        slot.is_changed = true;
        for token in tokens {
            self.tracker.follow(token.clone(), condition_id.into(), number);
            if slot.state != Freshness::Stale {
                self.tracker.signal(&token, Signal::Opened, now);
            }
            slot.tokens.push(token);
        }
    }

    /// Follows the tokens of a market no more.
    fn end(&mut self, condition_id: &str) {
        let now = self.now();
        let Some(market) = self.markets.get_mut(condition_id) else { return };
        market.is_subscribed = false;
        for outcome in market.info.outcomes.clone() {
            self.signal(&outcome.token_id, Signal::Ended, now);
            if let Some(token) = self.tracker.unfollow(&outcome.token_id) {
                let slot = &mut self.sockets[token.socket];
                slot.tokens.retain(|id| *id != outcome.token_id);
                slot.is_changed = true;
            }
        }
    }

    pub(super) fn tell_sockets(&mut self) {
        for slot in &mut self.sockets {
            if std::mem::take(&mut slot.is_changed) {
                slot.handle.want(slot.tokens.clone().into());
            }
        }
    }

    fn tell_cataloguer(&self) {
        let ids = self.markets.keys().chain(&self.held);
        self.unresolved.send_replace(ids.cloned().collect());
    }

    /// What a book of the book endpoint tells of its market is newer than what the catalogue does,
    /// and the hash covers it.
    pub(super) fn correct_grid(&mut self, token_id: &str, book: &BookMessage<'_>, at: Timestamp) {
        let Some((_, token)) = self.tracker.get(token_id) else { return };
        let Some(market) = self.markets.get_mut(&token.condition_id) else { return };
        let mut info = market.info.clone();
        info.tick = book.tick.unwrap_or(info.tick);
        info.order_size_min = book.order_size_min.unwrap_or(info.order_size_min);
        info.neg_risk = book.neg_risk.unwrap_or(info.neg_risk);
        if info != market.info {
            market.tick_told_at = Some(at);
            market.info = info.clone();
            self.publish(vec![info]);
        }
    }
}

impl Followed {
    /// Whether a description shows that a socket's word of its end was false: it accepts orders, so
    /// long after that word that the catalogue cannot only be behind.
    fn is_end_taken_back(
        &self,
        told: &MarketInfo,
        described_at: Option<Timestamp>,
        after: Duration,
    ) -> bool {
        let ended_at = self.winner_told.as_ref().and_then(|told| told.at);
        let (Some(ended_at), Some(described_at)) = (ended_at, described_at) else { return false };
        let after = i64::try_from(after.as_nanos()).unwrap_or(i64::MAX);
        told.status == MarketStatus::Open
            && described_at.nanos() > ended_at.nanos().saturating_add(after)
    }

    /// What is left of it while it is described, with this status, by other tokens than its own.
    fn withheld(&mut self, told: MarketStatus) -> MarketInfo {
        let mut info = self.info.clone();
        info.withhold(told);
        if !std::mem::replace(&mut self.is_withheld, true) {
            tracing::warn!(
                market = &*info.condition_id,
                "its description names other tokens than before: no order fills until it names \
                 the known ones"
            );
        }
        info
    }
}

/// What the rule makes of all that is told of a market.
fn resolution_of(market: &Followed, described: &Described) -> Resolution {
    let mut told = described.told(&market.info.outcomes);
    told.extend(market.winner_told.clone());
    resolution::decide(&told)
}
