//! What the tools print for people and for programs, and their errors for wrong arguments.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use paperbourse_test_support::process::command;
use serde_json::Value;
use tempfile::TempDir;

use crate::world::{BINARY, Trader, buy, comment, start, text, tool};

/// A folder with this many orders and a comment on the last.
fn folder_with_orders(count: usize) -> TempDir {
    let data = TempDir::new().unwrap();
    let server = start(data.path());
    let mut client = Trader::new(data.path(), &server, "writer").connect(&server);
    let orders: Vec<_> = (0..count).map(|number| buy(&mut client, &format!("o{number}"))).collect();
    comment(&mut client, *orders.last().unwrap());
    server.interrupt();
    data
}

fn dump(data: &Path, more: &[&str]) -> Vec<String> {
    let output = tool(&[&["journal", "dump", text(data)], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect()
}

#[test]
fn a_dump_prints_one_line_per_record_from_any_position() {
    let data = folder_with_orders(5);
    let all = dump(data.path(), &[]);
    // The account with its key, five orders, one comment.
    assert_eq!(all.len(), 7);
    assert!(all[0].contains("opened account ") && all[0].contains("created key "), "{}", all[0]);
    assert!(all[1].contains("filled order ") && all[1].contains(" buys 1 of \"Yes\" in 0x"));
    assert!(all[1].contains("client order id \"o0\""), "{}", all[1]);
    assert!(all[6].contains("wrote comment "), "{}", all[6]);
    for from in 0..9 {
        let expected = &all[from.clamp(1, 8) - 1..];
        assert_eq!(dump(data.path(), &["--from", &from.to_string()]), expected, "from {from}");
    }
    let rows = dump(data.path(), &["--json", "--from", "2"]);
    assert_eq!(rows.len(), 6);
    for (position, row) in (2..).zip(rows) {
        let row: Value = serde_json::from_str(&row).unwrap();
        assert_eq!(row["position"], position);
        assert!(row["time"].as_str().unwrap().ends_with('Z'), "{row}");
        let events = row["events"].as_array().unwrap();
        let fill = events.iter().find(|event| event["kind"] == "order_filled");
        assert_eq!(fill.is_some(), position < 7, "{row}");
        if let Some(fill) = fill {
            assert!(fill["notional"].is_string() && fill["levels"][0]["price"].is_string());
        }
    }
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_error() {
    let data = folder_with_orders(400);
    for more in [&[][..], &["--json"]] {
        let mut child = command(BINARY)
            .args(["journal", "dump", text(data.path())])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("1 ") || line.starts_with("{\"position\":1,"), "{line}");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
}

#[test]
fn reports_for_people_end_with_the_result() {
    let data = folder_with_orders(3);
    let print = |command: &[&str]| {
        let output = tool(command);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(
        print(&["journal", "verify", text(data.path())]),
        "journal   segment 1: 5 records\nok: 5 records up to position 5, 5 records replayed\n"
    );
    let stats = print(&["journal", "stats", text(data.path())]);
    assert!(stats.contains("\nrecords   5 at positions 1 to 5, epoch 1, "), "{stats}");
    assert!(stats.contains("\n          order_filled                   3 "), "{stats}");
    let copy = data.path().join("copy");
    let report = print(&["backup", text(data.path()), text(&copy)]);
    assert!(
        report.starts_with(&format!("{}: everything up to position 5", copy.display())),
        "{report}"
    );
}

#[track_caller]
fn check_refusal(arguments: &[&str], expected: &str) {
    let output = tool(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert_eq!(output.stdout, b"", "{arguments:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.starts_with("paperbourse: ") && errors.contains(expected), "{errors}");
}

#[test]
fn a_folder_without_a_journal_is_refused() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing");
    let target = folder.path().join("target");
    for data in [folder.path(), &missing] {
        for tool in [&["journal", "verify"][..], &["journal", "dump"], &["journal", "stats"]] {
            let expected = format!("{} holds no journal: name the server's --data", data.display());
            check_refusal(&[tool, &[text(data)]].concat(), &expected);
        }
        check_refusal(&["backup", text(data), text(&target)], " holds no journal");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the tools created nothing");
    assert_eq!(tool(&["journal", "verify"]).status.code(), Some(2));
}

/// The server starts without it, too.
#[test]
fn a_backup_says_what_it_leaves_out() {
    let data = folder_with_orders(1);
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("target");
    let hours = data.path().join("price-hours");
    let plain = tool(&["backup", text(data.path()), text(&target)]);
    assert!(!String::from_utf8(plain.stdout).unwrap().contains("without price-hours"));
    for make in ["mkdir", "mkfifo"] {
        let _ = fs::remove_file(&hours);
        fs::remove_dir_all(&target).unwrap();
        assert!(Command::new(make).arg(&hours).status().unwrap().success());
        let output = tool(&["backup", text(data.path()), text(&target)]);
        assert!(output.status.success(), "{make}: {output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(", without price-hours, which is not a regular file"), "{said}");
        assert!(!target.join("price-hours").exists());
        let _ = fs::remove_dir(&hours);
    }
}

#[test]
fn a_backup_overwrites_nothing() {
    let data = folder_with_orders(1);
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("target");
    fs::create_dir(&target).unwrap();
    let into = |target: &Path| tool(&["backup", text(data.path()), text(target)]);
    assert!(into(&target).status.success(), "an empty folder is as good as none");
    check_refusal(
        &["backup", text(data.path()), text(&target)],
        "target exists and is not an empty folder; name one that does not exist",
    );
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    check_refusal(&["backup", text(data.path()), text(&file)], "file exists and is not an empty");
    assert_eq!(fs::read(&file).unwrap(), b"text");
    let other = folder.path().join("other");
    fs::create_dir(other.with_extension("tmp")).unwrap();
    check_refusal(
        &["backup", text(data.path()), text(&other)],
        "other.tmp exists: another backup or restore is running",
    );
    check_refusal(&["backup", text(data.path()), "/"], "/ does not end in a name");
    assert!(into(&folder.path().join("not/there/yet")).status.success());
}
