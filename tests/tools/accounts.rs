//! `paperbourse account`, beside servers that run, that were killed, and that do not run.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::world::{Trader, buy, comment, json_of, start, text, tool};

/// Asks the server and returns what it prints as JSON.
#[track_caller]
pub(crate) fn account(data: &Path, arguments: &[&str]) -> Value {
    let (value, code) = json_of(&[&["account", "--data", text(data)], arguments].concat());
    assert_eq!(code, 0, "{value}");
    value
}

/// The exit code and the error of a command that fails.
#[track_caller]
pub(crate) fn failure(data: &Path, arguments: &[&str]) -> (i32, String) {
    let output = tool(&[&["account", "--data", text(data)], arguments].concat());
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn accounts_are_listed_in_pages_and_shown_by_id_and_by_subject() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let server = start(data);
    let names: Vec<_> = (0..7).map(|number| format!("owner-{number}")).collect();
    let traders: Vec<_> = names.iter().map(|name| Trader::new(data, &server, name)).collect();
    buy(&mut traders[3].connect(&server), "an order");

    let all = account(data, &["list"]);
    assert_eq!(all["next"], Value::Null);
    let all = all["accounts"].as_array().unwrap().clone();
    let ids: Vec<_> = all.iter().map(|line| line["account"].as_u64().unwrap()).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    let mut found: Vec<_> = all.iter().map(|line| line["subject"].as_str().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, names);
    for limit in [1, 3, 7] {
        let (mut paged, mut after) = (Vec::new(), 0);
        loop {
            let (limit, from) = (limit.to_string(), after.to_string());
            let page = account(data, &["list", "--limit", &limit, "--after", &from]);
            paged.extend(page["accounts"].as_array().unwrap().clone());
            match page["next"].as_u64() {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(paged, all, "pages of {limit}");
    }
    for line in &all {
        let subject = line["subject"].as_str().unwrap();
        let id = line["account"].to_string();
        assert_eq!(account(data, &["show", &id]), *line);
        assert_eq!(account(data, &["show", "--subject", subject]), *line);
        let has_traded = subject == "owner-3";
        assert_eq!(line["open_positions"], u8::from(has_traded), "{line}");
        assert_eq!(line["fills"], u8::from(has_traded), "{line}");
        assert_eq!(line["balance"] == "1000000", !has_traded, "{line}");
        assert_eq!((&line["tier"], &line["active_keys"]), (&json!("free"), &json!(1)));
    }
    let listed = tool(&["account", "list", "--data", text(data), "--limit", "1"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let [head, row, more] = listed.lines().collect::<Vec<_>>()[..] else { panic!("{listed}") };
    assert!(head.ends_with("SUBJECT") && row.contains(" owner-"), "{listed}");
    assert_eq!(more, format!("more accounts follow: continue with --after {}", ids[0]));
}

#[test]
fn comments_are_listed_and_deleted_whoever_has_written_them() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let server = start(data);
    let [owner, writer] = ["owner", "writer"].map(|name| Trader::new(data, &server, name));
    let mut client = owner.connect(&server);
    // In the shards of several orders' owners, on one's own orders and on those of others.
    let orders: Vec<_> = (0..3).map(|number| buy(&mut client, &format!("o{number}"))).collect();
    let mut writing = writer.connect(&server);
    let own = buy(&mut writing, "own");
    comment(&mut client, orders[0]);
    for order in [orders[0], own, orders[1], own, orders[2]] {
        comment(&mut writing, order);
    }

    let of_writer = ["comments", "--subject", "writer"];
    let all = account(data, &of_writer);
    assert_eq!(all["next"], Value::Null);
    let all = all["comments"].as_array().unwrap().clone();
    let ids: Vec<_> = all.iter().map(|line| line["comment"].as_u64().unwrap()).collect();
    assert!(ids.len() == 5 && ids.is_sorted(), "{ids:?}");
    assert_eq!(all[0]["content"], "🦀".repeat(1000));
    let (mut paged, mut after) = (Vec::new(), 0);
    loop {
        let from = after.to_string();
        let page = account(data, &[&of_writer[..], &["--limit", "2", "--after", &from]].concat());
        paged.extend(page["comments"].as_array().unwrap().clone());
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(paged, all);

    let id = ids[2].to_string();
    let delete = ["delete-comment", &id, "--reason", "an advertisement"];
    assert_eq!(account(data, &delete), all[2]);
    let line = server.logged("operator deleted a comment");
    assert!(line.contains("an advertisement") && line.contains(&id), "{line}");
    // It stays deleted after a crash, and that it is gone is said as such.
    server.kill();
    let server = start(data);
    let left = account(data, &of_writer)["comments"].as_array().unwrap().clone();
    assert_eq!(left, [&all[..2], &all[3..]].concat());
    assert_eq!(
        account(data, &["comments", "--subject", "owner"])["comments"][0]["order"],
        orders[0]
    );
    let (code, error) = failure(data, &delete);
    assert!(code == 1 && error.contains("No comment has this id"), "{error}");
    let (code, error) = failure(data, &["delete-comment", &id, "--reason", " "]);
    assert!(code == 1 && error.contains("the reason must have 1 to 500 bytes"), "{error}");
    server.terminate();
}

#[test]
fn the_socket_is_the_owners_alone_and_lives_as_long_as_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let socket = data.join("operator.sock");
    let server = start(data);
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    server.kill();
    assert!(socket.exists());
    let (code, error) = failure(data, &["list"]);
    assert!(code == 1 && error.starts_with("paperbourse: no server runs on "), "{error}");
    let server = start(data);
    assert_eq!(account(data, &["list"]), json!({"accounts": [], "next": null}));
    server.terminate();
    assert!(!socket.exists());
}

#[test]
fn a_connection_that_asks_nothing_gives_way_to_an_operator() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let server = start(data);
    let begun = "POST / HTTP/1.1\r\nhost: paperbourse\r\ncontent-length: 100\r\n\r\n{";
    let stalled = ["", begun, &begun[..9], begun, "", "", begun, ""].map(|sent| {
        let mut stream = UnixStream::connect(data.join("operator.sock")).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    });
    let mut later = Vec::new();
    for gone in 1..=2 {
        account(data, &["list"]);
        let is_open = stalled.each_ref().map(|mut stream| {
            stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        });
        let expected: [bool; 8] = std::array::from_fn(|number| number >= gone);
        assert_eq!(is_open, expected, "the one that has waited longest");
        // In the place of the operator, who has left.
        later.push(UnixStream::connect(data.join("operator.sock")).unwrap());
    }
    server.terminate();
}

#[test]
fn a_path_too_long_for_a_socket_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d".repeat(110));
    let server = start(&data);
    let line = server.logged("`paperbourse account` is not served");
    assert!(line.contains("start with a shorter --data"), "{line}");
    server.terminate();
}

#[test]
fn wrong_questions_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let server = start(data);
    for (arguments, code, part) in [
        (&["show", "64"][..], 1, "no such account; `paperbourse account list` shows all"),
        (&["show", "0"], 1, "no such account"),
        (&["show", "--subject", "nobody"], 1, "no such account"),
        (&["show"], 2, "required"),
        (&["show", "64", "--subject", "nobody"], 2, "cannot be used with"),
        (&["list", "--limit", "0"], 2, "0 is not in 1..=1000"),
        (&["list", "--limit", "1001"], 2, "1001 is not in 1..=1000"),
    ] {
        let (found, error) = failure(data, arguments);
        assert!(found == code && error.contains(part), "{arguments:?}: {found} {error}");
    }
    let (code, error) = failure(Path::new("memory"), &["list"]);
    assert!(code == 2 && error.contains("--data memory serves no operators"), "{error}");
    server.terminate();
}
