//! The metadata service: `/markets/keyset`, `/events/keyset`, and the deprecated `/markets` and
//! `/events`.

use std::cmp::Ordering;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::answer::Answer;
use super::description::Description;
use super::options::EndCursor;
use super::server::Query;
use super::state::State;

/// The size of a page if the query does not set it.
const LIMIT_DEFAULT: usize = 20;

/// The sort key of a listing.
#[derive(Clone, PartialEq, Debug)]
enum Key {
    Number(f64),
    Text(String),
}

impl Key {
    fn of(description: &Description, field: &str) -> Self {
        let numeric = |text: &str| text.parse::<f64>().ok();
        match description.field(field) {
            Value::Number(number) => Self::Number(number.as_f64().unwrap_or(0.0)),
            Value::String(text) => {
                numeric(text).map_or_else(|| Self::Text(text.clone()), Self::Number)
            }
            _ => Self::Number(0.0),
        }
    }

    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(two)) => one.total_cmp(two),
            (Self::Text(one), Self::Text(two)) => one.cmp(two),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

/// Answers a request for this path of Gamma.
pub(crate) fn answer(state: &mut State, path: &str, query: &Query) -> Answer {
    match path {
        "/markets/keyset" => keyset(state, query),
        "/events/keyset" => events_keyset(state, query),
        "/markets" => {
            state.violation("requested /markets, which is deprecated");
            let rows = rows(state, query, Listed::Markets);
            let offset = query.number("offset").unwrap_or(0);
            let limit = query.number("limit").unwrap_or(LIMIT_DEFAULT);
            let page: Vec<usize> =
                rows.into_iter().skip(offset).take(limit).map(|row| row.1).collect();
            Answer::json(format!("[{}]", descriptions(state, &page)))
                .and("sunset", "Fri, 01 May 2026 00:00:00 GMT")
                .and("warning", "299 - \"use /markets/keyset\"")
        }
        "/events" => {
            let (limit, offset) = (query.number("limit"), query.number("offset"));
            let events = events(state, query).into_iter().skip(offset.unwrap_or(0));
            Answer::json(
                Value::Array(events.take(limit.unwrap_or(LIMIT_DEFAULT)).collect()).to_string(),
            )
        }
        _ => match path.strip_prefix("/markets/slug/").or(path.strip_prefix("/markets/")) {
            Some(name) => one(state, name, path.starts_with("/markets/slug/")),
            None => Answer::status(404, r#"{"type":"not found error","error":"not found"}"#),
        },
    }
}

fn keyset(state: &mut State, query: &Query) -> Answer {
    if query.first("offset").is_some() {
        let body = r#"{"type":"validation error","error":"offset is not supported"}"#;
        return Answer::status(422, body);
    }
    let mut rows = rows(state, query, Listed::Markets);
    let after = query.first("after_cursor").filter(|_| !state.options.ignores_cursors);
    if let Some(cursor) = after {
        let Some((key, market)) = parse_cursor(cursor) else {
            let body = r#"{"type":"validation error","error":"after_cursor is invalid"}"#;
            return Answer::status(422, body);
        };
        let is_ascending = query.first("ascending") == Some("true");
        rows.retain(|row| {
            let order = row.0.cmp(&key);
            let order = if is_ascending { order } else { order.reverse() };
            order.then(row.1.cmp(&market)) == Ordering::Greater
        });
    }
    let limit = query.number("limit").unwrap_or(LIMIT_DEFAULT);
    let limit = limit.min(state.options.page_markets_max);
    let is_last = rows.len() <= limit;
    rows.truncate(limit);
    let next = match (is_last, state.options.end_cursor, rows.last()) {
        (false, _, Some((key, market))) => format!(r#","next_cursor":"{}""#, cursor(key, *market)),
        (_, EndCursor::Lte, _) => r#","next_cursor":"LTE=""#.to_owned(),
        (_, EndCursor::Absent, _) => String::new(),
    };
    let page: Vec<usize> = rows.into_iter().map(|row| row.1).collect();
    Answer::json(format!(r#"{{"markets":[{}]{next}}}"#, descriptions(state, &page)))
}

fn cursor(key: &Key, market: usize) -> String {
    let key = match key {
        Key::Number(number) => json!({"bits": number.to_bits()}),
        Key::Text(text) => json!(text),
    };
    BASE64_URL_SAFE_NO_PAD.encode(json!([key, market]).to_string())
}

fn parse_cursor(text: &str) -> Option<(Key, usize)> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
    let value: Value = serde_json::from_slice(&bytes).ok()?;
    let key = match &value[0] {
        Value::String(text) => Key::Text(text.clone()),
        key => Key::Number(f64::from_bits(key["bits"].as_u64()?)),
    };
    Some((key, usize::try_from(value[1].as_u64()?).ok()?))
}

/// What a list is of, and so what a slug is that of.
#[derive(Clone, Copy)]
enum Listed {
    Markets,
    Events,
}

/// The markets that match the query, in its order.
fn rows(state: &State, query: &Query, listed: Listed) -> Vec<(Key, usize)> {
    let field = query.first("order").unwrap_or("");
    let is_ascending = query.first("ascending") == Some("true");
    let described = state.markets.iter().enumerate();
    let described =
        described.filter_map(|(place, market)| Some((place, market.description.as_ref()?)));
    let mut rows: Vec<(Key, usize)> = described
        .filter(|(_, description)| is_wanted(description, query, listed))
        .map(|(place, description)| (Key::of(description, field), place))
        .collect();
    rows.sort_by(|one, two| {
        let order = one.0.cmp(&two.0);
        (if is_ascending { order } else { order.reverse() }).then(one.1.cmp(&two.1))
    });
    rows
}

fn is_wanted(description: &Description, query: &Query, listed: Listed) -> bool {
    /// Whether the market has any of the values of this repeated parameter.
    fn any(query: &Query, name: &str, has: impl Fn(&str) -> bool) -> bool {
        let mut values = query.all(name).peekable();
        values.peek().is_none() || values.any(has)
    }
    let flag = |name: &str| match query.first(name) {
        Some(wanted) => description.is(name) == (wanted == "true"),
        None => name != "closed" || !description.is(name),
    };
    let at_least = |name: &str, field: &str| {
        let bound = query.first(name).and_then(|text| text.parse::<f64>().ok());
        bound.is_none_or(|bound| description.number(field) >= bound)
    };
    ["active", "closed", "archived"].into_iter().all(flag)
        && any(query, "slug", |slug| match listed {
            Listed::Markets => description.field("slug") == slug,
            Listed::Events => description.field("events")[0]["slug"] == slug,
        })
        && any(query, "condition_ids", |id| description.field("conditionId") == id)
        && any(query, "id", |id| description.field("id") == id)
        && any(query, "clob_token_ids", |id| {
            description.list("clobTokenIds").iter().any(|token| token == id)
        })
        && any(query, "tag_id", |id| description.has_tag(id))
        && any(query, "series_id", |id| description.has_series(id))
        && at_least("volume_num_min", "volumeNum")
        && at_least("liquidity_num_min", "liquidityNum")
}

/// The descriptions of these markets, separated by commas.
fn descriptions(state: &mut State, page: &[usize]) -> String {
    let texts: Vec<String> = page.iter().map(|&place| description_of(state, place)).collect();
    texts.join(",")
}

fn description_of(state: &mut State, place: usize) -> String {
    let market = &mut state.markets[place];
    let description = market.description.as_ref().expect("only described markets are listed");
    if market.hydration_left > 0 {
        market.hydration_left -= 1;
        return description.raw_without_tokens();
    }
    description.raw().to_owned()
}

fn one(state: &mut State, name: &str, is_slug: bool) -> Answer {
    if !is_slug && name.parse::<u64>().is_err() {
        return Answer::status(422, r#"{"type":"validation error","error":"id is invalid"}"#);
    }
    let field = if is_slug { "slug" } else { "id" };
    let found = state.markets.iter().position(|market| {
        market.description.as_ref().is_some_and(|description| description.field(field) == name)
    });
    match found {
        Some(place) => Answer::json(description_of(state, place)),
        None => Answer::status(404, r#"{"type":"not found error","error":"not found"}"#),
    }
}

/// A page of events. Its cursors are places in the list, which is safe because the stand-in's list
/// does not change.
fn events_keyset(state: &mut State, query: &Query) -> Answer {
    const EVENTS_LIMIT_MAX: usize = 500;
    let first: usize =
        query.first("after_cursor").map_or(0, |cursor| cursor.parse().unwrap_or(usize::MAX));
    let limit = query.number("limit").unwrap_or(LIMIT_DEFAULT).min(EVENTS_LIMIT_MAX);
    let all = events(state, query);
    let page: Vec<&Value> = all.iter().skip(first).take(limit).collect();
    let mut body = json!({ "events": page });
    if first.saturating_add(limit) < all.len() {
        body["next_cursor"] = (first + limit).to_string().into();
    }
    Answer::json(body.to_string())
}

/// The events of the markets that match the query, each with its markets.
fn events(state: &mut State, query: &Query) -> Vec<Value> {
    let mut events: Vec<(Value, Vec<usize>)> = Vec::new();
    for (_, place) in rows(state, query, Listed::Events) {
        let description =
            state.markets[place].description.as_ref().expect("only described markets are listed");
        let Some(stub) = description.field("events").get(0) else { continue };
        match events.iter_mut().find(|(known, _)| known["id"] == stub["id"]) {
            Some((_, markets)) => markets.push(place),
            None => events.push((stub.clone(), vec![place])),
        }
    }
    let mut complete = Vec::new();
    for (mut event, markets) in events {
        let texts = markets.iter().map(|&place| description_of(state, place));
        let nested: Vec<Value> = texts.map(|text| serde_json::from_str(&text).unwrap()).collect();
        event["markets"] = Value::Array(nested);
        complete.push(event);
    }
    complete
}
