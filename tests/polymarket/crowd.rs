//! Many markets: several sockets, and the venue's limits.

use std::time::Duration;

use paperbourse::venue::follow::timing::Timing;

use crate::auditor::{Auditor, SLACK, levels_of, levels_of_state};
use crate::connector::{Connector, QUICK};
use crate::standin::world::token_id;
use crate::standin::{
    Endpoint, EndpointFault, Fault, Options, RequestSeen, StandIn, Which, World, now_us,
};

/// Five sockets.
const MARKET_COUNT: usize = 450;

/// The rate limit of the book endpoint, and the burst it allows.
const BOOKS_PER_SECOND: u64 = 5;
const BOOKS_AT_ONCE: u64 = 10;

fn tokens() -> Vec<String> {
    (0..MARKET_COUNT).flat_map(|number| [token_id(number, 0), token_id(number, 1)]).collect()
}

async fn start(timing: Timing) -> (StandIn, Connector) {
    let venue = StandIn::start(World::invented(MARKET_COUNT), Options::default()).await;
    let connector = Connector::start(&venue, MARKET_COUNT, timing);
    connector.until_fresh(&tokens()).await;
    (venue, connector)
}

/// When the requests for this endpoint arrived, in microseconds since this moment.
fn arrivals(venue: &StandIn, endpoint: Endpoint, since_us: u64) -> Vec<u64> {
    let is_wanted =
        |seen: &RequestSeen| Endpoint::of(seen.host, &seen.path, &seen.query) == endpoint;
    let mut arrivals: Vec<u64> = venue
        .requests()
        .iter()
        .filter(|seen| is_wanted(seen) && seen.at_us >= since_us)
        .map(|seen| seen.at_us - since_us)
        .collect();
    arrivals.sort_unstable();
    arrivals
}

#[tokio::test]
async fn a_lost_socket_affects_no_other() {
    // Books that do not change would expire if the machine were too busy to request all of them in
    // time.
    let (verified_max, check_after) = (Duration::from_mins(1), Duration::from_secs(30));
    let (venue, connector) = start(Timing { verified_max, check_after, ..QUICK }).await;
    let mut sizes: Vec<usize> = venue.sockets().into_iter().map(|(_, count)| count).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [100, 200, 200, 200, 200]);
    let some: Vec<String> = tokens().into_iter().step_by(45).collect();
    let lost = venue.sockets_of(&some[0]);
    assert!(
        tokens().iter().all(|token| venue.sockets_of(token).len() == 1),
        "each token has one socket"
    );
    let (own, others): (Vec<_>, Vec<_>) =
        some.iter().partition(|token| venue.sockets_of(token) == lost);
    assert!(own.len() >= 4 && others.len() >= 15);
    let auditor = Auditor::start(connector.markets.clone(), some.clone());
    venue.misbehave(Which::One(lost[0]), Fault::Drop);
    auditor.until("a loss", || own.iter().all(|token| auditor.was_unfillable(token))).await;
    let is_back = || own.iter().all(|token| connector.fresh(token).is_some());
    auditor.until("another connection", is_back).await;
    assert!(!others.iter().any(|token| auditor.was_unfillable(token)));
    assert_eq!(venue.violations(), [""; 0]);
}

/// The venue's weekly restart: all sockets end at once, and upgrades are refused for a while.
#[tokio::test]
async fn sockets_reconnect_one_by_one() {
    const REFUSALS: u32 = 10;
    let timing = Timing { connect_spacing: Duration::from_millis(40), ..QUICK };
    let spacing_us = u64::try_from(timing.connect_spacing.as_micros()).unwrap();
    let (venue, connector) = start(timing).await;
    let socket_count = venue.sockets().len();
    let restart = EndpointFault::Refuse { status: 425, retry_after_s: None };
    venue.misbehave_at(Endpoint::Upgrade, restart, REFUSALS);
    let dropped_us = now_us();
    venue.misbehave(Which::Open, Fault::Drop);
    connector.until("the loss", |it| it.status().connections_lost > u64::from(REFUSALS)).await;
    connector.until_fresh(&tokens()).await;
    let arrivals = arrivals(&venue, Endpoint::Upgrade, dropped_us);
    // On a busy machine, a socket may be slow enough to be given up once more.
    let expected = socket_count + REFUSALS as usize;
    assert!((expected..=expected + socket_count).contains(&arrivals.len()), "{arrivals:?}");
    // One that was given up before may have been about to connect.
    for (before, arrival) in (0..).zip(&arrivals) {
        assert!(*arrival >= before * spacing_us, "a herd: {arrivals:?}");
    }
}

#[tokio::test]
async fn book_requests_stay_within_the_budget() {
    let begun_us = now_us();
    let timing = Timing {
        // All books must be live at once, before all were requested.
        verified_max: Duration::from_mins(1),
        check_after: Duration::from_millis(1),
        book_request_pause: Duration::from_millis(1),
        ..QUICK
    };
    let (venue, connector) = start(timing).await;
    let wanted = usize::try_from(BOOKS_AT_ONCE + 2 * BOOKS_PER_SECOND).unwrap();
    let requested = || arrivals(&venue, Endpoint::Books, begun_us);
    let auditor = Auditor::start(connector.markets.clone(), Vec::new());
    auditor.until("more requests than fit", || requested().len() > wanted).await;
    let requested = requested();
    let slack_us = u64::try_from(SLACK.as_micros()).unwrap();
    for (count, arrival) in (1..).zip(&requested) {
        let elapsed_us = arrival - requested[0] + slack_us;
        let allowed = BOOKS_AT_ONCE + BOOKS_PER_SECOND * elapsed_us / 1_000_000;
        assert!(count <= allowed, "{count} requests, {allowed} allowed: {requested:?}");
    }
    let most = venue.requests().iter().map(|seen| seen.token_count).max();
    assert_eq!(most, Some(100), "a request names as many books as fit");
}

/// More frames at once than the queue holds: whatever is dropped, the books shown are right.
#[tokio::test]
async fn a_flood_leaves_the_venues_books() {
    let venue = StandIn::start(World::invented(3), Options::default()).await;
    let connector = Connector::start(&venue, 3, QUICK);
    let tokens = &tokens()[..6];
    connector.until_fresh(tokens).await;
    let auditor = Auditor::start(connector.markets.clone(), tokens.to_vec());
    venue.walk(1, 5_000);
    let last = tokens.iter().map(|token| venue.published(token).pop().unwrap());
    let last: Vec<_> = tokens.iter().zip(last.map(|state| levels_of_state(&state))).collect();
    let is_current = || {
        last.iter().all(|(token, levels)| {
            connector.fresh(token).is_some_and(|book| levels_of(&book) == *levels)
        })
    };
    auditor.until("the venue's books", is_current).await;
    let (_, complaints) = auditor.complaints(&venue, QUICK.lag_max);
    assert_eq!(complaints, [""; 0]);
}
