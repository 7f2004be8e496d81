//! Which markets are followed, and what the catalogue's words change of them.

use std::sync::Arc;

use super::Follower;
use super::market::{Described, Followed};
use crate::ids::Timestamp;
use crate::market::catalogue::{MarketInfo, MarketStatus};
use crate::money::Price;
use crate::venue::event::{VenueChange, VenueEvent};
use crate::venue::follow::Stamp;
use crate::venue::follow::books::Books;
use crate::venue::follow::request::{Notice, Request};
use crate::venue::polymarket::wire::clob::BookMessage;
use crate::venue::polymarket::wire::socket::MarketResolved;
use crate::venue::polymarket::wire::{Description, UNTOLD};

/// The log names at most this many stages of resolutions that are not known.
const STAGES_NAMED_MAX: usize = 100;

impl<B: Books> Follower<B> {
    /// Follows these markets too, by their condition ids: whatever the filter says, and closed ones
    /// until they are resolved. Somebody holds shares of them.
    pub fn hold(&mut self, condition_ids: impl IntoIterator<Item = Arc<str>>) {
        self.held.extend(condition_ids);
        self.request_unresolved();
    }

    /// Follows what is new in a list, as far as there is room.
    pub fn listed(&mut self, told: Vec<Description>, now: Stamp) {
        let room = 2 * self.filter.count_max;
        let mut subscribed = self.subscribed_count();
        let mut known = Vec::with_capacity(told.len());
        let mut fresh = Vec::new();
        for told in told {
            let id = &told.info.condition_id;
            if self.markets.contains_key(id) {
                known.push(Described::from(told));
            } else if self.held.remove(id)
                // A page of the catalogue may be older than the end of a market.
                || (subscribed < room && !self.trust.books.is_resolved(id))
            {
                subscribed += 1;
                fresh.push(told);
            }
        }
        if !fresh.is_empty() {
            self.trust.log(Notice::Following { markets: fresh.len(), is_held: false });
        }
        self.follow(fresh, now);
        self.described(known, now);
    }

    /// Takes what is told of markets that are followed, or held.
    pub fn described(&mut self, told: Vec<Described>, now: Stamp) {
        self.follow_held(&told, now);
        let mut changed = Vec::new();
        let mut notices = Vec::new();
        for described in told {
            let condition_id = &described.gamma.info.condition_id;
            let Some(market) = self.markets.get_mut(condition_id) else { continue };
            let was_open = !market.info.status.is_closed();
            let retraction_after = self.trust.timing.retraction_after;
            if !market.describe(&described, now.time, retraction_after, &mut notices) {
                continue;
            }
            changed.push(market.info.clone());
            let status = market.info.status;
            match (was_open, !status.is_closed()) {
                (true, false) => self.end(condition_id, now),
                (false, true) => self.subscribe(condition_id, now),
                _ => {}
            }
            if status == MarketStatus::Resolved {
                // It stays so, and nothing more is asked about it.
                self.markets.remove(condition_id);
            }
        }
        for notice in notices {
            self.log(notice);
        }
        self.publish(changed, now.time);
        self.trust.subscribe_sockets();
        self.request_unresolved();
    }

    /// An unknown stage is named once, whichever market it is of.
    fn log(&mut self, notice: Notice) {
        if let Notice::UnknownStage { stage, .. } = &notice
            && (self.stages_named.len() == STAGES_NAMED_MAX
                || !self.stages_named.insert(stage.clone()))
        {
            return;
        }
        self.trust.log(notice);
    }

    pub(super) fn change_tick(
        &mut self,
        condition_id: &str,
        tick: Price,
        at: Timestamp,
        received: Stamp,
    ) {
        let Some(market) = self.markets.get_mut(condition_id) else { return };
        if market.set_tick(tick, at) {
            let info = market.info.clone();
            self.publish(vec![info], received.time);
        }
    }

    pub(super) fn correct_grid(
        &mut self,
        token_id: &str,
        book: &BookMessage<'_>,
        at: Timestamp,
        received: Stamp,
    ) {
        let Some((_, token)) = self.trust.token(token_id) else { return };
        let Some(market) = self.markets.get_mut(&token.condition_id) else { return };
        if market.set_grid(book, at) {
            let info = market.info.clone();
            self.publish(vec![info], received.time);
        }
    }

    /// A market has a winner, says one source: it is not traded any more, and the catalogue is
    /// asked.
    pub(super) fn hear_of_end(&mut self, told: &MarketResolved<'_>, received: Stamp) {
        let condition_id = told.market;
        let Some(market) = self.markets.get_mut(condition_id) else { return };
        // Nothing has happened later than now.
        let at = if told.at == UNTOLD { received.time } else { told.at.min(received.time) };
        let was_open = market.end(told.winning_asset_id, at);
        let info = market.info.clone();
        let condition_id = info.condition_id.clone();
        self.trust.request(Request::Describe { condition_id: condition_id.clone(), is_new: false });
        if was_open {
            self.end(&condition_id, received);
            self.publish(vec![info], received.time);
        }
    }

    /// A market is new: where there is room for it, the catalogue is asked whether it is one to
    /// follow.
    pub(super) fn hear_of_market(&mut self, condition_id: &Arc<str>) {
        let filter = &self.filter;
        // The most traded of all leave no room; those of a choice take what a list would give them.
        let room = filter.count_max * if filter.is_selective() { 2 } else { 1 };
        // Nobody has traded in it yet.
        let is_wanted = filter.volume_24h_min.is_none()
            && !self.markets.contains_key(condition_id)
            && self.subscribed_count() < room;
        if is_wanted {
            let condition_id = condition_id.clone();
            self.trust.request(Request::Describe { condition_id, is_new: true });
        }
    }

    fn subscribed_count(&self) -> usize {
        self.markets.values().filter(|it| it.is_subscribed).count()
    }

    fn publish(&mut self, infos: Vec<MarketInfo>, at: Timestamp) {
        if !infos.is_empty() {
            self.trust.apply(VenueEvent { at, change: VenueChange::Listed(infos) });
        }
    }

    fn follow(&mut self, told: Vec<Description>, now: Stamp) {
        self.publish(told.iter().map(|told| told.info.clone()).collect(), now.time);
        for told in told {
            let (condition_id, status) = (told.info.condition_id.clone(), told.info.status);
            self.markets.insert(condition_id.clone(), Followed::new(told, now.time));
            if !status.is_closed() {
                self.subscribe(&condition_id, now);
            }
        }
    }

    /// Begins to follow those of these markets that somebody holds shares of.
    fn follow_held(&mut self, told: &[Described], now: Stamp) {
        let is_described = |info: &MarketInfo| info.status != MarketStatus::Hydrating;
        let told = told.iter().map(|told| &told.gamma).filter(|told| is_described(&told.info));
        let held = told.filter(|told| self.held.remove(&told.info.condition_id));
        let held: Vec<Description> = held.cloned().collect();
        if !held.is_empty() {
            self.trust.log(Notice::Following { markets: held.len(), is_held: true });
            self.follow(held, now);
        }
    }

    /// Has a socket tell of the tokens of a market.
    fn subscribe(&mut self, condition_id: &Arc<str>, now: Stamp) {
        let Some(market) = self.markets.get_mut(condition_id) else { return };
        market.is_subscribed = true;
        let tokens = market.info.outcomes.iter().map(|outcome| outcome.token_id.clone());
        self.trust.follow(condition_id, tokens.collect(), now);
    }

    /// Follows the tokens of a market no more.
    fn end(&mut self, condition_id: &str, now: Stamp) {
        let Some(market) = self.markets.get_mut(condition_id) else { return };
        market.is_subscribed = false;
        for outcome in &market.info.outcomes {
            self.trust.unfollow(&outcome.token_id, now);
        }
    }

    fn request_unresolved(&mut self) {
        let ids = self.markets.keys().chain(&self.held).cloned().collect();
        self.trust.request(Request::Unresolved(ids));
    }
}
