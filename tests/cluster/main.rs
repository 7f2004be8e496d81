//! `paperbourse cluster` beside three real brokers. `.ci/brokers` installs the program of a broker;
//! without it, these tests say that they were skipped.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod copies;
mod cuts;
mod forwarding;
mod load;
mod metrics;
mod nodes;
mod power;
mod repair;
mod resting;

use std::fmt::Debug;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use paperbourse_test_support::PATIENCE;
use paperbourse_test_support::brokers::{self, Brokers};
use paperbourse_test_support::process::{Process, command};
use serde_json::Value;
use tempfile::TempDir;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// The time between two looks at brokers.
const PAUSE: Duration = Duration::from_millis(50);

fn run(arguments: &[&str], file: &Path) -> Output {
    command(BINARY).arg("cluster").args(arguments).arg(file).output().unwrap()
}

/// What it printed, and what it says is wrong, with this exit code.
#[track_caller]
fn check(arguments: &[&str], file: &Path, code: i32) -> (String, String) {
    let Output { status, stdout, stderr } = run(arguments, file);
    let (printed, errors) =
        (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{arguments:?}: {printed}{errors}");
    (printed, errors)
}

/// What `status` prints once that is so.
fn status_once(file: &Path, is_so: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let Output { stdout, stderr, .. } = run(&["status"], file);
        let printed = String::from_utf8(stdout).unwrap();
        if is_so(&printed) {
            return printed;
        }
        let errors = String::from_utf8_lossy(&stderr);
        assert!(began.elapsed() < 2 * PATIENCE, "{printed}{errors}");
        thread::sleep(PAUSE);
    }
}

/// The file of a cluster on these brokers, with these lines besides.
fn cluster_file(folder: &Path, brokers: &Brokers, lines: &str) -> PathBuf {
    let path = folder.join("cluster.toml");
    let text = format!(
        "name = \"pb\"\nbrokers = {:?}\nmonitoring = {:?}\n{lines}\n",
        brokers.addresses(),
        brokers.monitoring()
    );
    fs::write(&path, text).unwrap();
    path
}

/// The file of a new cluster on these brokers, whose log is there.
fn new_cluster(folder: &Path, brokers: &Brokers, lines: &str) -> PathBuf {
    let file = cluster_file(folder, brokers, lines);
    check(&["init"], &file, 0);
    file
}

/// The file of a new cluster, its brokers, and the folder of it all; `None` if there is no program
/// for brokers.
fn cluster_on_brokers(lines: &str) -> Option<(TempDir, Brokers, PathBuf)> {
    let program = brokers::program()?;
    let folder = TempDir::new().unwrap();
    let brokers = Brokers::start(&program, folder.path(), "always", "");
    let file = new_cluster(folder.path(), &brokers, lines);
    // Dropped in the reverse order: the folder when nobody uses it any more.
    Some((folder, brokers, file))
}

/// A number from the environment, which makes a test longer.
fn setting<T: FromStr<Err: Debug>>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn safe_brokers_get_the_logs_of_a_cluster() {
    let Some(program) = brokers::program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut brokers = Brokers::start(&program, folder.path(), "always", "");
    let file = cluster_file(folder.path(), &brokers, "logs = 3");

    let (printed, _) = check(&["status"], &file, 1);
    let missing = "unsafe  stream pb-2 does not exist: run `paperbourse cluster init` if";
    assert!(printed.lines().any(|line| line.starts_with(missing)), "{printed}");

    assert_eq!(check(&["init"], &file, 0).0, "created 3 logs\n");
    assert_eq!(check(&["init"], &file, 0).0, "created 0 logs, 3 exist already\n");
    let printed =
        status_once(&file, |printed| printed.matches("replicas 3 of 3 current").count() == 3);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 6, "{printed}");
    for (number, line) in lines[..3].iter().enumerate() {
        assert!(line.starts_with("broker  http://127."), "{line}");
        assert!(
            line.ends_with(&format!("broker-{number}  version 2.15.1  synced always")),
            "{line}"
        );
    }
    for (number, line) in lines[3..].iter().enumerate() {
        assert!(line.starts_with(&format!("log     pb-{number}  leader broker-")), "{line}");
        assert!(line.ends_with("replicas 3 of 3 current  tail 0  blocks 0"), "{line}");
    }
    let status: Value = serde_json::from_str(&check(&["status", "--json"], &file, 0).0).unwrap();
    assert_eq!(status["logs"][2]["stream"], "pb-2");
    assert_eq!(status["brokers"][0]["is_always_synced"], true);

    // The number of logs is fixed.
    let file = cluster_file(folder.path(), &brokers, "logs = 2");
    for command in ["init", "status"] {
        let (printed, errors) = check(&[command], &file, 1);
        let expected = "stream pb-0 belongs to a cluster of 3 logs: write logs = 3 into the file";
        assert!(format!("{printed}{errors}").contains(expected), "{printed}{errors}");
    }

    // A broker that does not answer may be unsafe.
    let file = cluster_file(folder.path(), &brokers, "logs = 3");
    brokers.kill(2);
    let (_, errors) = check(&["init"], &file, 1);
    assert!(errors.contains("cannot be asked"), "{errors}");
    let (printed, _) = check(&["status"], &file, 1);
    assert!(printed.lines().nth(2).unwrap().ends_with("no answer"), "{printed}");

    // Without a majority, a leader soon gives up. The brokers are shown all the same.
    brokers.kill(1);
    let (_, errors) = check(&["init"], &file, 1);
    assert_eq!(errors.matches("cannot be asked").count(), 2, "{errors}");
    let printed = status_once(&file, |printed| printed.contains("unsafe  stream pb-"));
    assert_eq!(printed.matches("no answer").count(), 2, "{printed}");
    assert_eq!(printed.matches("unsafe  stream pb-").count(), 1, "the first only: {printed}");
}

#[test]
fn unsafe_brokers_are_refused() {
    let Some(program) = brokers::program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let brokers = Brokers::start(&program, folder.path(), "2m", "");
    let file = cluster_file(folder.path(), &brokers, "");
    let (_, errors) = check(&["init"], &file, 1);
    for number in 0..brokers::BROKERS {
        let expected = format!(
            "broker broker-{number} acknowledges before it syncs: set sync_interval: always in the \
             jetstream block of its file, and restart it"
        );
        assert!(errors.contains(&expected), "{errors}");
    }
    assert_eq!(errors.lines().count(), 1, "one error names all: {errors}");
    let (printed, _) = check(&["status"], &file, 1);
    assert!(printed.contains("version 2.15.1  synced NOT ALWAYS"), "{printed}");
    assert!(printed.contains("stream pb-0 does not exist"), "nothing was created: {printed}");
}

#[test]
fn brokers_are_logged_in_to_over_tls() {
    let Some(program) = brokers::program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    let settings = format!(
        "authorization {{ user: bourse, password: \"right one\" }}\n\
         tls {{ cert_file: {:?}, key_file: {:?} }}",
        tls.join("localhost.pem"),
        tls.join("localhost.key")
    );
    let brokers = Brokers::start(&program, folder.path(), "always", &settings);
    let ca = format!("ca_file = {:?}\n", tls.join("authority.pem"));
    let login = "user = \"bourse\"\npassword_file = \"password\"\n";
    let write_file = |lines: &str, password: &str| {
        fs::write(folder.path().join("password"), password).unwrap();
        let file = cluster_file(folder.path(), &brokers, lines);
        let text = fs::read_to_string(&file).unwrap().replace("nats://", "tls://");
        fs::write(&file, text).unwrap();
        file
    };
    for (lines, password, expected) in [
        (format!("{ca}{login}logs = 1"), "right one\n", None),
        (format!("{ca}{login}"), "wrong one\n", Some("they refuse the user and the password")),
        (ca.clone(), "", Some("they ask for a user and a password: set user")),
        (login.to_owned(), "right one\n", Some("cannot connect to any broker of tls://")),
    ] {
        let file = write_file(&lines, password);
        let (printed, errors) = check(&["init"], &file, i32::from(expected.is_some()));
        match expected {
            None => assert_eq!(printed, "created 1 log\n"),
            Some(expected) => assert!(errors.contains(expected), "{errors}"),
        }
        assert!(!errors.contains("one"), "no password is shown: {errors}");
    }
    // A node that waited for the password to change would hide what is wrong.
    let file = write_file(&format!("{ca}{login}"), "wrong one\n");
    let mut serve = command(BINARY);
    serve.args(["serve", "--listen", "127.0.0.1:0", "--node", "alone", "--cluster"]).arg(&file);
    serve.arg("--data").arg(folder.path().join("data")).stderr(Stdio::piped());
    let mut node = Process::spawn(&mut serve);
    let began = Instant::now();
    while node.try_wait().is_none() {
        assert!(began.elapsed() < 2 * PATIENCE, "{:?}", node.log_lines(""));
        thread::sleep(PAUSE);
    }
    let mut errors = String::new();
    node.take_stderr().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(node.wait().code(), Some(1), "{errors}");
    assert!(errors.contains("they refuse the user and the password"), "{errors}");
}

#[test]
fn a_wrong_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.toml");
    for (text, code, expected) in [
        (None, 2, "cluster.toml: No such file"),
        (Some("name = 'pb'\nbrokers = 5\n"), 2, "cluster.toml: line 2: invalid type"),
        (Some("name = 'pb'\nbrokers = []\nmonitoring = []\n"), 2, "brokers names no address"),
        (
            // Nothing listens on the discard port.
            Some(
                "name = 'pb'\nbrokers = ['nats://127.0.0.1:9']\n\
                 monitoring = ['http://127.0.0.1:9']",
            ),
            1,
            "cannot connect to any broker of nats://127.0.0.1:9: ",
        ),
    ] {
        let _ = text.map(|text| fs::write(&path, text).unwrap());
        for command in ["init", "status"] {
            let (_, errors) = check(&[command], &path, code);
            assert!(errors.contains(expected) && errors.lines().count() == 1, "{errors}");
        }
    }
}

#[test]
fn the_commands_have_manual_pages_and_completions() {
    for (arguments, expected) in [
        (&["man", "cluster", "init"][..], "Create the streams that carry the logs"),
        (&["man", "cluster", "repair"], "Recreate a log that the brokers have lost"),
        (&["man", "cluster", "status"], "Show each broker and each log"),
        (&["completions", "bash"], "paperbourse__subcmd__cluster"),
    ] {
        let printed = command(BINARY).args(arguments).output().unwrap();
        let printed = String::from_utf8(printed.stdout).unwrap();
        assert!(printed.contains(expected), "{arguments:?}");
    }
}
