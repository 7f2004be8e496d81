//! What a client that keeps books is sent when it meets trouble.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::time::sleep;

use super::*;
use crate::trouble::{About, Subject, Trouble};

const NOTHING: [&str; 0] = [];

/// The trouble of a plan, at a venue with a book.
fn venue(plan: &str) -> (Venue, SocketTrouble) {
    let mut venue = Venue::new();
    venue.set(0, Side::Buy, 40, 5);
    venue.set(0, Side::Sell, 60, 5);
    let trouble = Arc::new(Trouble::new(plan.parse().unwrap(), None));
    (venue, SocketTrouble { trouble, address: IpAddr::V4(Ipv4Addr::LOCALHOST) })
}

/// A client that has subscribed, before it reads.
fn joined(venue: &Venue, trouble: &SocketTrouble, tokens: &[&str]) -> Client {
    let mut client = Client::in_trouble(venue, Some(trouble.clone()));
    for token in tokens {
        client.join(token, venue.now());
    }
    client
}

impl Client {
    /// Takes everything that is due, as it is.
    fn read_raw(&mut self) -> Vec<Value> {
        let mut out = Vec::new();
        while self.turns.give() > 0 {
            self.socket.take_turn(&mut out, usize::MAX).unwrap();
        }
        texts(&out).into_iter().map(|text| serde_json::from_slice(text).unwrap()).collect()
    }

    fn tops_kept(&self, token: &str) -> [Option<Price>; 2] {
        let ladder = self.books[token].ladder();
        [ladder.best_bid(), ladder.best_ask()].map(|level| level.map(|level| level.price))
    }
}

fn cents(cents: i64) -> Price {
    Price::from_micros(cents * 10_000)
}

impl Venue {
    fn change(&mut self, cents: i64) {
        self.set(0, Side::Buy, cents, 7);
        self.pass_on();
    }
}

/// Moves the clock past the end of what a socket has met.
async fn after(length: Duration) {
    sleep(length + Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_socket_is_sent_whole_books_afterwards() {
    let (mut venue, trouble) = venue("silence=100%:20s");
    let mut client = joined(&venue, &trouble, &["t-Yes", "t-No"]);
    assert_eq!(client.read_all(&venue), NOTHING);
    for bid in [41, 42] {
        venue.change(bid);
        venue.trade(0, 42, true);
        venue.pass_on();
        sleep(Duration::from_secs(9)).await;
        assert_eq!(client.read_all(&venue), NOTHING);
    }
    after(Duration::from_secs(2)).await;
    assert_eq!(client.read_all(&venue), ["book", "book"]);
    assert_eq!(client.tops_kept("t-Yes"), [cents(42), cents(60)].map(Some));
    // By the real clock, which draws go by, the time is not over.
    venue.change(43);
    assert_eq!(client.read_all(&venue), ["price_change"]);
    assert_eq!(trouble.trouble.counts().collect::<Vec<_>>(), [(Kind::Silence, 1)]);
}

#[tokio::test(start_paused = true)]
async fn silence_and_ghosts_end_when_the_plan_no_longer_has_them() {
    for (kind, first) in [("silence", &NOTHING[..]), ("ghost", &["book"])] {
        let (venue, trouble) = venue(&format!("{kind}=100%:1000s"));
        let mut client = joined(&venue, &trouble, &["t-Yes"]);
        assert_eq!(client.read_all(&venue), first);
        trouble.trouble.follow(format!("{kind}=1%").parse().unwrap());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(client.read_all(&venue), NOTHING);
        trouble.trouble.follow("lost=100%".parse().unwrap());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(client.read_all(&venue), ["book"]);
        assert_eq!(client.tops_kept("t-Yes"), [cents(40), cents(60)].map(Some));
    }
}

#[tokio::test(start_paused = true)]
async fn a_ghost_is_shown_for_a_while_and_has_the_hash_of_its_book() {
    let (mut venue, trouble) = venue("ghost=100%:5s");
    let mut client = joined(&venue, &trouble, &["t-Yes", "t-No"]);
    assert_eq!(client.read_all(&venue), ["book", "book"], "the client checks both hashes");
    assert_eq!(client.tops_kept("t-Yes"), [cents(1), cents(99)].map(Some));
    assert_eq!(client.tops_kept("t-No"), [cents(40), cents(60)].map(Some));
    venue.change(41);
    assert_eq!(client.read_all(&venue), ["book"], "of the other outcome");
    assert_eq!(client.tops_kept("t-No"), [cents(40), cents(59)].map(Some));
    after(Duration::from_secs(5)).await;
    assert_eq!(client.read_all(&venue), ["book"]);
    assert_eq!(client.tops_kept("t-Yes"), [cents(41), cents(60)].map(Some));
    venue.change(42);
    assert_eq!(client.read_all(&venue), ["price_change"]);
}

#[tokio::test(start_paused = true)]
async fn a_gap_shows_in_the_hashes_until_the_next_book() {
    let (mut venue, trouble) = venue("gap=100%");
    let mut client = joined(&venue, &trouble, &["t-Yes"]);
    assert_eq!(client.read_all(&venue), ["book"]);
    venue.change(41);
    assert_eq!(client.read_all(&venue), NOTHING);
    trouble.trouble.follow("".parse().unwrap());
    venue.change(42);
    let [frame] = &client.read_raw()[..] else { panic!("one frame") };
    let changes = frame["price_changes"].as_array().unwrap();
    let change = changes.iter().find(|change| change["asset_id"] == "t-Yes").unwrap();
    let size = change["size"].as_str().unwrap().to_owned();
    client.books.get_mut("t-Yes").unwrap().sides[0].insert("0.42".to_owned(), size);
    let at = frame["timestamp"].as_str().unwrap();
    assert_ne!(change["hash"], client.hash(&venue.info, "t-Yes", at), "0.41 is missing");
    client.leave("t-Yes");
    client.join("t-Yes", venue.now());
    assert_eq!(client.read_all(&venue), ["book"]);
}

#[tokio::test]
async fn a_resolution_can_be_unannounced_and_a_socket_can_end() {
    let (mut venue, trouble) = venue("unresolved=100%");
    let mut client = joined(&venue, &trouble, &["t-Yes"]);
    client.socket.turn_on_custom();
    assert_eq!(client.read_all(&venue), ["book"]);
    venue.describe(|info| {
        info.status = MarketStatus::Resolved;
        info.payouts = vec![Price::from_micros(0), Price::from_micros(1_000_000)];
    });
    venue.pass_on();
    assert_eq!(client.read_all(&venue), NOTHING);
    assert_eq!(trouble.trouble.counts().collect::<Vec<_>>(), [(Kind::Unresolved, 1)]);

    trouble.trouble.follow("market-closed=100%".parse().unwrap());
    let mut other = joined(&venue, &trouble, &["t-Yes"]);
    assert_eq!(other.read(&venue, usize::MAX), Err(Stop::Trouble));
}

#[tokio::test]
async fn a_coarser_tick_is_told_and_taken_back() {
    let (mut venue, trouble) = venue("tick=100%");
    let mut client = joined(&venue, &trouble, &["t-Yes"]);
    assert_eq!(client.read_all(&venue), ["book"]);
    let subject = Subject { name: "m", wallet: Some("0x1"), address: None };
    let now = Timestamp::now();
    trouble.trouble.draw(Kind::Tick, subject, About::default(), now).unwrap();
    venue.fanout.show_tick("m", now);
    assert_eq!(client.read_all(&venue), ["tick_size_change", "book"]);
    assert_eq!(client.books["t-Yes"].tick, "0.1");
    // Changes are still hashed with it.
    venue.set(0, Side::Buy, 30, 7);
    venue.fanout.show_tick("m", now);
    assert_eq!(client.read_all(&venue), ["price_change"]);
    venue.fanout.show_tick("m", now.after_ms(30_000));
    assert_eq!(client.read_all(&venue), ["tick_size_change", "book"]);
    assert_eq!(client.books["t-Yes"].tick, "0.01");
}

/// A socket that is opened later is not the same, but the n-th socket always is.
#[tokio::test]
async fn the_same_seed_is_the_same_trouble() {
    let met = |seed: u64| -> Vec<usize> {
        let (mut venue, trouble) = venue(&format!("seed={seed},gap=50%"));
        let sockets = (0..2).map(|_| joined(&venue, &trouble, &["t-Yes"]));
        let mut sockets: Vec<Client> = sockets.collect();
        let mut counts = Vec::new();
        for change in 0..40 {
            venue.set(0, Side::Buy, 41, 1 + change);
            venue.pass_on();
            counts.extend(sockets.iter_mut().map(|socket| socket.read_raw().len()));
        }
        counts
    };
    assert_eq!(met(7), met(7));
    assert_ne!(met(7), met(8));
}
