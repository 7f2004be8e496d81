//! Checks what `README.md` and the guide promise: the walkthrough works as written, the tables
//! match the binary's help, the routes and the error codes, and the configurations are valid.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use paperbourse::http::operation::Operation;
use paperbourse::http::operations::OPERATIONS;
use paperbourse_test_support::NOBODY;
use paperbourse_test_support::process::{ServerProcess, command};
use serde_json::Value;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Printed between the walk and the calls of a bot.
const CALLS: &str = "----";

/// The first code block below this heading.
fn block<'a>(readme: &'a str, heading: &str) -> &'a str {
    let (_, section) = readme.split_once(&format!("\n## {heading}\n")).unwrap();
    let (_, block) = section.split_once("\n```sh\n").unwrap();
    block.split_once("\n```\n").unwrap().0
}

/// Whether this machine has the tools that the walkthrough needs. CI must have them.
fn has_what_the_walk_needs() -> bool {
    let missing = ["bash", "curl", "python3"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_err());
    if let Some(name) = missing {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no {name} for the README's walk");
        eprintln!("SKIPPED: no {name} for the README's walk");
    }
    missing.is_none()
}

/// Writes a `cargo` into this folder that runs the binary under test instead of building one.
fn write_cargo(folder: &Path) {
    let path = folder.join("cargo");
    let script = format!(
        "#!/bin/sh\ntest \"$1 $2 $3 $4\" = 'run --release --quiet --' || exit 64\nshift 4\n\
         exec '{BINARY}' \"$@\"\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_walk_works_as_written() {
    if !has_what_the_walk_needs() {
        return;
    }
    let (data, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = ServerProcess::start(BINARY, data.path(), &["--journal-segment-bytes", "1048576"]);
    write_cargo(tools.path());
    let path = std::env::var("PATH").unwrap();
    let readme = file("README.md");
    let walk = block(&readme, "A walk in five commands");
    let calls = block(&readme, "Write a bot");
    let walked = Command::new("bash")
        .arg("-c")
        .arg(format!("{walk}\necho {CALLS}\n{calls}"))
        .env("PATH", format!("{}:{path}", tools.path().display()))
        .env("BOURSE", format!("http://{}", server.address))
        .env("PAPERBOURSE_DATA", data.path())
        .output()
        .unwrap();
    let (output, errors) = (
        String::from_utf8(walked.stdout).unwrap(),
        String::from_utf8_lossy(&walked.stderr).into_owned(),
    );
    assert!(walked.status.success() && errors.is_empty(), "{output}\n{errors}");
    let (walked, called) = output.split_once(CALLS).unwrap();
    let answers: Vec<Value> =
        walked.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let [trade, comment, connected, subscribed, price, ..] = answers.as_slice() else {
        panic!("too few answers:\n{output}");
    };
    assert_eq!(trade["status"], "FILLED");
    assert_eq!(trade["quantity"], 10);
    assert_eq!(comment["order_id"], trade["order_id"]);
    assert_eq!(connected["type"], "connected");
    assert_eq!(subscribed["markets"][0], trade["position"]["market_id"]);
    assert_eq!(price["condition_id"], trade["position"]["market_id"]);
    assert!(price["buy"].is_string(), "{price}");
    // The calls print one object after the other.
    let answers = serde_json::Deserializer::from_str(called).into_iter::<Value>();
    let answers: Vec<Value> = answers.map(Result::unwrap).collect();
    let [placed, listed, cancelled, portfolio] = &answers[..] else { panic!("{called}") };
    assert_eq!(placed["status"], "PENDING", "{called}");
    assert_eq!(listed["orders"][0]["order_id"], placed["order_id"], "{called}");
    assert_eq!(cancelled["canceled"][0], placed["order_id"].to_string(), "{called}");
    assert_eq!(portfolio["total_trades"], 1, "{called}");
    server.interrupt();
}

/// Each command of the walk with nothing of what the ones before it should have left behind. It
/// says what is missing, in one line, and does nothing.
#[test]
fn the_walk_stops_at_what_is_missing() {
    if !has_what_the_walk_needs() {
        return;
    }
    let readme = file("README.md");
    let commands: Vec<&str> = block(&readme, "A walk in five commands").split("\n\n").collect();
    let [places, _, key, trade, comment, prices] = commands[..] else { panic!("{commands:?}") };
    let no_token = "TOKEN: empty: run the line above";
    let no_key = "KEY: empty: is the server running?";
    let of_key = [trade, comment, prices].map(|command| (command, no_key));
    for (command, expected) in [(key, no_token)].into_iter().chain(of_key) {
        // A command that goes on fails in another way: nobody answers there.
        let lines = format!("BOURSE=http://{NOBODY}\n{places}\n{command}\n");
        let walked = Command::new("bash")
            .args(["-c", &lines])
            .env_remove("TOKEN")
            .env_remove("KEY")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&walked.stderr);
        assert!(errors.contains(expected), "{command}: {errors}");
        assert!(errors.lines().count() == 1 && walked.stdout.is_empty(), "{command}: {walked:?}");
        assert!(!walked.status.success(), "{command}: {walked:?}");
    }
}

/// The language and the text of a page's code blocks.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks.map(|block| block.split_once('\n').unwrap()).collect()
}

/// The names of an example in JSON or in events.
fn names(example: &str) -> BTreeSet<&str> {
    let quoted = example.split('"').collect::<Vec<_>>();
    let is_name = |at: &usize| quoted[at + 1].starts_with(':');
    (1..quoted.len() - 1).step_by(2).filter(is_name).map(|at| quoted[at]).collect()
}

#[test]
fn pages_begin_with_a_request_and_its_answer() {
    if !has_what_the_walk_needs() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let trouble = ["--clob", "on", "--clob-trouble", "seed=7,lost=2%"];
    let flags = [&["--address-limits", "off"], &trouble[..]].concat();
    let server = ServerProcess::start(BINARY, data.path(), &flags);
    let own = format!("http://{}", server.address);
    let mut minting = command(BINARY);
    let minted = minting.args(["token", "--subject", "reader", "--data"]).arg(data.path()).output();
    let token = String::from_utf8(minted.unwrap().stdout).unwrap();
    let mut key = String::new();
    // The page about keys makes the key of the others, and the one about orders their fill.
    for name in ["keys", "orders", "streams", "data", "api", "paper", "operating", "trouble"] {
        let page = file(&format!("src/guide/{name}.md"));
        let (_, beginning) = page.split_once('\n').unwrap();
        assert!(beginning.starts_with("\n```sh\n"), "{name} begins with something else");
        let [(_, request), (_, answer), ..] = blocks(&page)[..] else { panic!("{name}") };
        let request = request.replace("http://127.0.0.1:8080", &own);
        // A stream goes on: two events of it.
        let request =
            if name == "streams" { format!("{} | head -n 5", request.trim()) } else { request };
        let ran = Command::new("bash")
            .args(["-c", &request])
            .env("KEY", &key)
            .env("TOKEN", token.trim_end())
            .output()
            .unwrap();
        let output = String::from_utf8(ran.stdout).unwrap();
        let expected = names(answer);
        assert!(expected.len() > 3, "{name}: {expected:?}");
        let given = names(&output);
        assert!(expected.is_subset(&given), "{name} shows {expected:?}, {output}");
        if name == "keys" {
            let made: Value = serde_json::from_str(&output).unwrap();
            key = made["raw_key"].as_str().unwrap().to_owned();
        }
    }
}

/// A table row for each flag, from the binary's help, by the groups of the help.
fn groups(subcommand: &[&str]) -> Vec<(String, String)> {
    let help = command(BINARY).args(subcommand).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let mut groups: Vec<(String, String)> = Vec::new();
    for line in help.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            groups.push((name.to_owned(), String::new()));
        } else if let Some((_, options)) = groups.last_mut()
            && (line.is_empty() || line.starts_with(' '))
        {
            // The exit codes at the end are of no option.
            write!(options, "\n{line}").unwrap();
        }
    }
    let groups = groups.into_iter().filter(|(_, options)| options.contains("\n      --"));
    groups.map(|(name, options)| (name, rows(&options))).collect()
}

/// A table row for each flag of this part of a help.
fn rows(options: &str) -> String {
    let mut rows = Vec::new();
    for option in options.split("\n      --").skip(1) {
        let (option, _) = option.split_once("\n  -h, --help").unwrap_or((option, ""));
        let words = option.split_whitespace().collect::<Vec<_>>().join(" ");
        let end_of_name = if words.contains(" <") { "> " } else { " " };
        let (name, rest) = words.split_once(end_of_name).unwrap();
        let (rest, default) = taken(rest, "[default: ");
        let (rest, variable) = taken(&rest, "[env: ");
        let text = rest.split(" Possible values:").next().unwrap().trim();
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        // A default may also be a sentence, which is no code.
        let default = if default.contains(' ') { default } else { code(&default) };
        let cells = [
            // A bar would end the table cell.
            format!("`--{}`", name.replace('<', "").replace('|', "\\|")),
            code(variable.trim_end_matches('=')),
            default,
            text.to_owned(),
        ];
        rows.push(format!("| {} |\n", cells.join(" | ")));
    }
    rows.concat()
}

/// The rows of all groups.
fn flags(subcommand: &[&str]) -> String {
    groups(subcommand).into_iter().map(|(_, rows)| rows).collect()
}

/// Splits the text into what is outside and what is inside these brackets.
fn taken(text: &str, open: &str) -> (String, String) {
    let Some((before, after)) = text.split_once(open) else {
        return (text.to_owned(), String::new());
    };
    let (inside, after) = after.split_once(']').unwrap();
    (format!("{}{after}", before.trim_end()), inside.to_owned())
}

#[test]
fn every_flag_is_documented_as_in_the_help() {
    let of_serve = flags(&["serve"]);
    let check = |page: &str, subcommand: &[&str]| {
        let rows = flags(subcommand);
        assert!(!rows.is_empty());
        // Flags that a command shares with `serve` are documented once.
        let is_own = |row: &&str| !of_serve.contains(row);
        let rows: String = rows.split_inclusive('\n').filter(is_own).collect();
        assert!(file(page).contains(&rows), "{page} has to contain these rows:\n{rows}");
    };
    for (name, rows) in groups(&["serve"]) {
        const HEAD: &str = "| flag | variable | default | |\n|---|---|---|---|\n";
        let heading = if name == "Options" { "## Serve" } else { &format!("### {name}") };
        let section = format!("\n{heading}\n\n{HEAD}{rows}\n");
        let page = "src/guide/configuration.md";
        assert!(file(page).contains(&section), "{page} has to contain this:\n{section}");
    }
    check("src/guide/configuration.md", &["check"]);
    check("src/guide/configuration.md", &["token"]);
    check("src/guide/venues.md", &["record"]);
    check("src/guide/operating.md", &["account", "list"]);
    check("src/guide/operating.md", &["account", "deposit"]);
    check("src/guide/operating.md", &["account", "tier"]);
    check("src/guide/operating.md", &["account", "comments"]);
    check("src/guide/operating.md", &["account", "delete-comment"]);
    check("src/guide/operating.md", &["journal", "verify"]);
    check("src/guide/operating.md", &["journal", "dump"]);
    check("src/guide/operating.md", &["journal", "stats"]);
    check("src/guide/operating.md", &["backup"]);
    check("src/guide/operating.md", &["backup", "list"]);
    check("src/guide/operating.md", &["backup", "verify"]);
    check("src/guide/operating.md", &["backup", "prune"]);
    check("src/guide/operating.md", &["restore"]);
    check("src/guide/operating.md", &["top"]);
    check("src/guide/operating.md", &["health"]);
    check("src/guide/operating.md", &["doctor"]);
    check("src/guide/operating.md", &["man"]);
    check("src/guide/trouble.md", &["trouble"]);
}

#[test]
fn every_configuration_is_valid() {
    let mut count = 0;
    for page in ["README.md", "src/guide/operating.md", "src/guide/configuration.md"] {
        let text = file(page);
        for block in text.split("\n```toml\n").skip(1) {
            let (block, _) = block.split_once("\n```\n").unwrap();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("bourse.toml");
            fs::write(&path, block).unwrap();
            let printed = command(BINARY)
                .args(["serve", "--print-config", "--config"])
                .arg(&path)
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&printed.stderr);
            assert!(printed.status.success(), "{page}: {errors}\n{block}");
            count += 1;
        }
    }
    assert!(count >= 2, "only {count} configurations");
}

#[test]
fn the_readme_is_short_and_the_guide_is_linked() {
    let readme = file("README.md");
    assert!(readme.lines().count() <= 250, "README.md has {} lines", readme.lines().count());
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // The recipes are linked by their page.
        let name = if name == "bots" { "bots.md".to_owned() } else { name };
        assert!(readme.contains(&format!("(src/guide/{name})")), "README.md does not link {name}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man");
    let written = command(BINARY).arg("man").arg("--out").arg(&out).output().unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let mut names: Vec<String> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    let mut expected = [
        "",
        "-account",
        "-account-comments",
        "-account-delete-comment",
        "-account-deposit",
        "-account-erase",
        "-account-list",
        "-account-reset",
        "-account-resume",
        "-account-show",
        "-account-suspend",
        "-account-tier",
        "-backup",
        "-backup-list",
        "-backup-prune",
        "-backup-verify",
        "-check",
        "-cluster",
        "-cluster-init",
        "-cluster-repair",
        "-cluster-status",
        "-completions",
        "-doctor",
        "-health",
        "-journal",
        "-journal-dump",
        "-journal-stats",
        "-journal-verify",
        "-man",
        "-record",
        "-restore",
        "-serve",
        "-token",
        "-top",
        "-trouble",
    ]
    .map(|name| format!("paperbourse{name}.1"));
    expected.sort_unstable();
    assert_eq!(names, expected);
    let page = fs::read_to_string(out.join("paperbourse-serve.1")).unwrap();
    for part in [".TH paperbourse-serve 1", "admin\\-listen", "PAPERBOURSE_WORKERS", "Exit codes"] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
    let printed = command(BINARY).args(["man", "journal", "dump"]).output().unwrap();
    let dump = fs::read(out.join("paperbourse-journal-dump.1")).unwrap();
    assert_eq!(printed.stdout, dump);
    let wrong = command(BINARY).args(["man", "journal", "burn"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    let message = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(message, "paperbourse: paperbourse journal has no command burn\n");
}

#[test]
fn every_operation_has_its_row() {
    let mut rows = String::new();
    for operation in &OPERATIONS {
        let Operation { access, query, summary, .. } = operation;
        let query: Vec<String> = query.iter().map(|it| format!("`{}`", it.name)).collect();
        let query = if query.is_empty() {
            String::new()
        } else {
            format!(" (query: {})", query.join(", "))
        };
        writeln!(rows, "| `{operation:?}` | {access} | {summary}{query} |").unwrap();
    }
    let page = "src/guide/api.md";
    assert!(file(page).contains(&rows), "{page} has to contain these rows:\n{rows}");
}

#[test]
fn every_error_code_has_its_row() {
    let errors = file("src/edge/http/error.rs") + &file("src/edge/http/error/refusals.rs");
    let is_code = |text: &&str| {
        text.contains('_') && text.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    // Odd parts are quoted, even parts are the text between them.
    let mut expected: BTreeSet<&str> = errors.split('"').filter(is_code).collect();
    // No client ever receives this code: the connection is gone.
    expected.remove("BODY_INCOMPLETE");
    assert!(expected.len() > 30, "{expected:?}");
    let page = file("src/guide/api.md");
    let (_, section) = page.split_once("\n## Errors\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let documented: BTreeSet<&str> = section.split('`').filter(is_code).collect();
    assert_eq!(documented, expected);
    for operation in &OPERATIONS {
        for code in operation.errors {
            assert!(documented.contains(code), "{operation:?}: {code}");
        }
    }
}
