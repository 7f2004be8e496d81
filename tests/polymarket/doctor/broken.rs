//! One thing at a time is not as it should be: the report names it, and nothing else.

use std::sync::Arc;

use paperbourse::venue::polymarket::doctor::{Report, RestsOn, Sample, Verdict};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{QUIET, VERSION_2, looked_at, plain, start, with, world};
use crate::standin::world::{condition_id, token_id};
use crate::standin::{
    Edit, Endpoint, EndpointFault, Fault, Injection, Options, Payout, Side, StandIn, Which, World,
    now_us,
};

/// How many venues are looked at at once.
const AT_ONCE: usize = 6;

/// A market that a case describes wrongly.
const ODD: usize = 7;

/// What is not as it should be.
struct Case {
    /// The assumption that it breaks.
    assumption: &'static str,
    world: fn(&mut World),
    options: fn(&mut Options),
    /// Before the look.
    before: fn(&StandIn),
    /// While somebody listens.
    during: fn(&StandIn),
}

impl Case {
    fn of(assumption: &'static str) -> Self {
        Self { assumption, world: |_| {}, options: |_| {}, before: |_| {}, during: |_| {} }
    }

    fn world(self, world: fn(&mut World)) -> Self {
        Self { world, ..self }
    }

    fn options(self, options: fn(&mut Options)) -> Self {
        Self { options, ..self }
    }

    fn before(self, before: fn(&StandIn)) -> Self {
        Self { before, ..self }
    }

    fn during(self, during: fn(&StandIn)) -> Self {
        Self { during, ..self }
    }
}

fn describe(world: &mut World, name: &str, value: Value) {
    world.markets[ODD].describe(|fields| drop(fields.insert(name.to_owned(), value)));
}

fn refuse(venue: &StandIn, endpoints: &[Endpoint], status: u16) {
    for &endpoint in endpoints {
        let fault = EndpointFault::Refuse { status, retry_after_s: None };
        venue.misbehave_at(endpoint, fault, u32::MAX);
    }
}

fn edit(venue: &StandIn, endpoint: Endpoint, from: &'static str, to: &'static str) {
    venue.misbehave_at(endpoint, EndpointFault::Edit(Edit { from, to }), u32::MAX);
}

fn edit_frames(venue: &StandIn, from: &'static str, to: &'static str) {
    venue.misbehave(Which::Every, Fault::Edit(Edit { from, to }));
}

fn say(venue: &StandIn, frame: &Value) {
    venue.inject(Which::Open, Injection::Text(&frame.to_string()));
}

#[expect(clippy::too_many_lines, reason = "it is a table")]
#[rustfmt::skip]
fn cases() -> Vec<Case> {
    // These begin with the times of two markets that stay as they are.
    const QUIET_HASH: &str = r#""timestamp":"1790000000456","hash":""#;
    const VERSION_2_HASH: &str = r#""timestamp":"1790000000123","hash":""#;
    vec![
        Case::of("Gamma answers")
            .before(|venue| refuse(venue, &[Endpoint::Keyset, Endpoint::Named], 503)),
        Case::of("the CLOB service answers").before(|venue| refuse(venue, &[
            Endpoint::Clob, Endpoint::Books, Endpoint::CompactMarket, Endpoint::LongMarket,
        ], 503)),
        Case::of("the data API answers")
            .before(|venue| refuse(venue, &[Endpoint::Data], 503)),
        Case::of("the market socket opens")
            .before(|venue| refuse(venue, &[Endpoint::Upgrade], 503)),
        Case::of("requests are understood")
            .before(|venue| refuse(venue, &[Endpoint::CompactMarket], 404)),
        Case::of("requests stay within the rate limits")
            .before(|venue| refuse(venue, &[Endpoint::Data], 429)),
        Case::of("service clocks agree with ours").before(|venue| {
            let other = EndpointFault::Header("date", "Sat, 01 Jan 2000 00:00:00 GMT");
            venue.misbehave_at(Endpoint::Clob, other, u32::MAX);
        }),
        Case::of("frames arrive near their timestamps").during(|venue| {
            let change = (Side::Buy, "0.06", "5");
            venue.change_level_at(now_us() / 1_000 + 60_000, &token_id(9, 0), change);
        }),
        Case::of("V1: a condition id has 64 digits").world(|world| {
            world.markets[ODD].condition_id.pop();
            let id = world.markets[ODD].condition_id.clone();
            describe(world, "conditionId", json!(id));
        }),
        Case::of("V2: 62 digits in Gamma, 64 elsewhere").world(|world| {
            let id = world.markets[VERSION_2].condition_id.clone();
            world.markets[VERSION_2]
                .describe(|fields| drop(fields.insert("conditionId".to_owned(), json!(id))));
        }),
        Case::of("a token id has at most 78 digits").world(|world| {
            for token in &mut world.markets[ODD].token_ids {
                token.push('1');
            }
            let tokens = json!(world.markets[ODD].token_ids).to_string();
            describe(world, "clobTokenIds", json!(tokens));
        }),
        Case::of("Gamma's markets can be read")
            .world(|world| describe(world, "acceptingOrders", json!("perhaps"))),
        Case::of("the CLOB service's markets can be read").before(|venue| {
            edit(venue, Endpoint::CompactMarket, r#""mts":0.01"#, r#""mts":"small""#);
        }),
        Case::of("Gamma and CLOB describe markets alike")
            .before(|venue| edit(venue, Endpoint::CompactMarket, r#""mos":5"#, r#""mos":6"#)),
        Case::of("fees follow a known schedule").world(|world| {
            describe(world, "feeSchedule", json!({"rate": 0.05, "exponent": 3, "takerOnly": true}));
        }),
        Case::of("ticks are known").world(|world| {
            "0.02".clone_into(&mut world.markets[ODD].tick_size);
            describe(world, "orderPriceMinTickSize", json!(0.02));
        }),
        Case::of("taker delay fields are known")
            .world(|world| describe(world, "takerDelayMillis", json!(50))),
        Case::of("resolution statuses are known")
            .world(|world| describe(world, "umaResolutionStatus", json!("pondered"))),
        Case::of("/clob-markets fields are known").before(|venue| {
            edit(venue, Endpoint::CompactMarket, r#""mbf":1000"#, r#""mbf":1000,"mood":1"#);
        }),
        Case::of("cursors lead to the next page")
            .options(|options| options.ignores_cursors = true),
        Case::of("pages have the requested size")
            .options(|options| options.page_markets_max = 50),
        Case::of("requested books can be read").before(|venue| {
            edit(venue, Endpoint::Books, r#""neg_risk":true"#, r#""neg_risk":"perhaps""#);
        }),
        Case::of("V1: hashes match requested books")
            .before(|venue| edit(venue, Endpoint::Books, QUIET_HASH,
                r#""timestamp":"1790000000456","hash":"0"#)),
        Case::of("V2: hashes match requested books")
            .before(|venue| edit(venue, Endpoint::Books, VERSION_2_HASH,
                r#""timestamp":"1790000000123","hash":"0"#)),
        Case::of("V1: hashes match the socket's books")
            .before(|venue| edit_frames(venue, QUIET_HASH,
                r#""timestamp":"1790000000456","hash":"0"#)),
        Case::of("V2: hashes match the socket's books")
            .before(|venue| edit_frames(venue, VERSION_2_HASH,
                r#""timestamp":"1790000000123","hash":"0"#)),
        Case::of("a match carries its last book's hash").during(|venue| {
            let changes = [(Side::Buy, "0.02", "3"), (Side::Buy, "0.03", "4")];
            venue.change_group(&token_id(9, 0), &changes, Some(&"ab".repeat(20)));
        }),
        Case::of("frames can be read").during(|venue| {
            say(venue, &json!({"event_type": "price_change", "market": "0x1", "timestamp": "1"}));
        }),
        Case::of("frame types are known")
            .during(|venue| _ = venue.inject(Which::Open, Injection::UnknownEvent)),
        Case::of("book and frame fields are known").during(|venue| {
            say(venue, &json!({
                "event_type": "best_bid_ask", "market": "0x1", "asset_id": "1", "best_bid": "0.1",
                "best_ask": "0.2", "mood": "calm",
            }));
        }),
        Case::of("a subscription sends every book")
            .before(|venue| venue.misbehave(Which::Every, Fault::Skip { frames: 1 })),
        Case::of("the socket stays open")
            .during(|venue| venue.misbehave(Which::Open, Fault::Drop)),
        Case::of("price changes carry the best prices").before(|venue| {
            // Only a change ends with its best ask, and only this market has this one.
            edit_frames(venue, r#""best_ask":"0.45"}"#, r#""best_ask":"0.46"}"#);
        }),
        Case::of("each best_bid_ask matches a change").during(|venue| {
            say(venue, &json!({
                "event_type": "best_bid_ask", "market": condition_id(QUIET),
                "asset_id": token_id(QUIET, 0), "best_bid": "0.02", "best_ask": "0.03",
            }));
        }),
        Case::of("resolution sources agree").before(|venue| {
            venue.resolve_on_chain(&condition_id(20), Payout::Winner(1));
        }),
    ]
}

async fn looked(case: &Case) -> (Arc<StandIn>, Report, Vec<Sample>) {
    let (mut world, mut options) = (world(), plain());
    (case.world)(&mut world);
    (case.options)(&mut options);
    let venue = start(world, options).await;
    (case.before)(&venue);
    let (report, samples) = looked_at(&venue, case.during).await;
    (venue, report, samples)
}

/// The report names the assumption and no other; the samples are about it and name no server.
fn check(case: &Case, venue: &StandIn, report: &Report, samples: &[Sample]) {
    let name = case.assumption;
    assert_eq!(with(report, Verdict::Broken), [name], "{report}");
    let finding = report.findings.iter().find(|it| it.assumption == name).unwrap();
    let is_harmless = finding.rests_on == RestsOn::Nothing || finding.is_about_reaching;
    assert_eq!(report.is_sound(), is_harmless, "{name}");
    assert_eq!(report.is_reached(), !finding.is_about_reaching, "{name}");
    assert!(venue.requests().len() < 200, "{name}");
    let is_without_sample = finding.is_about_reaching
        || [
            "requests are understood",
            "requests stay within the rate limits",
            "service clocks agree with ours",
            "cursors lead to the next page",
            "pages have the requested size",
            "a subscription sends every book",
            "the socket stays open",
        ]
        .contains(&name);
    assert_eq!(samples.is_empty(), is_without_sample, "{name}: {samples:?}");
    for sample in samples {
        assert_eq!(sample.assumption, name);
        assert!(!sample.payload.contains("127.0.0.1"), "{sample:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_broken_is_named_and_nothing_else() {
    let cases: Vec<Arc<Case>> = cases().into_iter().map(Arc::new).collect();
    let mut names: Vec<&str> = cases.iter().map(|case| case.assumption).collect();
    names.sort_unstable();
    let mut failed = Vec::new();
    for some in cases.chunks(AT_ONCE) {
        let mut running = JoinSet::new();
        for case in some {
            let case = case.clone();
            running.spawn(async move {
                let (venue, report, samples) = looked(&case).await;
                check(&case, &venue, &report, &samples);
                report.findings.iter().map(|it| it.assumption).collect::<Vec<_>>()
            });
        }
        while let Some(done) = running.join_next().await {
            match done {
                // Each assumption has a case.
                Ok(mut all) => {
                    all.sort_unstable();
                    assert_eq!(names, all);
                }
                Err(error) => failed.push(error.to_string()),
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
