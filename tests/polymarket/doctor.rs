//! `paperbourse doctor` on a venue that is as it should be, and on venues where one thing is not.

mod broken;
mod program;

use std::sync::Arc;
use std::time::Duration;

use paperbourse::venue::follow::timing::Timing;
use paperbourse::venue::polymarket::doctor::{Report, Sample, Verdict};
use paperbourse::venue::polymarket::filter::MarketFilter;
use paperbourse::venue::polymarket::live::LiveConfig;
use paperbourse::venue::polymarket::live::look::look;
use paperbourse::venue::tls::{self, Roots};

use crate::standin::world::{MarketSeed, condition_id, token_id};
use crate::standin::{Options, Payout, Side, StandIn, World};

/// Markets of an ordinary kind, more than a page of them.
const ORDINARY_COUNT: usize = 110;

/// On which way a price goes; a game; traded under version 2 of the protocol.
const UP_OR_DOWN: usize = ORDINARY_COUNT;
const GAME: usize = ORDINARY_COUNT + 1;
const VERSION_2: usize = ORDINARY_COUNT + 2;

/// Markets that stay as they are: their books have these times.
const QUIET: usize = 1;
const QUIET_MS: u64 = 1_790_000_000_456;
const VERSION_2_MS: u64 = 1_790_000_000_123;

/// Markets that close before the look.
const CLOSED: std::ops::Range<usize> = 20..23;

/// How long a look takes here.
const DURATION: Duration = Duration::from_secs(5);

/// The time between two changes, which must not have one timestamp by accident.
const PAUSE: Duration = Duration::from_millis(12);

fn plain() -> Options {
    Options { is_tls: false, ..Options::default() }
}

/// Every kind of market.
fn world() -> World {
    let mut world = World::invented(ORDINARY_COUNT);
    let mut game = MarketSeed::invented(GAME);
    game.describe(|fields| drop(fields.insert("secondsDelay".into(), 3.into())));
    world.markets.push(MarketSeed::up_or_down(UP_OR_DOWN));
    world.markets.push(game);
    world.markets.push(MarketSeed::of_version_2(VERSION_2, 62));
    for (market, timestamp_ms) in [(QUIET, QUIET_MS), (VERSION_2, VERSION_2_MS)] {
        for book in world.markets[market].books.iter_mut().flatten() {
            book.timestamp_ms = timestamp_ms;
        }
    }
    world
}

async fn start(world: World, options: Options) -> Arc<StandIn> {
    let venue = Arc::new(StandIn::start(world, options).await);
    for number in CLOSED {
        let payout = if number == 21 { Payout::Half } else { Payout::Winner(0) };
        venue.resolve(&condition_id(number), payout);
        venue.resolve_on_chain(&condition_id(number), payout);
    }
    venue
}

/// Looks at this venue, which does what it does on any day from when somebody listens, and then
/// this.
async fn looked_at(venue: &Arc<StandIn>, act: fn(&StandIn)) -> (Report, Vec<Sample>) {
    let addresses = [&venue.gamma_url, &venue.clob_url, &venue.data_url, &venue.ws_url];
    let tls = tls::client_config(Roots::Nobody).unwrap();
    let addresses = addresses.map(|url| url.parse().unwrap());
    let config = LiveConfig::new(addresses, tls, MarketFilter::default(), Timing::VENUE);
    let busy = tokio::spawn(day(venue.clone(), act));
    let looked = look(config, DURATION).await;
    busy.abort();
    looked
}

/// Levels, best prices, trades, groups, ticks and listings change.
async fn day(venue: Arc<StandIn>, act: fn(&StandIn)) {
    while venue.sockets().iter().all(|(_, token_count)| *token_count == 0) {
        tokio::time::sleep(PAUSE).await;
    }
    let mut has_acted = false;
    for round in 0_usize.. {
        let size = (round % 50 + 1).to_string();
        let steps: [&(dyn Fn() + Sync); 7] = [
            &|| venue.change_level(&token_id(2, 0), Side::Buy, "0.1", &size),
            &|| {
                venue.send_tops_first(round % 2 == 0);
                let is_there = if round % 2 == 0 { "7" } else { "0" };
                venue.change_level(&token_id(0, 1), Side::Buy, "0.695", is_there);
            },
            &|| drop(venue.trade(&token_id(3, 0), Side::Buy, "0.5")),
            &|| {
                let changes = [(Side::Buy, "0.02", &*size), (Side::Buy, "0.03", &*size)];
                venue.change_group(&token_id(5, 0), &changes, None);
            },
            &|| venue.change_level(&token_id(8, 1), Side::Sell, "0.9", &size),
            &|| {
                if round == 1 {
                    venue.change_tick_size(&condition_id(4), "0.001");
                    venue.list_market(&MarketSeed::invented(500));
                }
            },
            &|| {
                // Seen twice at one time, each with a hash of its own.
                venue.change_level(&token_id(6, 0), Side::Buy, "0.04", &size);
                venue.change_level(&token_id(6, 0), Side::Buy, "0.05", &size);
            },
        ];
        for step in steps {
            step();
            tokio::time::sleep(PAUSE).await;
        }
        if !has_acted {
            act(&venue);
            has_acted = true;
        }
    }
}

/// The assumptions with this verdict.
fn with(report: &Report, verdict: Verdict) -> Vec<&'static str> {
    let findings = report.findings.iter().filter(|it| it.verdict == verdict);
    findings.map(|it| it.assumption).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_venue_that_is_as_it_should_be_is_all_green() {
    let venue = start(world(), plain()).await;
    let (report, samples) = looked_at(&venue, |_| {}).await;
    assert_eq!(with(&report, Verdict::Broken), [""; 0], "{report}");
    assert_eq!(with(&report, Verdict::NotSeen), [""; 0], "{report}");
    assert!(report.is_sound() && report.is_reached());
    assert!(samples.is_empty(), "{samples:?}");

    // Both orders of a best price and its change, both kinds of groups.
    let values = |name: &str| {
        let finding = report.findings.iter().find(|it| it.assumption == name).unwrap();
        finding.values.keys().cloned().collect::<Vec<_>>()
    };
    let orders = values("each best_bid_ask matches a change");
    assert_eq!(orders, ["after its change", "before its change"]);
    let hashes = values("a match carries its last book's hash");
    assert_eq!(hashes, ["each its own", "the last book's"]);

    let requests = venue.requests();
    assert_eq!(requests.len(), usize::try_from(report.effort.request_count).unwrap());
    assert!(requests.len() < 200, "{} requests", requests.len());
    assert!(report.effort.elapsed < Duration::from_mins(1), "{:?}", report.effort);
    assert_eq!(venue.violations(), [""; 0]);
    println!("{report}");
}
