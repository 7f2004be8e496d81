//! What somebody sees who has just installed paperbourse: the help, the terminal, a first token.

use std::fs;
use std::path::Path;
use std::process::Command;

use paperbourse_test_support::Client;
use paperbourse_test_support::process::{Process, ServerProcess, command};
use serde_json::json;

use super::{BINARY, errors, in_folder};

/// What this command prints, which must succeed.
fn printed(folder: &Path, words: &[&str]) -> String {
    let output = in_folder(folder, words, None).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether the server takes this access token.
#[track_caller]
fn check_token(server: &ServerProcess, token: &str, status: u16) {
    let mut client = Client::with_token(server.address, token);
    assert_eq!(client.post("/v1/keys/bootstrap", &json!({})).status, status, "{token}");
}

#[test]
fn a_token_of_a_new_key_says_whom_it_is_good_for() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["token", "--subject", "x", "--data", "new"];
    let first = in_folder(folder.path(), &words, None).output().unwrap();
    let made = folder.path().canonicalize().unwrap().join("new");
    let expected = format!(
        "paperbourse: {} had no signing key, so one was made: only a server with this folder as \
         --data or --issuer-data accepts the token. For a server with another folder, name that \
         with --data\n",
        made.display()
    );
    assert_eq!(errors(&first), expected);
    // Scripts capture the token alone.
    let first = String::from_utf8(first.stdout).unwrap();
    let token = first.strip_suffix('\n').unwrap();
    assert!(token.split('.').count() == 3 && !token.contains(char::is_whitespace), "{token}");
    let second = in_folder(folder.path(), &words, None).output().unwrap();
    assert_eq!(errors(&second), "");

    let segments = ["--journal-segment-bytes", "1M"];
    let server = ServerProcess::start(BINARY, &folder.path().join("new"), &segments);
    check_token(&server, token, 201);
    let other = ServerProcess::start(BINARY, &folder.path().join("other"), &segments);
    check_token(&other, token, 401);
}

/// A server on a terminal: with `script`, where the machine has it. CI must have it.
fn on_terminal(words: &str) -> Option<Process> {
    if Command::new("script").arg("--version").output().is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no `script` for a terminal");
        eprintln!("SKIPPED: no `script` for a terminal");
        return None;
    }
    let line = format!("'{BINARY}' serve --listen 127.0.0.1:0 {words}");
    let mut script = command("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    Some(Process::spawn(&mut script))
}

/// The line that begins with this word.
fn line(server: &ServerProcess, word: &str) -> String {
    let line = server.logged(&format!("{word}  "));
    assert!(line.starts_with(word), "{line}");
    line.trim_end().to_owned()
}

#[test]
fn a_terminal_is_told_the_page_the_docs_and_how_to_get_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("my data");
    let words = format!("--data '{}' --journal-segment-bytes 1M", data.display());
    let Some(process) = on_terminal(&words) else { return };
    let server = process.ready();
    let url = format!("http://{}", server.address);
    assert_eq!(line(&server, "page"), format!("page  {url}/"));
    assert_eq!(line(&server, "docs"), format!("docs  {url}/docs"));
    let key = line(&server, "key");
    let command = key.strip_prefix("key   ").unwrap().replace("NAME", "x");
    if Command::new("curl").arg("--version").output().is_ok() {
        let answer = Command::new("sh").args(["-c", &command]).output().unwrap();
        let answer = String::from_utf8(answer.stdout).unwrap();
        assert!(answer.contains("\"raw_key\":\"ps_live_"), "{command}: {answer}");
    }
}

#[test]
fn a_terminal_gets_a_token_where_nobody_can_create_one() {
    let Some(process) = on_terminal("--data memory") else { return };
    let server = process.ready();
    let key = line(&server, "key");
    let (_, token) = key.split_once("Bearer ").unwrap();
    check_token(&server, token.trim_end_matches('"'), 201);
}

#[test]
fn a_log_for_machines_has_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["serve", "--listen", "127.0.0.1:0", "--data", "memory"];
    let mut command = in_folder(folder.path(), &words, None);
    let errors = folder.path().join("errors");
    command.stderr(fs::File::create(&errors).unwrap());
    let log = Process::spawn(&mut command).ready().interrupt();
    assert_eq!(fs::read_to_string(errors).unwrap(), "");
    assert!(!log.iter().any(|line| line.contains("Bearer") || line.contains("eyJ")), "{log:?}");
    let hint = log.iter().find(|line| line.contains("temporary key")).unwrap();
    assert!(hint.contains("start with --issuer-data DIR"), "{hint}");
}

/// The groups of a help, with their options.
fn groups(help: &str) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in help.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|name| !name.starts_with(' ')) {
            groups.push((name, Vec::new()));
        } else if let Some((_, options)) = groups.last_mut()
            && ["--", "-h, "].iter().any(|start| line.trim_start().starts_with(start))
        {
            let name = line.split_whitespace().find(|word| word.starts_with("--")).unwrap();
            options.push(name);
        }
    }
    groups
}

#[test]
fn the_help_is_grouped_and_the_short_one_is_short() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["serve", "check"] {
        let long = printed(folder.path(), &[command, "--help"]);
        let names: Vec<_> = groups(&long).into_iter().map(|(name, _)| name).collect();
        let expected = [
            "Options", "Network", "Identity", "Venue", "Trading", "Disk", "Limits", "Logs",
            "Cluster",
        ];
        assert_eq!(names, expected, "{long}");
        let ungrouped = &groups(&long)[0].1;
        let expected = ["--config", "--print-config", "--take-over", "--help"];
        let is_own = |name: &&&str| command == "serve" || ["--config", "--help"].contains(*name);
        assert_eq!(*ungrouped, expected.iter().filter(is_own).copied().collect::<Vec<_>>());
        let short = printed(folder.path(), &[command, "-h"]);
        assert!(short.lines().count() <= 60, "{short}");
        let of_all = groups(&long).into_iter().flat_map(|(_, options)| options);
        let of_all: Vec<_> = of_all.collect();
        let of_short = groups(&short).into_iter().flat_map(|(_, options)| options);
        let of_short: Vec<_> = of_short.collect();
        assert!(of_short.iter().all(|name| of_all.contains(name)), "{of_short:?}");
        assert!(of_short.contains(&"--listen") && !of_short.contains(&"--key-rate"));
        assert!(short.contains("`--help` lists all options, in groups"), "{short}");
    }
}
