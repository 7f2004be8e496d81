//! Observes the venue for a while on behalf of a [`Doctor`], as the connector would: requests
//! descriptions and books, and listens to one socket. It only reads, and has its own limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::{HeaderMap, Uri};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::budget::Budget;
use super::rest::{COMPACT_PATH, Encoded, PageObject, RESOLUTIONS_PATH, books_wanted, read_page};
use super::socket::{Handle, Lost};
use super::{Event, LiveConfig, stamp};
use crate::client::{self, Client, ClientError};
use crate::polymarket::doctor::{
    Answered, Asked, Doctor, Effort, Failure, Headers, Report, Sample, Seen, Service,
};
use crate::polymarket::wire::{Description, clob, gamma};
use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::limits::bucket::{BucketRule, BucketRuleError};
use paperbourse_core::market::catalogue::MarketStatus;

/// Maximum number of requests in a run, including the upgrade to a socket.
pub const REQUESTS_MAX: u32 = 150;

/// Maximum duration of a run.
pub const DURATION_MAX: Duration = Duration::from_secs(55);

/// Maximum size of an answer. A page of 100 markets has about 2 MB.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Maximum wait for an answer. The wait is shorter in a short run, so that a service that does not
/// answer is noticed.
const PATIENCE_MAX: Duration = Duration::from_secs(10);

/// Maximum time that a statement from the socket may wait for the message that explains it. The
/// time is shorter in a short run. A trade is reported a fifth of a second after the book that it
/// changed.
const GRACE_MAX: Duration = Duration::from_secs(1);

/// Maximum number of queued frames, and their maximum total size in bytes.
const FRAMES_MAX: usize = 8_192;
const FRAME_BYTES_MAX: usize = 16 << 20;

/// Maximum number of steps queued for the doctor.
const STEPS_MAX: usize = 16;

/// A small part of each service's limit, the lowest of which is 300 requests in 10 s.
const RULE: Result<BucketRule, BucketRuleError> = BucketRule::per_second(10, 40);

/// Number of markets per page: the maximum that Gamma allows.
const PAGE_MARKETS: usize = 100;

/// Maximum number of markets whose books are requested and whose tokens are subscribed to.
const MARKETS_HEARD_MAX: usize = 40;

/// Maximum number of markets whose descriptions by Gamma and the CLOB service are compared.
const MARKETS_COMPARED_MAX: usize = 24;

/// Maximum number of closed markets that are looked up in all services.
const MARKETS_CLOSED_MAX: usize = 5;

/// Time between two requests for the books.
const BOOKS_INTERVAL: Duration = Duration::from_secs(10);

/// Observes the venue for `duration`, at most [`DURATION_MAX`], and returns the report and samples.
pub async fn look(config: LiveConfig, duration: Duration) -> (Report, Vec<Sample>) {
    let duration = duration.min(DURATION_MAX);
    let began = Instant::now();
    let config = Arc::new(config);
    let (steps, mut received_steps) = mpsc::channel(STEPS_MAX);
    let (events, mut received_events) = mpsc::channel(FRAMES_MAX);
    let asker = Asker::new(&config, duration, steps);
    let bytes = Arc::new(Semaphore::new(FRAME_BYTES_MAX));
    let mut doctor = Doctor::new(GRACE_MAX.min(duration / 8));
    let mut socket: Option<Handle> = None;
    let mut token_count = 0;
    let mut is_open = false;
    {
        let mut asking = std::pin::pin!(ask_all(&asker));
        let mut is_asking = true;
        let over = tokio::time::sleep(duration);
        let mut over = std::pin::pin!(over);
        while is_asking || socket.is_some() {
            tokio::select! {
                () = &mut over => break,
                // The requests end only after their steps are in the channel, which is drained
                // below.
                Some(step) = received_steps.recv() => match step {
                    Step::Saw(seen) => doctor.observe(&seen),
                    Step::Listen(tokens) => {
                        token_count = tokens.len();
                        let (config, bytes) = (config.clone(), bytes.clone());
                        let handle = Handle::open(0, config, Arc::default(), bytes, events.clone());
                        handle.want(tokens.into());
                        socket = Some(handle);
                    }
                },
                Some(event) = received_events.recv(), if socket.is_some() => match event {
                    Event::Opened { .. } => {
                        is_open = true;
                        doctor.observe(&Seen::Opened { token_count, at: Timestamp::now() });
                    }
                    Event::Frame(frame) => {
                        let at = stamp(began, frame.at).time;
                        doctor.observe(&Seen::Frame { text: frame.text, at });
                    }
                    Event::Lost { lost, .. } => {
                        // The socket would reconnect, and a reconnect counts as a request too.
                        socket = None;
                        doctor.observe(&seen_lost(is_open, &lost));
                    }
                    _ => {}
                },
                _ = &mut asking, if is_asking => is_asking = false,
            }
        }
    }
    while let Ok(step) = received_steps.try_recv() {
        if let Step::Saw(seen) = step {
            doctor.observe(&seen);
        }
    }
    let request_count = asker.request_count.load(Ordering::Relaxed);
    doctor.finish(Timestamp::now(), Effort { request_count, elapsed: began.elapsed() })
}

fn seen_lost(is_open: bool, lost: &Lost) -> Seen {
    if is_open {
        return Seen::Lost { why: lost.to_string() };
    }
    let failure = match lost {
        Lost::Handshake(super::handshake::HandshakeError::Status(status)) => {
            Failure::Status(status.as_u16())
        }
        lost => Failure::Unreachable(lost.to_string()),
    };
    Seen::Failed { service: Service::Socket, asked: None, failure }
}

/// A message from the [`Asker`] to the loop of [`look`].
enum Step {
    /// Pass an observation to the doctor.
    Saw(Seen),
    /// Subscribe to these tokens.
    Listen(Vec<Arc<str>>),
}

/// Sends requests and passes the answers on.
struct Asker {
    client: Client,
    /// The base addresses of Gamma, the CLOB service and the data API, without a trailing slash.
    bases: [String; 3],
    budget: Budget,
    request_count: AtomicU32,
    steps: mpsc::Sender<Step>,
}

/// The run is over, or has used up its requests.
struct Over;

impl Asker {
    fn new(config: &LiveConfig, duration: Duration, steps: mpsc::Sender<Step>) -> Self {
        let base = |uri: &Uri| uri.to_string().trim_end_matches('/').to_owned();
        let patience = PATIENCE_MAX.min(config.timing.answer_timeout).min(duration / 2);
        let rule = RULE.expect("the built-in rate is within bounds");
        Self {
            client: Client::new((*config.tls).clone(), patience, 1),
            bases: [base(&config.gamma), base(&config.clob), base(&config.data)],
            budget: Budget::new(rule, config.timing.refusals),
            request_count: AtomicU32::new(0),
            steps,
        }
    }

    /// Requests a document. Returns its body; `None` without a usable answer.
    async fn get(
        &self,
        service: Service,
        asked: Asked,
        address: &str,
    ) -> Result<Option<Arc<str>>, Over> {
        self.request(service, asked, address, None).await
    }

    async fn request(
        &self,
        service: Service,
        asked: Asked,
        address: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Option<Arc<str>>, Over> {
        self.count()?;
        self.budget.ready().await;
        let base = match service {
            Service::Gamma => &self.bases[0],
            Service::Data => &self.bases[2],
            Service::Clob | Service::Socket => &self.bases[1],
        };
        let sent_at = Timestamp::now();
        let answer = match format!("{base}{address}").parse() {
            Err(_) => Err(Failure::Unreachable("not an address".to_owned())),
            Ok(uri) => self.send(uri, body).await.map_err(failure),
        };
        let received_at = Timestamp::now();
        let (seen, body) = match answer {
            Err(failure) => (Seen::Failed { service, asked: Some(asked), failure }, None),
            Ok((headers, bytes)) => {
                let body: Arc<str> = String::from_utf8_lossy(&bytes).into();
                let path = address.split('?').next().unwrap_or_default().to_owned();
                let headers = headers_of(&headers);
                let kept = body.clone();
                let answered =
                    Answered { service, asked, path, headers, sent_at, received_at, body };
                (Seen::Answered(answered), Some(kept))
            }
        };
        self.saw(seen).await?;
        Ok(body)
    }

    async fn send(
        &self,
        uri: Uri,
        body: Option<Vec<u8>>,
    ) -> Result<(HeaderMap, Bytes), ClientError> {
        match body {
            None => self.client.get_with_headers(uri, ANSWER_BYTES_MAX).await,
            Some(body) => {
                let json = "application/json";
                self.client.post_with_headers(uri, json, body, ANSWER_BYTES_MAX).await
            }
        }
    }

    /// Counts a request. Fails if [`REQUESTS_MAX`] have been sent.
    fn count(&self) -> Result<(), Over> {
        if self.request_count.fetch_add(1, Ordering::Relaxed) < REQUESTS_MAX {
            return Ok(());
        }
        self.request_count.store(REQUESTS_MAX, Ordering::Relaxed);
        Err(Over)
    }

    async fn saw(&self, seen: Seen) -> Result<(), Over> {
        self.steps.send(Step::Saw(seen)).await.map_err(|_| Over)
    }
}

fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Status { status, .. } | ClientError::Redirect { status } => {
            Failure::Status(status.as_u16())
        }
        error => Failure::Unreachable(error.to_string()),
    }
}

fn headers_of(headers: &HeaderMap) -> Headers {
    let date = client::date(headers).and_then(|date| {
        let nanos = i64::try_from(date.as_nanosecond()).ok()?;
        Some(Timestamp::from_nanos(nanos))
    });
    let is_limit = |name: &str| name.contains("ratelimit") || name.contains("rate-limit");
    let limits = headers.iter().filter(|(name, _)| is_limit(name.as_str()));
    let rate_limits = limits.filter_map(|(name, value)| {
        let value: String = value.to_str().ok()?.chars().take(40).collect();
        Some((name.as_str().to_owned(), value))
    });
    Headers { date, rate_limits: rate_limits.take(8).collect() }
}

/// Sends every request once, and then requests the books repeatedly.
async fn ask_all(asker: &Asker) -> Result<(), Over> {
    asker.get(Service::Clob, Asked::Time, "/time").await?;
    let markets = list(asker).await?;
    let is_heard = |it: &&Description| it.info.status == MarketStatus::Open;
    let mut heard: Vec<&Description> = markets.iter().filter(is_heard).collect();
    // Put markets of unusual kinds first, since there are few of them.
    heard.sort_by_key(|it| !is_unusual(it));
    heard.truncate(MARKETS_HEARD_MAX);
    let tokens: Vec<Arc<str>> =
        heard.iter().flat_map(|it| &it.info.outcomes).map(|it| it.token_id.clone()).collect();
    let with_books = books(asker, &tokens).await?;
    if !with_books.is_empty() {
        asker.count()?;
        asker.steps.send(Step::Listen(with_books)).await.map_err(|_| Over)?;
    }
    for market in heard.iter().take(MARKETS_COMPARED_MAX) {
        let address = format!("{COMPACT_PATH}{}", condition::wide(&market.info.condition_id));
        asker.get(Service::Clob, Asked::Compact, &address).await?;
    }
    closed(asker).await?;
    loop {
        tokio::time::sleep(BOOKS_INTERVAL).await;
        books(asker, &tokens).await?;
    }
}

/// Returns whether a market is of a rare kind: traded under version 2 of the protocol, an
/// up-or-down market, or with a delay.
fn is_unusual(market: &Description) -> bool {
    let info = &market.info;
    let is_v2 = info.condition_id.len() < condition::wide(&info.condition_id).len();
    let is_up_or_down = info.outcomes.iter().any(|outcome| *outcome.label == *"Up");
    is_v2 || is_up_or_down || info.taker_delay_ms > 0
}

/// Lists open markets: the most traded of the day, those that end soonest, and those of version 2.
async fn list(asker: &Asker) -> Result<Vec<Description>, Over> {
    let mut markets: Vec<Description> = Vec::new();
    let mut add = |body: &str| {
        let page = read_page(body.as_bytes()).ok();
        for market in page.iter().flat_map(|page| &page.markets).flatten() {
            let is_known = |it: &Description| it.info.condition_id == market.info.condition_id;
            if !markets.iter().any(is_known) {
                markets.push(market.clone());
            }
        }
        page.and_then(|page| page.next_cursor)
    };
    let open = "/markets/keyset?active=true&closed=false";
    let traded = format!("{open}&limit={PAGE_MARKETS}&order=volume24hr&ascending=false");
    let page = |after| Asked::Page { limit: PAGE_MARKETS, after };
    let body = asker.get(Service::Gamma, page(None), &traded).await?;
    let cursor = body.as_deref().and_then(&mut add);
    if let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty() && cursor != "LTE=") {
        let next = format!("{traded}&after_cursor={}", Encoded(&cursor));
        let body = asker.get(Service::Gamma, page(Some(cursor)), &next).await?;
        body.as_deref().and_then(&mut add);
    }
    let now = Timestamp::from_seconds(Timestamp::now().seconds());
    let soonest = format!("{open}&limit=20&order=endDate&ascending=true&end_date_min={now}");
    for address in [soonest, format!("{open}&limit=20&version=v2")] {
        let asked = Asked::Markets { is_optional: true };
        let body = asker.get(Service::Gamma, asked, &address).await?;
        body.as_deref().and_then(&mut add);
    }
    Ok(markets)
}

/// Requests the books of these tokens, and returns the tokens that have one.
async fn books(asker: &Asker, tokens: &[Arc<str>]) -> Result<Vec<Arc<str>>, Over> {
    if tokens.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = Some(books_wanted(tokens));
    let body = asker.request(Service::Clob, Asked::Books, "/books", wanted).await?;
    let Some(body) = body else { return Ok(Vec::new()) };
    let rows = clob::books(&body).unwrap_or_default();
    Ok(rows.into_iter().flatten().map(|book| book.asset_id.into()).collect())
}

/// Looks up recently closed markets in all services.
async fn closed(asker: &Asker) -> Result<(), Over> {
    let address = "/markets/keyset?closed=true&limit=20&order=closed_time&ascending=false";
    let asked = Asked::Markets { is_optional: true };
    let Some(body) = asker.get(Service::Gamma, asked, address).await? else { return Ok(()) };
    let Ok(page) = serde_json::from_str::<PageObject<'_>>(&body) else { return Ok(()) };
    for row in page.markets.0.into_iter().take(MARKETS_CLOSED_MAX) {
        let gamma = row.get().to_owned();
        let Ok(market) = gamma::market(&gamma) else { continue };
        let id = condition::wide(&market.info.condition_id);
        let long = format!("/markets/{id}");
        let clob = asker.get(Service::Clob, Asked::Long, &long).await?;
        let resolution = format!("{RESOLUTIONS_PATH}?condition={id}");
        let data = asker.get(Service::Data, Asked::Resolution, &resolution).await?;
        asker.saw(Seen::Closed { gamma, clob, data }).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::timing::Timing;
    use crate::polymarket::filter::MarketFilter;
    use crate::tls::{Roots, client_config};

    #[tokio::test]
    async fn there_is_a_limit_for_requests() {
        let addresses = [(); 4].map(|()| Uri::from_static("http://127.0.0.1:9"));
        let tls = client_config(Roots::Nobody).unwrap();
        let config = LiveConfig::new(addresses, tls, MarketFilter::default(), Timing::VENUE);
        let (steps, _received) = mpsc::channel(STEPS_MAX);
        let asker = Asker::new(&config, DURATION_MAX, steps);
        for _ in 0..REQUESTS_MAX {
            assert!(asker.count().is_ok());
        }
        assert!(asker.count().is_err() && asker.count().is_err());
        assert_eq!(asker.request_count.load(Ordering::Relaxed), REQUESTS_MAX);
        assert!(asker.get(Service::Clob, Asked::Time, "/time").await.is_err());
    }

    #[test]
    fn only_headers_about_limits_are_kept() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("date", "Sat, 28 Nov 2026 14:00:00 GMT"),
            ("set-cookie", "a=b"),
            ("poly-ratelimit-remaining", "7"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let kept = headers_of(&headers);
        assert_eq!(kept.date, Some(Timestamp::from_seconds(1_795_874_400)));
        assert_eq!(kept.rate_limits, [("poly-ratelimit-remaining".into(), "7".into())]);
    }
}
