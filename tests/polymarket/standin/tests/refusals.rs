//! Endpoints that misbehave.

use std::time::Duration;

use super::super::fault::{Endpoint, EndpointFault};
use super::super::options::Options;
use super::super::world::{condition_id, token_id};
use super::super::{StandIn, World};
use super::client::Asker;

async fn venue() -> (StandIn, Asker) {
    let options = Options { is_tls: false, ..Options::default() };
    let venue = StandIn::start(World::invented(1), options).await;
    let asker = Asker::new(&venue);
    (venue, asker)
}

#[tokio::test]
async fn every_endpoint_refuses_the_given_number_of_requests() {
    let (venue, asker) = venue().await;
    let (gamma, clob, id) = (&venue.gamma_url, &venue.clob_url, condition_id(0));
    let token = token_id(0, 0);
    for (endpoint, url) in [
        (Endpoint::Keyset, format!("{gamma}/markets/keyset?order=id")),
        (Endpoint::Named, format!("{gamma}/markets/keyset?condition_ids={id}")),
        (Endpoint::Events, format!("{gamma}/events/keyset")),
        (Endpoint::Gamma, format!("{gamma}/markets")),
        (Endpoint::Books, format!("{clob}/books")),
        (Endpoint::Book, format!("{clob}/book?token_id={token}")),
        (Endpoint::LongMarket, format!("{clob}/markets/{id}")),
        (Endpoint::CompactMarket, format!("{clob}/clob-markets/{id}")),
        (Endpoint::Clob, format!("{clob}/time")),
        (Endpoint::Upgrade, venue.ws_url.replacen("ws", "http", 1)),
    ] {
        let (before, _) = asker.get(&url).await;
        for (status, retry_after_s) in [(403, None), (425, None), (429, Some(7)), (500, None)] {
            venue.misbehave_at(endpoint, EndpointFault::Refuse { status, retry_after_s }, 2);
            for _ in 0..2 {
                let (answered, headers) = asker.head(&url).await;
                assert_eq!(answered, status, "{endpoint:?}");
                let retry_after = headers.get("retry-after").map(|value| value.to_str().unwrap());
                assert_eq!(retry_after, retry_after_s.map(|_| "7"), "{endpoint:?}");
            }
            assert_eq!(asker.get(&url).await.0, before, "{endpoint:?} has recovered");
        }
    }
    for endpoint in Endpoint::ALL {
        let fault = EndpointFault::Refuse { status: 503, retry_after_s: None };
        venue.misbehave_at(endpoint, fault, u32::MAX);
    }
    assert_eq!(asker.upgrade(&venue.ws_url).await.err(), Some(503));
    venue.behave_at(Endpoint::Upgrade);
    assert!(asker.upgrade(&venue.ws_url).await.is_ok());
}

#[tokio::test]
async fn answers_arrive_late_never_by_half_or_as_something_else() {
    let (venue, asker) = venue().await;
    let url = format!("{}/book?token_id={}", venue.clob_url, token_id(0, 0));
    let whole = asker.get(&url).await.1;

    venue.misbehave_at(Endpoint::Book, EndpointFault::Truncate, 1);
    assert_eq!(asker.get(&url).await, (200, whole[..whole.len() / 2].to_owned()));
    venue.misbehave_at(Endpoint::Book, EndpointFault::Cut, 1);
    assert!(asker.try_get(&url).await.is_none(), "the body breaks off");
    venue.misbehave_at(Endpoint::Book, EndpointFault::Garbage, 1);
    assert!(asker.get(&url).await.1.starts_with("<html>"));

    let delay = Duration::from_millis(40);
    venue.misbehave_at(Endpoint::Book, EndpointFault::Slow(delay), 1);
    let before = std::time::Instant::now();
    assert_eq!(asker.get(&url).await.1, whole);
    assert!(before.elapsed() >= delay);
    venue.misbehave_at(Endpoint::Book, EndpointFault::Silent, 1);
    assert!(tokio::time::timeout(delay, asker.try_get(&url)).await.is_err());
    assert_eq!(asker.get(&url).await.1, whole);
}
