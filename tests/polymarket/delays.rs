//! How long marketable orders are held: what the connector finds out, and what a tape plays.

use std::time::Duration;

use paperbourse::ids::Timestamp;
use paperbourse::market::Markets;
use paperbourse::venue::polymarket::unstated_delay;
use paperbourse::venue::recorded::TapePlayer;
use paperbourse::venue::tape::{Tape, TapeLimits};

use crate::connector::{Connector, QUICK};
use crate::standin::world::{MarketSeed, condition_id};
use crate::standin::{Endpoint, EndpointFault, Host, Options, StandIn, World};
use crate::tape::taped::{Taped, feed, tokens};

/// An ordinary market, a game, and one on which way a price goes.
fn world() -> World {
    let mut world = World::invented(2);
    world.markets[1].describe(|fields| drop(fields.insert("secondsDelay".into(), 3.into())));
    world.markets.push(MarketSeed::up_or_down(2));
    world
}

/// The delays that decisions see, in milliseconds.
fn quoted(markets: &Markets) -> [Option<u32>; 3] {
    [0, 1, 2].map(|number| {
        let market = markets.by_condition(&condition_id(number))?;
        Some(market.snapshot().quote().taker_delay_ms)
    })
}

/// The delay where the venue states only that there is one.
fn unstated_ms() -> u32 {
    unstated_delay::ms_at(Timestamp::now())
}

fn delays() -> [Option<u32>; 3] {
    [Some(0), Some(3_000), Some(unstated_ms())]
}

#[tokio::test]
async fn delays_come_from_the_service_that_states_them() {
    let venue = StandIn::start(world(), Options::default()).await;
    // Each market is asked about until there is an answer.
    let refused = EndpointFault::Refuse { status: 503, retry_after_s: None };
    venue.misbehave_at(Endpoint::CompactMarket, refused, 1);
    let connector = Connector::start(&venue, 3, QUICK);
    connector.until("the delays", |it| quoted(&it.markets) == delays()).await;

    // Later pages of Gamma change what Gamma states, and nothing else.
    for (market, delay) in [(1, "0.5"), (2, "0")] {
        venue.describe(&condition_id(market), |fields| {
            fields.insert("secondsDelay".into(), delay.into());
        });
    }
    let changed = [Some(0), Some(500), Some(unstated_ms())];
    connector.until("other delays", |it| quoted(&it.markets) == changed).await;
    let is_compact = |get: &str| get.starts_with("/clob-markets/");
    let requests = venue.requests();
    let asked: Vec<_> = requests.iter().filter(|it| is_compact(&it.path)).collect();
    assert!(asked.iter().all(|it| it.path.ends_with(&condition_id(2))), "{asked:?}");
    assert_eq!(asked.len(), 2, "one refusal, one answer");
    assert!(asked.iter().all(|it| it.host == Host::Clob));
}

/// Played at a tenth of real time, the waits last ten times as long; at its end nobody waits.
#[tokio::test]
async fn a_tape_plays_the_delays_at_its_speed() {
    let venue = StandIn::start(world(), Options { keeps_sent: true, ..Options::default() }).await;
    let taped = Taped::start(venue, 3, TapeLimits::default());
    taped.until("the delays", |it| quoted(it.markets()) == delays()).await;
    taped.until("the books", |it| it.is_settled(&tokens(3))).await;
    let recorded = taped.finish().await;
    let open = || Tape::open(recorded.folder.path()).unwrap().unwrap();

    let mut player = TapePlayer::start(open(), "0.1".parse().unwrap(), feed());
    let markets = player.feed().markets().clone();
    let slowed = [Some(0), Some(30_000), Some(10 * unstated_ms())];
    let playing = tokio::spawn(async move { player.run().await });
    let waiting = async {
        while quoted(&markets) != slowed {
            assert!(!playing.is_finished(), "{:?}", quoted(&markets));
            markets.changes().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap();
    playing.abort();

    let mut player = TapePlayer::start(open(), "10".parse().unwrap(), feed());
    player.run().await;
    let at_once = TapePlayer::start(open(), "max".parse().unwrap(), feed());
    for player in [player, at_once] {
        let markets = player.feed().markets();
        assert_eq!(quoted(markets), [Some(0); 3]);
        let info = markets.by_condition(&condition_id(2)).unwrap().info().clone();
        assert!(info.has_unstated_delay, "the delay itself is on the tape");
    }
}
