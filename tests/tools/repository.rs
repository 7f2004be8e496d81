//! Repositories of backups: what is new is stored, damage is found, and a backup that is stopped at
//! any moment leaves a repository that is whole.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use paperbourse::key_file::{KeyFile, load_or_create_master_key};
use paperbourse_test_support::process::command;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::damage::HEALTHY;
use crate::restore::back_up;
use crate::world::{BINARY, Trader, buy, comment, copy_folder, files, json_of, start, text, tool};

/// Buys and comments on a server of this folder, and stops it.
fn trade(data: &Path, label: &str, orders: usize) {
    let server = start(data);
    let mut client = Trader::new(data, &server, label).connect(&server);
    for number in 0..orders {
        let order = buy(&mut client, &format!("{label}-{number}"));
        comment(&mut client, order);
    }
    server.interrupt();
}

/// Writes on a server of this folder until it has made another snapshot, and stops it.
fn fill(data: &Path, label: &str) {
    let server = start(data);
    let mut client = Trader::new(data, &server, label).connect(&server);
    for number in 0.. {
        if !server.log_lines("took a snapshot").is_empty() {
            break;
        }
        let order = buy(&mut client, &format!("{label}-{number}"));
        (0..20).for_each(|_| comment(&mut client, order));
    }
    server.interrupt();
}

/// What `journal verify` says about the end of a folder.
fn last_position(data: &Path) -> u64 {
    let (report, code) = json_of(&["journal", "verify", text(data)]);
    assert_eq!((code, &report["damage"]), (0, &Value::Null), "{report}");
    report["last_position"].as_u64().unwrap()
}

/// Restores from a repository with these arguments, and returns the report.
#[track_caller]
fn restore(repository: &Path, target: &Path, more: &[&str]) -> Value {
    let _ = fs::remove_dir_all(target);
    let (report, code) = json_of(&[&["restore", text(repository), text(target)], more].concat());
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["last_position"], last_position(target), "{report}");
    report
}

#[track_caller]
fn list(repository: &Path) -> Value {
    let (report, code) = json_of(&["backup", "list", text(repository)]);
    assert_eq!((code, &report["damage"]), (0, &json!([])), "{report}");
    report
}

/// The exit code and the error of a command that fails.
#[track_caller]
fn failure(arguments: &[&str]) -> (i32, String) {
    let output = tool(arguments);
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn only_what_is_new_is_stored() {
    let folder = TempDir::new().unwrap();
    let (data, repository) = (folder.path().join("data"), folder.path().join("repository"));
    trade(&data, "first", 5);
    let first = back_up(&data, &repository);
    assert_eq!((&first["point"], &first["begins_anew"]), (&json!(1), &json!("first")));
    let bytes = first["bytes"].as_u64().unwrap();
    // A segment is a mebibyte, but its zeros are not stored.
    assert!(bytes < 200_000 && first["new_bytes"] == bytes, "{first}");

    let again = back_up(&data, &repository);
    assert_eq!((&again["new_files"], &again["new_bytes"]), (&json!(0), &json!(0)), "{again}");
    trade(&data, "second", 1);
    let third = back_up(&data, &repository);
    let new = third["new_bytes"].as_u64().unwrap();
    assert!(new > 0 && new < bytes / 2 + third["bytes"].as_u64().unwrap() / 2, "{third}");
    assert_eq!(third["begins_anew"], Value::Null);
    let listed = list(&repository);
    assert_eq!(listed["points"].as_array().unwrap().len(), 3, "{listed}");
    assert_eq!(listed["spans"].as_array().unwrap().len(), 1, "{listed}");

    // Each point can be restored, and a start continues with any of them.
    let target = folder.path().join("target");
    for (point, report) in [("1", &first), ("2", &again), ("3", &third)] {
        let restored = restore(&repository, &target, &["--point", point]);
        assert_eq!(restored["last_position"], report["last_position"], "{restored}");
        assert_eq!(restored["has_issuer_key"], true);
        let key = |data: &Path| fs::read(data.join("issuer/ed25519.pk8")).unwrap();
        assert!(key(&target) == key(&data));
        trade(&target, "after", 1);
    }
    let (code, errors) = failure(&["restore", text(&repository), "/none/x", "--point", "9"]);
    assert!(code == 1 && errors.contains("has no point 9"), "{errors}");
}

/// The master key of wallets may be younger than the snapshot with which a restored folder begins.
#[test]
fn the_master_key_of_wallets_goes_along() {
    let folder = TempDir::new().unwrap();
    let (data, repository) = (folder.path().join("data"), folder.path().join("repository"));
    trade(&data, "before", 5);
    assert_eq!(back_up(&data, &repository).get("has_wallets_key"), None);
    let key = load_or_create_master_key(&data).unwrap();
    trade(&data, "first", 5);
    let kept = last_position(&data);
    trade(&data, "second", 5);
    assert_eq!(back_up(&data, &repository)["has_wallets_key"], true);
    let target = folder.path().join("target");
    let kept = kept.to_string();
    for (arguments, has_key) in
        [(["--point", "1"], false), (["--point", "2"], true), (["--to-position", &kept], true)]
    {
        let restored = restore(&repository, &target, &arguments);
        assert_eq!(restored.get("has_wallets_key").is_some(), has_key, "{restored}");
        let found = fs::read(KeyFile::Wallets.path(&target)).ok();
        assert_eq!(found, has_key.then(|| key.to_vec()), "{arguments:?}");
    }
    let copy = folder.path().join("copy");
    assert_eq!(json_of(&["backup", text(&data), text(&copy)]).0["has_wallets_key"], true);
    assert_eq!(fs::read(KeyFile::Wallets.path(&copy)).unwrap(), key);
    fs::write(KeyFile::Wallets.path(&copy), &key[1..]).unwrap();
    let (report, code) = json_of(&["journal", "verify", text(&copy)]);
    let damage = report["besides"][0]["message"].as_str().unwrap();
    assert!(code == 3 && damage.contains("contains no master key"), "{report}");
}

#[test]
fn a_restored_folder_goes_on_in_the_same_repository() {
    let folder = TempDir::new().unwrap();
    let (data, repository) = (folder.path().join("data"), folder.path().join("repository"));
    trade(&data, "kept", 5);
    back_up(&data, &repository);
    let kept = last_position(&data);
    trade(&data, "undone", 5);
    let undone = back_up(&data, &repository);
    let target = folder.path().join("target");
    restore(&repository, &target, &["--to-position", &kept.to_string()]);
    // As it was restored, and after it went on from there.
    for (orders, expected) in [(0, json!("other_history")), (3, Value::Null)] {
        fs::remove_dir_all(&data).unwrap();
        fs::rename(&target, &data).unwrap();
        if orders > 0 {
            trade(&data, "instead", orders);
        }
        let anew = back_up(&data, &repository);
        assert_eq!(anew["begins_anew"], expected, "{anew}");
        assert_eq!(anew["last_position"], last_position(&data));
        // The newest point is what the folder holds now, and the old history is still there.
        let newest = restore(&repository, &target, &[]);
        assert_eq!(newest["last_position"], anew["last_position"]);
        let old = folder.path().join("old");
        let old = restore(&repository, &old, &["--point", "2"]);
        assert_eq!(old["last_position"], undone["last_position"]);
    }
    let listed = list(&repository);
    assert_eq!(listed["spans"].as_array().unwrap().len(), 2, "{listed}");
}

#[test]
fn a_gap_is_reported_and_moments_in_it_are_refused() {
    let folder = TempDir::new().unwrap();
    let (data, repository) = (folder.path().join("data"), folder.path().join("repository"));
    trade(&data, "before", 3);
    let before = back_up(&data, &repository);
    fill(&data, "gap");
    fs::remove_dir_all(data.join("archive")).unwrap();
    let output = tool(&["backup", text(&data), "--repository", text(&repository)]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains("it does not follow point 1, since the archive no longer reaches back"),
        "{printed}"
    );
    let gap = before["last_position"].as_u64().unwrap() + 1;
    let target = folder.path().join("target");
    let arguments = ["restore", text(&repository), text(&target), "--to-position"];
    let (code, errors) = failure(&[&arguments[..], &[&gap.to_string()]].concat());
    let expected = format!("position {gap} cannot be restored: nothing is known between position");
    assert!(code == 1 && errors.contains(&expected), "{errors}");
    let (code, errors) = failure(&[&arguments[..], &["99999999"]].concat());
    assert!(code == 1 && errors.contains("and the newest backup was taken at 20"), "{errors}");
    assert_eq!(restore(&repository, &target, &[])["last_position"], last_position(&data));
}

#[test]
fn a_repository_is_for_one_data_folder_and_one_backup_at_a_time() {
    let folder = TempDir::new().unwrap();
    let (data, repository) = (folder.path().join("data"), folder.path().join("repository"));
    let other = folder.path().join("other");
    trade(&data, "one", 1);
    trade(&other, "two", 1);
    back_up(&data, &repository);
    let add = |data: &Path, repository: &Path| {
        failure(&["backup", text(data), "--repository", text(repository)])
    };
    let (code, errors) = add(&other, &repository);
    assert!(code == 1 && errors.contains("holds backups of another data folder"), "{errors}");
    let lock = File::open(repository.join("lock")).unwrap();
    lock.lock().unwrap();
    let (code, errors) = add(&data, &repository);
    assert!(code == 1 && errors.contains("is in use by another backup"), "{errors}");
    drop(lock);
    let (code, errors) = add(&data, &other);
    assert!(code == 1 && errors.contains("is not a repository of backups"), "{errors}");
    // Somebody's folder of that name, or a repository that is being copied back.
    let files = folder.path().join("copied/files");
    fs::create_dir_all(&files).unwrap();
    fs::write(files.join("theirs"), "x").unwrap();
    let (code, errors) = add(&data, files.parent().unwrap());
    assert!(code == 1 && errors.contains("is not a repository of backups"), "{errors}");
    assert!(files.join("theirs").exists());
    let (code, errors) = failure(&["backup", "list", text(&data)]);
    assert!(code == 1 && errors.contains("is not a repository of backups"), "{errors}");
    assert_eq!(list(&repository)["points"].as_array().unwrap().len(), 1);
    back_up(&data, &repository);
}

/// The files of a repository that a restore needs.
fn stored(repository: &Path) -> Vec<PathBuf> {
    [files(repository, "files"), files(repository, "points")].concat()
}

#[test]
fn every_damaged_and_every_missing_file_is_found() {
    let folder = TempDir::new().unwrap();
    let repository = folder.path().join("repository");
    let target = folder.path().join("target");
    let data = folder.path().join("data");
    copy_folder(HEALTHY.path(), &data);
    back_up(&data, &repository);
    assert!(stored(&repository).len() > 4);
    for path in stored(&repository) {
        let whole = fs::read(&path).unwrap();
        let is_point = path.starts_with(repository.join("points"));
        let name = text(&path);
        for is_missing in [false, true] {
            if is_missing {
                fs::remove_file(&path).unwrap();
            } else {
                let mut damaged = whole.clone();
                damaged[whole.len() / 2] ^= 1;
                fs::write(&path, damaged).unwrap();
            }
            let (report, code) = json_of(&["backup", "verify", text(&repository)]);
            let (code_of_restore, errors) = failure(&["restore", text(&repository), text(&target)]);
            if is_point && is_missing {
                assert_eq!((code, &report["points"]), (0, &json!(0)), "{report}");
                assert!(code_of_restore == 1 && errors.contains("holds no complete"), "{errors}");
            } else {
                assert_eq!(code, 3, "{report}");
                assert!(report["damage"][0].as_str().unwrap().contains(name), "{name}: {report}");
                // Hourly prices hold no money, but they are checked like everything else.
                assert!(code_of_restore == 3 && errors.contains(name), "{name}: {errors}");
            }
            assert!(!target.exists() && !target.with_extension("tmp").exists());
            fs::write(&path, &whole).unwrap();
        }
        if is_point {
            fs::write(&path, b"damaged").unwrap();
            let (code, errors) =
                failure(&["backup", text(&data), "--repository", text(&repository)]);
            assert!(
                code == 3 && errors.contains(name) && errors.contains("move it out"),
                "{errors}"
            );
            fs::write(&path, &whole).unwrap();
        }
    }
    restore(&repository, &target, &[]);
}

#[test]
fn a_backup_that_is_killed_at_any_moment_leaves_the_repository_whole() {
    let folder = TempDir::new().unwrap();
    let (data, repository) = (folder.path().join("data"), folder.path().join("repository"));
    trade(&data, "first", 3);
    let first = back_up(&data, &repository);
    trade(&data, "second", 30);
    let mut killed = 0;
    let target = folder.path().join("target");
    for step in 1.. {
        let mut child = command(BINARY)
            .args(["backup", text(&data), "--repository", text(&repository)])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let ends_at = Instant::now() + step * Duration::from_millis(4);
        while Instant::now() < ends_at && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        let is_complete = child.wait().unwrap().success();
        killed += usize::from(!is_complete);
        let (report, code) = json_of(&["backup", "verify", text(&repository)]);
        assert_eq!((code, &report["damage"]), (0, &json!([])), "{report}");
        let restored = restore(&repository, &target, &["--point", "1"]);
        assert_eq!(restored["last_position"], first["last_position"]);
        if is_complete {
            break;
        }
    }
    assert!(killed > 0, "at least one backup was stopped");
    assert_eq!(restore(&repository, &target, &[])["last_position"], last_position(&data));
    // What was left over is gone.
    back_up(&data, &repository);
    let (report, _) = json_of(&["backup", "verify", text(&repository)]);
    assert_eq!(report["files"], files(&repository, "files").len(), "{report}");
    assert!(files(&repository, "unfinished").is_empty());
}

/// Replaces a file by a pipe: whoever opens it waits until the other end is opened by another name.
fn make_wait(path: &Path, other_name: &Path) {
    fs::remove_file(path).unwrap();
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::hard_link(path, other_name).unwrap();
}

/// Opens the other end of a pipe that this process opens.
fn let_go(process: &mut Child, other_name: &Path) -> File {
    loop {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        match OpenOptions::new().write(true).custom_flags(flags).open(other_name) {
            Ok(end) => return end,
            // Nobody opens it yet.
            Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::NXIO.raw_os_error())),
        }
        let ended = process.try_wait().unwrap();
        assert_eq!(ended, None, "it has not opened the pipe");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn files_of_points_that_are_removed_while_a_repository_is_verified_are_no_damage() {
    let folder = TempDir::new().unwrap();
    let (data, repository) = (folder.path().join("data"), folder.path().join("repository"));
    for number in 0..3 {
        fill(&data, &format!("round-{number}"));
        back_up(&data, &repository);
    }
    let copy = folder.path().join("copy");
    copy_folder(&repository, &copy);
    let (pruned, code) = json_of(&["backup", "prune", text(&copy), "--keep", "1"]);
    assert_eq!(code, 0, "{pruned}");
    let is_removed = |path: &PathBuf| !copy.join(path.strip_prefix(&repository).unwrap()).exists();
    let removed: Vec<PathBuf> = stored(&repository).into_iter().filter(is_removed).collect();
    let (points, removed): (Vec<_>, Vec<_>) =
        removed.into_iter().partition(|path| path.starts_with(repository.join("points")));
    assert!(points.len() == 2 && removed.len() > 2, "{points:?} {removed:?}");
    // By the first it has read the points, and by the second it waits for what happens here.
    let ends = [0, 1].map(|number| folder.path().join(format!("end-{number}")));
    removed.iter().zip(&ends).for_each(|(path, end)| make_wait(path, end));
    let mut verify = command(BINARY)
        .args(["backup", "verify", "--json", text(&repository)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _first = let_go(&mut verify, &ends[0]);
    // The second must still be there when it comes to it.
    let others = points.iter().chain(&removed[..1]).chain(&removed[2..]);
    others.for_each(|path| fs::remove_file(path).unwrap());
    let _second = let_go(&mut verify, &ends[1]);
    let output = verify.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::remove_file(&removed[1]).unwrap();
    // What a point still needs is missed as before.
    fs::remove_file(&files(&repository, "files")[0]).unwrap();
    let (report, code) = json_of(&["backup", "verify", text(&repository)]);
    assert_eq!((code, report["damage"].as_array().map(Vec::len)), (3, Some(1)), "{report}");
    let (report, code) = json_of(&["backup", "list", text(&repository)]);
    assert_eq!((code, report["damage"].as_array().map(Vec::len)), (3, Some(1)), "{report}");
}

#[test]
fn old_points_are_removed_with_what_only_they_needed() {
    let folder = TempDir::new().unwrap();
    let (data, repository) = (folder.path().join("data"), folder.path().join("repository"));
    let target = folder.path().join("target");
    let mut ends = Vec::new();
    for number in 0..4 {
        fill(&data, &format!("round-{number}"));
        let report = back_up(&data, &repository);
        ends.push(report["last_position"].as_u64().unwrap());
    }
    let stored_bytes = || -> u64 {
        files(&repository, "files").iter().map(|path| fs::metadata(path).unwrap().len()).sum()
    };
    let check = |points: usize, removed: &Value| {
        let listed = list(&repository);
        assert_eq!(listed["points"].as_array().unwrap().len(), points, "{listed}");
        let (report, code) = json_of(&["backup", "verify", text(&repository)]);
        assert_eq!((code, &report["damage"]), (0, &json!([])), "{report}");
        assert_eq!(report["files"], files(&repository, "files").len(), "{report} {removed}");
        // The span begins with the snapshot of the oldest point, and nothing before it is left.
        let oldest = listed["spans"][0]["from_position"].as_u64().unwrap();
        for position in [oldest, ends[4 - points], ends[3]] {
            let restored = restore(&repository, &target, &["--to-position", &position.to_string()]);
            assert_eq!(restored["last_position"], position, "{restored}");
        }
        let earlier = (oldest - 1).to_string();
        let _ = fs::remove_dir_all(&target);
        let (code, errors) =
            failure(&["restore", text(&repository), text(&target), "--to-position", &earlier]);
        assert!(code == 1 && errors.contains("is too early: what is left begins at"), "{errors}");
    };
    let prune = |more: &[&str]| {
        let before = stored_bytes();
        let (report, code) = json_of(&[&["backup", "prune", text(&repository)], more].concat());
        assert_eq!(code, 0, "{report}");
        assert_eq!(before - stored_bytes(), report["removed_bytes"].as_u64().unwrap(), "{report}");
        report
    };
    check(4, &Value::Null);
    let nothing = json!({"points": 4, "removed_points": 0, "removed_files": 0, "removed_bytes": 0});
    assert_eq!(prune(&["--keep-days", "1"]), nothing);
    assert_eq!(prune(&["--keep", "1", "--keep-days", "1"]), nothing);
    let removed = prune(&["--keep", "3"]);
    assert_eq!(removed["removed_points"], 1, "{removed}");
    assert!(removed["removed_bytes"].as_u64().unwrap() > 500_000, "{removed}");
    check(3, &removed);

    // A prune that was stopped after it had removed the point: the next backup does the rest.
    fs::remove_file(&files(&repository, "points")[0]).unwrap();
    let (report, code) =
        json_of(&["backup", text(&data), "--repository", text(&repository), "--keep", "2"]);
    assert_eq!((code, &report["removed"]["points"]), (0, &json!(2)), "{report}");
    assert_eq!(report["removed"]["removed_points"], 1, "{report}");
    ends.push(ends[3]);
    ends.remove(0);
    let (report, _) = json_of(&["backup", "verify", text(&repository)]);
    assert_eq!(report["files"], files(&repository, "files").len(), "{report}");
    for (arguments, expected) in [
        (&["backup", "prune", text(&repository)][..], "<--keep <N>|--keep-days <DAYS>>"),
        (&["backup", "prune", text(&repository), "--keep", "0"], "invalid value '0'"),
        (&["backup", text(&data), text(&target), "--keep", "1"], "cannot be used with"),
    ] {
        let (code, errors) = failure(arguments);
        assert!(code == 2 && errors.contains(expected), "{errors}");
    }
    let missing = folder.path().join("missing");
    let (code, errors) = failure(&["backup", "prune", text(&missing), "--keep", "1"]);
    assert!(code == 1 && errors.contains("is not a repository") && !missing.exists(), "{errors}");
}
