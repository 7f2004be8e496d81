//! Parses Gamma's descriptions of markets and events.
//!
//! Only the condition id is required. A malformed field is an error if orders depend on it
//! (outcomes, tokens, tick, flags), and ignored if it is only displayed (volume, dates, image).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::clob::set_grid;
use super::{
    Bounded, Description, Raw, WireError, checked_id, expected, flag, is_hydrated, list, micros,
    object, outcomes, payouts_of, scalar, shown, taker_delay_ms, time,
};
use crate::polymarket::resolution::Stage;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::catalogue::{Event, Fees, ID_BYTES_MAX, MarketInfo, MarketStatus};
use paperbourse_core::money::{FeeRate, Price, Rounding, Usd};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarketObject<'a> {
    #[serde(borrow)]
    condition_id: Raw<'a>,
    #[serde(borrow)]
    slug: Raw<'a>,
    #[serde(borrow)]
    question: Raw<'a>,
    #[serde(borrow)]
    category: Raw<'a>,
    #[serde(borrow)]
    image: Raw<'a>,
    #[serde(borrow)]
    icon: Raw<'a>,
    #[serde(borrow)]
    outcomes: Raw<'a>,
    #[serde(borrow)]
    outcome_prices: Raw<'a>,
    #[serde(borrow)]
    version: Raw<'a>,
    #[serde(borrow)]
    clob_token_ids: Raw<'a>,
    #[serde(borrow)]
    position_ids: Raw<'a>,
    #[serde(borrow)]
    active: Raw<'a>,
    #[serde(borrow)]
    closed: Raw<'a>,
    #[serde(borrow)]
    accepting_orders: Raw<'a>,
    #[serde(borrow)]
    enable_order_book: Raw<'a>,
    #[serde(borrow)]
    uma_resolution_status: Raw<'a>,
    #[serde(borrow)]
    order_price_min_tick_size: Raw<'a>,
    #[serde(borrow)]
    order_min_size: Raw<'a>,
    #[serde(borrow)]
    neg_risk: Raw<'a>,
    #[serde(borrow)]
    neg_risk_other: Raw<'a>,
    #[serde(borrow)]
    group_item_title: Raw<'a>,
    #[serde(borrow)]
    fees_enabled: Raw<'a>,
    #[serde(borrow)]
    fee_schedule: Raw<'a>,
    #[serde(borrow)]
    end_date: Raw<'a>,
    #[serde(borrow)]
    game_start_time: Raw<'a>,
    #[serde(borrow)]
    clear_book_on_start: Raw<'a>,
    #[serde(borrow)]
    taker_delay_ms: Raw<'a>,
    #[serde(borrow)]
    seconds_delay: Raw<'a>,
    #[serde(borrow)]
    updated_at: Raw<'a>,
    #[serde(borrow)]
    volume: Raw<'a>,
    #[serde(borrow)]
    volume_num: Raw<'a>,
    #[serde(borrow)]
    volume24hr: Raw<'a>,
    #[serde(borrow)]
    events: Raw<'a>,
}

/// The event of a market, as nested in the market's description.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventStub<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    slug: Raw<'a>,
    #[serde(borrow)]
    title: Raw<'a>,
    #[serde(borrow)]
    category: Raw<'a>,
    #[serde(borrow)]
    neg_risk_augmented: Raw<'a>,
}

/// Maximum number of markets in an event, which is more than the venue has.
const MARKETS_PER_EVENT_MAX: usize = 2_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventObject<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    slug: Raw<'a>,
    #[serde(borrow)]
    title: Raw<'a>,
    #[serde(borrow)]
    category: Raw<'a>,
    #[serde(borrow)]
    tags: Raw<'a>,
    #[serde(borrow)]
    neg_risk_augmented: Raw<'a>,
    #[serde(borrow)]
    markets: Bounded<&'a RawValue, MARKETS_PER_EVENT_MAX>,
}

#[derive(Deserialize)]
struct SeriesOf<'a> {
    #[serde(borrow)]
    events: Option<Vec<EventOfSeries<'a>>>,
}

#[derive(Deserialize)]
struct EventOfSeries<'a> {
    #[serde(borrow)]
    series: Option<Vec<SeriesStub<'a>>>,
}

#[derive(Deserialize)]
struct SeriesStub<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
}

#[derive(Deserialize)]
struct TagObject<'a> {
    #[serde(borrow)]
    label: Raw<'a>,
}

/// A fee schedule from Gamma or the socket, with numbers or strings.
#[derive(Deserialize)]
struct ScheduleObject<'a> {
    #[serde(borrow)]
    rate: Raw<'a>,
    #[serde(borrow)]
    exponent: Raw<'a>,
}

/// Nouns in the titles of answers without a name. The venue appends a letter or two: `Person A`.
const PLACEHOLDER_NOUNS: [&str; 16] = [
    "Actor",
    "Artist",
    "Candidate",
    "Club",
    "Company",
    "Country",
    "Driver",
    "Individual",
    "Movie",
    "Nominee",
    "Option",
    "Outcome",
    "Party",
    "Person",
    "Player",
    "Team",
];

/// Parses a market. [`crate::polymarket::resolution`] decides whether a closed market is
/// resolved.
pub fn market(text: &str) -> Result<Description, WireError> {
    market_of(text, false)
}

/// Parses a market. `is_event_augmented` says whether answers may be added to the market's event
/// later.
fn market_of(text: &str, is_event_augmented: bool) -> Result<Description, WireError> {
    let object: MarketObject<'_> = object(text)?;
    let condition_id = scalar("conditionId", object.condition_id)?
        .ok_or(WireError::Missing { field: "conditionId" })?;
    checked_id("conditionId", &condition_id)?;
    let labels = list("outcomes", object.outcomes)?;
    let (tokens_field, tokens) = object.tokens()?;
    let fees = fees(object.fees_enabled, object.fee_schedule)?;
    let mut info = MarketInfo::bare(&condition_id, outcomes(&labels, (tokens_field, &tokens))?);
    // No order depends on these prices, so malformed ones are ignored. Without valid payouts, a
    // closed market pays nothing.
    let prices = prices(object.outcome_prices).unwrap_or_default();
    let closed = flag("closed", object.closed)?.unwrap_or(false);
    let shown_payouts =
        if closed && prices.len() == labels.len() { payouts_of(&prices) } else { None };
    let event = first::<EventStub<'_>>(object.events);
    let is_event_augmented =
        is_event_augmented || event.as_ref().is_some_and(|event| is_set(event.neg_risk_augmented));
    let accepts_orders = object.accepts_orders()?;
    info.is_placeholder = accepts_orders && object.is_placeholder(is_event_augmented)?;
    info.status = if closed {
        MarketStatus::Closed
    } else if !is_hydrated(&info.outcomes) {
        MarketStatus::Hydrating
    } else if accepts_orders && !info.is_placeholder {
        MarketStatus::Open
    } else {
        MarketStatus::Paused
    };
    set_grid(
        &mut info,
        ("orderPriceMinTickSize", object.order_price_min_tick_size),
        ("orderMinSize", object.order_min_size),
    )?;
    info.neg_risk = flag("negRisk", object.neg_risk)?.unwrap_or(false);
    info.fees = fees.unwrap_or(Fees::Free);
    info.slug = shown(object.slug);
    info.question = shown(object.question);
    info.category =
        shown(object.category).or_else(|| shown(event.as_ref().and_then(|event| event.category)));
    info.image_url = shown(object.image).or_else(|| shown(object.icon));
    info.event = event.and_then(|event| event_of(event.id, event.slug, event.title));
    info.end_date = shown(object.end_date).and_then(|text| time(&text));
    info.books_cleared_at = object.books_cleared_at()?;
    let (taker_delay_ms, is_delay_exact) = object.taker_delay_ms()?;
    info.taker_delay_ms = taker_delay_ms.unwrap_or(0);
    info.volume_24h = dollars(object.volume24hr);
    info.volume_total = dollars(object.volume_num).or_else(|| dollars(object.volume));
    Ok(Description {
        info,
        updated_at: shown(object.updated_at).and_then(|text| time(&text)),
        is_fee_stated: fees.is_some(),
        is_delay_stated: taker_delay_ms.is_some(),
        is_delay_exact,
        shown_payouts,
        has_named_winner: false,
        stage: Stage::of(shown(object.uma_resolution_status).as_deref()),
    })
}

impl<'a> MarketObject<'a> {
    /// Returns the traded tokens and the name of their field. Version 2 of the protocol trades
    /// position ids, and any token ids beside them are not traded.
    fn tokens(&self) -> Result<(&'static str, Vec<Cow<'a, str>>), WireError> {
        let (field, raw) = match scalar("version", self.version)?.as_deref() {
            None | Some("v1") => ("clobTokenIds", self.clob_token_ids),
            Some("v2") => ("positionIds", self.position_ids),
            Some(_) => return Err(expected("version", "v1 or v2")),
        };
        Ok((field, list(field, raw)?))
    }

    /// Returns the time at which the venue clears the books, if it does.
    fn books_cleared_at(&self) -> Result<Option<Timestamp>, WireError> {
        if flag("clearBookOnStart", self.clear_book_on_start)? != Some(true) {
            return Ok(None);
        }
        let Some(text) = scalar("gameStartTime", self.game_start_time)? else { return Ok(None) };
        time(&text).map(Some).ok_or_else(|| expected("gameStartTime", "a time"))
    }

    /// Returns the delay on marketable orders, if stated. Gamma does not state it for up-or-down
    /// markets; see [`super::clob::compact_market`]. `takerDelayMs`, the field in milliseconds, has
    /// the name that the venue's own clients would use; no answer with this field has been seen.
    fn taker_delay_ms(&self) -> Result<(Option<u32>, bool), WireError> {
        let seconds = ("secondsDelay", self.seconds_delay);
        taker_delay_ms(("takerDelayMs", self.taker_delay_ms), seconds)
    }

    /// Returns whether the market stands for answers that no market of its event names. In an
    /// augmented event, a nameless market may get an answer later, which also changes the meaning
    /// of `Other`. The venue tells its users to trade only named answers.
    fn is_placeholder(&self, is_event_augmented: bool) -> Result<bool, WireError> {
        let is_other = flag("negRiskOther", self.neg_risk_other)?.unwrap_or(false);
        let title = shown(self.group_item_title);
        Ok(is_other || is_event_augmented && title.is_some_and(|title| is_nameless(&title)))
    }

    fn accepts_orders(&self) -> Result<bool, WireError> {
        Ok(flag("active", self.active)?.unwrap_or(false)
            && flag("enableOrderBook", self.enable_order_book)?.unwrap_or(false)
            && flag("acceptingOrders", self.accepting_orders)?.unwrap_or(false))
    }
}

/// Returns whether the title of an answer is a placeholder noun with one or two letters.
fn is_nameless(title: &str) -> bool {
    title.split_once(' ').is_some_and(|(noun, letters)| {
        PLACEHOLDER_NOUNS.contains(&noun)
            && matches!(letters.len(), 1..=2)
            && letters.bytes().all(|byte| byte.is_ascii_uppercase())
    })
}

/// Returns whether a flag of an event is set. Events are only displayed, so a malformed flag counts
/// as unset.
fn is_set(raw: Raw<'_>) -> bool {
    flag("negRiskAugmented", raw).is_ok_and(|flag| flag == Some(true))
}

/// Parses an event with its markets. An unreadable market does not affect the others.
pub fn event(text: &str) -> Result<Vec<Result<Description, WireError>>, WireError> {
    let event: EventObject<'_> = object(text)?;
    let named = event_of(event.id, event.slug, event.title);
    let first_tag = first::<TagObject<'_>>(event.tags);
    let category = shown(event.category).or_else(|| shown(first_tag.and_then(|tag| tag.label)));
    let is_augmented = is_set(event.neg_risk_augmented);
    let markets = event.markets.0.into_iter().map(|text| {
        let mut description = market_of(text.get(), is_augmented)?;
        let info = &mut description.info;
        info.event = info.event.take().or_else(|| named.clone());
        info.category = info.category.take().or_else(|| category.clone());
        Ok(description)
    });
    Ok(markets.collect())
}

/// Creates an event. It is only displayed, so the result is `None` if the id is malformed or
/// missing.
fn event_of(id: Raw<'_>, slug: Raw<'_>, title: Raw<'_>) -> Option<Event> {
    let id = shown(id).filter(|id| id.len() <= ID_BYTES_MAX)?;
    Some(Event { id, slug: shown(slug), title: shown(title) })
}

/// Parses the ids of the series that a market's events belong to, as far as stated.
pub fn series(text: &str) -> Vec<Box<str>> {
    let Ok(market) = object::<SeriesOf<'_>>(text) else { return Vec::new() };
    let events = market.events.into_iter().flatten();
    events
        .filter_map(|event| event.series)
        .flatten()
        .filter_map(|series| shown(series.id))
        .collect()
}

/// Parses the taker fee; `None` if it is not stated, which means free.
pub(super) fn fees(enabled: Raw<'_>, schedule: Raw<'_>) -> Result<Option<Fees>, WireError> {
    if flag("feesEnabled", enabled)? == Some(false) {
        return Ok(Some(Fees::Free));
    }
    let Some(schedule) = schedule.filter(|raw| raw.get() != "null") else { return Ok(None) };
    // An unsupported schedule is a fact about the market, not a malformed description.
    let computed = object::<ScheduleObject<'_>>(schedule.get())
        .ok()
        .and_then(|schedule| curve(schedule.rate, schedule.exponent));
    Ok(Some(computed.unwrap_or(Fees::Unsupported)))
}

/// Returns the fees for this rate and exponent; `None` if they are malformed.
pub(super) fn curve(rate: Raw<'_>, exponent: Raw<'_>) -> Option<Fees> {
    let rate = FeeRate::from_micros(micros("rate", rate, Rounding::Exact).ok()??);
    let exponent = micros("exponent", exponent, Rounding::Exact).ok()??;
    (exponent % 1_000_000 == 0).then(|| Fees::from_schedule(rate, exponent / 1_000_000))
}

fn prices(raw: Raw<'_>) -> Result<Vec<Price>, WireError> {
    let texts = list("outcomePrices", raw)?;
    let prices = texts.iter().map(|text| {
        Price::from_text(text, Rounding::HalfEven)
            .map_err(|error| WireError::Field { field: "outcomePrices", problem: error.into() })
    });
    prices.collect()
}

/// Parses the first object of an array; `None` if it is malformed. Only for displayed fields.
fn first<'a, T: Deserialize<'a>>(raw: Raw<'a>) -> Option<T> {
    let items: Vec<&'a RawValue> = object(raw?.get()).ok()?;
    object(items.first()?.get()).ok()
}

fn dollars(raw: Raw<'_>) -> Option<Usd> {
    micros("volume", raw, Rounding::TowardZero).ok().flatten().map(Usd::from_micros)
}

#[cfg(test)]
mod tests;
