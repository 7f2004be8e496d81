//! Reading segments while they are being written.

use super::*;

/// The records of closed segments, with their positions.
fn read_closed(
    reader: &mut SegmentReader,
    data: &Path,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<Vec<(u64, Vec<u8>)>, OpenError> {
    let mut records = Vec::new();
    for number in numbers {
        let batch = reader.read_closed(&Disk::System, &segment_path(data, number), number)?;
        records.extend(batch.iter().map(|(position, record)| (position, record.to_vec())));
    }
    Ok(records)
}

#[test]
fn reading_can_start_at_any_segment() {
    let data = TempDir::new().unwrap();
    // Two starts, so that some first blocks hold records and some begin an epoch.
    for start in 0..2 {
        let opened = open(data.path());
        for seed in 0..30 {
            write_alone(&opened.journal, &record(start * 30 + seed, 900));
        }
    }
    let opened = open(data.path());
    let current = opened.journal.segment().unwrap();
    assert!(current > 4);
    let mut from_first = SegmentReader::after(None);
    let all = read_closed(&mut from_first, data.path(), 1..current).unwrap();
    assert_eq!(all[0].0, 1);
    for first in 1..current {
        let mut reader = SegmentReader::anywhere();
        let records = read_closed(&mut reader, data.path(), first..current).unwrap();
        assert!(all.ends_with(&records) && !records.is_empty(), "from segment {first}");
        assert_eq!(reader.end(), from_first.end(), "from segment {first}");
    }
    // Only the first block is trusted.
    let mut reader = SegmentReader::anywhere();
    assert!(read_closed(&mut reader, data.path(), [1, 3]).is_err());
}

/// What a closed segment holds: records, blocks, epochs that begin, and the fullest block.
type Held = (Vec<(u64, Vec<u8>)>, u64, u64, u32);

#[test]
fn pieces_of_a_segment_hold_what_it_holds_and_find_the_same_damage() {
    let data = TempDir::new().unwrap();
    for start in 0..2 {
        let opened = open(data.path());
        for seed in 0..60 {
            write_alone(&opened.journal, &record(start * 60 + seed, 900));
        }
    }
    let path = segment_path(data.path(), 1);
    let add = |held: &mut Held, batch: &Batch| {
        held.0.extend(batch.iter().map(|(position, record)| (position, record.to_vec())));
        held.1 += batch.blocks();
        held.2 += batch.epochs_begun();
        held.3 = held.3.max(batch.block_records_max());
    };
    let whole = || -> Result<(Held, _), OpenError> {
        let (mut held, mut reader) = (Held::default(), SegmentReader::after(None));
        add(&mut held, &reader.read_closed(&Disk::System, &path, 1)?);
        Ok((held, reader.end()))
    };
    let in_pieces = || -> Result<((Held, _), usize), OpenError> {
        let (mut held, mut reader) = (Held::default(), SegmentReader::after(None));
        let (mut count, mut end) = (0, None);
        reader.read_closed_in_pieces::<OpenError>(&Disk::System, &path, 1, &mut |batch| {
            assert!(end.is_none_or(|end| end == batch.before()), "a piece follows another");
            (count, end) = (count + 1, Some(batch.after()));
            add(&mut held, &batch);
            Ok(())
        })?;
        Ok(((held, reader.end()), count))
    };
    let (held, count) = in_pieces().unwrap();
    assert!(count > 2, "{count} pieces");
    assert_eq!(held, whole().unwrap());
    let intact = std::fs::read(&path).unwrap();
    for at in (0..intact.len()).step_by(97) {
        let mut damaged = intact.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, damaged).unwrap();
        let (whole, in_pieces) = (whole(), in_pieces().map(|(held, _)| held));
        assert!(whole.is_err() || whole.as_ref().unwrap() == &held, "at {at}");
        assert_eq!(format!("{in_pieces:?}"), format!("{whole:?}"), "at {at}");
    }
    for end in (0..intact.len()).step_by(1_024) {
        std::fs::write(&path, &intact[..end]).unwrap();
        let (whole, in_pieces) = (whole().unwrap_err(), in_pieces().unwrap_err());
        assert_eq!(in_pieces.to_string(), whole.to_string(), "cut at {end}");
    }
}

#[test]
fn a_segment_being_written_is_read_up_to_its_last_complete_block() {
    let data = TempDir::new().unwrap();
    let opened = open(data.path());
    for seed in 0..3 {
        write_alone(&opened.journal, &record(seed, 900));
    }
    let path = segment_path(data.path(), 1);
    let read = || {
        let mut reader = SegmentReader::after(None);
        let read = reader.read_open(&Disk::System, &path, 1).unwrap();
        (read.batch.iter().count(), read.torn_bytes, read.batch)
    };
    let (records, torn_bytes, batch) = read();
    assert_eq!((records, torn_bytes), (3, 0));
    assert_eq!((batch.blocks(), batch.epochs_begun(), batch.block_records_max()), (4, 1, 1));
    assert!(block::is_zero(&batch.content()[batch.end() as usize..]));
    let second_sector = batch.end() as usize - block::alone_bytes(900) + SECTOR_BYTES;
    assert!(!block::is_zero(&batch.content()[second_sector..]));

    drop(opened);
    // A block of which only the first sector has been written.
    let mut bytes = batch.content().to_vec();
    bytes[second_sector..].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    let (records, torn_bytes, batch) = read();
    assert_eq!((records, torn_bytes, batch.blocks()), (2, SECTOR_BYTES, 3));
}
