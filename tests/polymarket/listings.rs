//! Markets that are listed while the catalogue misbehaves, and resolutions that only one source
//! reports.

use std::time::Duration;

use paperbourse::market::catalogue::MarketStatus;
use paperbourse::money::Usd;
use paperbourse::venue::follow::timing::Timing;
use paperbourse::venue::polymarket::filter::MarketFilter;
use serde_json::json;
use tokio::task::JoinSet;

use crate::auditor::Auditor;
use crate::connector::{Connector, QUICK};
use crate::standin::world::{MarketSeed, condition_id, token_id};
use crate::standin::{Endpoint, EndpointFault, Host, Options, Payout, StandIn, World};

/// The number of the new market; the ones before it are followed from the start.
const NEW: usize = 2;

fn tokens(market_count: usize) -> Vec<String> {
    (0..market_count).flat_map(|number| [token_id(number, 0), token_id(number, 1)]).collect()
}

async fn start() -> (StandIn, Connector) {
    start_timed(QUICK).await
}

async fn start_timed(timing: Timing) -> (StandIn, Connector) {
    let venue = StandIn::start(World::invented(NEW), Options::default()).await;
    let connector = Connector::start(&venue, NEW + 1, timing);
    connector.until_fresh(&tokens(NEW)).await;
    (venue, connector)
}

/// If the machine is busy for a second, `QUICK` rightly makes books stale, because nothing has
/// verified them. Here that would hide what a catalogue does to books.
const CALM: Timing =
    Timing { verified_max: Duration::from_mins(2), check_after: Duration::from_mins(1), ..QUICK };

/// Announces a market while the catalogue misbehaves; the markets already followed must not be
/// affected.
async fn check(what: &'static str, act: impl FnOnce(&StandIn)) {
    let (venue, connector) = start_timed(CALM).await;
    let auditor = Auditor::start(connector.markets.clone(), tokens(NEW));
    act(&venue);
    venue.list_market(&MarketSeed::invented(NEW));
    let (first, second) = (token_id(NEW, 0), token_id(NEW, 1));
    let is_followed = || [&first, &second].iter().all(|token| connector.fresh(token).is_some());
    auditor.until(what, is_followed).await;
    let stale: Vec<_> =
        tokens(NEW).into_iter().filter(|token| auditor.was_unfillable(token)).collect();
    assert_eq!(stale, [""; 0], "{what}: {:?}", connector.status());
    let (_, complaints) = auditor.complaints(&venue, Duration::ZERO);
    assert_eq!((complaints, venue.violations()), (vec![], vec![]), "{what}");
}

#[tokio::test]
async fn a_new_market_is_followed_whatever_the_catalogue_does_first() {
    let refused = |status| EndpointFault::Refuse { status, retry_after_s: None };
    let mut checking = JoinSet::new();
    for (what, fault) in [
        ("429", refused(429)),
        ("403", refused(403)),
        ("425", refused(425)),
        ("500", refused(500)),
        ("429, Retry-After: 1", EndpointFault::Refuse { status: 429, retry_after_s: Some(1) }),
        ("a slow list", EndpointFault::Slow(Duration::from_millis(600))),
        ("no list", EndpointFault::Silent),
        ("half a list", EndpointFault::Truncate),
        ("a list that is cut off", EndpointFault::Cut),
        ("a web page", EndpointFault::Garbage),
        ("429 until a given time", EndpointFault::RefuseUntil { seconds: 1 }),
        ("a decompression bomb", EndpointFault::Bomb),
        ("a list that is labelled gzip", EndpointFault::NotGzip),
    ] {
        checking.spawn(check(what, move |it| it.misbehave_at(Endpoint::Keyset, fault, 2)));
    }
    checking.spawn(check("nothing wrong", |_| {}));
    while let Some(checked) = checking.join_next().await {
        checked.unwrap();
    }
}

#[tokio::test]
async fn a_market_without_tokens_waits_for_them() {
    let (venue, connector) = start().await;
    let id = condition_id(NEW);
    venue.list_market(&MarketSeed::invented(NEW));
    venue.hydrate_after(&id, 3);
    connector.until_fresh(&tokens(NEW + 1)).await;
    let market = connector.markets.by_condition(&id).unwrap();
    assert_eq!(market.info().status, MarketStatus::Open);
}

/// Each source alone may be wrong, or early.
#[tokio::test]
async fn one_source_alone_pays_nothing() {
    for (what, act) in [
        ("the socket", (|it| it.announce_resolved(&condition_id(0), 0)) as fn(&StandIn)),
        ("the CLOB", |it| it.resolve_on_clob(&condition_id(0), Payout::Winner(0))),
    ] {
        let (venue, connector) = start().await;
        act(&venue);
        let auditor = Auditor::start(connector.markets.clone(), tokens(NEW));
        let before = lists(&venue);
        auditor.until("three more lists", || lists(&venue) > before + 2).await;
        let market = connector.markets.by_condition(&condition_id(0)).unwrap();
        let info = market.info();
        assert_ne!(info.status, MarketStatus::Resolved, "{what}");
        assert_eq!(info.payouts.len(), 0, "{what}");
    }
}

/// The number of requests for this path whose query contains `part`.
fn requested(venue: &StandIn, path: &str, part: &str) -> usize {
    let requests = venue.requests();
    requests.iter().filter(|it| it.path == path && it.query.contains(part)).count()
}

fn lists(venue: &StandIn) -> usize {
    requested(venue, "/markets/keyset", "order=volume24hr")
        - requested(venue, "/markets/keyset", "after_cursor=")
}

#[tokio::test]
async fn markets_are_requested_by_keyset_and_compressed() {
    let (venue, connector) = start().await;
    venue.resolve(&condition_id(0), Payout::Winner(0));
    let status = |it: &Connector, number| {
        it.markets.by_condition(&condition_id(number)).unwrap().info().status
    };
    connector.until("the end", |it| status(it, 0) == MarketStatus::Resolved).await;
    assert_eq!(venue.violations(), [""; 0]);
    let requests = venue.requests();
    assert!(requests.iter().any(|it| it.query.contains("condition_ids=")), "{requests:?}");
    let plain: Vec<_> =
        requests.iter().filter(|it| it.host != Host::Socket && !it.takes_gzip).collect();
    assert!(plain.is_empty(), "{plain:?}");
}

#[tokio::test]
async fn a_list_ends_where_the_volume_does() {
    /// Three pages, the first of which holds every market with enough volume.
    const MARKET_COUNT: usize = 250;
    let venue = StandIn::start(World::invented(MARKET_COUNT), Options::default()).await;
    // The invented markets 0 to 3 have this volume.
    let filter = MarketFilter {
        count_max: MARKET_COUNT,
        volume_24h_min: Some(Usd::from_micros(250_000_000_000)),
        ..MarketFilter::default()
    };
    let connector = Connector::start_filtered(&venue, filter, QUICK);
    connector.until_fresh(&tokens(4)).await;
    connector.until("two more lists", |_| lists(&venue) > 2).await;
    assert_eq!(requested(&venue, "/markets/keyset", "after_cursor="), 0);
    assert_eq!(connector.markets.listing().markets().len(), 4);
}

#[tokio::test]
async fn an_older_description_changes_nothing() {
    let (venue, connector) = start().await;
    let describe = |question: &str, updated_at: &str| {
        venue.describe(&condition_id(0), |fields| {
            fields.insert("question".into(), question.into());
            fields.insert("updatedAt".into(), updated_at.into());
        });
    };
    let question = |it: &Connector| {
        it.markets.by_condition(&condition_id(0)).unwrap().info().question.clone().unwrap()
    };
    describe("newer?", "2026-01-11T00:00:00Z");
    connector.until("the newer one", |it| &*question(it) == "newer?").await;
    describe("older?", "2026-01-10T23:59:59Z");
    let before = lists(&venue);
    connector.until("three more lists", |_| lists(&venue) > before + 3).await;
    assert_eq!(&*question(&connector), "newer?");
    // A timestamp from the future does not shut out all later descriptions.
    describe("from the future?", "2200-01-01T00:00:00Z");
    connector.until("the one from the future", |it| &*question(it) == "from the future?").await;
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(2);
    describe("newest?", &later.to_string());
    connector.until("the newest", |it| &*question(it) == "newest?").await;
}

/// No list is requested in time: the announcement has to suffice.
const SELDOM: Timing = Timing { refresh_interval: Duration::from_hours(1), ..QUICK };

#[tokio::test]
async fn a_market_is_followed_when_it_is_announced() {
    let tag = |id: &str| vec![id.to_owned()];
    // Market 3 has tag 4 and belongs to series 501.
    for (what, filter, is_followed) in [
        ("there is room", MarketFilter { count_max: 4, ..MarketFilter::default() }, true),
        ("no room", MarketFilter { count_max: 3, ..MarketFilter::default() }, false),
        ("its tag", MarketFilter { count_max: 9, tags: tag("4"), ..MarketFilter::default() }, true),
        ("no tag", MarketFilter { count_max: 9, tags: tag("1"), ..MarketFilter::default() }, false),
        (
            "its series",
            MarketFilter { count_max: 9, series: tag("501"), ..MarketFilter::default() },
            true,
        ),
        (
            "another series",
            MarketFilter { count_max: 9, series: tag("500"), ..MarketFilter::default() },
            false,
        ),
    ] {
        let mut world = World::invented(3);
        // Markets with every tag and series, so that a socket is open that receives announcements.
        for (number, seed) in world.markets.iter_mut().enumerate() {
            seed.describe(|fields| {
                let event = &mut fields["events"][0];
                event["tags"] = json!([{"id": "1"}, {"id": "4"}]);
                event["series"] = json!([{"id": "500"}, {"id": "501"}]);
                event["id"] = json!(number.to_string());
            });
        }
        let venue = StandIn::start(world, Options::default()).await;
        let connector = Connector::start_filtered(&venue, filter, SELDOM);
        connector.until_fresh(&tokens(3)).await;
        venue.list_market(&MarketSeed::invented(3));
        if is_followed {
            connector.until_fresh(&[token_id(3, 0), token_id(3, 1)]).await;
        } else {
            // The connector handles the announcement before this resolution.
            venue.describe(&condition_id(0), |fields| {
                fields.insert("question".into(), "later?".into());
            });
            venue.announce_resolved(&condition_id(0), 0);
            connector
                .until("a later message", |it| {
                    let market = it.markets.by_condition(&condition_id(0)).unwrap();
                    market.info().question.as_deref() == Some("later?")
                })
                .await;
            assert!(connector.markets.by_condition(&condition_id(3)).is_none(), "{what}");
        }
    }
}

/// The venue announces a market before its catalogue has the tokens, and before any trade, so no
/// list by volume contains it.
#[tokio::test]
async fn an_announced_market_is_requested_until_it_has_tokens() {
    let venue = StandIn::start(World::invented(13), Options::default()).await;
    // The tag selects markets 0, 4, 8 and 12; the limit is three.
    let tags = vec!["1".to_owned()];
    let filter = MarketFilter { count_max: 3, tags, ..MarketFilter::default() };
    let connector = Connector::start_filtered(&venue, filter, QUICK);
    connector.until_fresh(&[token_id(0, 0), token_id(4, 0), token_id(8, 0)]).await;
    let mut seed = MarketSeed::invented(16);
    seed.describe(|fields| drop(fields.insert("volume24hr".into(), 0.into())));
    venue.list_market(&seed);
    venue.hydrate_after(&condition_id(16), 2);
    connector.until_fresh(&[token_id(16, 0), token_id(16, 1)]).await;
}

#[tokio::test]
async fn a_family_of_markets_is_followed() {
    let venue = StandIn::start(World::invented(9), Options::default()).await;
    let filter = MarketFilter {
        count_max: 9,
        series: vec!["500".to_owned(), "502".to_owned()],
        ..MarketFilter::default()
    };
    let connector = Connector::start_filtered(&venue, filter, QUICK);
    let wanted = [0, 1, 2, 6, 7, 8];
    let tokens: Vec<String> =
        wanted.into_iter().flat_map(|number| [token_id(number, 0), token_id(number, 1)]).collect();
    connector.until_fresh(&tokens).await;
    assert_eq!(connector.markets.listing().markets().len(), wanted.len());
}

#[tokio::test]
async fn books_are_requested_if_the_venue_sends_none_by_default() {
    let options = Options { dumps_unasked: false, ..Options::default() };
    let venue = StandIn::start(World::invented(NEW), options).await;
    let patient = Timing { sync_timeout: Duration::from_hours(1), ..QUICK };
    let connector = Connector::start(&venue, NEW + 1, patient);
    connector.until_fresh(&tokens(NEW)).await;
    venue.list_market(&MarketSeed::invented(NEW));
    connector.until_fresh(&tokens(NEW + 1)).await;
}

#[tokio::test]
async fn a_false_resolution_is_retracted() {
    let (venue, connector) = start().await;
    let status = |it: &Connector| it.markets.by_condition(&condition_id(0)).unwrap().info().status;
    venue.announce_resolved(&condition_id(0), 0);
    connector.until("closed", |it| status(it) == MarketStatus::Closed).await;
    // Descriptions from before do not retract it, however often they are repeated.
    let before = lists(&venue);
    connector.until("three more lists", |_| lists(&venue) > before + 3).await;
    assert_eq!(status(&connector), MarketStatus::Closed);
    let later = jiff::Timestamp::now() + QUICK.retraction_after + Duration::from_millis(1);
    venue.describe(&condition_id(0), |fields| {
        fields.insert("updatedAt".into(), later.to_string().into());
    });
    connector.until_fresh(&tokens(NEW)).await;
    assert_eq!(status(&connector), MarketStatus::Open);
    // The false announcement does not contradict the real resolution later.
    venue.resolve(&condition_id(0), Payout::Winner(1));
    connector.until("resolved", |it| status(it) == MarketStatus::Resolved).await;
    let market = connector.markets.by_condition(&condition_id(0)).unwrap();
    let payouts: Vec<String> = market.info().payouts.iter().map(ToString::to_string).collect();
    assert_eq!(payouts, ["0", "1"]);
}

/// The venue trades it, and tells its users not to: what it stands for may change.
#[tokio::test]
async fn a_market_for_what_has_no_name_is_listed_and_takes_no_orders() {
    let mut world = World::invented(3);
    world.markets[1].describe(|fields| drop(fields.insert("negRiskOther".into(), true.into())));
    world.markets[2].describe(|fields| {
        fields.insert("groupItemTitle".into(), "Person A".into());
        fields["events"][0]["negRiskAugmented"] = true.into();
    });
    let venue = StandIn::start(world, Options::default()).await;
    let connector = Connector::start(&venue, 3, CALM);
    connector.until_fresh(&tokens(3)).await;
    let stage = |it: &Connector, number| {
        let market = it.markets.by_condition(&condition_id(number)).unwrap();
        let info = market.info();
        (info.status, info.is_tradable())
    };
    let stages = [0, 1, 2].map(|number| stage(&connector, number));
    let paused = (MarketStatus::Paused, false);
    assert_eq!(stages, [(MarketStatus::Open, true), paused, paused]);
    // It gets a name.
    venue.describe(&condition_id(2), |fields| {
        fields.insert("groupItemTitle".into(), "Ada Quill".into());
    });
    connector.until("a name", |it| stage(it, 2) == (MarketStatus::Open, true)).await;
}
