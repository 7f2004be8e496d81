//! Readers of a long log, which ask for many blocks before the first of them is there.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::super::reader::{AHEAD_BYTES, AHEAD_MAX};
use super::super::test_util::{MemoryLog, Rates};
use super::super::test_util::{reader, take, unseen, write};
use super::super::*;

/// Several times as many as are read at once, and a few.
const BLOCKS: u64 = 647;

const _: () = assert!(BLOCKS > 8 * AHEAD_MAX as u64);

/// A log of this many blocks.
async fn long_log() -> MemoryLog {
    let log = MemoryLog::whole();
    write(&mut take(&log, 1).await, BLOCKS - 1).await;
    log
}

/// The blocks of a log that works.
async fn blocks(log: &MemoryLog) -> Vec<Bytes> {
    let mut blocks = Vec::new();
    for sequence in 1..=log.tail() {
        blocks.push(log.read(sequence).await.unwrap().unwrap());
    }
    blocks
}

/// A log whose reads are counted, and may be answered otherwise.
struct Watched<F> {
    log: MemoryLog,
    /// How many reads are under way, and how many were at most.
    reads: Mutex<(usize, usize)>,
    /// What is asked for in place of this block.
    other: F,
}

impl<F: Fn(u64) -> u64 + Send + Sync> Watched<F> {
    fn new(log: MemoryLog, other: F) -> Self {
        Self { log, reads: Mutex::default(), other }
    }
}

impl<F: Fn(u64) -> u64 + Send + Sync> Log for Watched<F> {
    fn name(&self) -> &'static str {
        "watched"
    }

    async fn append(&self, expected: u64, block: Bytes) -> Appended {
        self.log.append(expected, block).await
    }

    async fn read(&self, sequence: u64) -> Result<Option<Bytes>, NoAnswer> {
        {
            let (now, most) = &mut *self.reads.lock();
            *now += 1;
            *most = (*most).max(*now);
        }
        let read = self.log.read((self.other)(sequence)).await;
        self.reads.lock().0 -= 1;
        read
    }

    async fn extent(&self) -> Result<Extent, NoAnswer> {
        self.log.extent().await
    }

    async fn trim(&self, below: u64) -> Result<(), NoAnswer> {
        self.log.trim(below).await
    }
}

/// Reads all of this log. Returns how long it took and how many blocks were asked for at once.
async fn reading(log: &MemoryLog) -> (Duration, usize) {
    let log = Watched::new(log.clone(), |sequence| sequence);
    let began = Instant::now();
    let mut reader = reader(&log);
    reader.catch_up(unseen).await.unwrap();
    assert_eq!(reader.sequence(), log.log.tail());
    let (now, most) = *log.reads.lock();
    assert_eq!(now, 0);
    (began.elapsed(), most)
}

#[tokio::test(start_paused = true)]
async fn a_long_log_takes_few_round_trips() {
    let (elapsed, most) = reading(&long_log().await).await;
    // One takes up to five milliseconds.
    assert!(elapsed < Duration::from_millis(150), "{elapsed:?}");
    assert!((AHEAD_MAX / 2..=AHEAD_MAX).contains(&most), "{most}");
}

#[tokio::test(start_paused = true)]
async fn few_long_blocks_are_read_at_once() {
    let log = MemoryLog::whole();
    let mut owner = take(&log, 1).await;
    for _ in 0..50 {
        while owner.push(&[1; 10_000]) {}
        owner.flush().await.unwrap();
    }
    let (_, most) = reading(&log).await;
    // The fence, which is short, is the first.
    assert!(most <= 2 * AHEAD_BYTES / REPLICATED_BLOCK_BYTES_MAX, "{most}");
}

/// Reads a long log in which this much goes wrong, and checks that all of it is shown.
async fn check_whole(rates: Rates) {
    let log = long_log().await;
    let expected = blocks(&log).await;
    for seed in 0..20 {
        log.trouble(seed, rates);
        let mut shown = Vec::new();
        let mut reader = reader(&log);
        let show = |sequence: u64, bytes: &Bytes, _: Entry<'_>| {
            shown.push(bytes.clone());
            assert_eq!(sequence, shown.len() as u64, "{rates:?}, seed {seed}");
        };
        reader.catch_up(show).await.unwrap();
        assert!(shown == expected, "{rates:?}, seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_some_replicas_lack_is_read_from_others() {
    check_whole(Rates { missing: 2, ..Rates::default() }).await;
    check_whole(Rates { flipped: 2, ..Rates::default() }).await;
    check_whole(Rates { silent: 10, ..Rates::default() }).await;
    check_whole(Rates { missing: 3, flipped: 3, silent: 20, ..Rates::default() }).await;
}

#[tokio::test(start_paused = true)]
async fn a_block_that_is_not_the_next_is_refused() {
    let log = long_log().await;
    for other in [1, 9, 11, BLOCKS] {
        // It is asked for ahead, and alone after that.
        let log =
            Watched::new(log.clone(), |sequence| if sequence == 10 { other } else { sequence });
        let mut shown = 0;
        let error = reader(&log).catch_up(|sequence, _, _| shown = sequence).await.unwrap_err();
        assert!(error.to_string().contains("halts at block 10"), "{other}: {error}");
        assert_eq!(shown, 9, "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_behind_a_gap_is_shown_before_it_is_closed() {
    let log = long_log().await;
    let expected = blocks(&log).await;
    let mut shown = Vec::new();
    let mut reader = reader(&log);
    for gap in [1, 2, AHEAD_MAX as u64, 100, BLOCKS] {
        let lost = log.lose(gap);
        let error = reader.catch_up(|_, bytes, _| shown.push(bytes.clone())).await.unwrap_err();
        assert!(error.to_string().contains(&format!("halts at block {gap}: no replica has it")));
        assert_eq!((reader.sequence(), shown.len() as u64), (gap - 1, gap - 1));
        log.restore(gap, lost);
    }
    reader.catch_up(|_, bytes, _| shown.push(bytes.clone())).await.unwrap();
    assert!(shown == expected);
}

#[tokio::test(start_paused = true)]
async fn blocks_that_are_trimmed_while_they_are_read_halt_the_reader() {
    let log = long_log().await;
    let mut newest = 0;
    let show = |sequence, _: &Bytes, _: Entry<'_>| {
        if sequence == 10 {
            log.forget(200).unwrap();
        }
        newest = sequence;
    };
    let error = reader(&log).catch_up(show).await.unwrap_err().to_string();
    let expected = format!("halts at block {}: it was removed before it was read", newest + 1);
    assert!(error.contains(&expected), "{error}");
    assert!((10..10 + AHEAD_MAX as u64).contains(&newest), "{newest}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_midway_goes_on_where_it_was() {
    let log = long_log().await;
    let expected = blocks(&log).await;
    log.trouble(1, Rates { missing: 5, flipped: 5, ..Rates::default() });
    let mut shown = Vec::new();
    let mut reader = reader(&log);
    let mut stops = 0;
    while timeout(Duration::from_millis(10 + stops), async {
        reader.catch_up(|_, bytes, _| shown.push(bytes.clone())).await.unwrap();
    })
    .await
    .is_err()
    {
        assert_eq!(reader.sequence(), shown.len() as u64);
        stops += 1;
    }
    assert!(stops > 5, "{stops}");
    assert!(shown == expected);
}
