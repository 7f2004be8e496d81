//! Copies of torn tails, on disks with and without room.

use std::convert::Infallible;

use super::*;
use crate::disk::simulated::SimulatedDisk;
use crate::journal::broken::BROKEN_COPIES_MAX;

/// A journal on an in-memory disk whose tail is torn now and then.
struct World {
    simulated: SimulatedDisk,
    disk: Disk,
    /// The acknowledged records.
    records: Vec<Vec<u8>>,
}

impl World {
    fn new() -> Self {
        let simulated = SimulatedDisk::new(1);
        let disk = Disk::Simulated(simulated.clone());
        Self { simulated, disk, records: Vec::new() }
    }

    fn open(&self) -> (Journal, Steps, RecoveryReport, Vec<Vec<u8>>) {
        let mut shown = Vec::new();
        let data = DataDirectory::open(self.disk.clone(), Path::new("/data")).unwrap();
        let (journal, steps, report) = Journal::open_stepped(&data, &config(), |_, _, bytes| {
            shown.push(bytes.to_vec());
            Ok::<_, Infallible>(())
        })
        .unwrap();
        (journal, steps, report, shown)
    }

    fn append(journal: &Journal, steps: &mut Steps, bytes: &[u8]) {
        while let Err(refused) = journal.reserve(bytes.len()).map(|it| it.fill_from(bytes)) {
            assert_eq!(refused, Refused::Busy);
            assert!(steps.make_segment().unwrap());
        }
        assert!(steps.flush().unwrap());
    }

    /// Writes one record that stays and one that only partly reaches the disk. Returns the torn
    /// bytes and the name of their copy.
    fn tear(&mut self) -> (Vec<u8>, String) {
        let (journal, mut steps, ..) = self.open();
        let whole = record(self.records.len(), 100);
        Self::append(&journal, &mut steps, &whole);
        self.records.push(whole);
        Self::append(&journal, &mut steps, &record(77, 1500));
        let number = journal.segment().unwrap();
        drop((journal, steps));
        let path = Path::new("/data/journal").join(segment::file_name(number));
        let read = SegmentReader::anywhere().read_open(&self.disk, &path, number).unwrap().batch;
        let newest = *read.records().last().unwrap();
        assert_eq!(read.record(newest), record(77, 1500));
        let block = u64::from(newest.offset) - 68;
        let file = self.disk.open(&path).unwrap();
        file.write_at(&[0; SECTOR_BYTES], block + SECTOR_BYTES as u64).unwrap();
        file.sync_data().unwrap();
        let mut torn = vec![0; 4 * SECTOR_BYTES];
        file.read_at(&mut torn, block).unwrap();
        (torn, format!("{}.{block}.broken", segment::file_name(number)))
    }

    /// Reopens the journal and checks that it holds the acknowledged records. Returns what was cut,
    /// if anything.
    #[track_caller]
    fn recover(&self) -> Option<TornTail> {
        let (_, _, report, shown) = self.open();
        assert_eq!(shown, self.records);
        report.torn
    }

    fn copies(&self) -> Vec<String> {
        let names = self.disk.names(Path::new("/data/journal")).unwrap();
        names.into_iter().filter(|name| name.contains("broken")).collect()
    }

    fn content(&self, name: &str) -> Vec<u8> {
        let file = self.disk.open_read(&Path::new("/data/journal").join(name)).unwrap();
        let mut content = Vec::new();
        file.read_into(&mut content, u64::MAX).unwrap().unwrap();
        content
    }

    fn fill_up(&self) {
        self.simulated.set_capacity(self.simulated.bytes());
    }
}

#[test]
fn a_full_disk_does_not_prevent_a_start() {
    let mut world = World::new();
    let (torn, _) = world.tear();
    world.fill_up();
    let cut = world.recover().expect("the tail was torn");
    assert_eq!((cut.bytes, cut.copy), (torn.len() as u64, None));
    assert_eq!(world.copies(), Vec::<String>::new(), "no partial copy is left");
    assert_eq!(world.recover(), None, "nothing is left to cut");
}

#[test]
fn the_newest_copies_are_kept() {
    let mut world = World::new();
    let mut cuts = Vec::new();
    for _ in 0..BROKEN_COPIES_MAX + 4 {
        cuts.push(world.tear());
        let cut = world.recover().expect("the tail was torn");
        assert!(cut.copy.is_some_and(|copy| copy.ends_with(&cuts.last().unwrap().1)));
    }
    let expected = cuts.split_off(4);
    let mut names: Vec<_> = expected.iter().map(|(_, name)| name.clone()).collect();
    names.sort();
    assert_eq!(world.copies(), names);
    for (torn, name) in expected {
        assert_eq!(world.content(&name), torn, "{name}");
    }
}

#[test]
fn older_copies_are_removed_to_make_room() {
    let mut world = World::new();
    for _ in 0..3 {
        world.tear();
        world.recover();
    }
    let (torn, name) = world.tear();
    world.fill_up();
    assert!(world.recover().expect("the tail was torn").copy.is_some());
    assert_eq!(world.content(&name), torn);
    assert_eq!(world.copies().len(), 3, "one was removed");
}

#[test]
fn a_copy_kept_by_an_interrupted_start_is_not_overwritten() {
    let mut world = World::new();
    let (_, name) = world.tear();
    let copy = Path::new("/data/journal").join(&name);
    let half = disk::temporary_name(&copy);
    for (path, content) in [(&copy, b"more than is left by now".as_slice()), (&half, b"half")] {
        world.disk.create(path).unwrap().append(content).unwrap();
    }
    assert_eq!(world.recover().expect("the tail was torn").copy, Some(copy));
    assert_eq!(world.content(&name), b"more than is left by now");
    assert_eq!(world.copies(), [name]);
}
