use proptest::prelude::*;

use super::candle::{CANDLES_MAX, Candle, Span, Width};
use super::volume::{Volume, Volumes};
use super::*;
use crate::money::Shares;

const ALWAYS: Span = Span { from: i64::MIN, to: i64::MAX, present: None };

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

fn minutes(count: u32) -> Width {
    Width::minutes(count).unwrap()
}

fn hours(count: u32) -> Width {
    Width::hours(count).unwrap()
}

/// Start, open, high, low and close, the prices in cents.
type Row = (i64, i64, i64, i64, i64);

fn row(candle: &Candle) -> Row {
    let cents = |price: Price| price.micros() / 10_000;
    let Candle { start, open, high, low, close, .. } = *candle;
    (start, cents(open), cents(high), cents(low), cents(close))
}

fn changed(changes: &[(i64, i64)]) -> History {
    let mut history = History::default();
    for &(seconds, cents) in changes {
        history.record(at(seconds), Price::from_micros(cents * 10_000), true);
    }
    history
}

#[track_caller]
fn check(changes: &[(i64, i64)], width: Width, span: Span, expected: &[Row]) {
    let candles = changed(changes).candles(width, span, None);
    assert_eq!(candles.iter().map(row).collect::<Vec<_>>(), expected);
}

#[test]
fn a_candle_opens_at_the_price_that_held_when_it_began() {
    let changes = [(60, 50), (70, 60), (75, 40), (119, 45), (130, 47)];
    check(&changes, minutes(1), ALWAYS, &[(60, 50, 60, 40, 45), (120, 45, 47, 45, 47)]);
    check(&changes, minutes(5), ALWAYS, &[(0, 50, 60, 40, 47)]);
    check(&changes, hours(1), ALWAYS, &[(0, 50, 60, 40, 47)]);
}

#[test]
fn a_price_holds_until_it_changes() {
    let changes = [(0, 50), (180, 60)];
    let flat = |minute: i64, cents| (minute * 60, cents, cents, cents, cents);
    let first = [flat(0, 50), flat(1, 50), flat(2, 50), (180, 50, 60, 50, 60)];
    check(&changes, minutes(1), ALWAYS, &first);
    let present = Span { present: Some(310), ..ALWAYS };
    check(&changes, minutes(1), present, &[&first[..], &[flat(4, 60), flat(5, 60)]].concat());
    // The present never hides what is known.
    check(&changes, minutes(1), Span { present: Some(-5), ..ALWAYS }, &first);
}

#[test]
fn a_span_selects_the_candles_that_it_touches() {
    let changes = [(0, 50), (60, 51), (120, 52), (180, 53)];
    let row = |minute: i64, cents| (minute * 60, cents - 1, cents, cents - 1, cents);
    for (from, to, expected) in [
        (60, 120, vec![row(1, 51), row(2, 52)]),
        (119, 119, vec![row(1, 51)]),
        (120, 120, vec![row(2, 52)]),
        (-1, 59, vec![(0, 50, 50, 50, 50)]),
        (200, i64::MAX, vec![row(3, 53)]),
        (240, i64::MAX, vec![]),
        (120, 60, vec![]),
        (i64::MIN, -1, vec![]),
        (i64::MAX, i64::MAX, vec![]),
    ] {
        check(&changes, minutes(1), Span { from, to, present: None }, &expected);
    }
    check(&[], minutes(1), ALWAYS, &[]);
}

#[test]
fn a_span_has_at_most_as_many_candles_as_one_answer() {
    let present = Span { present: Some(i64::MAX), ..ALWAYS };
    let history = changed(&[(0, 50), (60, 51)]);
    for width in [minutes(1), minutes(u32::MAX), hours(1), hours(u32::MAX)] {
        let candles = history.candles(width, present, None);
        let newest = (1_i64 << 34).div_euclid(width.seconds()) * width.seconds();
        assert_eq!(candles.last().unwrap().start, newest, "{width:?}");
        assert!(candles.len() == CANDLES_MAX as usize || width.seconds() > 8_000_000, "{width:?}");
    }
}

#[test]
fn a_late_change_counts_in_the_newest_minute() {
    let newest = (120, 50, 52, 50, 52);
    check(
        &[(0, 50), (125, 51), (61, 52)],
        minutes(1),
        ALWAYS,
        &[(0, 50, 50, 50, 50), (60, 50, 50, 50, 50), newest],
    );
}

#[test]
fn what_is_repeated_replaces_what_was_recorded() {
    let evening = [(7_200, 40), (7_260, 41), (7_320, 42), (7_380, 43), (11_000, 44)];
    let once = changed(&evening);
    let again = changed(&[&evening[..], &evening[..]].concat());
    assert_eq!(again, once);
    let mut earlier = once;
    earlier.record(at(60), Price::from_micros(900_000), true);
    let expected = changed(&[(60, 90)]);
    for width in [minutes(1), hours(1)] {
        let candles = |history: &History| history.candles(width, ALWAYS, None);
        assert_eq!(candles(&earlier), candles(&expected));
    }
}

#[test]
fn what_nobody_watched_is_left_out() {
    let hour = |start: u32, cents: u32| {
        let price = cents * 10_000;
        Bar { start, open: price, high: price, low: price, close: price }
    };
    let rows = |cents: i64| {
        let mut history = History::resuming(vec![hour(1, 50), hour(2, 55)]);
        history.record(at(5 * 3_600 + 60), Price::from_micros(cents * 10_000), true);
        history.candles(hours(1), ALWAYS, None).iter().map(row).collect::<Vec<_>>()
    };
    let flat = |hour: i64, cents| (hour * 3_600, cents, cents, cents, cents);
    assert_eq!(rows(60), [flat(1, 50), flat(2, 55), flat(5, 60)]);
    let same = [flat(1, 50), flat(2, 55), flat(3, 55), flat(4, 55), flat(5, 55)];
    assert_eq!(rows(55), same);
    // In the hour in which it ended, it goes on.
    let mut history = History::resuming(vec![hour(1, 50), hour(2, 55)]);
    history.record(at(2 * 3_600 + 60), Price::from_micros(10_000), true);
    let newest = history.candles(hours(1), ALWAYS, None).last().map(row);
    assert_eq!(newest, Some((7_200, 55, 55, 1, 1)));
    assert_eq!(history.candles(minutes(1), ALWAYS, None).len(), 1);
}

#[test]
fn only_news_is_recorded() {
    let price = Price::from_micros;
    let mut history = History::default();
    assert!(history.is_news(price(0)));
    for (seconds, micros) in [(-1, 500_000), (1, -1), (1, 1_000_001), (i64::MIN, 5)] {
        history.record(at(seconds), price(micros), true);
        assert!(history.is_empty(), "{seconds} {micros}");
    }
    history.record(at(1), price(0), true);
    assert!(!history.is_news(price(0)) && history.is_news(price(1)));
    let hours: Vec<Bar> = history.hours().copied().collect();
    assert!(History::resuming(hours).is_news(price(0)), "it may have changed meanwhile");
}

#[test]
fn old_bars_are_forgotten() {
    let price = |number: u32| Price::from_micros(i64::from(number % 7));
    let mut history = History::default();
    for minute in 0..2 * MINUTES_KEPT {
        history.record(at(i64::from(minute) * 60), price(minute), true);
    }
    assert_eq!(history.candles(minutes(1), ALWAYS, None).len(), MINUTES_KEPT as usize);
    assert_eq!(history.hours().len(), 2 * 24);
    for hour in 0..2 * HOURS_KEPT {
        history.record(at(i64::from(hour + 48) * 3_600), price(hour), true);
    }
    let oldest = history.hours().next().unwrap();
    assert_eq!((oldest.start, history.hours().len()), (HOURS_KEPT + 48, HOURS_KEPT as usize));
    assert_eq!(history.bar_count(), HOURS_KEPT as usize + 24);
    // Whatever is that old is dropped at once.
    history.record(at(i64::from(5 * HOURS_KEPT) * 3_600), price(1), true);
    assert_eq!(history.bar_count(), 2);
}

#[test]
fn without_room_an_outcome_keeps_its_newest_bars() {
    let mut history = History::default();
    for hour in 0..3 {
        history.record(at(hour * 3_600), Price::from_micros(hour), true);
    }
    let starts = |history: &History| history.hours().map(|bar| bar.start).collect::<Vec<_>>();
    assert_eq!(starts(&history), [0, 1, 2]);
    for hour in 3..6 {
        let before = history.bar_count();
        history.record(at(hour * 3_600), Price::from_micros(hour), false);
        assert_eq!(history.bar_count(), before);
    }
    assert_eq!(starts(&history), [3, 4, 5]);
    let mut poor = History::default();
    for hour in 0..3 {
        poor.record(at(hour * 3_600), Price::from_micros(hour), false);
    }
    assert_eq!(starts(&poor), [2], "the newest has always room");
}

#[test]
fn points_are_prices_at_full_minutes_and_the_newest() {
    // Hours from before a restart, then minutes from a quarter past three on.
    let earlier = changed(&[(3_600, 50), (3_700, 55), (3 * 3_600 + 60, 60)]);
    let mut history = History::resuming(earlier.hours().copied().collect());
    for (seconds, cents) in [(900, 60), (930, 61), (960, 62), (1_100, 63)] {
        let at = at(3 * 3_600 + seconds);
        history.record(at, Price::from_micros(cents * 10_000), true);
    }
    let points = |history: &History, width: Width, span: Span| {
        let points = history.points(width, span);
        points.iter().map(|it| (it.at, it.price.micros() / 10_000)).collect::<Vec<_>>()
    };
    let after_three = |seconds: i64, cents: i64| (3 * 3_600 + seconds, cents);
    let hours = [(3_600, 50), (7_200, 55), after_three(0, 55)];
    let minutes_of = [(900, 60), (960, 61), (1_020, 62), (1_080, 62), (1_139, 63)];
    let minutes_of = minutes_of.map(|(seconds, cents)| after_three(seconds, cents));
    assert_eq!(points(&history, minutes(1), ALWAYS), [&hours[..], &minutes_of].concat());
    let present = Span { present: Some(3 * 3_600 + 1_150), ..ALWAYS };
    let now = [after_three(1_140, 63), after_three(1_150, 63)];
    let all = [&hours[..], &minutes_of[..4], &now].concat();
    assert_eq!(points(&history, minutes(1), present), all);
    let expected = [&hours[..], &now[1..]].concat();
    assert_eq!(points(&history, Width::near(60).unwrap(), present), expected);
    let narrow = Span { from: 3_601, to: 3 * 3_600 + 1_079, ..present };
    assert_eq!(points(&history, minutes(1), narrow), all[1..6]);
    // Without an earlier price, a history begins at its first minute.
    let first = changed(&[(900, 60), (960, 61)]);
    let present = Span { present: Some(960), ..ALWAYS };
    assert_eq!(points(&first, minutes(1), present), [(900, 60), (960, 60)]);
    assert_eq!(points(&first, minutes(1), Span { present: Some(961), ..ALWAYS })[2], (961, 61));
    assert_eq!(points(&History::default(), minutes(1), present), []);
}

#[test]
fn the_other_outcome_mirrors_the_prices() {
    let candle = changed(&[(0, 50), (1, 90), (2, 20), (3, 30)]).candles(minutes(1), ALWAYS, None);
    assert_eq!(row(&candle[0]), (0, 50, 90, 20, 30));
    assert_eq!(row(&candle[0].mirrored()), (0, 50, 80, 10, 70));
    assert_eq!(candle[0].mirrored().mirrored(), candle[0]);
}

#[test]
fn volumes_are_counted_where_they_happened() {
    let shares = Shares::from_micros;
    let mut volumes = Volumes::resuming(vec![Volume { start: 1, shares: shares(5) }]);
    for (seconds, micros) in [(-1, 99), (7_200, 1), (7_259, 2), (7_260, 4), (10_700, i64::MAX)] {
        volumes.add(at(seconds), shares(micros));
    }
    let history = changed(&[(3_600, 50), (10_700, 60)]);
    let shown = |volumes: &Volumes, width: Width| {
        let candles = history.candles(width, ALWAYS, Some(volumes));
        let traded = candles.iter().filter(|candle| candle.volume > Shares::ZERO);
        traded.map(|candle| (candle.start, candle.volume.micros())).collect::<Vec<_>>()
    };
    assert_eq!(shown(&volumes, minutes(1)), [(7_200, 3), (7_260, 4), (10_680, i64::MAX)]);
    assert_eq!(shown(&volumes, hours(1)), [(3_600, 5), (7_200, i64::MAX)]);
    assert_eq!(shown(&volumes, hours(2)), [(0, 5), (7_200, i64::MAX)]);
    // The time goes back.
    volumes.add(at(7_250), shares(8));
    assert_eq!(shown(&volumes, minutes(1)), [(7_200, 11)]);
    volumes.add(at(3_600), shares(8));
    assert_eq!(shown(&volumes, minutes(1)), [(3_600, 8)]);
    assert_eq!(shown(&volumes, hours(1)), [(3_600, 13)]);
    // What is too old is forgotten.
    for (seconds, hours) in [(7_200, 2), (3_599 + 86_400 * 90, 3), (3_600 + 86_400 * 90, 3)] {
        volumes.add(at(seconds), shares(1));
        assert_eq!(volumes.hours().len(), hours, "{seconds}");
    }
}

/// The same rules, change by change. Each has the start of its bar, the price that held before, and
/// the new price.
struct Naive {
    unit: i64,
    kept: i64,
    changes: Vec<(i64, i64, i64)>,
}

impl Naive {
    fn new(unit: Unit) -> Self {
        Self { unit: unit.seconds(), kept: unit.kept().into(), changes: Vec::new() }
    }

    fn record(&mut self, start: i64, micros: i64, is_before: bool, is_resumed: &mut bool) {
        if is_before {
            self.changes.retain(|change| change.0 < start);
            *is_resumed = true;
        }
        let newest = self.changes.last().copied();
        let start = newest.map_or(start, |newest| newest.0.max(start));
        let held = newest.filter(|_| !*is_resumed).map(|newest| newest.2);
        self.changes.push((start, held.unwrap_or(micros), micros));
        self.changes.retain(|change| start - change.0 < self.kept);
    }

    fn candles(&self, step: i64, span: Span) -> Vec<(i64, [i64; 4])> {
        let Some(newest) = self.changes.last().map(|change| change.0) else { return Vec::new() };
        let (unit, changes) = (self.unit, &self.changes);
        let present = span.present.unwrap_or(0).max(newest * unit);
        let mut candles = Vec::new();
        for number in changes[0].0 * unit / step..=present / step {
            let start = number * step;
            if start + step <= span.from || start > span.to {
                continue;
            }
            let inside = |change: &&(i64, i64, i64)| {
                start <= change.0 * unit && change.0 * unit < start + step
            };
            let prices: Vec<i64> = changes
                .iter()
                .filter(inside)
                .flat_map(|&(bar, open, price)| {
                    let first = changes.iter().find(|change| change.0 == bar);
                    let is_first = first == Some(&(bar, open, price));
                    [is_first.then_some(open), Some(price)].into_iter().flatten()
                })
                .collect();
            let before = changes.iter().rfind(|change| change.0 * unit < start);
            let after = changes.iter().find(|change| change.0 * unit >= start + step);
            let held = before.map(|it| it.2).filter(|held| after.is_none_or(|it| it.1 == *held));
            let ohlc = match (prices.first(), held) {
                (Some(&open), _) => Some([
                    open,
                    *prices.iter().max().unwrap(),
                    *prices.iter().min().unwrap(),
                    *prices.last().unwrap(),
                ]),
                (None, held) => held.map(|held| [held; 4]),
            };
            candles.extend(ohlc.map(|ohlc| (start, ohlc)));
        }
        let surplus = candles.len().saturating_sub(CANDLES_MAX as usize);
        candles.split_off(surplus)
    }
}

proptest! {
    #[test]
    fn candles_equal_those_folded_change_by_change(
        steps in prop::collection::vec(
            (prop_oneof![6 => -70..400_i64, 1 => 0..90_000_i64, 1 => -9_000..0_i64], 0..5_i64,
             prop::bool::weighted(0.05)),
            1..80,
        ),
        width in (1..130_u32, prop::bool::ANY),
        span in (-9_000..90_000_i64, 0..200_000_i64, prop::option::of(0..99_000_i64)),
    ) {
        const BEGIN: i64 = 5 * 86_400;
        let (mut history, mut minutes, mut hours) =
            (History::default(), Naive::new(Unit::Minute), Naive::new(Unit::Hour));
        let mut now = BEGIN;
        let mut is_resumed = false;
        for (elapsed, tenths, restarts) in steps {
            if restarts {
                history = History::resuming(history.hours().copied().collect());
                minutes = Naive::new(Unit::Minute);
                is_resumed = true;
            }
            now = (now + elapsed).max(0);
            let price = Price::from_micros(tenths * 100_000);
            if !history.is_news(price) {
                continue;
            }
            history.record(at(now), price, true);
            let (minute, hour) = (now / 60, now / 3_600);
            let newest = |naive: &Naive| naive.changes.last().map(|change| change.0);
            let is_before = match (newest(&minutes), newest(&hours)) {
                (Some(newest), _) => minute + 1 < newest,
                (None, Some(newest)) => (minute + 1) / 60 < newest,
                (None, None) => false,
            };
            let mut for_minutes = is_resumed || newest(&hours).is_none();
            // The first minute after a restart opens at its own price.
            minutes.record(minute, price.micros(), is_before, &mut for_minutes);
            hours.record(hour, price.micros(), is_before, &mut is_resumed);
            is_resumed = false;
        }
        let span = Span {
            from: BEGIN + span.0,
            to: BEGIN + span.0 + span.1,
            present: span.2.map(|present| BEGIN + present),
        };
        let (count, is_hours) = width;
        let (width, naive) = if is_hours {
            (Width::hours(count), hours)
        } else {
            (Width::minutes(count), minutes)
        };
        let width = width.unwrap();
        let expected = naive.candles(width.seconds(), span);
        let candles = history.candles(width, span, None);
        let candles: Vec<_> = candles
            .iter()
            .map(|it| (it.start, [it.open, it.high, it.low, it.close].map(Price::micros)))
            .collect();
        prop_assert_eq!(candles, expected);
    }
}
