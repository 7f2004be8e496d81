use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::fs;

use tempfile::TempDir;

use super::*;
use crate::journal::{Journal, JournalConfig};

const LOG: LogId = LogId::from_bytes([0xa5; 16]);

#[test]
fn questions_and_parts_are_read_as_they_are_written() {
    let log = format!("log {LOG}\n");
    assert_eq!(log, format!("log {}\n", "a5".repeat(16)));
    let parse = |line: &str| parse_parts(format!("{log}{line}").as_bytes());
    let files = [
        (File::Snapshot(41), "snapshot 41"),
        (File::Orders(7), "orders 7"),
        (File::Segment(42), "segment 42"),
        (File::PriceHours, "price-hours"),
    ];
    for (file, name) in files {
        assert_eq!(Named(file).to_string(), name);
        let question = Question::Read { file, offset: 8_192, bytes: 4_096 };
        assert_eq!(question.to_string(), format!("read {name} 8192 4096"));
        assert_eq!(question.to_string().parse::<Question>().unwrap(), question);
        let part = Part { file, bytes: 5, room_bytes: 5 };
        assert_eq!(parse(&format!("{name} 5 5\n")).unwrap(), (LOG, vec![part]));
    }
    for (text, question) in [("parts", Question::Parts), ("done", Question::Done)] {
        assert_eq!(text.parse::<Question>().unwrap(), question);
        assert_eq!(question.to_string(), text);
    }
    let too_long = format!("read price-hours 0 {}", PIECE_BYTES_MAX + 1);
    for text in ["", "part", "read", "read orders 0", "read ../cluster 0 1", &too_long] {
        assert!(text.parse::<Question>().is_err(), "{text}");
    }
    let too_roomy = format!("segment 1 5 {}", SEGMENT_BYTES_MAX + 1);
    for line in ["orders 7 5 6", "segment 1 5 4", "segment ../1 5 5", "x 5 5", &too_roomy] {
        assert!(parse(line).is_err(), "{line}");
    }
    assert!(parse_parts(b"segment 1 5 5\n").is_err(), "no log is named");
}

/// A data folder in which a node has run.
fn original() -> TempDir {
    let data = TempDir::new().unwrap();
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let config = JournalConfig { segment_bytes: 1 << 20, ..JournalConfig::default() };
    drop(Journal::open(&directory, &config, |_, _, _| Ok::<_, Infallible>(())).unwrap());
    fs::write(data.path().join("price-hours"), "hours").unwrap();
    data
}

fn folder(data: &TempDir) -> Folder {
    Folder::new(Disk::System, data.path())
}

fn incoming(data: &TempDir) -> Folder {
    Folder::new(Disk::System, &data.path().join(INCOMING_NAME))
}

/// Copies from `original`, where `change` may spoil the answer with this number.
fn copy_with(
    original: &TempDir,
    to: &TempDir,
    change: impl Fn(u32, &mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    let offered = RefCell::new(Offered::new(folder(original), LOG));
    let number = Cell::new(0);
    let ask = |question: Question| {
        let answer = offered.borrow_mut().answer("new", &question.to_string());
        let mut answer = answer.map_err(AskError::Refused)?;
        change(number.replace(number.get() + 1), &mut answer).map_err(AskError::Refused)?;
        Ok(answer.into())
    };
    let from = NodeName::new("original").unwrap();
    copy(&incoming(to), &from, LOG, ask).map_err(|error| format!("{error:#}"))
}

#[test]
fn a_copy_is_whole_or_is_not_there() {
    let (original, to) = (original(), TempDir::new().unwrap());
    // The answers: what there is, the hourly prices, and the segment's first piece.
    for (at, wrong, expected) in [
        (0, Err("gone"), "node original: gone"),
        (0, Ok(5), "the data of another log"),
        (2, Err("gone"), "node original: gone"),
        (1, Ok(usize::MAX), "has another length"),
        (2, Ok(88), "the copy is damaged"),
    ] {
        let copied = copy_with(&original, &to, |number, answer| {
            match wrong {
                _ if number != at => {}
                Err(error) => return Err(error.to_owned()),
                Ok(usize::MAX) => answer.truncate(1),
                // Another digit, and another bit.
                Ok(byte) => answer[byte] ^= 1,
            }
            Ok(())
        });
        assert!(copied.as_ref().unwrap_err().contains(expected), "{copied:?}");
        assert!(!incoming(&to).path().exists());
    }
    // What is left of those does not get in the way.
    assert!(to.path().join("incoming.tmp").exists());
    copy_with(&original, &to, |_, _| Ok(())).unwrap();
    move_in(&incoming(&to), &folder(&to)).unwrap();
    let mut names: Vec<_> = fs::read_dir(to.path()).unwrap().map(|it| it.unwrap().path()).collect();
    names.sort();
    let expected = ["journal", "price-hours", "snapshots"].map(|name| to.path().join(name));
    assert_eq!(names, expected);
    for name in ["price-hours", "journal/00000000000000000001.segment"] {
        let [copied, source] =
            [&to, &original].map(|data| fs::read(data.path().join(name)).unwrap());
        assert!(copied == source, "{name}");
    }
}

#[test]
fn only_an_empty_folder_is_filled() {
    let data = original();
    let to = TempDir::new().unwrap();
    assert!(is_empty(&folder(&to)).unwrap());
    for name in ["journal", "snapshots", "archive"] {
        fs::create_dir(to.path().join(name)).unwrap();
        assert!(is_empty(&folder(&to)).unwrap(), "{name} holds nothing");
        fs::write(to.path().join(name).join("anything"), "").unwrap();
        assert!(!is_empty(&folder(&to)).unwrap(), "{name} holds something");
        fs::remove_dir_all(to.path().join(name)).unwrap();
    }

    // What is there already is never replaced.
    copy_with(&data, &to, |_, _| Ok(())).unwrap();
    for name in ["price-hours", "journal"] {
        let path = to.path().join(name);
        let anything = if name == "journal" { path.join("anything") } else { path };
        fs::create_dir_all(anything.parent().unwrap()).unwrap();
        fs::write(&anything, "mine").unwrap();
        let error = format!("{:#}", move_in(&incoming(&to), &folder(&to)).unwrap_err());
        assert!(error.contains(&format!("incoming/{name} and ")), "{error}");
        assert_eq!(fs::read(&anything).unwrap(), b"mine");
        fs::remove_file(&anything).unwrap();
    }

    // A move that was interrupted goes on.
    fs::rename(incoming(&to).price_hours(), to.path().join("price-hours")).unwrap();
    assert!(move_in(&incoming(&to), &folder(&to)).unwrap());
    assert!(to.path().join("journal/00000000000000000001.segment").exists());
    assert!(!is_empty(&folder(&to)).unwrap());

    // What came from elsewhere is no copy.
    fs::create_dir(to.path().join("incoming")).unwrap();
    assert!(!move_in(&incoming(&to), &folder(&to)).unwrap());
    assert!(to.path().join("journal/00000000000000000001.segment").exists());

    // Nor is it removed for what was to be removed once.
    let outrun = Folder::new(Disk::System, &to.path().join("outrun"));
    fs::create_dir(outrun.path()).unwrap();
    move_out(&outrun, &folder(&to)).unwrap();
    assert!(to.path().join("journal/00000000000000000001.segment").exists());
    assert!(!outrun.path().exists());
    fs::create_dir_all(outrun.journal()).unwrap();
    let error = format!("{:#}", move_out(&outrun, &folder(&to)).unwrap_err());
    assert!(error.contains("outrun/journal and "), "{error}");
    fs::remove_dir(outrun.journal()).unwrap();

    // A removal that was interrupted goes on.
    fs::rename(folder(&to).journal(), outrun.journal()).unwrap();
    move_out(&outrun, &folder(&to)).unwrap();
    assert!(is_empty(&folder(&to)).unwrap());
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
    copy_with(&data, &to, |_, _| Ok(())).unwrap();
    move_in(&incoming(&to), &folder(&to)).unwrap();
    discard(to.path()).unwrap();
    assert!(is_empty(&folder(&to)).unwrap());
}

#[test]
fn one_node_at_a_time_copies() {
    let data = original();
    let mut offered = Offered::new(folder(&data), LOG);
    let unasked = offered.answer("a", "read price-hours 0 5").unwrap_err();
    assert_eq!(unasked, "it was not asked for its parts");
    offered.answer("a", "parts").unwrap();
    for question in ["parts", "read price-hours 0 5"] {
        let refused = offered.answer("b", question).unwrap_err();
        assert_eq!(refused, "another node is copying from it");
    }
    // They are one version, whatever becomes of the file.
    let first = offered.answer("a", "read price-hours 0 2").unwrap();
    fs::write(data.path().join("new"), "other").unwrap();
    fs::rename(data.path().join("new"), data.path().join("price-hours")).unwrap();
    let rest = offered.answer("a", "read price-hours 2 3").unwrap();
    assert_eq!([first, rest].concat(), b"hours");
    let gone = offered.answer("a", "read segment 9 0 1").unwrap_err();
    assert!(gone.contains("00000000000000000009.segment: No such file"), "{gone}");
    offered.answer("a", "done").unwrap();
    offered.answer("b", "parts").unwrap();
    offered.idle();
    assert!(offered.answer("b", "read price-hours 0 5").is_err(), "it has to ask for parts first");
    for _ in 0..2 {
        offered.answer("a", "parts").unwrap();
    }
    // One that was killed does not keep others away for good.
    let (_, _, asked) = offered.copying.as_mut().unwrap();
    *asked -= IDLE_MAX + Duration::from_secs(1);
    assert!(offered.answer("b", "read price-hours 0 5").is_err(), "it has to ask for parts first");
    offered.answer("b", "parts").unwrap();
}
