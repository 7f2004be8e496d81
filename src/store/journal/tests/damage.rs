//! Torn tails, which are cut, and damage, which is not.

use super::opening::check_damage;
use super::*;

/// Opens a data directory with these bytes as its segment.
fn recovered(bytes: &[u8], data: &Path) -> Result<Opened, OpenError> {
    Image::install(bytes, data);
    try_open(data)
}

fn sectors(range: std::ops::Range<usize>) -> impl Iterator<Item = std::ops::Range<usize>> {
    range.step_by(SECTOR_BYTES).map(|at| at..at + SECTOR_BYTES)
}

#[test]
fn every_torn_last_block_is_cut() {
    let image = Image::of(vec![record(1, 700), record(2, 100), record(3, 2900)]);
    let [.., start, _] = image.offsets[..] else { unreachable!() };
    // The header and the record; zeros follow.
    let sector_count = (64 + 4 + 2900_usize).div_ceil(SECTOR_BYTES);
    assert_eq!(sector_count, 6);
    let data = scratch();
    for kept in 0..(1_u32 << sector_count) - 1 {
        let mut bytes = image.bytes.clone();
        let written = start..start + sector_count * SECTOR_BYTES;
        for (index, sector) in sectors(written).enumerate() {
            if kept & (1 << index) == 0 {
                bytes[sector].fill(0);
            }
        }
        let opened = recovered(&bytes, data.path()).unwrap_or_else(|error| {
            panic!("sectors {kept:06b}: {error}");
        });
        assert_eq!(opened.bytes(), image.records[..2], "sectors {kept:06b}");
        let reach = 32 - kept.leading_zeros();
        let Some(torn) = opened.report.torn else {
            assert_eq!(kept, 0);
            continue;
        };
        assert_eq!(torn.bytes, u64::from(reach) * SECTOR_BYTES as u64);
        assert_eq!(torn.offset, start as u64);
        let cut = &bytes[start..][..usize::try_from(torn.bytes).unwrap()];
        assert_eq!(std::fs::read(torn.copy.unwrap()).unwrap(), cut, "the copy holds the cut bytes");
    }
}

#[test]
fn a_cut_tail_never_reappears() {
    let image = Image::of(vec![record(1, 700), record(2, 2900)]);
    let data = scratch();
    let mut bytes = image.bytes.clone();
    bytes[image.offsets[2] + SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
    let opened = recovered(&bytes, data.path()).unwrap();
    assert_eq!(opened.bytes(), image.records[..1]);
    assert!(opened.report.torn.is_some());
    let on_disk = std::fs::read(segment_path(data.path(), 1)).unwrap();
    let after_epoch = image.offsets[2] + PAGE_BYTES;
    assert!(block::is_zero(&on_disk[after_epoch..]), "no torn sector is left");
    assert_eq!(write_alone(&opened.journal, b"second again").position(), 2);
    drop(opened);
    let opened = open(data.path());
    assert_eq!(opened.report.torn, None);
    assert_eq!(opened.bytes(), [image.records[0].clone(), b"second again".to_vec()]);
    assert_eq!(opened.report.epoch, 3);
}

/// A start that crashes while cutting leaves another subset of the same sectors.
#[test]
fn an_interrupted_cut_is_completed() {
    let image = Image::of(vec![record(1, 700), record(2, 2900)]);
    let [_, _, start, _] = image.offsets[..] else { unreachable!() };
    let data = scratch();
    for gone in sectors(start + SECTOR_BYTES..start + 6 * SECTOR_BYTES) {
        let mut bytes = image.bytes.clone();
        bytes[start..start + SECTOR_BYTES].fill(0);
        bytes[gone].fill(0);
        let opened = recovered(&bytes, data.path()).unwrap();
        assert_eq!(opened.bytes(), image.records[..1]);
    }
}

#[test]
fn a_changed_byte_before_the_last_block_stops_the_start() {
    let image = Image::of(vec![record(1, 700), record(2, 300), record(3, 100)]);
    let data = scratch();
    let path = segment_path(data.path(), 1);
    for block in image.offsets.windows(2).take(3) {
        let padding = block[1] - 7 * SECTOR_BYTES..block[1];
        let is_tried = |at: &usize| !padding.contains(at) || at.is_multiple_of(61);
        for at in (block[0]..block[1]).filter(is_tried) {
            let mut bytes = image.bytes.clone();
            bytes[at] ^= 0x10;
            let error = recovered(&bytes, data.path()).err().unwrap_or_else(|| panic!("byte {at}"));
            check_damage(&error, &path, block[0], |_| true);
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "the file was not changed");
        }
    }
}

#[test]
fn a_changed_last_block_is_not_mistaken_for_a_torn_one() {
    let image = Image::of(vec![record(1, 700), record(2, 2900)]);
    let [_, _, start, end] = image.offsets[..] else { unreachable!() };
    let data = scratch();
    for at in (start..end).step_by(7) {
        let mut bytes = image.bytes.clone();
        bytes[at] ^= 0x10;
        let error = recovered(&bytes, data.path()).err().unwrap_or_else(|| panic!("byte {at}"));
        check_damage(&error, &segment_path(data.path(), 1), start, |_| true);
    }
}

/// The header counts the block's zero sectors, so zeros in a record hide no damage.
#[test]
fn zeros_in_a_record_are_not_mistaken_for_torn_sectors() {
    let mut zeros = record(2, 2900);
    zeros[600..2400].fill(0);
    let image = Image::of(vec![record(1, 700), zeros]);
    let [_, _, start, end] = image.offsets[..] else { unreachable!() };
    let data = scratch();
    assert_eq!(recovered(&image.bytes, data.path()).unwrap().bytes(), image.records);
    let mut bytes = image.bytes.clone();
    bytes[start + 100] ^= 1;
    let error = recovered(&bytes, data.path()).err().unwrap();
    check_damage(&error, &segment_path(data.path(), 1), start, |damage| {
        *damage == Damage::PayloadChecksum
    });
    let mut bytes = image.bytes.clone();
    bytes[end - 3 * SECTOR_BYTES..end].fill(0);
    assert_eq!(recovered(&bytes, data.path()).unwrap().bytes(), image.records[..1]);
}

#[test]
fn a_lost_sector_of_a_middle_block_stops_the_start() {
    let image = Image::of(vec![record(1, 700), record(2, 2000), record(3, 700)]);
    let data = scratch();
    let [_, first, middle, last, _] = image.offsets[..] else { unreachable!() };
    for (range, start) in [(first..first + 1024, first), (middle..middle + 2560, middle)] {
        assert!(
            range.end <= last && !block::is_zero(&image.bytes[range.end - SECTOR_BYTES..range.end])
        );
        for sector in sectors(range) {
            let mut bytes = image.bytes.clone();
            bytes[sector].fill(0);
            let error = recovered(&bytes, data.path()).err().unwrap();
            check_damage(&error, &segment_path(data.path(), 1), start, |damage| {
                matches!(damage, Damage::Beyond | Damage::Followed)
            });
        }
    }
}

#[test]
fn bytes_beyond_the_largest_block_stop_the_start() {
    let image = Image::of(vec![record(1, 700), record(2, 700)]);
    let data = scratch();
    let mut bytes = image.bytes.clone();
    bytes[image.offsets[2] + SECTOR_BYTES..image.offsets[3]].fill(0);
    *bytes.last_mut().unwrap() = 1;
    let error = recovered(&bytes, data.path()).err().unwrap();
    check_damage(&error, &segment_path(data.path(), 1), image.offsets[2], |damage| {
        *damage == Damage::Beyond
    });
}

#[test]
fn a_torn_block_before_the_last_segment_stops_the_start() {
    let data = scratch();
    let opened = open(data.path());
    for seed in 0..30 {
        write_alone(&opened.journal, &record(seed, 900));
    }
    drop(opened);
    let path = segment_path(data.path(), 1);
    let mut bytes = std::fs::read(&path).unwrap();
    // One block for the epoch, then one for each record.
    let block_bytes = block::alone_bytes(900);
    let blocks = (bytes.len() - segment::BLOCKS_AT) / block_bytes;
    let start = segment::BLOCKS_AT + (blocks - 1) * block_bytes;
    assert_eq!(&bytes[start..start + 4], b"PBBK");
    bytes[start + SECTOR_BYTES..start + block_bytes].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    let error = try_open(data.path()).err().unwrap();
    check_damage(&error, &path, start, |damage| *damage == Damage::Followed);
    // A block that is missing altogether is detected by the next segment.
    bytes[start..start + block_bytes].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    let error = try_open(data.path()).err().unwrap();
    check_damage(&error, &segment_path(data.path(), 2), segment::BLOCKS_AT, |damage| {
        matches!(damage, Damage::Chain { .. })
    });
}

#[test]
fn a_torn_block_at_the_start_of_a_segment_is_cut() {
    let data = scratch();
    let opened = open(data.path());
    let mut written: u64 = 0;
    let second = segment_path(data.path(), 2);
    let is_blank = |path: &Path| {
        std::fs::read(path).is_ok_and(|bytes| block::is_zero(&bytes[segment::BLOCKS_AT..]))
    };
    while !second.exists() || is_blank(&second) {
        write_alone(&opened.journal, &record(7, 900));
        written += 1;
    }
    drop(opened);
    let mut bytes = std::fs::read(&second).unwrap();
    bytes[segment::BLOCKS_AT..][..SECTOR_BYTES].fill(0);
    std::fs::write(&second, &bytes).unwrap();
    let opened = open(data.path());
    assert_eq!(opened.report.records, written - 1);
    assert_eq!(opened.report.torn.as_ref().unwrap().offset, segment::BLOCKS_AT as u64);
    write_alone(&opened.journal, b"goes on");
    drop(opened);
    assert_eq!(open(data.path()).bytes().last().unwrap(), b"goes on");
}
