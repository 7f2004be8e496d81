//! The log as a collector reads it.

use std::process::Stdio;

use serde_json::Value;

use super::{errors, in_folder};

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
fn a_collector_gets_json_with_the_address_in_the_message() {
    for flags in [&[][..], &["--log-format", "json"]] {
        let (lines, errors) = log(flags);
        assert!(errors.starts_with("paperbourse: failed to open --data file: "), "{errors}");
        let lines: Vec<Value> = lines.iter().map(|it| serde_json::from_str(it).unwrap()).collect();
        let message = lines[0]["message"].as_str().unwrap();
        let address = message.strip_prefix("listening on http://").unwrap();
        assert!(address.parse::<std::net::SocketAddr>().is_ok(), "{address}");
        assert_eq!(
            (&lines[0]["level"], &lines[0]["target"]),
            (&"INFO".into(), &"paperbourse::server".into())
        );
    }
}

#[test]
fn people_get_text_and_only_the_levels_that_they_want() {
    let (lines, _) = log(&["--log-format", "human"]);
    assert!(lines[0].contains(" INFO listening on http://127.0.0.1:"), "{lines:?}");
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
