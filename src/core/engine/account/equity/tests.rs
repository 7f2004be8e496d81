use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const OUTCOMES: usize = 3;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

fn usd(micros: i64) -> Usd {
    Usd::from_micros(micros)
}

fn holding(shares: i64, cost: i64) -> Holding {
    Holding { shares: Shares::from_micros(shares), cost: usd(cost) }
}

/// What happened: when, to the shares and the cost of which outcome, to the cash, and whether the
/// record has the balance, as those of fills do.
#[derive(Clone, Debug)]
struct Record {
    at: i64,
    outcome: usize,
    shares: i64,
    cost: i64,
    amount: i64,
    is_fill: bool,
}

fn record() -> impl Strategy<Value = Record> {
    let amounts = (0_i64..4_000_000, 0_i64..2_000_000, -1_000_000_i64..1_000_000);
    (0_i64..40, 0..OUTCOMES, amounts, any::<bool>()).prop_map(
        |(at, outcome, (shares, cost, amount), is_fill)| {
            // A third of them leave nothing.
            let (shares, cost) = if shares < 1_300_000 { (0, 0) } else { (shares, cost) };
            Record { at, outcome, shares, cost, amount, is_fill }
        },
    )
}

/// A price that changes all the time, and is often unknown.
fn price(outcome: usize, moment: Timestamp) -> Option<i64> {
    let number = moment.seconds() * 7 + i64::try_from(outcome).unwrap() * 5;
    (number % 3 > 0).then_some(number * 77_777 % 1_000_001)
}

/// Cash and value of the positions at a moment: every record from the first on.
fn naive(cash: i64, records: &[Record], moment: i64) -> (i64, i64) {
    let until: Vec<_> = records.iter().filter(|record| record.at <= moment).collect();
    let cash = cash + until.iter().map(|record| record.amount).sum::<i64>();
    let value = |outcome: usize| {
        let newest = until.iter().rev().find(|record| record.outcome == outcome);
        let (shares, cost) = newest.map_or((0, 0), |record| (record.shares, record.cost));
        let price = price(outcome, at(moment)).filter(|_| shares > 0);
        price.map_or(cost, |price| shares * price / 1_000_000)
    };
    (cash, (0..OUTCOMES).map(value).sum())
}

/// The points from the records after the first `skipped`.
fn folded(cash: i64, records: &[Record], skipped: usize) -> Equity {
    let sum = |records: &[Record]| cash + records.iter().map(|it| it.amount).sum::<i64>();
    let began_at = skipped.checked_sub(1).map_or(0, |index| records[index].at);
    let mut payments = Vec::new();
    let mut moves = vec![Vec::new(); OUTCOMES];
    let mut held = [Holding::NONE; OUTCOMES];
    for (index, record) in records.iter().enumerate() {
        let after = holding(record.shares, record.cost);
        let before = std::mem::replace(&mut held[record.outcome], after);
        if index >= skipped {
            moves[record.outcome].push(Move { at: at(record.at), before, after });
            let balance = record.is_fill.then(|| usd(sum(&records[..=index])));
            payments.push(Payment { at: at(record.at), amount: usd(record.amount), balance });
        }
    }
    let start = (at(began_at), usd(sum(&records[..skipped])));
    let mut equity = Equity::new((-3..45).map(at), start, &payments);
    for (outcome, moves) in moves.iter().enumerate() {
        let known = |moment| price(outcome, moment).map(Price::from_micros);
        equity.add(held[outcome], moves, known);
    }
    equity
}

proptest! {
    #[test]
    fn a_fold_of_the_newest_records_equals_a_sum_of_all(
        mut records in vec(record(), 0..40),
        cash in 0_i64..1_000_000_000,
        skipped in any::<prop::sample::Index>(),
    ) {
        records.sort_by_key(|record| record.at);
        let skipped = skipped.index(records.len() + 1);
        let points = folded(cash, &records, skipped).points;
        let first = skipped.checked_sub(1).map_or(0, |index| records[index].at);
        prop_assert_eq!(points.len(), usize::try_from(45 - first).unwrap());
        for (point, moment) in points.iter().zip(first..) {
            prop_assert_eq!(point.at, at(moment));
            // Records of one second may be on both sides of the cut.
            if moment > first || skipped == 0 {
                let expected = naive(cash, &records, moment);
                let found = (point.cash.micros(), point.position_value.micros());
                prop_assert_eq!(found, expected, "at {}", moment);
                prop_assert_eq!(point.total().micros(), expected.0 + expected.1);
            }
        }
    }
}

#[test]
fn what_a_missing_record_hides_is_left_out() {
    let payment = |seconds, amount, balance: Option<i64>| Payment {
        at: at(seconds),
        amount: usd(amount),
        balance: balance.map(usd),
    };
    let check = |payments: &[Payment], expected: &[(i64, i64)]| {
        let points = Equity::new((1..=5).map(at), (at(0), usd(100)), payments).points;
        let points: Vec<_> = points.iter().map(|it| (it.at.seconds(), it.cash.micros())).collect();
        assert_eq!(points, expected);
    };
    let bought = payment(2, -10, Some(90));
    let all = [(1, 100), (2, 90), (3, 90), (4, 90), (5, 90)];
    check(&[bought], &all);
    check(&[bought, payment(4, -5, Some(85))], &[&all[..3], &[(4, 85), (5, 85)]].concat());
    // Something paid 7 after the second 2 and before the second 4.
    check(&[bought, payment(4, -5, Some(92))], &[(4, 92), (5, 92)]);
    check(&[bought, payment(5, 0, Some(97))], &[(5, 97)]);
    check(&[payment(6, 0, Some(97))], &[(1, 100), (2, 100), (3, 100), (4, 100), (5, 100)]);
}
