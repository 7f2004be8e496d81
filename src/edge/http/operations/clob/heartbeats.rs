//! Heartbeats of clients of the venue: after 10 seconds without one, the account's open orders are
//! cancelled.
//!
//! This server's own interface has heartbeats under the same paths, with an interval.

use std::borrow::Cow;

use serde::Deserialize;

use super::{Awaited, object};
use crate::http::call::Call;
use crate::http::error::ClobError;
use paperbourse_core::engine::order::heartbeats::patience_ms;
use paperbourse_exchange::service::ChainedBeat;

/// The interval in milliseconds after which the venue's 10 seconds have passed.
const INTERVAL_MS: u32 = 8_000;

const _: () = assert!(patience_ms(INTERVAL_MS) == 10_000);

/// The body of a heartbeat. Other fields are ignored.
#[derive(Deserialize)]
struct Beat<'a> {
    /// The id that the newest heartbeat got; empty or null for the first.
    #[serde(borrow)]
    heartbeat_id: Option<Cow<'a, str>>,
}

/// Records a heartbeat, which names the one before it unless it is the first.
pub(super) async fn beat(call: &Call<'_>) -> Awaited {
    let sent = call.take_body();
    let previous = previous(&sent)?;
    let service = call.service();
    match service.beat_after(&call.caller, previous.as_deref(), INTERVAL_MS, call.context).await? {
        ChainedBeat::Recorded(id) => Ok(object(|body| body.text("heartbeat_id", &id.to_string()))),
        ChainedBeat::NotNewest(newest) => {
            Err(ClobError::invalid_heartbeat(newest.to_string()).into())
        }
    }
}

/// Records a heartbeat that names no other: an older form, without a body.
pub(super) async fn beat_alone(call: &Call<'_>) -> Awaited {
    call.service().beat(&call.caller, INTERVAL_MS, call.context).await?;
    Ok(object(|body| body.word("status", "ok")))
}

/// Reads the id of the previous heartbeat. The body may be absent.
fn previous(body: &[u8]) -> Result<Option<Cow<'_, str>>, ClobError> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let beat: Beat<'_> = serde_json::from_slice(body).map_err(|_| ClobError::INVALID_PAYLOAD)?;
    Ok(beat.heartbeat_id.filter(|id| !id.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_may_name_another() {
        let read = |body: &'static str| previous(body.as_bytes());
        for body in ["", " ", "{}", r#"{"heartbeat_id":null}"#, r#"{"heartbeat_id":""}"#] {
            assert_eq!(read(body), Ok(None), "{body}");
        }
        for body in [r#"{"heartbeat_id":"a"}"#, r#"{"heartbeat_id":"\u0061","interval_ms":1}"#] {
            assert_eq!(read(body), Ok(Some("a".into())), "{body}");
        }
        for body in ["{", "[]x", r#"{"heartbeat_id":1}"#, "null"] {
            assert_eq!(read(body), Err(ClobError::INVALID_PAYLOAD), "{body}");
        }
    }
}
