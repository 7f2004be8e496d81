//! The log as a collector reads it.

use std::process::Stdio;

use paperbourse_test_support::process::ServerProcess;
use serde_json::Value;

use super::{BINARY, errors, in_folder};

/// The log of a server that fails to start because its data folder is a file, and what it printed
/// to standard error.
fn log(flags: &[&str]) -> (Vec<String>, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let words = [&["serve", "--listen", "127.0.0.1:0", "--data", "file"], flags].concat();
    let output = in_folder(folder.path(), &words, None).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    (lines.lines().map(str::to_owned).collect(), errors(&output))
}

#[test]
fn a_collector_gets_json_that_begins_with_the_version() {
    for flags in [&[][..], &["--log-format", "json"]] {
        let (lines, errors) = log(flags);
        assert!(errors.starts_with("paperbourse: failed to open --data file: "), "{errors}");
        let lines: Vec<Value> = lines.iter().map(|it| serde_json::from_str(it).unwrap()).collect();
        assert_eq!(lines[0]["message"], "starting");
        assert_eq!(lines[0]["fields"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(
            (&lines[0]["level"], &lines[0]["target"]),
            (&"INFO".into(), &"paperbourse::server".into())
        );
    }
}

#[test]
fn a_server_says_where_it_listens_once_its_data_folder_is_open() {
    let (lines, _) = log(&["--log-format", "human"]);
    assert!(!lines.iter().any(|line| line.contains("listening")), "{lines:?}");
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--log-format", "json", "--journal-segment-bytes", "1M"];
    let lines = ServerProcess::start(BINARY, folder.path(), &flags).interrupt();
    let messages = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages: Vec<_> = messages.map(|it| it["message"].as_str().unwrap().to_owned()).collect();
    let find = |text: &str| messages.iter().position(|it| it.starts_with(text)).expect(text);
    let (opened, listening) = (find("opened the data folder"), find("listening on http://"));
    assert!(opened < listening && listening < find("ready"), "{messages:?}");
    let address = messages[listening].strip_prefix("listening on http://").unwrap();
    assert!(address.parse::<std::net::SocketAddr>().is_ok(), "{address}");
}

#[test]
fn people_get_text_and_only_the_levels_that_they_want() {
    let (lines, _) = log(&["--log-format", "human"]);
    assert!(lines[0].contains(" INFO starting version="), "{lines:?}");
    for (level, expected) in [
        ("warn", 0),
        ("off", 0),
        ("warn,paperbourse::server=info", 1),
        ("info,paperbourse::server=warn", 0),
    ] {
        let (lines, _) = log(&["--log-level", level]);
        assert_eq!(lines.len(), expected, "{level}: {lines:?}");
    }
}
