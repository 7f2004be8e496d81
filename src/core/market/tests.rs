use super::*;
use crate::ids::Timestamp;
use crate::market::book::{Ladder, Level, Side};
use crate::market::catalogue::{MarketStatus, Outcome};
use crate::money::{Price, Shares, Usd};

fn info(condition_id: &str, status: MarketStatus) -> MarketInfo {
    let outcomes = ["Yes", "No"].map(|label| Outcome {
        label: label.into(),
        token_id: format!("{condition_id}-{label}").into(),
    });
    MarketInfo { status, ..MarketInfo::bare(condition_id, outcomes) }
}

fn book(bid_micros: i64) -> Arc<Book> {
    let bid = Level { price: Price::from_micros(bid_micros), size: Shares::from_micros(1_000_000) };
    Arc::new(Book::new(Ladder::from_levels(vec![bid], vec![]).unwrap(), Timestamp::EPOCH))
}

#[test]
fn a_market_is_found_by_every_name() {
    let markets = Markets::new();
    markets.list(vec![info("0xa", MarketStatus::Open), info("0xb", MarketStatus::Open)]).unwrap();
    let listing = markets.listing();
    assert_eq!(listing.markets().len(), 2);
    let (market, outcome) = listing.by_token("0xb-No").unwrap();
    assert_eq!((&*market.info().condition_id, outcome), ("0xb", OutcomeIndex(1)));
    assert!(markets.by_condition("0xc").is_none());
}

#[test]
fn a_market_is_found_by_its_slug() {
    let slugged = |condition_id: &str, slug: Option<&str>, volume: i64| MarketInfo {
        slug: slug.map(Into::into),
        volume_total: Some(Usd::from_micros(volume)),
        ..info(condition_id, MarketStatus::Open)
    };
    let markets = Markets::new();
    let found = |slug: &str| {
        let listing = markets.listing();
        listing.by_slug(slug).map(|market| market.info().condition_id.to_string())
    };
    assert_eq!(found("a"), None);
    let rows = [
        slugged("0xa", Some("a"), 1),
        slugged("0xb", Some("shared"), 2),
        slugged("0xc", Some("shared"), 3),
        slugged("0xd", None, 4),
    ];
    markets.list(rows.into()).unwrap();
    assert_eq!(found("a").as_deref(), Some("0xa"));
    assert_eq!(found("shared").as_deref(), Some("0xc"));
    assert_eq!((found(""), found("A"), found("0xa")), (None, None, None));
    // A market that is renamed, or overtakes another one, is found accordingly.
    markets.list(vec![slugged("0xa", Some("z"), 1), slugged("0xb", Some("shared"), 9)]).unwrap();
    assert_eq!((found("a"), found("z").as_deref()), (None, Some("0xa")));
    assert_eq!(found("shared").as_deref(), Some("0xb"));
    let many = (0..1_000).map(|n| slugged(&format!("0x{n}"), Some(&format!("s-{n}")), n));
    markets.list(many.collect()).unwrap();
    for n in 0..1_000 {
        assert_eq!(found(&format!("s-{n}")), Some(format!("0x{n}")));
    }
}

#[test]
fn an_outcome_without_a_book_trades_on_the_mirror_of_the_other() {
    let markets = Markets::new();
    markets.list(vec![info("0xa", MarketStatus::Open)]).unwrap();
    let market = markets.by_condition("0xa").unwrap();
    assert!(market.snapshot().quoted(OutcomeIndex(0)).is_none());
    markets.publish(&market, OutcomeIndex(1), book(400_000));
    let snapshot = market.snapshot();
    let touch = |outcome, side| snapshot.quoted(outcome).unwrap().liquidity.touch(side);
    assert_eq!(touch(OutcomeIndex(1), Side::Sell), Some(Price::from_micros(400_000)));
    assert_eq!(touch(OutcomeIndex(0), Side::Buy), Some(Price::from_micros(600_000)));
    assert_eq!(touch(OutcomeIndex(0), Side::Sell), None);
}

#[test]
fn a_resolved_market_stays_resolved() {
    let markets = Markets::new();
    let resolved = MarketInfo {
        payouts: vec![Price::ONE, Price::ZERO],
        ..info("0xa", MarketStatus::Resolved)
    };
    markets.list(vec![resolved]).unwrap();
    markets.list(vec![info("0xa", MarketStatus::Open)]).unwrap();
    let market = markets.by_condition("0xa").unwrap();
    assert_eq!(market.info().status, MarketStatus::Resolved);
    assert_eq!(market.info().payouts, [Price::ONE, Price::ZERO]);
}

#[tokio::test]
async fn a_resolution_is_listed_once() {
    let resolved = |id| MarketInfo {
        payouts: vec![Price::ONE, Price::ZERO],
        ..info(id, MarketStatus::Resolved)
    };
    let markets = Markets::new();
    markets.list(vec![info("0xa", MarketStatus::Open), resolved("0xb")]).unwrap();
    let taken = async || {
        let taken = markets.resolutions().await;
        taken.iter().map(|market| market.info().condition_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(taken().await, ["0xb"]);
    markets.list(vec![resolved("0xb"), resolved("0xa")]).unwrap();
    assert_eq!(taken().await, ["0xa"], "the other one is not listed again");
    // The first resolution is final.
    let other = vec![Price::ZERO, Price::ONE];
    markets.list(vec![MarketInfo { payouts: other, ..resolved("0xa") }]).unwrap();
    let payouts = &markets.by_condition("0xa").unwrap().info().payouts.clone();
    assert_eq!(*payouts, [Price::ONE, Price::ZERO]);
}

#[tokio::test]
async fn only_the_newest_settled_markets_stay_listed() {
    let markets = Markets::new();
    let resolved = |number: usize| MarketInfo {
        payouts: vec![Price::ONE, Price::ZERO],
        ..info(&format!("0x{number}"), MarketStatus::Resolved)
    };
    let mut infos: Vec<_> = (0..SETTLED_LISTED_MAX + 3).map(resolved).collect();
    infos.push(info("0xopen", MarketStatus::Open));
    markets.list(infos).unwrap();
    for market in markets.resolutions().await {
        // The last one is not settled yet.
        if *market.info().condition_id != *resolved(SETTLED_LISTED_MAX + 2).condition_id {
            markets.mark_settled(market);
        }
    }
    assert_eq!(markets.unsettled_count(), 1);
    let all = SETTLED_LISTED_MAX + 4;
    assert_eq!(markets.listing().markets().len(), all, "nothing leaves until something is listed");

    let left = markets.list(vec![]).unwrap().left;
    let left: Vec<_> = left.iter().map(|it| it.info().condition_id.to_string()).collect();
    assert_eq!(left, ["0x0", "0x1"]);
    assert_eq!(markets.listing().markets().len(), all - 2);
    assert!(markets.by_condition("0x0").is_none());
    assert!(markets.listing().by_token("0x1-No").is_none());
    assert!(markets.by_condition("0x2").is_some());
    assert!(markets.by_condition("0xopen").is_some());
    assert!(markets.list(vec![]).unwrap().left.is_empty(), "each leaves once");
}

#[test]
fn decisions_made_before_the_start_are_listed() {
    let decided = |id: &str, no: &str| {
        let payouts = vec![
            (format!("{id}-{no}").into(), Price::ONE),
            (format!("{id}-Yes").into(), Price::ZERO),
        ];
        (Arc::from(id), payouts)
    };
    let markets = Markets::remembering([decided("0xa", "No"), decided("0xb", "Never")]);
    let listed = ["0xa", "0xb", "0xc"].map(|id| info(id, MarketStatus::Open)).into_iter().collect();
    markets.list(listed).unwrap();
    let now = |id: &str| {
        let market = markets.by_condition(id).unwrap();
        let info = market.info();
        (info.status, info.payouts.clone())
    };
    assert_eq!(now("0xa"), (MarketStatus::Resolved, vec![Price::ZERO, Price::ONE]));
    assert_eq!(now("0xb"), (MarketStatus::Closed, vec![]), "its tokens have changed");
    assert_eq!(now("0xc"), (MarketStatus::Open, vec![]));
}

/// The tokens of a description and their payouts, and the listed result, for known tokens `y` and
/// `n`.
#[test]
fn outcomes_are_aligned_by_token() {
    const ONE: i64 = 1_000_000;
    let described = |tokens: &[&str], payouts: &[i64]| MarketInfo {
        status: if payouts.is_empty() { MarketStatus::Open } else { MarketStatus::Resolved },
        payouts: payouts.iter().map(|&payout| Price::from_micros(payout)).collect(),
        ..MarketInfo::bare(
            "0xa",
            tokens.iter().map(|&token| Outcome { label: token.into(), token_id: token.into() }),
        )
    };
    for (tokens, payouts, expected) in [
        (&["y", "n"][..], &[][..], "y n Open"),
        (&["n", "y"], &[], "y n Open"),
        (&["n", "y"], &[0, ONE], "y n Resolved 1 0"),
        (&["y", "n"], &[ONE, 0], "y n Resolved 1 0"),
        (&["", ""], &[], "y n Open"),
        (&["y", "x"], &[], "y n Paused"),
        (&["y", ""], &[], "y n Paused"),
        (&["y"], &[], "y n Paused"),
        (&["y", "n", "x"], &[], "y n Paused"),
        (&["x", "y"], &[0, ONE], "y n Closed"),
    ] {
        let shown = |markets: &Markets| {
            let market = markets.by_condition("0xa").unwrap();
            let info = market.info();
            let tokens: Vec<_> = info.outcomes.iter().map(|it| it.token_id.to_string()).collect();
            let payouts: Vec<_> = info.payouts.iter().map(ToString::to_string).collect();
            let all = [tokens, vec![format!("{:?}", info.status)], payouts].concat();
            all.join(" ")
        };
        let listed = Markets::new();
        listed.list(vec![described(&["y", "n"], &[])]).unwrap();
        let withheld_count = listed.list(vec![described(tokens, payouts)]).unwrap().withheld_count;
        assert_eq!(shown(&listed), expected, "{tokens:?}");
        assert_eq!(withheld_count == 1, !expected.contains("Open") && !expected.contains("1 0"));

        // After a restart: the traded market is known, and the market is listed anew.
        let known = described(&["y", "n"], &[]).outcomes;
        let traded = Markets::new().with_traded([("0xa".into(), known)]);
        traded.list(vec![described(tokens, payouts)]).unwrap();
        if withheld_count == 0 {
            assert_eq!(shown(&traded), expected, "{tokens:?}");
        } else {
            let market = traded.by_condition("0xa").unwrap();
            let (status, payouts) = (market.info().status, market.info().payouts.clone());
            assert!(!status.is_tradable() && status != MarketStatus::Resolved, "{status:?}");
            assert!(payouts.is_empty());
        }

        // It becomes tradable again once the known tokens are back.
        if !expected.contains("Resolved") {
            listed.list(vec![described(&["n", "y"], &[])]).unwrap();
            assert_eq!(shown(&listed), "y n Open", "after {tokens:?}");
        }
    }
}

#[test]
fn an_invalid_description_is_not_listed() {
    let markets = Markets::new();
    let mut long = info("0xa", MarketStatus::Open);
    long.outcomes[0].label = "x".repeat(270_000).into();
    let Err(error) = markets.list(vec![long]) else { panic!("the market was listed") };
    assert_eq!(error.to_string(), "market 0xa: its label has 270000 bytes, more than 200");
    let mut shared = info("0xa", MarketStatus::Open);
    shared.outcomes[1].token_id = shared.outcomes[0].token_id.clone();
    let Err(error) = markets.list(vec![shared]) else { panic!("the market was listed") };
    assert_eq!(error.to_string(), "market 0xa: two of its outcomes have the same token");
}

#[tokio::test]
async fn a_changed_market_is_listed_once_until_the_list_is_taken() {
    let markets = Markets::new();
    markets.list(vec![info("0xa", MarketStatus::Open)]).unwrap();
    let market = markets.by_condition("0xa").unwrap();
    markets.publish(&market, OutcomeIndex(0), book(400_000));
    markets.publish(&market, OutcomeIndex(0), book(410_000));
    assert_eq!(markets.changes().await.len(), 1);
    markets.publish(&market, OutcomeIndex(1), book(420_000));
    assert_eq!(markets.changes().await.len(), 1);
}

#[test]
fn a_quote_has_the_delay_of_its_market_in_wall_time() {
    let delayed = |ms| MarketInfo { taker_delay_ms: ms, ..info("0xa", MarketStatus::Open) };
    let markets = Markets::new();
    let listed = |ms| {
        markets.list(vec![delayed(ms)]).unwrap();
        let market = markets.by_condition("0xa").unwrap();
        let quoted = market.snapshot().quote().taker_delay_ms;
        (market.info().taker_delay_ms, quoted)
    };
    assert_eq!(listed(0), (0, 0));
    assert_eq!(listed(250), (250, 250));
    // The newest description counts, and each is cut.
    assert_eq!(listed(10_001), (10_000, 10_000));
    assert_eq!(listed(3_000), (3_000, 3_000));
    markets.set_delay_speed(10_000_000);
    assert_eq!(listed(3_000), (3_000, 300), "at ten times real time");
    markets.set_delay_speed(0);
    assert_eq!(listed(3_000), (3_000, 0), "at the end of a tape");

    let held = |markets: &Markets, taker_delay_ms| {
        let bare = info("0xh", MarketStatus::Open);
        let held = MarketInfo { has_unstated_delay: true, taker_delay_ms, ..bare };
        markets.list(vec![held]).unwrap();
        markets.by_condition("0xh").unwrap().snapshot().quote().taker_delay_ms
    };
    let markets = Markets::new();
    assert_eq!(held(&markets, 0), 0, "no venue has said how long it is");
    markets.set_unstated_delay(250);
    assert_eq!((held(&markets, 0), held(&markets, 3_000)), (250, 3_000));
    markets.set_unstated_delay(150);
    markets.set_delay_speed(10_000_000);
    assert_eq!(held(&markets, 0), 15);
    let fixed = Markets::new().with_unstated_delay(40);
    fixed.set_unstated_delay(150);
    assert_eq!((held(&fixed, 0), held(&fixed, 3_000)), (40, 3_000));

    let off = Markets::new().without_delays();
    off.list(vec![delayed(3_000)]).unwrap();
    off.set_delay_speed(1_000_000);
    let market = off.by_condition("0xa").unwrap();
    assert_eq!(market.snapshot().quote().taker_delay_ms, 0);
}

/// Counts the events that are logged.
struct Counter(AtomicUsize);

impl tracing::Subscriber for Counter {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let names: Vec<_> = event.metadata().fields().iter().map(|field| field.name()).collect();
        assert_eq!(names, ["message", "market", "stated_ms", "cut_ms"]);
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_delay_that_is_cut_is_logged_once_for_each_market() {
    let counter = Arc::new(Counter(AtomicUsize::new(0)));
    tracing::subscriber::with_default(counter.clone(), || {
        let markets = Markets::new();
        for (id, ms, count) in [
            ("0xa", 10_000, 0),
            ("0xa", 10_001, 1),
            ("0xa", 60_000, 1),
            ("0xa", 250, 1),
            ("0xa", 60_000, 1),
            ("0xb", u32::MAX, 2),
        ] {
            let info = MarketInfo { taker_delay_ms: ms, ..info(id, MarketStatus::Open) };
            markets.list(vec![info]).unwrap();
            assert_eq!(counter.0.load(Ordering::Relaxed), count, "{id} {ms}");
        }
    });
}

#[test]
fn every_book_is_stale_while_the_feed_does_not_renew_its_lease() {
    let markets = Markets::new();
    markets.list(vec![info("0xa", MarketStatus::Open)]).unwrap();
    let market = markets.by_condition("0xa").unwrap();
    markets.publish(&market, OutcomeIndex(0), book(400_000));
    let fresh = |outcome| {
        let snapshot = market.snapshot();
        let quoted = snapshot.quoted(OutcomeIndex(outcome)).unwrap();
        assert_eq!(quoted.book.ladder(), book(400_000).ladder());
        (!quoted.book.stale, snapshot.has_fresh_book())
    };
    // Nobody has promised anything: a recording is its own present.
    assert_eq!((fresh(0), fresh(1)), ((true, true), (true, true)));
    for (lease, is_fresh) in
        [(Duration::ZERO, false), (Duration::MAX, true), (Duration::ZERO, false)]
    {
        markets.renew_lease(lease);
        assert_eq!((fresh(0), fresh(1)), ((is_fresh, is_fresh), (is_fresh, is_fresh)), "{lease:?}");
    }
    markets.renew_lease(Duration::from_hours(1));
    let mut stale = Book::clone(&book(400_000));
    stale.stale = true;
    markets.publish(&market, OutcomeIndex(0), Arc::new(stale));
    assert_eq!(fresh(0), (false, false), "a lease makes no book fresh");
}
