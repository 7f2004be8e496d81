//! Folders damaged on purpose: the tools find the damage and name its file and offset.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use paperbourse_test_support::process::command;
use tempfile::TempDir;

use crate::world::{BINARY, Trader, buy, comment, copy_folder, files, json_of, start, text, tool};

const SECTOR_BYTES: usize = 512;
/// The alignment of blocks, and the unit of their lengths.
const PAGE_BYTES: usize = 4096;

/// At least this much is in the newest segment: several comments.
const NEWEST_BYTES_MIN: usize = 40 << 10;

/// The most comments that an author may write on one order.
const COMMENTS_ON_AN_ORDER: usize = 20;

/// A folder with a snapshot, an archive and a journal of several blocks in a long last segment. No
/// server writes to it.
pub(crate) static HEALTHY: LazyLock<TempDir> = LazyLock::new(|| {
    let data = TempDir::new().unwrap();
    let server = start(data.path());
    let trader = Trader::new(data.path(), &server, "writer");
    let mut client = trader.connect(&server);
    let mut order = 0;
    for number in 0.. {
        if number % COMMENTS_ON_AN_ORDER == 0 {
            order = buy(&mut client, &format!("order-{number}"));
        }
        comment(&mut client, order);
        let is_long = |content: &[u8]| end_of(content) >= NEWEST_BYTES_MIN;
        if files(data.path(), "archive").len() >= 2
            && begun(data.path()).is_some_and(|(_, content)| is_long(&content))
        {
            break;
        }
    }
    server.interrupt();
    data
});

fn segment(data: &Path, folder: &str, index: usize) -> PathBuf {
    files(data, folder).swap_remove(index)
}

/// The end of the segment's blocks: the end of its last page that is not zero.
fn end_of(segment: &[u8]) -> usize {
    written_of(segment).next_multiple_of(PAGE_BYTES)
}

/// The number of bytes up to the last one that is not zero.
fn written_of(segment: &[u8]) -> usize {
    segment.len() - segment.iter().rev().take_while(|&&byte| byte == 0).count()
}

/// The newest segment with blocks, and its content. `None` may also mean that a running server
/// archived the full segment between listing the folder and reading the file.
fn begun(data: &Path) -> Option<(PathBuf, Vec<u8>)> {
    let contents = files(data, "journal").into_iter().filter_map(|path| match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        content => Some((path, content.unwrap())),
    });
    contents.filter(|(_, content)| end_of(content) > PAGE_BYTES).max()
}

/// The newest segment with blocks of a folder that no server writes to.
fn newest_begun(data: &Path) -> PathBuf {
    begun(data).unwrap().0
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Damages a folder, and returns the file and offset that a report has to name.
type Case = (&'static str, fn(&Path) -> (PathBuf, Option<usize>));

const CASES: [Case; 8] = [
    ("a changed byte in a block of the newest segment", |data| {
        let path = newest_begun(data);
        let content = fs::read(&path).unwrap();
        // The second block; comments of one size make blocks of one size.
        let second = PAGE_BYTES
            + content[PAGE_BYTES + 1..].windows(4).position(|bytes| bytes == b"PBBK").unwrap()
            + 1;
        assert!(end_of(&content) > second + 2 * PAGE_BYTES);
        flip(&path, second + 100);
        (path, Some(second))
    }),
    ("a changed byte in an archived segment", |data| {
        let path = segment(data, "archive", 0);
        flip(&path, PAGE_BYTES + 40);
        (path, Some(PAGE_BYTES))
    }),
    ("a changed header of a segment", |data| {
        let path = newest_begun(data);
        flip(&path, 20);
        (path, Some(0))
    }),
    ("bytes behind the end of the journal", |data| {
        let path = newest_begun(data);
        let end = end_of(&fs::read(&path).unwrap());
        flip(&path, end);
        (path, Some(end))
    }),
    ("a segment that is not there", |data| {
        let path = newest_begun(data);
        fs::remove_file(&path).unwrap();
        (path, None)
    }),
    ("a segment that was cut", |data| {
        let path = newest_begun(data);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        (path, None)
    }),
    ("a changed byte in the snapshot", |data| {
        let path = newest_snapshot(data, "snapshot");
        flip(&path, SECTOR_BYTES + 40);
        (path, Some(SECTOR_BYTES))
    }),
    ("an order file that is not there", |data| {
        let snapshots = files(data, "snapshots");
        let path = snapshots.into_iter().find(|path| path.extension().unwrap() == "orders");
        let path = path.unwrap();
        fs::remove_file(&path).unwrap();
        (path, None)
    }),
];

#[test]
fn damage_is_found_and_named() {
    for (name, damage) in CASES {
        let folder = TempDir::new().unwrap();
        copy_folder(HEALTHY.path(), folder.path());
        let (path, offset) = damage(folder.path());
        let before: Vec<_> = all_files(folder.path());

        let (report, code) = json_of(&["journal", "verify", text(folder.path())]);
        assert_eq!(code, 3, "{name}: {report}");
        let found = &report["damage"];
        assert_eq!(found["file"], text(&path), "{name}: {report}");
        let found_offset = found["offset"].as_u64().and_then(|offset| usize::try_from(offset).ok());
        assert_eq!(found_offset, offset, "{name}: {report}");
        let message = found["message"].as_str().unwrap();
        assert!(message.contains(text(&path)), "{name}: {message}");

        let output = tool(&["journal", "verify", text(folder.path())]);
        assert_eq!(output.status.code(), Some(3), "{name}");
        let lines = String::from_utf8(output.stdout).unwrap();
        assert_eq!(lines.lines().last().unwrap(), format!("damaged: {message}"), "{name}");
        assert_eq!(all_files(folder.path()), before, "{name}: the tool changed a file");
    }
}

/// What a start does with a file in which a bit has flipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    Refuses,
    Warns,
    DoesNotReadIt,
}

/// A kind of file in a data folder: one of them, the offset of the bit, and what a start does then.
type Kind = (&'static str, fn(&Path) -> (PathBuf, usize), Start);

const KINDS: [Kind; 6] = [
    ("a segment", |data| (newest_begun(data), PAGE_BYTES + 40), Start::Refuses),
    ("a snapshot", |data| (newest_snapshot(data, "snapshot"), SECTOR_BYTES + 40), Start::Refuses),
    ("its orders", |data| (newest_snapshot(data, "orders"), SECTOR_BYTES + 40), Start::Refuses),
    ("the archive", |data| (segment(data, "archive", 0), PAGE_BYTES + 40), Start::DoesNotReadIt),
    ("hourly prices", |data| (data.join("price-hours"), 20), Start::Warns),
    ("the issuer's key", |data| (data.join("issuer/ed25519.pk8"), 40), Start::Refuses),
];

/// The newest file of a snapshot of this kind.
fn newest_snapshot(data: &Path, extension: &str) -> PathBuf {
    let files = files(data, "snapshots").into_iter();
    files.filter(|path| path.extension().unwrap() == extension).max().unwrap()
}

/// What a server does that is started on a folder with this damaged file.
fn started(data: &Path, damaged: &Path) -> Start {
    let mut command = command(BINARY);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", text(data)]);
    command.env("PAPERBOURSE_LOG_FORMAT", "human").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    let mut has_warned = false;
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_ready = lines.any(|line| {
        has_warned |= line.contains("WARN") && line.contains(text(damaged));
        line.ends_with(" ready")
    });
    let _ = server.kill();
    server.wait().unwrap();
    match (is_ready, has_warned) {
        (false, _) => Start::Refuses,
        (true, true) => Start::Warns,
        (true, false) => Start::DoesNotReadIt,
    }
}

/// A verification finds what a start would refuse or go on without, and damage in the archive.
#[test]
fn a_flipped_bit_is_found_in_every_kind_of_file() {
    for (name, place, expected) in KINDS {
        let folder = TempDir::new().unwrap();
        copy_folder(HEALTHY.path(), folder.path());
        let (path, offset) = place(folder.path());
        flip(&path, offset);
        let before = all_files(folder.path());
        let output = tool(&["journal", "verify", text(folder.path())]);
        let report = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(3), "{name}: {report}");
        let last = report.lines().last().unwrap();
        assert!(last.starts_with("damaged: ") && last.contains(text(&path)), "{name}: {last}");
        assert_eq!(all_files(folder.path()), before, "{name}: the tool changed a file");
        assert_eq!(started(folder.path(), &path), expected, "{name}");
    }
}

/// All files of a data folder, with their content.
fn all_files(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let folders = ["journal", "archive", "snapshots", "issuer"];
    let paths = folders.into_iter().flat_map(|folder| files(data, folder));
    let paths = paths.chain([data.join("price-hours")]);
    paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_damaged_folder_is_not_backed_up() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    copy_folder(HEALTHY.path(), &data);
    flip(&newest_begun(&data), PAGE_BYTES + 40);
    let output = tool(&["backup", text(&data), text(&folder.path().join("copy"))]);
    assert_eq!(output.status.code(), Some(3));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("the backup failed: ") && errors.contains("at offset 4096"),
        "{errors}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn a_torn_end_is_no_damage() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    copy_folder(HEALTHY.path(), &data);
    let (whole, code) = json_of(&["journal", "verify", text(&data)]);
    assert_eq!((code, whole["torn"].is_null()), (0, true), "{whole}");
    let path = newest_begun(&data);
    let mut bytes = fs::read(&path).unwrap();
    let end = written_of(&bytes).next_multiple_of(SECTOR_BYTES);
    bytes[end - SECTOR_BYTES..].fill(0);
    fs::write(&path, &bytes).unwrap();

    let (torn, code) = json_of(&["journal", "verify", text(&data)]);
    assert_eq!((code, torn["damage"].is_null()), (0, true), "{torn}");
    let position = |report: &serde_json::Value| report["last_position"].as_u64().unwrap();
    assert_eq!(position(&torn), position(&whole) - 1);
    let number = |name: &str| usize::try_from(torn["torn"][name].as_u64().unwrap()).unwrap();
    assert_eq!(number("offset") + number("bytes"), end - SECTOR_BYTES, "{torn}");

    // A backup leaves the torn end out.
    let copy = folder.path().join("copy");
    let (report, code) = json_of(&["backup", text(&data), text(&copy)]);
    assert_eq!((code, position(&report)), (0, position(&torn)), "{report}");
    let (report, _) = json_of(&["journal", "verify", text(&copy)]);
    assert_eq!((report["torn"].is_null(), position(&report)), (true, position(&torn)), "{report}");
}

#[test]
fn the_archive_is_checked_even_without_its_oldest_segments() {
    let folder = TempDir::new().unwrap();
    copy_folder(HEALTHY.path(), folder.path());
    fs::remove_file(segment(folder.path(), "archive", 0)).unwrap();
    let (report, code) = json_of(&["journal", "verify", text(folder.path())]);
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["covered"]["first_segment"], 2, "{report}");
    // The snapshot knows the markets that the missing records introduced.
    let dumped = tool(&["journal", "dump", text(folder.path())]);
    assert!(dumped.status.success());
    let lines = String::from_utf8(dumped.stdout).unwrap();
    assert!(!lines.starts_with("1 "), "the oldest records are gone");
    let fill = lines.lines().find(|line| line.contains("filled order")).unwrap();
    assert!(fill.contains(" of \"Yes\" in 0xfbed"), "{fill}");

    flip(&segment(folder.path(), "archive", 0), PAGE_BYTES + 100);
    let (report, code) = json_of(&["journal", "verify", text(folder.path())]);
    assert_eq!(code, 3, "{report}");
}
