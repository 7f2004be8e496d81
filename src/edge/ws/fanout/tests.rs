mod all_markets;

use std::sync::Weak;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::*;
use crate::ws::subscriptions::{NextFrame, SubscribeError};
use paperbourse_core::ids::OutcomeIndex;
use paperbourse_core::market::book::{Book, Ladder, Side};
use paperbourse_core::market::catalogue::{MarketInfo, Outcome};
use paperbourse_core::money::{Price, Shares};

const FIFTY: MarketsMax = MarketsMax::Count(50);

/// A market without a book.
pub(in crate::ws) fn info(market: usize) -> MarketInfo {
    let outcomes = ["Yes", "No"].map(|label| Outcome { label: label.into(), token_id: "".into() });
    MarketInfo::bare(&name(market), outcomes)
}

/// Markets `m0`, `m1`, … without books, and their fan-out.
pub(in crate::ws) fn fanout(market_count: usize) -> Arc<Fanout> {
    let markets = Arc::new(Markets::new());
    markets.list((0..market_count).map(info).collect()).unwrap();
    Arc::new(Fanout::new(markets))
}

/// A socket that may have fifty markets.
fn open(fanout: &Arc<Fanout>) -> Subscriptions {
    fanout.open(FIFTY, &Arc::default()).unwrap()
}

/// A socket that may have them all.
pub(in crate::ws) fn open_for_all(fanout: &Arc<Fanout>) -> Subscriptions {
    fanout.open(MarketsMax::All, &Arc::default()).unwrap()
}

pub(in crate::ws) fn name(market: usize) -> String {
    format!("m{market}")
}

/// Publishes a book whose only bid has a price that encodes the number of the change.
pub(in crate::ws) fn publish_bid(markets: &Markets, market: &str, change: i64) {
    let mut ladder = Ladder::default();
    let (price, size) = (Price::from_micros(change * 100), Shares::from_micros(1_000_000));
    ladder.set(Side::Buy, price, size).unwrap();
    let market = markets.by_condition(market).unwrap();
    let book = Arc::new(Book::new(ladder, Timestamp::EPOCH));
    markets.publish(&market, OutcomeIndex(0), book);
}

pub(in crate::ws) fn publish(fanout: &Fanout, market: usize, change: i64) {
    publish_bid(&fanout.markets, &name(market), change);
}

/// Publishes pending changes, if there are any.
pub(in crate::ws) fn pass_on(fanout: &Fanout) {
    let mut changes = std::pin::pin!(fanout.markets.changes());
    let changes = changes.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(changed) = changes {
        for market in changed {
            fanout.pass_on(&market, Timestamp::EPOCH);
        }
    }
}

/// What a frame shows: its market, its change (0 for none), its number, and whether it is
/// conflated.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Seen {
    market: usize,
    change: i64,
    seq: u64,
    conflated: bool,
}

fn seen(next: &NextFrame) -> Seen {
    let json: serde_json::Value =
        serde_json::from_slice(&next.frame.json(next.conflated).concat()).unwrap();
    let bid = json["best_bid"].as_str().map_or(0, |text| {
        Price::from_text(text, paperbourse_core::money::Rounding::Exact).unwrap().micros() / 100
    });
    assert_eq!(json["conflated"], if next.conflated { true.into() } else { json["none"].clone() });
    assert_eq!(json["seq"], next.frame.seq);
    Seen {
        market: json["market_id"].as_str().unwrap()[1..].parse().unwrap(),
        change: bid,
        seq: next.frame.seq,
        conflated: next.conflated,
    }
}

/// Everything that is due, whether or not it is the socket's turn.
fn drain(socket: &mut Subscriptions) -> Vec<Seen> {
    socket.mailbox().take_turn();
    std::iter::from_fn(|| socket.next_frame()).map(|next| seen(&next)).collect()
}

fn subscribe(socket: &mut Subscriptions, markets: impl IntoIterator<Item = usize>) {
    let ids: Vec<_> = markets.into_iter().map(name).collect();
    assert_eq!(socket.subscribe(&ids, Timestamp::EPOCH), Ok(vec![]));
}

#[test]
fn a_fast_reader_sees_every_frame_and_a_slow_one_the_newest() {
    let fanout = fanout(2);
    let (mut fast, mut slow) = (open(&fanout), open(&fanout));
    publish(&fanout, 0, 1);
    pass_on(&fanout);
    subscribe(&mut fast, [0]);
    subscribe(&mut slow, [0, 1]);
    let row = |market, change, seq, conflated| Seen { market, change, seq, conflated };
    assert_eq!(drain(&mut fast), [row(0, 1, 1, false)]);
    assert_eq!(drain(&mut slow), [row(0, 1, 1, false), row(1, 0, 1, false)]);
    for change in 2..=4 {
        publish(&fanout, 0, change);
        pass_on(&fanout);
        assert_eq!(drain(&mut fast), [row(0, change, change.unsigned_abs(), false)]);
    }
    assert_eq!(drain(&mut slow), [row(0, 4, 4, true)]);
    assert_eq!(drain(&mut slow), []);
    // Missed frames are flagged only once.
    publish(&fanout, 0, 5);
    pass_on(&fanout);
    assert_eq!(drain(&mut slow), [row(0, 5, 5, false)]);
}

#[test]
fn a_frame_is_encoded_once_for_all() {
    let fanout = fanout(1);
    let mut sockets: Vec<_> = (0..3).map(|_| open(&fanout)).collect();
    for socket in &mut sockets {
        subscribe(socket, [0]);
    }
    publish(&fanout, 0, 1);
    pass_on(&fanout);
    let frames: Vec<_> =
        sockets.iter_mut().map(|socket| socket.next_frame().unwrap().frame).collect();
    assert!(frames.iter().all(|frame| Arc::ptr_eq(frame, &frames[0])));
}

#[test]
fn a_socket_is_woken_once_until_it_takes_its_bits() {
    let fanout = fanout(2);
    let mut socket = open(&fanout);
    subscribe(&mut socket, [0, 1]);
    drain(&mut socket);
    let mailbox = socket.mailbox().clone();
    let is_woken = || {
        mailbox.give_turn();
        let mut woken = std::pin::pin!(mailbox.wake_up().notified());
        let is_woken = woken.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert_eq!(mailbox.take_turn(), is_woken);
        is_woken
    };
    assert!(is_woken(), "by the subscription");
    assert!(!is_woken());
    publish(&fanout, 0, 1);
    pass_on(&fanout);
    assert!(is_woken());
    publish(&fanout, 0, 2);
    publish(&fanout, 1, 3);
    pass_on(&fanout);
    assert!(!is_woken(), "it has not taken its bits since");
    assert_eq!(drain(&mut socket).len(), 2);
    publish(&fanout, 1, 4);
    pass_on(&fanout);
    assert!(is_woken());
}

#[test]
fn the_fifty_first_market_adds_nothing() {
    let fanout = fanout(60);
    let mut socket = open(&fanout);
    let too_many: Vec<_> = (0..=50).map(name).collect();
    let refused =
        |subscribed, added| Err(SubscribeError::TooMany { markets_max: 50, subscribed, added });
    assert_eq!(socket.subscribe(&too_many, Timestamp::EPOCH), refused(0, 51));
    assert_eq!((socket.condition_ids().count(), fanout.channel_count()), (0, 0));

    subscribe(&mut socket, (0..50).rev());
    assert!(socket.condition_ids().eq((0..50).rev().map(name)));
    assert_eq!(drain(&mut socket).len(), 50);
    assert_eq!(socket.subscribe(&[name(3), name(55)], Timestamp::EPOCH), refused(50, 1));
    // Markets that are already subscribed or do not exist do not count.
    let again = [name(3), name(3), "m99".to_owned()];
    assert_eq!(socket.subscribe(&again, Timestamp::EPOCH), Ok(vec!["m99"]));
    assert_eq!(drain(&mut socket), []);

    socket.unsubscribe(&[name(7), name(7), "m99".to_owned()]).unwrap();
    subscribe(&mut socket, [55]);
    assert_eq!(socket.condition_ids().last(), Some("m55"));
    assert_eq!(drain(&mut socket).iter().map(|seen| seen.market).collect::<Vec<_>>(), [55]);
}

#[test]
fn frame_numbers_never_fall_when_a_channel_ends() {
    let fanout = fanout(2);
    let mut socket = open(&fanout);
    subscribe(&mut socket, [0]);
    for change in 1..5 {
        publish(&fanout, 0, change);
        pass_on(&fanout);
    }
    let before = drain(&mut socket).pop().unwrap();
    socket.unsubscribe(&[name(0)]).unwrap();
    assert_eq!(fanout.channel_count(), 0);
    subscribe(&mut socket, [0, 1]);
    let after = drain(&mut socket);
    assert!(after.iter().all(|seen| seen.seq == before.seq + 1 && !seen.conflated), "{after:?}");
}

#[test]
fn dropping_a_socket_removes_its_channels() {
    let fanout = fanout(3);
    let mut stays = open(&fanout);
    subscribe(&mut stays, [0]);
    let channel: Weak<Channel<PriceFrame>> = {
        let mut goes = open(&fanout);
        subscribe(&mut goes, [0, 1, 2]);
        assert_eq!((fanout.channel_count(), fanout.socket_count()), (3, 2));
        Arc::downgrade(&fanout.channels.of("m1").unwrap())
    };
    assert_eq!((fanout.channel_count(), fanout.socket_count()), (1, 1));
    assert!(channel.upgrade().is_none());
    let left = fanout.channels.of("m0").unwrap().subscriber_count();
    assert_eq!(left, 1);
    let mailbox = Arc::downgrade(stays.mailbox());
    drop(stays);
    assert_eq!((fanout.channel_count(), fanout.socket_count()), (0, 0));
    assert!(mailbox.upgrade().is_none());
}

/// The markets of the frames that are due.
pub(in crate::ws) fn due(socket: &mut Subscriptions) -> Vec<usize> {
    let mut markets: Vec<_> = drain(socket).iter().map(|seen| seen.market).collect();
    markets.sort_unstable();
    markets
}

/// Lists one more market.
pub(in crate::ws) fn list(fanout: &Fanout, market: usize) {
    fanout.markets.list(vec![info(market)]).unwrap();
}

#[test]
fn a_socket_may_have_hundreds_of_markets() {
    let fanout = fanout(300);
    let mut socket = fanout.open(MarketsMax::Count(250), &Arc::default()).unwrap();
    subscribe(&mut socket, (0..250).rev());
    assert!(due(&mut socket).into_iter().eq(0..250));
    assert!(socket.condition_ids().eq((0..250).rev().map(name)));
    let refused = SubscribeError::TooMany { markets_max: 250, subscribed: 250, added: 1 };
    assert_eq!(socket.subscribe(&[name(299)], Timestamp::EPOCH), Err(refused));
    for market in [3, 64, 249, 3] {
        publish(&fanout, market, 1);
    }
    pass_on(&fanout);
    assert_eq!(due(&mut socket), [3, 64, 249]);
    socket.unsubscribe(&[name(64)]).unwrap();
    subscribe(&mut socket, [299]);
    assert_eq!(due(&mut socket), [299]);
    assert_eq!(fanout.subscription_count(), 250);
}

#[test]
fn the_number_of_subscriptions_is_bounded() {
    let fanout = fanout(3);
    let (mut socket, mut all) = (open(&fanout), open_for_all(&fanout));
    fanout.subscription_count.store(SUBSCRIPTIONS_MAX - 2, Ordering::Relaxed);
    let three = [0, 1, 2].map(name);
    assert_eq!(socket.subscribe(&three, Timestamp::EPOCH), Err(SubscribeError::Full));
    assert_eq!((socket.count(), fanout.channel_count()), (0, 0));
    subscribe(&mut socket, [0]);
    all.subscribe_all().unwrap();
    assert_eq!((due(&mut all).len(), all.lacks_markets(), all.lacks_markets()), (1, true, false));
    drop((socket, all));
    assert_eq!(fanout.subscription_count(), SUBSCRIPTIONS_MAX - 2);
}

#[test]
fn the_number_of_sockets_is_bounded() {
    let fanout = fanout(0);
    fanout.socket_count.store(READERS_MAX - 1, Ordering::Relaxed);
    let last = open(&fanout);
    assert!(fanout.open(FIFTY, &Arc::default()).is_none());
    drop(last);
    assert!(fanout.open(FIFTY, &Arc::default()).is_some());
}

const MARKETS: usize = 4;
const SOCKETS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Publish(usize),
    PassOn,
    Subscribe(usize, usize),
    Unsubscribe(usize, usize),
    /// Reads at most this many frames, and then puts back the last so many of them.
    Read(usize, usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let socket_and_market = || (0..SOCKETS, 0..MARKETS);
    prop_oneof![
        4 => (0..MARKETS).prop_map(Step::Publish),
        3 => Just(Step::PassOn),
        2 => socket_and_market().prop_map(|(socket, market)| Step::Subscribe(socket, market)),
        1 => socket_and_market().prop_map(|(socket, market)| Step::Unsubscribe(socket, market)),
        3 => (0..SOCKETS, 1..=MARKETS, 0..=MARKETS)
            .prop_map(|(socket, count, put_back)| Step::Read(socket, count, put_back)),
    ]
}

/// A naive fan-out: every subscription queues all changes that it was not shown.
#[derive(Default)]
struct Model {
    published: [i64; MARKETS],
    /// What the newest frame of each subscribed market shows.
    encoded: [i64; MARKETS],
    waiting: std::collections::BTreeSet<usize>,
    queues: [[Option<Queue>; MARKETS]; SOCKETS],
}

/// The changes that a subscription was not shown, and whether it was ever shown one.
#[derive(Clone)]
struct Queue {
    changes: Vec<i64>,
    is_new: bool,
}

impl Model {
    fn pass_on(&mut self) {
        for market in std::mem::take(&mut self.waiting) {
            self.encoded[market] = self.published[market];
            for queues in &mut self.queues {
                if let Some(queue) = &mut queues[market] {
                    queue.changes.push(self.published[market]);
                }
            }
        }
    }

    fn subscribe(&mut self, socket: usize, market: usize) {
        if self.queues.iter().all(|queues| queues[market].is_none()) {
            self.encoded[market] = self.published[market];
        }
        let newest = self.encoded[market];
        self.queues[socket][market]
            .get_or_insert_with(|| Queue { changes: vec![newest], is_new: true });
    }

    /// Takes the part of the queue that this frame stands for.
    fn check(&mut self, socket: usize, seen: &Seen) {
        let queue = self.queues[socket][seen.market].as_mut().expect("subscribed");
        let changes = std::mem::take(&mut queue.changes);
        assert_eq!(Some(&seen.change), changes.last(), "{seen:?} is the newest of {changes:?}");
        let is_first = std::mem::take(&mut queue.is_new);
        assert_eq!(seen.conflated, changes.len() > 1 && !is_first, "{seen:?} of {changes:?}");
    }

    fn due(&self, socket: usize) -> usize {
        self.queues[socket].iter().flatten().filter(|queue| !queue.changes.is_empty()).count()
    }
}

proptest! {
    #[test]
    fn the_fanout_agrees_with_a_queue_per_subscription(
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let fanout = fanout(MARKETS);
        let mut model = Model::default();
        let mut sockets: Vec<_> = (0..SOCKETS).map(|_| open(&fanout)).collect();
        let mut newest_seq = [[0; MARKETS]; SOCKETS];
        for (change, step) in (1..).zip(steps) {
            match step {
                Step::Publish(market) => {
                    publish(&fanout, market, change);
                    model.published[market] = change;
                    model.waiting.insert(market);
                }
                Step::PassOn => {
                    pass_on(&fanout);
                    model.pass_on();
                }
                Step::Subscribe(socket, market) => {
                    subscribe(&mut sockets[socket], [market]);
                    model.subscribe(socket, market);
                }
                Step::Unsubscribe(socket, market) => {
                    sockets[socket].unsubscribe(&[name(market)]).unwrap();
                    model.queues[socket][market] = None;
                    // A new subscription may start with the frame that the old one ended with.
                    let before = &mut newest_seq[socket][market];
                    *before = u64::saturating_sub(*before, 1);
                }
                Step::Read(socket, count, put_back) => {
                    let mut read = Vec::new();
                    for _ in 0..count {
                        let due = model.due(socket);
                        let next = sockets[socket].next_frame();
                        prop_assert_eq!(next.is_some(), due > 0);
                        let Some(next) = next else { break };
                        let seen = seen(&next);
                        let before = &mut newest_seq[socket][seen.market];
                        prop_assert!(seen.seq > *before, "{:?} after {}", seen, before);
                        let queue = model.queues[socket][seen.market].clone();
                        read.push((next.taken(), seen.market, *before, queue));
                        *before = seen.seq;
                        model.check(socket, &seen);
                    }
                    for (frame, market, seq, queue) in read.into_iter().rev().take(put_back) {
                        sockets[socket].put_back(&frame);
                        newest_seq[socket][market] = seq;
                        model.queues[socket][market] = queue;
                    }
                }
            }
        }
    }
}

/// A feed, a fan-out, and readers that come and go, each on its own thread: every reader sees the
/// last price, and nobody sees prices go backwards.
#[test]
fn nothing_is_lost_between_threads() {
    const CHANGES: i64 = 2_000;
    let fanout = fanout(1);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for change in 1..=CHANGES {
                publish(&fanout, 0, change);
                std::thread::yield_now();
            }
        });
        // Ends with its thread's runtime, once every reader has seen the last price.
        let (done, mut is_done) = tokio::sync::watch::channel(0);
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        threads.spawn({
            let fanout = &fanout;
            move || {
                runtime().block_on(async {
                    tokio::select! {
                        _ = fanout.run() => unreachable!("the fan-out never ends"),
                        _ = is_done.wait_for(|&count| count == 3) => {}
                    }
                });
            }
        });
        for reader in 0..3 {
            let (fanout, done) = (&fanout, done.clone());
            threads.spawn(move || {
                let mut socket = open(fanout);
                subscribe(&mut socket, [0]);
                let (mut change, mut seq, mut is_first) = (0, 0, true);
                while change < CHANGES {
                    while !socket.mailbox().give_turn() {
                        std::thread::yield_now();
                    }
                    for seen in drain(&mut socket) {
                        let is_newer = seen.seq > seq || (is_first && seen.seq == seq);
                        assert!(seen.change >= change && is_newer, "{seen:?} {change} {seq}");
                        assert_eq!(seen.conflated, !is_first && seen.seq > seq + 1, "{seen:?}");
                        (change, seq, is_first) = (seen.change, seen.seq, false);
                    }
                    if reader == 2 && change < CHANGES {
                        socket.unsubscribe(&[name(0)]).unwrap();
                        subscribe(&mut socket, [0]);
                        is_first = true;
                    }
                }
                done.send_modify(|count| *count += 1);
            });
        }
    });
    assert_eq!((fanout.channel_count(), fanout.socket_count()), (0, 0));
}
