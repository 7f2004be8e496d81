//! A journal whose blocks go elsewhere first.

use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;

use super::super::test_util::LOG;
use super::super::*;
use crate::disk::Disk;
use crate::journal::{DataDirectory, Journal, JournalConfig, Refused};

/// Greater than the folder's own.
const EPOCH: u64 = 77;

/// Keeps blocks, and holds the journal back behind a gate.
#[derive(Default)]
struct Elsewhere {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    is_open: bool,
    blocks: Vec<Bytes>,
    chain: Option<ReplicatedChain>,
}

impl Upstream for Elsewhere {
    fn epoch(&self) -> u64 {
        EPOCH
    }

    fn append(&self, block: NextBlock<'_>) {
        assert_eq!(thread::current().name(), Some("journal"), "no worker waits for this");
        let mut state = self.state.lock();
        while !state.is_open {
            self.opened.wait(&mut state);
        }
        let chain = state.chain.get_or_insert_with(|| ReplicatedChain::start(LOG));
        let block = block.seal(chain);
        assert!(block.len() <= REPLICATED_BLOCK_BYTES_MAX);
        state.blocks.push(block);
    }
}

impl Elsewhere {
    fn open(&self, is_open: bool) {
        self.state.lock().is_open = is_open;
        self.opened.notify_all();
    }

    fn records(&self) -> Vec<Vec<u8>> {
        let mut chain = ReplicatedChain::start(LOG);
        let mut records = Vec::new();
        for block in &self.state.lock().blocks {
            let Entry::Records(read) = chain.read(block).unwrap() else { panic!("records") };
            records.extend(read.iter().map(<[u8]>::to_vec));
        }
        records
    }
}

#[test]
fn a_record_is_elsewhere_before_it_is_durable_here() {
    let data = TempDir::new().unwrap();
    let elsewhere = Arc::new(Elsewhere::default());
    let open = |config: &JournalConfig| {
        let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
        let mut records = Vec::new();
        let opened = Journal::open(&directory, config, |_, _, record| {
            records.push(record.to_vec());
            Ok::<_, std::convert::Infallible>(())
        });
        (opened.unwrap().0, records)
    };
    let config = JournalConfig { segment_bytes: 4 << 20, ..JournalConfig::default() };
    let (journal, _) = open(&config);
    journal.reserve(4).unwrap().fill_from(b"copy");
    journal.put_behind(elsewhere.clone());
    assert_eq!(journal.epoch(), EPOCH);
    assert_eq!(journal.durable_lsn().position(), 1, "what came before is on disk");
    // Some alone, some together, and more than fit into one block.
    let record = |number: u64| number.to_le_bytes().repeat(5_000);
    for round in 0..5 {
        elsewhere.open(false);
        let lsns: Vec<_> = (0..30)
            .map(|number| {
                let record = record(round * 30 + number);
                let lsn = loop {
                    match journal.reserve(record.len()) {
                        Ok(reservation) => break reservation.fill_from(&record),
                        // The next segment is not ready yet.
                        Err(refused) => assert_eq!(refused, Refused::Busy),
                    }
                    thread::yield_now();
                };
                // As a worker does when it has nothing else to do.
                journal.tend();
                lsn
            })
            .collect();
        assert!(!journal.is_durable(lsns[0]), "nothing is durable behind a closed gate");
        elsewhere.open(true);
        journal.wait_blocking(lsns[29]);
        assert_eq!(elsewhere.records().len() as u64, (round + 1) * 30);
    }
    drop(journal);

    let (journal, records) = open(&config);
    assert_eq!(records[0], b"copy");
    assert!(records[1..].iter().cloned().eq((0..150).map(record)));
    assert_eq!(records[1..], elsewhere.records(), "and what came before is here alone");
    drop(journal);
}
