use std::time::Duration;

use super::*;
use paperbourse_core::money::FeeRate;

const WALLET: &str = "0x00000000000000000000000000000000000000ab";

fn account() -> AccountId {
    AccountId::from_raw(64).unwrap()
}

/// A trade of ten shares for five dollars and a cent of fee, at this millisecond.
fn trade(number: u64, side: Side, at_ms: i64) -> Unsettled {
    Unsettled {
        account: account(),
        order: OrderId::from_raw(64 * number).unwrap(),
        part: 1,
        market_id: "m".into(),
        token_id: "t".into(),
        outcome: "Yes".into(),
        side,
        fill: Fill {
            quantity: Shares::from_micros(10_000_000),
            notional: Usd::from_micros(5_000_000),
            fee: Usd::from_micros(10_000),
            fee_rate: FeeRate::ZERO,
            balance: Usd::ZERO,
            position_shares: Shares::ZERO,
            position_cost: Usd::ZERO,
            at: Timestamp::from_millis(at_ms),
        },
        client_order_id: None,
        is_taker: true,
    }
}

fn trouble(plan: &str) -> Trouble {
    let settlements = Settlements::new(Timestamp::EPOCH);
    Trouble { settlements, ..Trouble::new(plan.parse().unwrap(), None) }
}

fn stage(trouble: &Trouble, trade: &Unsettled, now_ms: i64) -> Stage {
    trouble.stage((account(), WALLET), &trade.trade(), Timestamp::from_millis(now_ms))
}

/// What is due next, at a time when everything is.
async fn due(trouble: &Trouble) -> Due {
    trouble.settlements.next(|| Timestamp::from_millis(i64::MAX / 2_000_000)).await
}

#[tokio::test]
async fn a_trade_goes_through_the_stages_of_its_trouble() {
    let bought = trade(1, Side::Buy, 1_000);
    for (plan, steps) in [
        ("lag=100%:4s", vec![Due::Settle(bought.clone())]),
        ("retrying=100%:4s", vec![Due::Retry(bought.clone()), Due::Settle(bought.clone())]),
        ("failed=100%:4s", vec![Due::Retry(bought.clone()), Due::Undo(bought.clone())]),
        ("failed=100%:4s,lag=100%:9s", vec![Due::Retry(bought.clone()), Due::Undo(bought.clone())]),
    ] {
        let trouble = trouble(plan);
        assert_eq!(stage(&trouble, &bought, 1_001), Stage::Matched, "{plan}");
        let mut expected = Stage::Matched;
        for step in steps {
            assert_eq!(due(&trouble).await, step, "{plan}");
            if let Due::Retry(_) = step {
                expected = Stage::Retrying;
            }
            assert_eq!(stage(&trouble, &bought, 6_000), expected, "{plan}: not ended yet");
        }
        let has_failed = plan.starts_with("failed");
        if has_failed {
            assert!(trouble.fail(&bought, async { true }).await);
        } else {
            trouble.settle(&bought);
        }
        let last = if has_failed { Stage::Failed } else { Stage::Confirmed };
        assert_eq!(stage(&trouble, &bought, 1_002), last, "{plan}");
        assert_eq!(trouble.moved(account(), Some("t")), Moved::default(), "{plan}");
        assert_eq!(trouble.counts().map(|(_, count)| count).sum::<u64>(), 1, "drawn once");
    }
}

#[test]
fn trades_without_trouble_are_settled() {
    let bought = trade(1, Side::Buy, 1_000);
    for (plan, at_ms) in [("", 1_001), ("lag=off", 1_001), ("lag=100%:4s", 5_000)] {
        let trouble = trouble(plan);
        assert_eq!(stage(&trouble, &bought, at_ms), Stage::Confirmed, "{plan}");
        trouble.follow("failed=100%".parse().unwrap());
        assert_eq!(stage(&trouble, &bought, at_ms), Stage::Confirmed, "decided before");
    }
    let before = trade(2, Side::Buy, -1);
    assert_eq!(stage(&trouble("lag=100%"), &before, 0), Stage::Confirmed, "before the start");
}

#[tokio::test]
async fn what_is_not_settled_has_moved() {
    let trouble = trouble("lag=100%");
    for (number, side) in [(1, Side::Buy), (2, Side::Buy), (3, Side::Sell)] {
        assert_eq!(stage(&trouble, &trade(number, side, 0), 0), Stage::Matched);
    }
    let micros = |moved: Moved| [moved.cash.micros(), moved.shares.micros(), moved.bought.micros()];
    let cash = -2 * 5_010_000 + 4_990_000;
    assert_eq!(micros(trouble.moved(account(), Some("t"))), [cash, 10_000_000, 20_000_000]);
    assert_eq!(micros(trouble.moved(account(), Some("u"))), [cash, 0, 0]);
    assert_eq!(micros(trouble.moved(AccountId::from_raw(128).unwrap(), Some("t"))), [0, 0, 0]);
    trouble.fail(&trade(1, Side::Buy, 0), async { true }).await;
    let cash = -5_010_000 + 4_990_000;
    assert_eq!(micros(trouble.moved(account(), Some("t"))), [cash, 0, 10_000_000]);
}

/// Whoever waits is woken by a trade that is due before all others.
#[tokio::test(start_paused = true)]
async fn an_earlier_trade_is_due_first() {
    let began = tokio::time::Instant::now();
    let clock = move || {
        let elapsed = i64::try_from(began.elapsed().as_millis()).unwrap();
        Timestamp::from_millis(elapsed)
    };
    let trouble = std::sync::Arc::new(trouble("lag=100%:1000s"));
    let waiting = tokio::spawn({
        let trouble = trouble.clone();
        async move {
            let first = trouble.settlements.next(clock).await;
            (first, trouble.settlements.next(clock).await, clock().millis())
        }
    });
    let (late, early) = (trade(1, Side::Buy, 0), trade(2, Side::Buy, 1_000));
    stage(&trouble, &late, 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    trouble.follow("lag=100%:7s".parse().unwrap());
    stage(&trouble, &early, 1_000);
    let (first, second, at_ms) = waiting.await.unwrap();
    assert_eq!((first, second), (Due::Settle(early), Due::Settle(late)));
    assert!((1_000_000..1_000_010).contains(&at_ms), "{at_ms}");
}

#[test]
fn the_trades_that_are_remembered_are_bounded() {
    let trouble = trouble("lag=100%:3600s");
    let count = TRADES_MAX as u64 + 10;
    for number in 1..=count {
        stage(&trouble, &trade(number, Side::Buy, number.cast_signed()), 0);
    }
    let counts = {
        let trades = trouble.settlements.trades.lock();
        [trades.known.len(), trades.steps.len(), trades.open[&account()].len()]
    };
    assert_eq!(counts, [TRADES_MAX; 3]);
    assert_eq!(stage(&trouble, &trade(10, Side::Buy, 10), 0), Stage::Confirmed, "forgotten");
    assert_eq!(stage(&trouble, &trade(11, Side::Buy, 11), 0), Stage::Matched);
    let bought = trouble.moved(account(), Some("t")).bought;
    assert_eq!(bought.micros(), 10_000_000 * i64::try_from(TRADES_MAX).unwrap());
}
