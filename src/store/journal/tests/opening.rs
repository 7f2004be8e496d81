//! Creating, opening and refusing a journal.

use super::*;

fn refusal(data: &Path) -> OpenError {
    try_open(data).err().expect("the journal must be refused")
}

/// A journal of several segments, each full.
fn several_segments(data: &Path) {
    let opened = open(data);
    for seed in 0..60 {
        write_alone(&opened.journal, &record(seed, 900));
    }
}

#[test]
fn a_new_journal_is_empty() {
    let data = TempDir::new().unwrap();
    let opened = open(&data.path().join("not").join("there yet"));
    assert_eq!((opened.report.records, opened.report.segments, opened.report.epoch), (0, 0, 1));
    assert_eq!(opened.report.last, Lsn::START);
    assert_eq!(opened.report.torn, None);
}

#[test]
fn a_second_process_is_refused() {
    let data = TempDir::new().unwrap();
    let first = open(data.path());
    let OpenError::InUse { directory } = refusal(data.path()) else { panic!("another error") };
    assert_eq!(directory, data.path());
    drop(first);
    open(data.path());
}

#[test]
fn a_half_created_journal_is_created_again() {
    let data = TempDir::new().unwrap();
    let half = data.path().join("journal.tmp");
    std::fs::create_dir(&half).unwrap();
    std::fs::write(half.join(segment::file_name(1)), b"PBSEGM").unwrap();
    let opened = open(data.path());
    assert!(!half.exists());
    write_alone(&opened.journal, b"works");
}

#[test]
fn a_half_created_segment_is_created_again() {
    let data = TempDir::new().unwrap();
    several_segments(data.path());
    let half = disk::temporary_name(&segment_path(data.path(), 99));
    std::fs::write(&half, b"PBSEGM").unwrap();
    assert_eq!(open(data.path()).records.len(), 60);
    assert!(!half.exists());
}

#[test]
fn segments_are_zero_filled() {
    let data = TempDir::new().unwrap();
    let template = preallocator::SegmentTemplate {
        disk: Disk::System,
        directory: data.path().to_path_buf(),
        log: LogId([3; 16]),
        segment_bytes: 3 << 20,
        sync: SyncMode::Always,
    };
    disk::trace::take();
    template.make(7, || ()).unwrap();
    let bytes = std::fs::read(data.path().join(segment::file_name(7))).unwrap();
    assert_eq!(bytes.len(), 3 << 20);
    assert_eq!(segment::Header::read(&bytes).unwrap().number, 7);
    assert!(block::is_zero(&bytes[segment::HEADER_BYTES..]));
    let trace = disk::trace::take();
    let written = trace.iter().filter(|(action, _)| *action == "write").count();
    assert_eq!(written, 1 + 12, "zeros are written, the file is not sparse");
}

#[test]
fn new_names_are_synced_before_they_are_used() {
    let data = TempDir::new().unwrap();
    let data = data.path().join("data");
    disk::trace::take();
    let opened = open(&data);
    let trace = disk::trace::take();
    let at = |action: &str, name: &str| {
        let found = trace.iter().position(|entry| *entry == (action, name.to_owned()));
        found.unwrap_or_else(|| panic!("{action} {name} is not in {trace:?}"))
    };
    let segment = segment::file_name(1);
    let steps = [
        at("create", "data"),
        at("create", "journal.tmp"),
        at("create", &format!("{segment}.tmp")),
        at("sync", &format!("{segment}.tmp")),
        at("rename", &format!("{segment}.tmp")),
        at("sync", "journal.tmp"),
        at("rename", "journal.tmp"),
    ];
    assert!(steps.is_sorted(), "{trace:?}");
    let after_rename = &trace[steps[6]..];
    assert_eq!(after_rename[1], ("sync", "data".to_owned()), "{trace:?}");
    drop(opened);
}

#[test]
fn a_start_syncs_before_it_reads() {
    let data = TempDir::new().unwrap();
    several_segments(data.path());
    disk::trace::take();
    let opened = open(data.path());
    let trace = disk::trace::take();
    let first_read = trace.iter().position(|(action, _)| *action == "read").unwrap();
    let synced: Vec<_> =
        trace[..first_read].iter().filter(|(action, _)| *action == "sync").collect();
    let (last, before) = synced.split_last().unwrap();
    let files: Vec<_> = before.iter().filter(|(_, name)| name.ends_with(".segment")).collect();
    assert_eq!(last.1, "journal", "the directory after its files");
    let read: std::collections::BTreeSet<_> =
        trace.iter().filter(|(action, _)| *action == "read").map(|(_, name)| name).collect();
    assert!(read.len() > 4);
    assert_eq!(files.iter().map(|(_, name)| name).collect::<std::collections::BTreeSet<_>>(), read);
    drop(opened);
}

#[test]
fn a_missing_segment_stops_the_start() {
    for number in [1, 2, 3] {
        let data = TempDir::new().unwrap();
        several_segments(data.path());
        let missing = segment_path(data.path(), number);
        std::fs::remove_file(&missing).unwrap();
        let OpenError::MissingSegment { path } = refusal(data.path()) else {
            panic!("another error")
        };
        assert_eq!(path, missing);
    }
}

#[test]
fn a_journal_without_segments_is_not_mistaken_for_a_new_one() {
    let data = TempDir::new().unwrap();
    drop(open(data.path()));
    for name in Disk::System.names(&data.path().join("journal")).unwrap() {
        std::fs::remove_file(data.path().join("journal").join(name)).unwrap();
    }
    assert!(matches!(refusal(data.path()), OpenError::NoSegments { .. }));
}

#[test]
fn swapped_segments_stop_the_start() {
    let data = TempDir::new().unwrap();
    several_segments(data.path());
    let path = |number| segment_path(data.path(), number);
    let [second, third] = [2, 3].map(|number| std::fs::read(path(number)).unwrap());
    std::fs::write(path(2), &third).unwrap();
    assert!(matches!(refusal(data.path()), OpenError::SegmentMismatch { .. }));
    // Even with a matching header, the blocks do not continue the chain.
    let mut disguised = third.clone();
    disguised[..segment::HEADER_BYTES].copy_from_slice(&second[..segment::HEADER_BYTES]);
    std::fs::write(path(2), &disguised).unwrap();
    check_damage(&refusal(data.path()), &path(2), segment::BLOCKS_AT, |damage| {
        matches!(damage, Damage::Chain { .. })
    });
    std::fs::write(path(2), &second[..second.len() - PAGE_BYTES]).unwrap();
    assert!(matches!(refusal(data.path()), OpenError::SegmentMismatch { .. }));
    let other = TempDir::new().unwrap();
    several_segments(other.path());
    std::fs::copy(segment_path(other.path(), 2), path(2)).unwrap();
    assert!(matches!(refusal(data.path()), OpenError::ForeignSegment { .. }));
    std::fs::write(path(2), &second).unwrap();
    assert_eq!(open(data.path()).records.len(), 60);
}

#[test]
fn an_emptied_segment_stops_the_start() {
    for number in [1, 2] {
        let data = TempDir::new().unwrap();
        several_segments(data.path());
        let path = segment_path(data.path(), number);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[segment::BLOCKS_AT..].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        check_damage(&refusal(data.path()), &path, segment::BLOCKS_AT, |damage| {
            *damage == Damage::Gap
        });
    }
}

#[test]
fn an_unsupported_version_is_refused() {
    let image = Image::of(vec![record(1, 100)]);
    for (version, advice) in [
        (3, "format version 3, newer than 2; use a newer server"),
        (
            0,
            "format version 0, older than 1, the oldest this server reads; run the server version \
             that wrote it",
        ),
    ] {
        let data = TempDir::new().unwrap();
        let mut bytes = image.bytes.clone();
        block::put_u32(&mut bytes, 8, version);
        let crc = crc32c::crc32c(&bytes[..SECTOR_BYTES - 4]);
        block::put_u32(&mut bytes, SECTOR_BYTES - 4, crc);
        Image::install(&bytes, data.path());
        let error = refusal(data.path()).to_string();
        assert!(error.ends_with(advice), "{error}");
        assert_eq!(std::fs::read(segment_path(data.path(), 1)).unwrap(), bytes);
    }
}

/// The image in version 1: blocks start at 512 and end on sectors.
fn as_version_1(image: &Image) -> Vec<u8> {
    let header = segment::Header::read(&image.bytes).unwrap();
    let mut bytes = segment::Header { version: 1, ..header }.to_bytes().to_vec();
    for block in image.offsets.windows(2) {
        let block = &image.bytes[block[0]..block[1]];
        let written = block.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        bytes.extend(&block[..written.next_multiple_of(SECTOR_BYTES)]);
    }
    bytes.resize(image.bytes.len(), 0);
    bytes
}

#[test]
fn a_version_1_journal_continues_in_a_version_2_segment() {
    let image = Image::of(vec![record(1, 700), record(2, 100), record(3, 1500)]);
    let written = as_version_1(&image);
    let header = segment::Header::read(&written).unwrap();
    let blank = |number| {
        let mut bytes = segment::Header { number, ..header }.to_bytes().to_vec();
        bytes.resize(written.len(), 0);
        bytes
    };
    let mut torn = written.clone();
    let newest = torn.windows(4).rposition(|bytes| bytes == b"PBBK").unwrap();
    torn[newest..newest + SECTOR_BYTES].fill(0);
    let mut first_torn = blank(1);
    first_torn[3 * SECTOR_BYTES] = 1;
    // The segments, the number of intact records, and the segment that continues the log.
    let cases = [
        ("records", vec![written.clone()], 3, 2),
        ("records and preallocated segments", vec![written.clone(), blank(2), blank(3)], 3, 2),
        ("a torn tail", vec![torn, blank(2)], 2, 2),
        ("nothing yet", vec![blank(1)], 0, 1),
        ("nothing yet, and a preallocated segment", vec![blank(1), blank(2)], 0, 1),
        ("only a torn block", vec![first_torn, blank(2)], 0, 1),
    ];
    for (name, segments, whole, goes_on_in) in cases {
        let data = TempDir::new().unwrap();
        std::fs::create_dir(data.path().join("journal")).unwrap();
        for (number, bytes) in (1..).zip(&segments) {
            std::fs::write(segment_path(data.path(), number), bytes).unwrap();
        }
        let mut records = image.records[..whole].to_vec();
        for round in 0..3 {
            let opened = open(data.path());
            assert_eq!(opened.bytes(), records, "{name}, opening {round}");
            assert!(opened.journal.segment() >= Some(goes_on_in), "{name}");
            records.push(record(round, 5000));
            write_alone(&opened.journal, records.last().unwrap());
        }
        let version = |number| {
            let bytes = std::fs::read(segment_path(data.path(), number)).unwrap();
            segment::Header::read(&bytes).unwrap().version
        };
        let last = open(data.path()).journal.segment().unwrap();
        assert!((1..goes_on_in).all(|number| version(number) == 1), "{name}");
        assert!((goes_on_in..=last).all(|number| version(number) == 2), "{name}");
    }
}

#[test]
fn a_changed_segment_header_stops_the_start() {
    let image = Image::of(vec![record(1, 100)]);
    let data = scratch();
    for at in 0..segment::HEADER_BYTES + 8 {
        let mut bytes = image.bytes.clone();
        bytes[at] ^= 4;
        Image::install(&bytes, data.path());
        let OpenError::SegmentHeader { path } = refusal(data.path()) else { panic!("byte {at}") };
        assert_eq!(path, segment_path(data.path(), 1));
    }
}

#[test]
fn a_record_refused_by_the_caller_stops_the_start() {
    let image = Image::of(vec![record(1, 100), record(2, 100), record(3, 100)]);
    let data = TempDir::new().unwrap();
    Image::install(&image.bytes, data.path());
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let error = Journal::open(&directory, &config(), |_, position, _: &[u8]| {
        if position == 2 { Err("not this one") } else { Ok(()) }
    })
    .err()
    .unwrap();
    assert_eq!(error.to_string(), "the record at position 2 was refused: not this one");
    assert_eq!(std::fs::read(segment_path(data.path(), 1)).unwrap(), image.bytes);
}

#[track_caller]
pub(super) fn check_damage(
    error: &OpenError,
    expected_path: &Path,
    expected_offset: usize,
    is_expected: impl Fn(&Damage) -> bool,
) {
    let OpenError::Damaged { path, offset, damage } = error else { panic!("{error}") };
    assert_eq!(path, expected_path);
    assert_eq!(*offset, expected_offset as u64, "{error}");
    assert!(is_expected(damage), "{error}");
}
