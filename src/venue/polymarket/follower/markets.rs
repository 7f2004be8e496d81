//! The set of followed markets, and its updates from lists, descriptions and announcements.

use std::collections::HashSet;
use std::sync::Arc;

use super::Follower;
use super::market::{Described, Followed};
use crate::event::{VenueChange, VenueEvent};
use crate::follow::Stamp;
use crate::follow::books::Books;
use crate::follow::request::{Notice, Request};
use crate::polymarket::wire::clob::BookMessage;
use crate::polymarket::wire::socket::MarketResolved;
use crate::polymarket::wire::{Description, NO_TIMESTAMP};
use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::money::Price;

/// Maximum number of unknown resolution stages that are logged.
const LOGGED_STAGES_MAX: usize = 100;

impl<B: Books> Follower<B> {
    /// Also follows these markets, by condition id, because accounts hold shares in them. They are
    /// followed regardless of the filter, until they are resolved.
    pub fn hold(&mut self, condition_ids: impl IntoIterator<Item = Arc<str>>) {
        for id in condition_ids {
            if self.followed_name(&id).is_none() {
                self.held.insert(id);
            }
        }
        self.request_unresolved();
    }

    /// Returns the held markets that the catalogue has yet to describe.
    pub fn held(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held.iter()
    }

    /// Applies a list of markets, and follows the new ones while there is room.
    pub fn listed(&mut self, descriptions: Vec<Description>, now: Stamp) {
        self.trust.counts.is_listed = true;
        let subscribed_count_max = 2 * self.filter.count_max;
        let mut subscribed_count = self.subscribed_count();
        let mut known = Vec::with_capacity(descriptions.len());
        let mut new = Vec::new();
        // Markets move between the pages of a list while it is read, so a market may be listed
        // twice.
        let mut seen = HashSet::new();
        for description in descriptions {
            let id = &description.info.condition_id;
            if !seen.insert(condition::wide(id).into_owned()) {
                continue;
            }
            if self.followed_name(id).is_some() {
                known.push(Described::from(description));
            } else if self.take_held(id)
                // A page of the catalogue may be older than the resolution of a market.
                || (subscribed_count < subscribed_count_max && !self.trust.books.is_resolved(id))
            {
                subscribed_count += 1;
                new.push(description);
            }
        }
        if !new.is_empty() {
            self.trust.log(Notice::Following { markets: new.len(), is_held: false });
        }
        self.follow(new, now);
        self.described(known, now);
    }

    /// Applies descriptions of markets that are followed or held.
    pub fn described(&mut self, all: Vec<Described>, now: Stamp) {
        self.follow_held(&all, now);
        let mut changed = Vec::new();
        let mut notices = Vec::new();
        for described in all {
            let name = self.followed_name(&described.gamma.info.condition_id).cloned();
            let Some(condition_id) = &name else { continue };
            let Some(market) = self.markets.get_mut(condition_id) else { continue };
            let was_open = !market.info.status.is_closed();
            let retraction_after = self.trust.timing.retraction_after;
            if !market.describe(&described, now.time, retraction_after, &mut notices) {
                continue;
            }
            changed.push(market.info.clone());
            let status = market.info.status;
            match (was_open, !status.is_closed()) {
                (true, false) => self.unsubscribe(condition_id, now),
                (false, true) => self.subscribe(condition_id, now),
                _ => {}
            }
            if status == MarketStatus::Resolved {
                // A resolution is final, so this market needs no more descriptions.
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

    /// Logs a notice. An unknown stage is logged only once, even if several markets have it.
    fn log(&mut self, notice: Notice) {
        if let Notice::UnknownStage { stage, .. } = &notice
            && (self.logged_stages.len() == LOGGED_STAGES_MAX
                || !self.logged_stages.insert(stage.clone()))
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
        let Some(market) = self.followed_mut(condition_id) else { return };
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

    /// Takes the delay on marketable orders from the CLOB service's description of a market, and
    /// ignores the rest of it.
    pub fn delay_described(&mut self, description: &Description, now: Stamp) {
        let info = &description.info;
        let Some(market) = self.followed_mut(&info.condition_id) else { return };
        if market.set_delay(description) {
            let info = market.info.clone();
            self.publish(vec![info], now.time);
        }
    }

    /// Closes a market because a socket reported its winner, and requests a description to confirm
    /// the report.
    pub(super) fn ended(&mut self, message: &MarketResolved<'_>, received: Stamp) {
        let Some(market) = self.followed_mut(message.market) else { return };
        // The venue's clock may be ahead of ours.
        let at = message.at.min(received.time);
        let at = if message.at == NO_TIMESTAMP { received.time } else { at };
        let was_open = market.end(message.winning_asset_id, at);
        let info = market.info.clone();
        let condition_id = info.condition_id.clone();
        self.trust.request(Request::Describe { condition_id: condition_id.clone(), is_new: false });
        if was_open {
            self.unsubscribe(&condition_id, received);
            self.publish(vec![info], received.time);
        }
    }

    /// Handles the announcement of a new market: requests its description if the market might be
    /// followed.
    pub(super) fn announced(&mut self, condition_id: &Arc<str>) {
        let filter = &self.filter;
        // With a selective filter, announced markets get as much room as listed ones. Without one,
        // the most traded markets have already filled the room.
        let count_max = filter.count_max * if filter.is_selective() { 2 } else { 1 };
        // A new market has no volume yet, so it cannot reach a minimum.
        let is_wanted = filter.volume_24h_min.is_none()
            && self.followed_name(condition_id).is_none()
            && self.subscribed_count() < count_max;
        if is_wanted {
            let condition_id = condition_id.clone();
            self.trust.request(Request::Describe { condition_id, is_new: true });
        }
    }

    /// Returns the key under which this market is followed, whichever form of its id the venue
    /// uses.
    pub(super) fn followed_name(&self, condition_id: &str) -> Option<&Arc<str>> {
        let key = |name: &str| self.markets.get_key_value(name).map(|(name, _)| name);
        condition::find(condition_id, key)
    }

    fn followed_mut(&mut self, condition_id: &str) -> Option<&mut Followed> {
        let name = self.followed_name(condition_id)?.clone();
        self.markets.get_mut(&name)
    }

    /// Removes a market from the held markets that wait for a description. Returns whether it was
    /// one of them.
    fn take_held(&mut self, condition_id: &str) -> bool {
        let is_held = self.held.remove(condition_id);
        condition::others(condition_id).fold(is_held, |it, name| self.held.remove(&*name) || it)
    }

    fn subscribed_count(&self) -> usize {
        self.markets.values().filter(|it| it.is_subscribed).count()
    }

    fn publish(&mut self, infos: Vec<MarketInfo>, at: Timestamp) {
        if !infos.is_empty() {
            self.trust.apply(VenueEvent { at, change: VenueChange::Listed(infos) });
        }
    }

    fn follow(&mut self, descriptions: Vec<Description>, now: Stamp) {
        self.publish(descriptions.iter().map(|it| it.info.clone()).collect(), now.time);
        for description in descriptions {
            let condition_id = description.info.condition_id.clone();
            let status = description.info.status;
            let has_unlisted_delay = may_have_unlisted_delay(&description.info);
            self.markets.insert(condition_id.clone(), Followed::new(description, now.time));
            if !status.is_closed() {
                if has_unlisted_delay {
                    let condition_id = condition_id.clone();
                    self.trust.request(Request::Delay { condition_id });
                }
                self.subscribe(&condition_id, now);
            }
        }
    }

    /// Starts following the held markets among those described.
    fn follow_held(&mut self, all: &[Described], now: Stamp) {
        let descriptions = all.iter().map(|described| &described.gamma);
        let complete = descriptions.filter(|it| it.info.status != MarketStatus::Hydrating);
        let mut held: Vec<Description> = Vec::new();
        for description in complete {
            if self.take_held(&description.info.condition_id) {
                held.push(description.clone());
            }
        }
        if !held.is_empty() {
            self.trust.log(Notice::Following { markets: held.len(), is_held: true });
            self.follow(held, now);
        }
    }

    /// Subscribes to the tokens of a market.
    fn subscribe(&mut self, condition_id: &Arc<str>, now: Stamp) {
        let Some(market) = self.markets.get_mut(condition_id) else { return };
        market.is_subscribed = true;
        let tokens = market.info.outcomes.iter().map(|outcome| outcome.token_id.clone());
        self.trust.follow(condition_id, tokens.collect(), now);
    }

    /// Unsubscribes from the tokens of a market.
    fn unsubscribe(&mut self, condition_id: &str, now: Stamp) {
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

/// Returns whether the venue may hold marketable orders in this market although Gamma states no
/// delay. It does so in some up-or-down markets, those on the direction of a price, and no field
/// from Gamma tells which.
fn may_have_unlisted_delay(info: &MarketInfo) -> bool {
    let is_either =
        |label: &str| ["up", "down"].iter().any(|name| label.eq_ignore_ascii_case(name));
    info.outcomes.len() == 2 && info.outcomes.iter().all(|outcome| is_either(&outcome.label))
}
