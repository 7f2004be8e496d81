//! Copies of a repository, as tools for object storage make them: file by file, while backups run,
//! and stopped anywhere.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::damage::HEALTHY;
use crate::restore::back_up;
use crate::world::{Trader, buy, copy_folder, files, json_of, start, text, tool};

/// Copies what is not there with the same length, as `rclone copy --size-only` does, until `limit`
/// files were copied; the next one is left half written. Returns whether that was all.
fn copy(from: &Path, to: &Path, folder: &str, limit: &mut usize) -> bool {
    fs::create_dir_all(to.join(folder)).unwrap();
    for path in files(from, folder) {
        let target = to.join(folder).join(path.file_name().unwrap());
        let content = fs::read(&path).unwrap();
        if fs::metadata(&target).is_ok_and(|found| found.len() == content.len() as u64) {
            continue;
        }
        if *limit == 0 {
            fs::write(&target, &content[..content.len() / 2]).unwrap();
            return false;
        }
        *limit -= 1;
        fs::write(&target, &content).unwrap();
    }
    true
}

/// Copies files, and then points.
fn copy_all(from: &Path, to: &Path, mut limit: usize) -> bool {
    copy(from, to, "files", &mut limit) && copy(from, to, "points", &mut limit)
}

/// Restores the newest point that is whole, and returns its last position.
fn restored(repository: &Path, more: &[&str]) -> Value {
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("target");
    let (report, code) = json_of(&[&["restore", text(repository), text(&target)], more].concat());
    assert_eq!(code, 0, "{report}");
    report["last_position"].clone()
}

/// Opens an account on a server of this folder and buys once.
fn go_on(data: &Path, label: &str) {
    let server = start(data);
    buy(&mut Trader::new(data, &server, label).connect(&server), label);
    server.interrupt();
}

#[test]
fn a_copy_that_stops_anywhere_has_whole_points_only() {
    let folder = TempDir::new().unwrap();
    let (data, repository) = (folder.path().join("data"), folder.path().join("repository"));
    copy_folder(HEALTHY.path(), &data);
    let mut ends = vec![back_up(&data, &repository)["last_position"].clone()];
    go_on(&data, "later");
    ends.push(back_up(&data, &repository)["last_position"].clone());
    for limit in 0.. {
        let copied = folder.path().join(format!("copied-{limit}"));
        let is_all = copy_all(&repository, &copied, limit);
        if !copied.join("points").exists() {
            continue;
        }
        let (report, code) = json_of(&["backup", "verify", text(&copied)]);
        // A point that was half written is found, and every other is whole.
        let points = files(&copied, "points").len();
        let half = usize::from(!is_all && points > 0);
        assert_eq!(report["points"], points - half, "{report}");
        assert_eq!(code, if half > 0 { 3 } else { 0 }, "stopped after {limit}: {report}");
        assert_eq!(report["damage"].as_array().unwrap().len(), half, "{report}");
        if let Some(newest) = (points - half).checked_sub(1) {
            let number = (newest + 1).to_string();
            assert_eq!(restored(&copied, &["--point", &number]), ends[newest]);
        }
        // It goes on where it was stopped.
        assert!(copy_all(&repository, &copied, usize::MAX));
        assert_eq!(restored(&copied, &[]), ends[1]);
        fs::remove_dir_all(&copied).unwrap();
        if is_all {
            return;
        }
    }
}

#[test]
fn a_backup_during_a_copy_leaves_the_older_points_of_the_copy_whole() {
    let folder = TempDir::new().unwrap();
    let (data, repository) = (folder.path().join("data"), folder.path().join("repository"));
    let copied = folder.path().join("copied");
    copy_folder(HEALTHY.path(), &data);
    let first = back_up(&data, &repository);
    assert!(copy(&repository, &copied, "files", &mut usize::MAX.clone()));
    go_on(&data, "meanwhile");
    let second = back_up(&data, &repository);
    assert!(copy(&repository, &copied, "points", &mut usize::MAX.clone()));

    let output = tool(&["backup", "list", text(&copied)]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("is missing; point 2 needs it"), "{printed}");
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert_eq!(restored(&copied, &["--point", "1"]), first["last_position"]);
    assert!(copy_all(&repository, &copied, usize::MAX));
    let (report, code) = json_of(&["backup", "verify", text(&copied)]);
    assert_eq!((code, &report["points"]), (0, &json!(2)), "{report}");
    assert_eq!(restored(&copied, &[]), second["last_position"]);
    // The copy is as good as the original: the next backup may go there.
    go_on(&data, "last");
    let third = back_up(&data, &copied);
    assert_eq!((&third["point"], &third["begins_anew"]), (&json!(3), &Value::Null), "{third}");
}
