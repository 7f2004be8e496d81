//! Ending a segment at an earlier record.

use super::block::{BLOCK_BYTES_MAX, Builder, Chain};
use super::*;

const LOG: LogId = LogId([3; 16]);

/// Writes a segment of this version: two epochs, each of blocks with these numbers of records.
fn segment_of(version: u32, blocks: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let header =
        segment::Header { version, log: LOG, number: 1, segment_bytes: config().segment_bytes };
    let mut content = header.to_bytes().to_vec();
    content.resize(header.blocks_at(), 0);
    let (mut chain, mut builder, mut records) = (Chain::start(LOG), Builder::new(), Vec::new());
    for _ in 0..2 {
        for &count in [0].iter().chain(blocks) {
            for _ in 0..count {
                let record = record(records.len(), 100 + 300 * (records.len() % 4));
                assert!(builder.push(&record, BLOCK_BYTES_MAX));
                records.push(record);
            }
            content.extend_from_slice(builder.seal_in(header.page_bytes(), &mut chain));
            builder.clear();
        }
    }
    assert!(content.len() < usize::try_from(header.segment_bytes).unwrap());
    (content, records)
}

/// Writes these bytes as a segment filled up with zeros, and reads it.
fn install(content: &[u8], data: &Path) -> OpenBatch {
    let mut bytes = content.to_vec();
    bytes.resize(usize::try_from(config().segment_bytes).unwrap(), 0);
    Image::install(&bytes, data);
    SegmentReader::after(None).read_open(&Disk::System, &segment_path(data, 1), 1).unwrap()
}

#[test]
fn a_cut_segment_holds_the_records_up_to_the_cut() {
    for version in [1, 2] {
        let data = scratch();
        let (content, records) = segment_of(version, &[1, 3, 2]);
        let whole = install(&content, data.path()).batch;
        assert_eq!((whole.first_position(), whole.last_position()), (1, 12));
        for position in 0..=records.len() + 2 {
            let cut = whole.cut(position as u64);
            let kept = position.min(records.len());
            let read = install(&cut, data.path());
            let found: Vec<_> = read.batch.iter().map(|(_, record)| record.to_vec()).collect();
            let what = format!("version {version}, cut at {position}");
            assert_eq!(found, records[..kept], "{what}");
            assert_eq!((read.torn_bytes, read.batch.end() as usize), (0, cut.len()), "{what}");
            // What is in blocks that stay whole is untouched; a server goes on from there.
            if [0, 1, 4, 6, 7, 10, 12].contains(&position) {
                assert!(content.starts_with(&cut), "{what}");
            }
            let opened = open(data.path());
            assert_eq!(opened.bytes(), records[..kept], "{what}");
            assert!(opened.report.torn.is_none(), "{what}");
            let next = write_alone(&opened.journal, b"next");
            assert_eq!(next.position(), kept as u64 + 1, "{what}");
        }
    }
}

#[test]
fn a_segment_without_blocks_is_cut_to_its_header() {
    let data = scratch();
    let (content, _) = segment_of(2, &[]);
    let blank = install(&content[..PAGE_BYTES], data.path()).batch;
    assert_eq!(blank.cut(7), content[..PAGE_BYTES]);
}
