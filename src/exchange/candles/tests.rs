use tokio::runtime::Builder;

use super::*;
use paperbourse_core::clock::Clock;
use paperbourse_core::engine::Rules;
use paperbourse_core::engine::command::{Identity, OrderNames, Owner, Trade, TradeOrder};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::{Book, Ladder, Level, Side};
use paperbourse_core::market::catalogue::{MarketInfo, Outcome};
use paperbourse_core::money::Price;
use paperbourse_store::journal::{JournalConfig, MemoryJournal};
use paperbourse_store::snapshot::Recovered;

const MARKET: &str = "0xabc";

fn buy(shares: i64) -> Trade {
    let order = TradeOrder {
        market_id: MARKET.into(),
        outcome: "Yes".into(),
        side: Side::Buy,
        quantity: Shares::from_micros(shares * 1_000_000),
        expected_price: None,
        max_slippage_bps: None,
    };
    let buyer = Identity { digest: [1; 32], issuer: "test".into(), subject: "buyer".into() };
    Trade::new(Owner::Identity(buyer), order, OrderNames::default())
}

/// A server that is ready has subscribed, and its first trade may come before the counter runs.
#[test]
fn what_is_traded_after_the_subscription_counts() {
    let journal: Arc<Journal> = Arc::new(MemoryJournal::new(&JournalConfig::default()).into());
    let markets = Arc::new(Markets::new());
    let outcomes =
        ["Yes", "No"].map(|label| Outcome { label: label.into(), token_id: label.into() });
    markets.list(vec![MarketInfo::bare(MARKET, outcomes)]).unwrap();
    let market = markets.by_condition(MARKET).unwrap();
    let level =
        Level { price: Price::from_micros(500_000), size: Shares::from_micros(1_000_000_000) };
    let book = Book::new(Ladder::from_levels(vec![], vec![level]).unwrap(), Timestamp::EPOCH);
    markets.publish(&market, OutcomeIndex(0), Arc::new(book));
    let shards = Arc::new(Shards::new(
        Recovered::default(),
        journal.clone(),
        markets.clone(),
        Rules::default(),
        Clock::System,
        Arc::default(),
        Box::new(|_: &Event, _: &State| {}),
    ));
    let volume = || {
        let record = markets.price_record(&market, OutcomeIndex(0));
        record.map_or(0, |record| record.volumes.hours().map(|hour| hour.shares.micros()).sum())
    };
    let waiters = journal.register();
    let worker = async {
        let trade = |shares| shards.execute(buy(shares).owner.shard(), buy(shares), &waiters);
        trade(5).await.unwrap();
        let counter =
            TradeCounter::subscribe(markets.clone(), shards.clone(), journal.clone()).await;
        trade(10).await.unwrap();
        assert_eq!(volume(), 0);
        tokio::spawn(counter.run());
        while volume() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(volume(), 10_000_000, "what was traded before is not counted");
        // Nobody looks again for a while, but at a shutdown.
        tokio::task::yield_now().await;
        trade(3).await.unwrap();
        assert_eq!(volume(), 10_000_000);
        shards.deliver_facts().await;
        assert_eq!(volume(), 13_000_000);
    };
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        tokio::select! {
            () = waiters.run() => {}
            () = worker => {}
        }
    });
}
