//! The journal without threads: what happens is what the steps make happen.

use super::*;

#[test]
fn nothing_happens_between_the_steps() {
    let data = TempDir::new().unwrap();
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let replay = |_, _, _: &[u8]| Ok::<_, std::convert::Infallible>(());
    let (journal, mut steps, _) = Journal::open_stepped(&directory, &config(), replay).unwrap();
    assert!(!steps.flush().unwrap(), "there is nothing to flush");
    let mut written = Vec::new();
    loop {
        let record = record(written.len(), 900);
        match journal.reserve(record.len()) {
            Ok(reservation) => {
                let place = reservation.fill_from(&record);
                assert!(!journal.is_durable(place), "nobody has flushed");
                assert!(steps.flush().unwrap());
                assert!(journal.is_durable(place));
                written.push(record);
            }
            Err(refused) => {
                assert_eq!(refused, Refused::Full, "nothing is in flight");
                break;
            }
        }
    }
    assert!(written.len() > 8, "a segment was used up: {}", written.len());
    assert!(!segment_path(data.path(), 2).exists(), "nobody has made another");
    assert!(steps.make_segment().unwrap());
    assert!(segment_path(data.path(), 2).exists());
    assert!(!steps.make_segment().unwrap(), "one is kept ready");
    written.push(record(99, 900));
    journal.reserve(900).unwrap().fill_from(&record(99, 900));
    assert!(steps.flush().unwrap());
    drop((journal, directory));
    assert_eq!(open(data.path()).bytes(), written);
}
