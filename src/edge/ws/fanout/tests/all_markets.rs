//! Sockets with all markets.

use super::*;

#[test]
fn a_socket_with_all_markets_has_later_ones_too() {
    let fanout = fanout(3);
    let (mut all, mut other) = (open_for_all(&fanout), open(&fanout));
    subscribe(&mut other, [1]);
    all.subscribe_all().unwrap();
    // They are joined as the reader takes them.
    assert_eq!((fanout.channel_count(), all.count()), (1, 0));
    assert_eq!(due(&mut all), [0, 1, 2]);
    all.subscribe_all().unwrap();
    assert!(due(&mut all).is_empty());

    // It hears of a later market when that changes, or when somebody else has it first.
    list(&fanout, 3);
    list(&fanout, 4);
    list(&fanout, 5);
    assert!(due(&mut all).is_empty());
    publish(&fanout, 3, 1);
    pass_on(&fanout);
    subscribe(&mut other, [4]);
    assert_eq!(due(&mut all), [3, 4]);
    publish(&fanout, 4, 2);
    publish(&fanout, 5, 3);
    pass_on(&fanout);
    assert_eq!(due(&mut all), [4, 5]);

    // All or nothing.
    assert_eq!(all.unsubscribe(&[name(1)]), Err(SubscribeError::NotOne));
    all.unsubscribe_all();
    assert_eq!((all.count(), fanout.subscription_count()), (0, 2));
    publish(&fanout, 0, 4);
    pass_on(&fanout);
    assert!(due(&mut all).is_empty());
    assert!(fanout.all.lock().is_empty());
}

#[test]
fn only_a_socket_without_a_limit_may_have_all_markets() {
    let fanout = fanout(3);
    let mut socket = open(&fanout);
    assert_eq!(socket.subscribe_all(), Err(SubscribeError::NotAll { markets_max: 50 }));
    assert!(due(&mut socket).is_empty());
}

/// The steps of a world in which markets are listed one by one and one socket has them all.
#[derive(Clone, Debug)]
enum AllStep {
    List,
    Publish(prop::sample::Index),
    PassOn,
    /// Another socket has one market, or none.
    Other(Option<prop::sample::Index>),
    SubscribeAll,
    UnsubscribeAll,
    /// The socket with all markets reads at most this many frames, and then puts back the last so
    /// many of them.
    Read(usize, usize),
}

fn all_step() -> impl Strategy<Value = AllStep> {
    prop_oneof![
        2 => Just(AllStep::List),
        6 => any::<prop::sample::Index>().prop_map(AllStep::Publish),
        4 => Just(AllStep::PassOn),
        2 => any::<Option<prop::sample::Index>>().prop_map(AllStep::Other),
        2 => Just(AllStep::SubscribeAll),
        1 => Just(AllStep::UnsubscribeAll),
        4 => (1..6_usize, 0..6_usize).prop_map(|(count, back)| AllStep::Read(count, back)),
    ]
}

proptest! {
    /// It never sees a market go back, and ends with the last state of each.
    #[test]
    fn a_socket_with_all_markets_ends_with_the_last_state_of_each(
        steps in prop::collection::vec(all_step(), 0..120),
    ) {
        let fanout = fanout(1);
        let (mut all, mut other) = (open_for_all(&fanout), open(&fanout));
        let mut published = vec![0];
        let mut shown: Map<usize, Seen> = Map::default();
        let see = |shown: &mut Map<usize, Seen>, seen: Seen| {
            if let Some(before) = shown.get(&seen.market) {
                let is_newer = seen.change >= before.change && seen.seq > before.seq;
                assert!(is_newer, "{seen:?} {before:?}");
                assert_eq!(seen.conflated, seen.seq > before.seq + 1, "{seen:?} {before:?}");
            } else {
                assert!(!seen.conflated, "{seen:?} is the first");
            }
            shown.insert(seen.market, seen);
        };
        // Then to the end of all frames.
        let last = [AllStep::SubscribeAll, AllStep::PassOn, AllStep::Read(usize::MAX, 0)];
        for (change, step) in (1..).zip(steps.into_iter().chain(last)) {
            match step {
                AllStep::List => {
                    list(&fanout, published.len());
                    published.push(0);
                }
                AllStep::Publish(market) => {
                    let market = market.index(published.len());
                    publish(&fanout, market, change);
                    published[market] = change;
                }
                AllStep::PassOn => pass_on(&fanout),
                AllStep::Other(market) => {
                    other.unsubscribe_all();
                    subscribe(&mut other, market.map(|market| market.index(published.len())));
                }
                AllStep::SubscribeAll => all.subscribe_all().unwrap(),
                AllStep::UnsubscribeAll => {
                    all.unsubscribe_all();
                    // What it had read is of an earlier subscription.
                    shown.clear();
                }
                AllStep::Read(count, put_back) => {
                    let frames = std::iter::from_fn(|| all.next_frame());
                    let mut read = Vec::new();
                    for next in frames.take(count) {
                        let seen = seen(&next);
                        read.push((next.taken(), seen.market, shown.get(&seen.market).cloned()));
                        see(&mut shown, seen);
                    }
                    for (frame, market, before) in read.into_iter().rev().take(put_back) {
                        all.put_back(&frame);
                        match before {
                            Some(before) => shown.insert(market, before),
                            None => shown.remove(&market),
                        };
                    }
                }
            }
        }
        for (market, &change) in published.iter().enumerate() {
            // A market that was listed later and never changed has nothing to say yet.
            let seen = shown.get(&market).map_or(0, |seen| seen.change);
            prop_assert_eq!(seen, change, "market {}", market);
        }
        prop_assert_eq!(all.next_frame().map(|next| seen(&next)), None);
    }
}
