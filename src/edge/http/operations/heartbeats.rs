//! Heartbeats: once they stop, the account's open orders are cancelled.

use schemars::JsonSchema;
use serde::Serialize;

use crate::http::call::{Answer, Call};
use crate::http::fields::{Fields, Range};
use crate::http::invalid::{Invalid, Location, unless_invalid};
use crate::http::json::read::Object;
use crate::http::reply::Reply;
use paperbourse_core::engine::order::heartbeats::INTERVAL_MS;
use paperbourse_core::money::MICROS_PER_UNIT;

/// The interval for clients that do not send one, such as the venue's own clients.
const INTERVAL_MS_DEFAULT: u32 = 10_000;

/// Maximum length of a client's label, in characters.
pub(in crate::http) const LABEL_CHARACTERS_MAX: usize = 64;

pub(in crate::http) async fn beat(call: &Call<'_>) -> Answer {
    let interval_ms = read_beat(&call.take_body())?;
    let silent_at = call.service().beat(&call.caller, interval_ms, call.context).await?;
    Ok(Reply::ok(&BeatAnswer { ok: true, expires_at_ms: silent_at.millis() }))
}

/// Reads the interval. The body may be absent.
fn read_beat(body: &[u8]) -> Result<u32, Invalid> {
    if body.trim_ascii().is_empty() {
        return Ok(INTERVAL_MS_DEFAULT);
    }
    let object = Object::of_body(body)?;
    let mut errors = Vec::new();
    let mut fields = Fields::new(object, Location::body(), &mut errors);
    let interval_ms = match fields.optional("interval_ms") {
        None => Some(INTERVAL_MS_DEFAULT),
        Some(value) => {
            let [min, max] =
                [INTERVAL_MS.start(), INTERVAL_MS.end()].map(|&ms| i64::from(ms) * MICROS_PER_UNIT);
            let range = Range { above: None, min, max };
            let interval_ms = fields.integer("interval_ms", value, &range);
            interval_ms.and_then(|interval_ms| u32::try_from(interval_ms).ok())
        }
    };
    if let Some(label) = fields.optional("client_label") {
        // The label is not used. It is checked so that the client learns that it is too long.
        fields.bounded_text("client_label", label, 0, LABEL_CHARACTERS_MAX);
    }
    unless_invalid(errors, interval_ms)
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Heartbeat")]
pub(in crate::http) struct BeatAnswer {
    ok: bool,
    /// When the open orders are cancelled unless another heartbeat comes, in unix milliseconds.
    expires_at_ms: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;

    #[test]
    fn an_interval_is_within_its_range() {
        for (body, expected) in [
            ("", 10_000),
            ("{}", 10_000),
            (r#"{"heartbeat_id":"a"}"#, 10_000),
            (r#"{"interval_ms":null,"client_label":"bot"}"#, 10_000),
            (r#"{"interval_ms":1000}"#, 1_000),
            (r#"{"interval_ms":"60000"}"#, 60_000),
        ] {
            assert_eq!(read_beat(body.as_bytes()), Ok(expected), "{body}");
        }
        for (body, expected) in [
            (r#"{"interval_ms":999}"#, "body.interval_ms: greater_than_equal"),
            (r#"{"interval_ms":60001}"#, "body.interval_ms: less_than_equal"),
            (r#"{"interval_ms":1500.5}"#, "body.interval_ms: int_from_float"),
            ("[]", "body: model_attributes_type"),
        ] {
            assert_eq!(errors_of(&read_beat(body.as_bytes())), [expected], "{body}");
        }
        let label = format!(r#"{{"client_label":"{}"}}"#, "x".repeat(65));
        assert_eq!(errors_of(&read_beat(label.as_bytes())), ["body.client_label: string_too_long"]);
    }
}
