//! Data of an older format: the operator hears of it before a start changes it.

use std::fs;
use std::path::Path;

use paperbourse_test_support::process::{Process, command};

use crate::BINARY;

const NOTICE: &str = "a start writes a newer data format than the folder holds";

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// What `paperbourse check` says about this data folder.
fn checked(data: &Path) -> String {
    let mut check = command(BINARY);
    check.args(["check", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    String::from_utf8(check.output().unwrap().stdout).unwrap()
}

#[test]
fn a_check_says_beforehand_that_a_start_raises_the_format() {
    // The journal of the first, and the snapshots of both, are of an older format.
    for name in ["v1", "pages"] {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden");
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        copy(&golden.join(name), &data);
        let text = checked(&data);
        assert!(text.contains(NOTICE) && text.contains("paperbourse backup"), "{name}: {text}");
    }
}

#[test]
fn a_start_on_data_of_its_own_format_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let mut serve = command(BINARY);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
        let lines = Process::spawn(&mut serve).ready().interrupt();
        assert!(!lines.iter().any(|line| line.contains(NOTICE)), "{lines:?}");
        assert!(!checked(folder.path()).contains(NOTICE));
    }
}
