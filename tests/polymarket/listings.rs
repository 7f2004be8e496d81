//! Markets that come while the catalogue misbehaves, and ends that only one source tells.

use std::time::Duration;

use paperbourse::market::catalogue::MarketStatus;
use tokio::task::JoinSet;

use crate::auditor::Auditor;
use crate::connector::{Connector, QUICK};
use crate::standin::world::{MarketSeed, condition_id, token_id};
use crate::standin::{Endpoint, EndpointFault, Options, Payout, StandIn, World};

/// Of which two are followed from the start.
const NEW: usize = 2;

fn tokens(market_count: usize) -> Vec<String> {
    (0..market_count).flat_map(|number| [token_id(number, 0), token_id(number, 1)]).collect()
}

async fn start() -> (StandIn, Connector) {
    let venue = StandIn::start(World::invented(NEW), Options::default()).await;
    let connector = Connector::start(&venue, NEW + 1, QUICK);
    connector.until_fresh(&tokens(NEW)).await;
    (venue, connector)
}

/// A market is announced while the catalogue does this; those that are followed notice nothing.
async fn check(what: &'static str, act: impl FnOnce(&StandIn)) {
    let (venue, connector) = start().await;
    let auditor = Auditor::start(connector.markets.clone(), tokens(NEW));
    act(&venue);
    venue.list_market(&MarketSeed::invented(NEW));
    let (first, second) = (token_id(NEW, 0), token_id(NEW, 1));
    let is_followed = || [&first, &second].iter().all(|token| connector.fresh(token).is_some());
    auditor.until(what, is_followed).await;
    assert!(!tokens(NEW).iter().any(|token| auditor.was_unfillable(token)), "{what}");
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
        ("a list that breaks off", EndpointFault::Cut),
        ("a web page", EndpointFault::Garbage),
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
async fn nothing_is_paid_on_the_word_of_one_source() {
    for (what, tell) in [
        ("the socket", (|it| it.tell_resolved(&condition_id(0), 0)) as fn(&StandIn)),
        ("the CLOB", |it| it.resolve_on_clob(&condition_id(0), Payout::Winner(0))),
    ] {
        let (venue, connector) = start().await;
        let lists = || {
            let requests = venue.requests();
            requests.iter().filter(|it| it.path == "/markets/keyset").count()
        };
        tell(&venue);
        let auditor = Auditor::start(connector.markets.clone(), tokens(NEW));
        let before = lists();
        auditor.until("three more lists", || lists() > before + 2).await;
        let market = connector.markets.by_condition(&condition_id(0)).unwrap();
        let info = market.info();
        assert_ne!(info.status, MarketStatus::Resolved, "{what}");
        assert_eq!(info.payouts.len(), 0, "{what}");
    }
}
