use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;

use tempfile::TempDir;

use super::*;
use crate::journal::{Journal, JournalConfig};

#[test]
fn questions_and_parts_are_read_as_they_are_written() {
    let files = [
        (File::Snapshot(41), "snapshot 41"),
        (File::Orders(7), "orders 7"),
        (File::Segment(42), "segment 42"),
        (File::PriceHours, "price-hours"),
        (File::Mark, "mark"),
    ];
    for (file, name) in files {
        assert_eq!(Named(file).to_string(), name);
        let question = Question::Read { file, offset: 8_192, bytes: 4_096 };
        assert_eq!(question.to_string(), format!("read {name} 8192 4096"));
        assert_eq!(question.to_string().parse::<Question>().unwrap(), question);
        let part = parse_parts(format!("{name} 5 5\n").as_bytes()).unwrap();
        assert_eq!(part, [Part { file, bytes: 5, room_bytes: 5 }]);
    }
    assert_eq!("parts".parse::<Question>().unwrap(), Question::Parts);
    let too_long = format!("read mark 0 {}", PIECE_BYTES_MAX + 1);
    for text in ["", "part", "read", "read mark", "read mark 0", "read ../mark 0 1", &too_long] {
        assert!(text.parse::<Question>().is_err(), "{text}");
    }
    let too_roomy = format!("segment 1 5 {}", SEGMENT_BYTES_MAX + 1);
    for text in ["mark 5", "mark 5 6", "segment 1 5 4", "segment ../1 5 5", "x 5 5", &too_roomy] {
        assert!(parse_parts(text.as_bytes()).is_err(), "{text}");
    }
}

/// A data folder in which a node has run, and has begun its second segment.
fn original() -> TempDir {
    let data = TempDir::new().unwrap();
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let config = JournalConfig { segment_bytes: 1 << 20, ..JournalConfig::default() };
    drop(Journal::open(&directory, &config, |_, _, _| Ok::<_, Infallible>(())).unwrap());
    fs::write(data.path().join("price-hours"), "hours").unwrap();
    fs::write(data.path().join("cluster"), "log of a cluster").unwrap();
    data
}

/// The files of a folder, but for its lock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for directory in ["", "journal", "snapshots", "archive"] {
        let Ok(entries) = fs::read_dir(folder.join(directory)) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found.remove("lock");
    found
}

/// Copies from `original`, where `change` may spoil the answer with this number.
fn copy_with(
    original: &TempDir,
    to: &TempDir,
    change: impl Fn(u32, &mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    let answers = std::cell::RefCell::new(answers(Folder::new(Disk::System, original.path())));
    let number = Cell::new(0);
    let ask = |question: Question| {
        let mut answer = answers.borrow_mut()(&question.to_string()).map_err(AskError::Refused)?;
        change(number.replace(number.get() + 1), &mut answer).map_err(AskError::Refused)?;
        Ok(answer.into())
    };
    let from = NodeName::new("original").unwrap();
    copy(&Folder::new(Disk::System, to.path()), &from, ask).map_err(|error| format!("{error:#}"))
}

#[test]
fn a_copy_is_whole_or_begun_anew() {
    let (original, to) = (original(), TempDir::new().unwrap());
    let segment = to.path().join("journal").join("00000000000000000001.segment");
    for (wrong, expected) in [
        (Err("gone".to_owned()), "gone"),
        (Ok(None), "has another length"),
        (Ok(Some(600)), "the copy is damaged"),
    ] {
        let copied = copy_with(&original, &to, |number, answer| {
            match &wrong {
                _ if number != 1 => {}
                Err(error) => return Err(error.clone()),
                Ok(None) => answer.truncate(answer.len() - 1),
                Ok(Some(at)) => answer[*at % 512] ^= 1,
            }
            Ok(())
        });
        assert!(copied.as_ref().unwrap_err().contains(expected), "{copied:?}");
    }
    // What is left of it, and of others.
    assert!(segment.exists());
    for directory in ["snapshots", "archive"] {
        fs::create_dir_all(to.path().join(directory)).unwrap();
        fs::write(to.path().join(directory).join("left"), "").unwrap();
    }
    copy_with(&original, &to, |_, _| Ok(())).unwrap();
    let (mut expected, copied) = (files(original.path()), files(to.path()));
    let mark = expected.remove("cluster").unwrap();
    expected.insert("cluster-copy".to_owned(), mark);
    // Segments that are only prepared are not copied.
    expected.retain(|name, _| copied.contains_key(name) || !name.starts_with("journal"));
    assert_eq!(copied.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(copied == expected, "all bytes are the same");
}

#[test]
fn a_file_that_is_gone_is_told() {
    let original = original();
    let mut answers = answers(Folder::new(Disk::System, original.path()));
    let gone = answers("read segment 9 0 1").unwrap_err();
    assert!(gone.contains("00000000000000000009.segment"), "{gone}");
    // A file that is being read stays.
    let first = answers("read price-hours 0 2").unwrap();
    fs::remove_file(original.path().join("price-hours")).unwrap();
    assert_eq!([first, answers("read price-hours 2 3").unwrap()].concat(), b"hours");
    answers("parts").unwrap();
    assert!(answers("read price-hours 0 5").is_err());
}
