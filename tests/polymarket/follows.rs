//! The connector, following a venue that behaves.

use paperbourse::market::book::Book;
use paperbourse::market::catalogue::MarketStatus;

use crate::connector::{Connector, QUICK};
use crate::standin::world::{MarketSeed, condition_id, condition_id_of_version_2, token_id};
use crate::standin::{Injection, Options, Payout, Side, StandIn, Which, World};

/// The tokens of the first `market_count` invented markets.
fn tokens(market_count: usize) -> Vec<String> {
    (0..market_count).flat_map(|number| [token_id(number, 0), token_id(number, 1)]).collect()
}

fn has_bid(book: &Book, price: &str, size: &str) -> bool {
    book.ladder()
        .bids()
        .iter()
        .any(|level| level.price.to_string() == price && level.size.to_string() == size)
}

#[tokio::test]
async fn books_are_fresh_and_follow_every_change() {
    let venue = StandIn::start(World::invented(5), Options::default()).await;
    let connector = Connector::start(&venue, 3, QUICK);
    let (followed, sister) = (token_id(0, 0), token_id(0, 1));
    connector.until_fresh(&tokens(3)).await;
    assert_eq!(connector.markets.listing().markets().len(), 3, "the most traded");
    venue.change_level(&followed, Side::Buy, "0.1", "77");
    connector
        .until("the new level", |it| {
            it.fresh(&followed).is_some_and(|book| has_bid(&book, "0.1", "77"))
                && it.fresh(&sister).is_some()
        })
        .await;
    venue.trade(&followed, Side::Buy, "12");
    connector
        .until("the trade", |it| {
            let ours = it.fresh(&followed).and_then(|book| book.hash.clone());
            ours.as_ref().map(|hash| &*hash.text)
                == venue.published(&followed).last().map(|book| &*book.hash)
                && it.fresh(&sister).is_some()
        })
        .await;
    venue.change_tick_size(&condition_id(0), "0.001");
    venue.change_level(&followed, Side::Buy, "0.101", "5");
    connector
        .until("a level of the finer grid", |it| {
            it.fresh(&followed).is_some_and(|book| has_bid(&book, "0.101", "5"))
        })
        .await;
    let status = connector.status();
    assert_eq!((status.feed.hashes_mismatched, status.books_diverged), (0, 0), "{status:?}");
    assert_eq!(venue.violations(), [""; 0]);
}

#[tokio::test]
async fn a_pause_of_ours_does_not_count_as_silence_of_the_venue() {
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let connector = Connector::start(&venue, 2, QUICK);
    connector.until_fresh(&tokens(2)).await;
    // As if the machine had been busy: time has passed, and neither side has run.
    tokio::time::advance(QUICK.pong_timeout * 2).await;
    venue.change_level(&token_id(0, 0), Side::Buy, "0.1", "77");
    let is_taken =
        |it: &Connector| it.fresh(&token_id(0, 0)).is_some_and(|book| has_bid(&book, "0.1", "77"));
    connector.until("the next message", is_taken).await;
    let status = connector.status();
    assert_eq!(status.connections_lost, 0, "{status:?}");
}

#[tokio::test]
async fn messages_without_a_timestamp_or_in_lower_case_are_accepted() {
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let connector = Connector::start(&venue, 2, QUICK);
    connector.until_fresh(&tokens(2)).await;
    let (market, token) = (condition_id(0), token_id(0, 0));
    let ids = format!(r#""market":"{market}","asset_id":"{token}""#);
    for (message, price, size) in [
        (
            format!(
                r#"{{"event_type":"price_change","market":"{market}","price_changes":[
                {{"asset_id":"{token}","price":"0.1","size":"77","side":"buy","hash":"00"}}]}}"#
            ),
            "0.1",
            "77",
        ),
        (
            format!(
                r#"{{"event_type":"book",{ids},"hash":"00","bids":[{{"price":"0.2","size":"5"}}],
                "asks":[{{"price":"0.8","size":"5"}}]}}"#
            ),
            "0.2",
            "5",
        ),
    ] {
        venue.inject(Which::Open, Injection::Text(&message));
        let is_taken =
            |it: &Connector| it.fresh(&token).is_some_and(|book| has_bid(&book, price, size));
        connector.until(&message, is_taken).await;
    }
    // Later messages are accepted as usual.
    venue.change_level(&token, Side::Buy, "0.11", "78");
    let is_taken =
        |it: &Connector| it.fresh(&token).is_some_and(|book| has_bid(&book, "0.11", "78"));
    connector.until("the next message", is_taken).await;
    let status = connector.status();
    assert_eq!((status.unreadable_messages, status.connections_lost), (0, 0), "{status:?}");
}

#[tokio::test]
async fn a_resolved_market_closes_and_pays() {
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let connector = Connector::start(&venue, 2, QUICK);
    connector.until_fresh(&tokens(2)).await;
    venue.resolve(&condition_id(1), Payout::Winner(1));
    let status_of = |it: &Connector| {
        it.markets.by_condition(&condition_id(1)).map(|market| market.info().status)
    };
    connector.until("the resolution", |it| status_of(it) == Some(MarketStatus::Resolved)).await;
    let market = connector.markets.by_condition(&condition_id(1)).unwrap();
    assert_eq!(
        market.info().payouts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["0", "1"]
    );
    assert!(connector.fresh(&token_id(1, 0)).is_none());
    assert!(connector.fresh(&token_id(0, 0)).is_some(), "the other market is unaffected");
}

/// A page that lists the outcomes in reverse changes neither the books nor the payouts.
#[tokio::test]
async fn outcomes_in_another_order_keep_their_books_and_payouts() {
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let connector = Connector::start(&venue, 2, QUICK);
    connector.until_fresh(&tokens(2)).await;
    let turn = |it: &mut serde_json::Map<String, serde_json::Value>, name: &str| {
        let list: Vec<String> = serde_json::from_str(it[name].as_str().unwrap()).unwrap();
        let turned: Vec<_> = list.iter().rev().collect();
        it.insert(name.into(), serde_json::json!(turned).to_string().into());
    };
    venue.describe(&condition_id(1), |it| {
        for name in ["outcomes", "clobTokenIds", "outcomePrices"] {
            turn(it, name);
        }
        it.insert("volumeNum".into(), 77.into());
    });
    let market = connector.markets.by_condition(&condition_id(1)).unwrap();
    let listed = || market.info().volume_total.map(|volume| volume.to_string());
    connector.until("the page", |_| listed().as_deref() == Some("77")).await;
    let labels: Vec<_> = market.info().outcomes.iter().map(|it| it.label.to_string()).collect();
    assert_eq!(labels, ["Yes", "No"]);
    venue.change_level(&token_id(1, 0), Side::Buy, "0.1", "77");
    connector
        .until("the level of the first token", |it| {
            it.fresh(&token_id(1, 0)).is_some_and(|book| has_bid(&book, "0.1", "77"))
        })
        .await;
    let first = market.book(paperbourse::ids::OutcomeIndex(0)).clone().unwrap();
    assert!(has_bid(&first, "0.1", "77"), "the first outcome's book is its token's");

    venue.resolve_on_clob(&condition_id(1), Payout::Winner(0));
    venue.resolve_on_gamma(&condition_id(1), Payout::Winner(0));
    venue.describe(&condition_id(1), |it| turn(it, "outcomePrices"));
    connector.until("the end", |_| market.info().status == MarketStatus::Resolved).await;
    let info = market.info();
    let paid: Vec<_> = info.outcomes.iter().zip(&info.payouts).collect();
    assert_eq!((&*paid[0].0.label, paid[0].1.to_string()), ("Yes", "1".to_owned()));
    assert_eq!((&*paid[1].0.label, paid[1].1.to_string()), ("No", "0".to_owned()));
}

/// Trading pauses until the market has its known tokens again.
#[tokio::test]
async fn a_market_with_other_tokens_is_not_traded() {
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let connector = Connector::start(&venue, 2, QUICK);
    connector.until_fresh(&tokens(2)).await;
    let market = connector.markets.by_condition(&condition_id(1)).unwrap();
    let describe = |ids: [String; 2]| {
        let ids = serde_json::json!(ids).to_string();
        venue.describe(&condition_id(1), |it| drop(it.insert("clobTokenIds".into(), ids.into())));
    };
    describe([token_id(1, 0), "7".to_owned()]);
    connector.until("the page", |_| market.info().status == MarketStatus::Paused).await;
    assert_eq!(*market.info().outcomes[1].token_id, *token_id(1, 1));
    describe([token_id(1, 0), token_id(1, 1)]);
    connector.until("the page", |_| market.info().status == MarketStatus::Open).await;
    connector.until_fresh(&tokens(2)).await;
}

/// The protocol's second version: position ids, and a condition id of 31 bytes.
#[tokio::test]
async fn a_market_of_the_second_version_trades_under_its_position_ids() {
    let id = condition_id_of_version_2(1);
    let positions = ["501".to_owned(), "502".to_owned()];
    let mut world = World::invented(1);
    let mut seed = MarketSeed::of_version_2(1, 62);
    let others = std::mem::replace(&mut seed.token_ids, positions.to_vec());
    seed.describe(|it| {
        it.insert("positionIds".into(), serde_json::json!(positions));
        it.insert("clobTokenIds".into(), serde_json::json!(others));
    });
    world.markets.push(seed);
    let venue = StandIn::start(world, Options::default()).await;
    let connector = Connector::start(&venue, 2, QUICK);
    connector.until_fresh(&positions).await;
    let market = connector.markets.by_condition(&id).unwrap();
    assert_eq!(*market.info().outcomes[0].token_id, *positions[0]);
    assert!(connector.book(&token_id(1, 0)).is_none(), "the token ids beside them are not traded");
}

/// Games and decisions run past their planned end.
#[tokio::test]
async fn a_market_past_its_end_is_followed_while_it_is_traded() {
    let mut world = World::invented(3);
    for (market, volume) in [(0, 0), (1, 5_000)] {
        world.markets[market].describe(|it| {
            it.insert("endDate".into(), "2026-01-02T00:00:00Z".into());
            it.insert("volume24hr".into(), volume.into());
        });
    }
    let venue = StandIn::start(world, Options::default()).await;
    let connector = Connector::start(&venue, 3, QUICK);
    connector.until_fresh(&[token_id(1, 0), token_id(2, 0)]).await;
    let is_listed = |number| connector.markets.by_condition(&condition_id(number)).is_some();
    assert_eq!(
        [0, 1, 2].map(is_listed),
        [false, true, true],
        "only a market without volume is left out"
    );
}

/// Which sources report a resolution, and whether they suffice.
#[tokio::test]
async fn a_resolution_needs_two_sources_or_a_final_status() {
    type Act = fn(&StandIn, &str);
    let rows: [(&str, &[Act], bool); 10] = [
        ("the CLOB service alone", &[|it, id| it.resolve_on_clob(id, Payout::Winner(0))], false),
        ("the socket alone", &[|it, id| it.announce_resolved(id, 0)], false),
        ("Gamma, with status resolved", &[|it, id| it.resolve_on_gamma(id, Payout::Half)], true),
        (
            "Gamma without a status, and the CLOB service",
            &[
                |it, id| it.resolve_on_gamma(id, Payout::Winner(1)),
                |it, id| it.describe(id, |fields| drop(fields.remove("umaResolutionStatus"))),
                |it, id| it.resolve_on_clob(id, Payout::Winner(1)),
            ],
            true,
        ),
        (
            "Gamma and the CLOB service, which disagree",
            &[
                |it, id| it.resolve_on_gamma(id, Payout::Winner(1)),
                |it, id| it.resolve_on_clob(id, Payout::Winner(0)),
            ],
            false,
        ),
        ("the data API alone", &[|it, id| it.resolve_on_chain(id, Payout::Winner(0))], false),
        (
            "Gamma without a status, and the data API",
            &[
                |it, id| it.resolve_on_gamma(id, Payout::Half),
                |it, id| it.describe(id, |fields| drop(fields.remove("umaResolutionStatus"))),
                |it, id| it.resolve_on_chain(id, Payout::Half),
            ],
            true,
        ),
        (
            "Gamma without a status, and the data API, which disagree",
            &[
                |it, id| it.resolve_on_gamma(id, Payout::Winner(0)),
                |it, id| it.describe(id, |fields| drop(fields.remove("umaResolutionStatus"))),
                |it, id| it.resolve_on_chain(id, Payout::Winner(1)),
            ],
            false,
        ),
        (
            // The data API names no tokens: a reader that applies Gamma's order to it repeats
            // Gamma's mistake, so it is no second source.
            "Gamma, which swaps the tokens, and the data API",
            &[
                |it, id| it.resolve_on_gamma(id, Payout::Winner(0)),
                |it, id| {
                    it.describe(id, |fields| {
                        fields.remove("umaResolutionStatus");
                        let tokens = fields["clobTokenIds"].as_str().unwrap();
                        let mut tokens: Vec<String> = serde_json::from_str(tokens).unwrap();
                        tokens.reverse();
                        let tokens = serde_json::to_string(&tokens).unwrap();
                        fields.insert("clobTokenIds".into(), tokens.into());
                    });
                },
                |it, id| it.resolve_on_chain(id, Payout::Winner(0)),
            ],
            false,
        ),
        (
            "Gamma, with status proposed",
            &[
                |it, id| it.resolve_on_gamma(id, Payout::Winner(1)),
                |it, id| {
                    it.describe(id, |fields| {
                        fields.insert("umaResolutionStatus".into(), "proposed".into());
                    });
                },
            ],
            false,
        ),
    ];
    let venue = StandIn::start(World::invented(rows.len() + 1), Options::default()).await;
    let connector = Connector::start(&venue, rows.len() + 1, QUICK);
    connector.until_fresh(&tokens(rows.len() + 1)).await;
    for (number, (_, acts, _)) in rows.iter().enumerate() {
        acts.iter().for_each(|act| act(&venue, &condition_id(number)));
    }
    let status_of = |number: usize| {
        connector.markets.by_condition(&condition_id(number)).unwrap().info().status
    };
    for (number, (what, _, is_final)) in rows.iter().enumerate() {
        if *is_final {
            connector.until(what, |_| status_of(number) == MarketStatus::Resolved).await;
        }
    }
    for _ in 0..2 {
        let before = venue.requests().len();
        connector.until("another round", |_| venue.requests().len() > before + rows.len()).await;
    }
    for (number, (what, _, is_final)) in rows.iter().enumerate() {
        assert_eq!(status_of(number) == MarketStatus::Resolved, *is_final, "{what}");
    }
}
