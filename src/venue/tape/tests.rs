//! Tapes on a real disk: written, torn, full and read again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::*;

/// Limits that no test reaches unless it lowers them.
fn limits() -> TapeLimits {
    TapeLimits::default()
}

fn send(sender: &TapeSender, folder: Folder, text: &str) {
    let fields = r#""kind":"frame""#.to_owned();
    sender.send(Instant::now(), folder, fields, Payload::Text(text.to_owned()));
}

fn send_all(recorder: &Recorder, texts: &[String]) {
    for text in texts {
        send(&recorder.sender(), Folder::Ws, text);
    }
}

/// The payloads of a tape, `+n` for `n` missing lines, and the kinds of lines without a payload.
fn played(directory: &Path) -> (Vec<String>, TapeReport) {
    let mut tape = Tape::open(directory).unwrap().expect("the folder has a tape");
    let mut contents = Vec::new();
    while let Some(step) = tape.step() {
        let line = match step {
            Step::Missing(count) => {
                contents.push(format!("+{count}"));
                continue;
            }
            Step::Line(line) => Line::read(line).unwrap(),
        };
        match line.payload().unwrap() {
            Some(payload) => contents.push(String::from_utf8(payload.into_owned()).unwrap()),
            None => contents.push(line.kind.into_owned()),
        }
    }
    (contents, tape.report().clone())
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let sessions = file::sessions(directory).unwrap();
    sessions.into_values().flatten().flatten().collect()
}

fn size(directory: &Path) -> u64 {
    files(directory).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

/// Text that hardly compresses.
fn noise(number: u64, bytes: usize) -> String {
    let mut state = number * 2 + 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b' ' + (state % 90) as u8)
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

async fn finish(recorder: Recorder) -> TapeTotals {
    let (totals, result) = recorder.finish("asked").await;
    result.unwrap();
    totals
}

#[tokio::test]
async fn sessions_are_read_in_order() {
    let folder = TempDir::new().unwrap();
    let mut expected = Vec::new();
    for session in 0..3 {
        let recorder = Recorder::start(folder.path(), limits()).unwrap();
        for number in 0..50_u32 {
            let place = Folder::ALL[(number % 7 % 3) as usize];
            let text = format!(r#"{{"session":{session}, "number":{number}}}"#);
            send(&recorder.sender(), place, &text);
            expected.push(text);
        }
        expected.push("end".to_owned());
        let totals = finish(recorder).await;
        assert_eq!((totals.lines, totals.files, totals.gaps), (50, 3, 0));
        assert!(totals.payload_bytes > totals.file_bytes, "{totals:?}");
    }
    let (contents, report) = played(folder.path());
    assert_eq!(contents, expected);
    assert_eq!((report.session_count, report.file_count, report.line_count), (3, 9, 153));
    assert_eq!((report.missing_count, report.malformed_count, report.torn_count), (0, 0, 0));

    // The files are plain gzip, and unpacked ones can be read too.
    for path in files(folder.path()) {
        let mut text = String::new();
        MultiGzDecoder::new(fs::File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
        fs::write(path.with_extension(""), text).unwrap();
        fs::remove_file(path).unwrap();
    }
    assert_eq!(played(folder.path()).0, expected);
}

#[tokio::test]
async fn files_rotate_without_losing_lines() {
    let long = std::time::Duration::from_hours(1);
    for (rotate_bytes, rotate_after, file_count_min) in
        [(10_000, long, 5), (u64::MAX, std::time::Duration::ZERO, 200), (u64::MAX, long, 1)]
    {
        let folder = TempDir::new().unwrap();
        let limits = TapeLimits { rotate_bytes, rotate_after, ..limits() };
        let recorder = Recorder::start(folder.path(), limits).unwrap();
        let texts: Vec<String> = (0..200).map(|number| noise(number, 2_000)).collect();
        send_all(&recorder, &texts);
        let totals = finish(recorder).await;
        let names = files(folder.path());
        assert!(names.is_sorted() && names.len() >= file_count_min, "{rotate_bytes}: {names:?}");
        assert_eq!((totals.files, totals.file_bytes), (names.len() as u64, size(folder.path())));
        let (contents, report) = played(folder.path());
        assert_eq!((&contents[..200], &*contents[200], report.torn_count), (&texts[..], "end", 0));
    }
}

/// Wherever a file is torn, all lines before that are read, and the file is reported.
#[tokio::test]
async fn a_torn_file_is_read_up_to_the_tear() {
    let folder = TempDir::new().unwrap();
    let recorder = Recorder::start(folder.path(), limits()).unwrap();
    let texts: Vec<String> = (0..100).map(|number| noise(number, 100)).collect();
    send_all(&recorder, &texts);
    finish(recorder).await;
    let [path] = &files(folder.path())[..] else { panic!("one file") };
    let whole = fs::read(path).unwrap();
    let mut counts = Vec::new();
    for end in (1..=whole.len()).rev().step_by(97).chain([0]) {
        fs::write(path, &whole[..end]).unwrap();
        let (contents, report) = played(folder.path());
        let count = contents.len().min(texts.len());
        assert_eq!(contents[..count], texts[..count], "cut at {end}");
        assert_eq!(report.torn_count, usize::from(end < whole.len()), "cut at {end}");
        counts.push(contents.len());
    }
    assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    assert_eq!((counts[0], counts.last()), (101, Some(&0)));
    // The lines before a tear are read even within one block of compressed data.
    assert!(counts.iter().any(|&count| count > 0 && count < 100), "{counts:?}");

    // The next session is not affected.
    fs::write(path, &whole[..whole.len() / 2]).unwrap();
    let recorder = Recorder::start(folder.path(), limits()).unwrap();
    send(&recorder.sender(), Folder::Ws, "again");
    finish(recorder).await;
    let (contents, report) = played(folder.path());
    assert_eq!(contents[contents.len() - 2..], ["again", "end"]);
    assert_eq!((report.session_count, report.torn_count, report.missing_count), (2, 1, 0));
    let torn = report.torn[0].to_string();
    assert!(torn.contains(" is torn after "), "{torn}");
}

#[tokio::test]
async fn lines_are_flushed_before_the_session_ends() {
    let folder = TempDir::new().unwrap();
    let recorder = Recorder::start(folder.path(), limits()).unwrap();
    send(&recorder.sender(), Folder::Ws, "first");
    let started = Instant::now();
    while Tape::open(folder.path()).unwrap().is_none() || played(folder.path()).0.is_empty() {
        assert!(started.elapsed() < 20 * FLUSH_INTERVAL, "the line was never flushed");
        tokio::task::yield_now().await;
    }
    assert_eq!(played(folder.path()).0, ["first"]);
    finish(recorder).await;
}

#[tokio::test]
async fn the_lines_of_a_deleted_file_are_reported_missing() {
    let folder = TempDir::new().unwrap();
    let limits = TapeLimits { rotate_after: std::time::Duration::ZERO, ..limits() };
    let recorder = Recorder::start(folder.path(), limits).unwrap();
    for text in ["1", "2", "3", "4"] {
        send(&recorder.sender(), Folder::Ws, text);
    }
    finish(recorder).await;
    let files = files(folder.path());
    fs::remove_file(&files[1]).unwrap();
    let (contents, report) = played(folder.path());
    assert_eq!(
        (contents, report.missing_count),
        (["1", "+1", "3", "4", "end"].map(String::from).to_vec(), 1)
    );

    // A copy of a file under another number repeats lines that were read.
    fs::copy(&files[2], &files[1]).unwrap();
    let (contents, report) = played(folder.path());
    assert_eq!(contents, ["1", "+1", "3", "4", "end"]);
    assert_eq!((report.missing_count, report.malformed_count), (1, 1));
}

#[tokio::test]
async fn malformed_lines_are_counted() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("ws")).unwrap();
    let path = folder.path().join("ws/20260101T000000.000Z-000001.tape.jsonl.gz");
    let mut packed = GzEncoder::new(fs::File::create(path).unwrap(), Compression::fast());
    let line = r#"{"n":1,"ns":5,"kind":"frame","text":"x","later":[1]}"#;
    write!(packed, "\n{{}}\n{line}\n\u{0}\n{line}\n").unwrap();
    packed.finish().unwrap();
    let (contents, report) = played(folder.path());
    assert_eq!((contents, report.malformed_count), (vec!["x".to_owned()], 4));
}

#[tokio::test]
async fn a_full_tape_ends_within_its_limit() {
    let folder = TempDir::new().unwrap();
    let limits = TapeLimits { bytes_max: 100_000, rotate_bytes: 30_000, ..limits() };
    let mut recorder = Recorder::start(folder.path(), limits.clone()).unwrap();
    for number in 0..200 {
        send(&recorder.sender(), Folder::Ws, &noise(number, 1_000));
    }
    let error = recorder.failed().await;
    let text = "the tape is full: its files may hold 100000 bytes";
    assert_eq!((error.to_string().as_str(), error.is_full()), (text, true));
    let (contents, report) = played(folder.path());
    assert_eq!((contents.last().map(String::as_str), report.torn_count), (Some("end"), 0));
    assert!(report.line_count > 90, "{report}");
    let bytes = size(folder.path());
    assert!((90_000..=100_000).contains(&bytes), "{bytes}");
    // Further tries add nothing.
    let error = Recorder::start(folder.path(), limits).err().unwrap();
    assert_eq!((error.to_string().as_str(), size(folder.path())), (text, bytes));
}

#[test]
fn an_error_names_the_path_that_cannot_be_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "").unwrap();
    let error = Recorder::start(&path, limits()).err().unwrap().to_string();
    assert!(error.starts_with(&format!("cannot create {}/gamma: ", path.display())), "{error}");
}

#[tokio::test]
async fn a_disk_error_ends_the_tape() {
    let folder = TempDir::new().unwrap();
    let mut recorder = Recorder::start(folder.path(), limits()).unwrap();
    fs::remove_dir(folder.path().join("ws")).unwrap();
    send(&recorder.sender(), Folder::Ws, "1");
    let error = recorder.failed().await;
    assert!(matches!(&error, TapeError::Disk { action: "create", .. }), "{error}");
}

/// Needs a file system of some hundred kilobytes, mounted at `PAPERBOURSE_SMALL_DISK`.
#[tokio::test]
async fn a_full_disk_ends_the_tape_and_its_lines_can_be_read() {
    let Some(disk) = std::env::var_os("PAPERBOURSE_SMALL_DISK") else {
        eprintln!("SKIPPED: no small disk at PAPERBOURSE_SMALL_DISK");
        return;
    };
    let folder = Path::new(&disk).join("tape");
    let mut recorder = Recorder::start(&folder, limits()).unwrap();
    for number in 0..2_000 {
        send(&recorder.sender(), Folder::Ws, &noise(number, 1_000));
    }
    let error = recorder.failed().await;
    assert!(matches!(&error, TapeError::Disk { action: "write", .. }), "{error}");
    assert!(error.to_string().contains("No space left"), "{error}");
    let (contents, report) = played(&folder);
    assert!(contents.len() > 10 && report.torn_count == 1, "{} lines, {report}", contents.len());
}
