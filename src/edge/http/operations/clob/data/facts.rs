//! What rows say of their market.

use crate::http::call::Call;
use crate::http::json::write::JsonObject;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::MarketSnapshot;
use paperbourse_core::market::catalogue::{Event, MarketInfo};

/// A market as far as it is known: one that is no longer listed has only its id.
pub(super) struct Facts(Option<MarketSnapshot>);

impl Facts {
    /// Looks up the market with this condition id.
    pub(super) fn of(call: &Call<'_>, market_id: &str) -> Self {
        Self(call.service().market(market_id).ok())
    }

    fn info(&self) -> Option<&MarketInfo> {
        self.0.as_ref().map(MarketSnapshot::info)
    }

    fn event(&self) -> Option<&Event> {
        self.info()?.event.as_ref()
    }

    pub(super) fn title(&self) -> &str {
        self.info().and_then(|info| info.question.as_deref()).unwrap_or_default()
    }

    pub(super) fn event_id(&self) -> Option<&str> {
        self.event().map(|event| &*event.id)
    }

    /// The scheduled end, if one is known.
    pub(super) fn end_date(&self) -> Option<Timestamp> {
        self.info()?.end_date
    }

    pub(super) fn is_neg_risk(&self) -> bool {
        self.info().is_some_and(|info| info.neg_risk)
    }

    /// Returns the index of the outcome with this token.
    pub(super) fn outcome_index(&self, token_id: &str) -> Option<u64> {
        let outcomes = &self.info()?.outcomes;
        outcomes.iter().position(|it| *it.token_id == *token_id).map(|index| index as u64)
    }

    /// Writes the texts that rows of both versions have; `event_slug` is the name of the last.
    pub(super) fn write(&self, row: &mut JsonObject<'_>, event_slug: &'static str) {
        let text = |text: Option<&Option<Box<str>>>| {
            text.and_then(Option::as_deref).unwrap_or_default().to_owned()
        };
        row.text("title", self.title());
        row.text("slug", &text(self.info().map(|info| &info.slug)));
        row.text("icon", &text(self.info().map(|info| &info.image_url)));
        row.text(event_slug, &text(self.event().map(|event| &event.slug)));
    }
}
