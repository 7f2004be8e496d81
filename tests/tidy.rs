//! What no lint can see: the shape of the house. The rules stand in `src/README.md`.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

use std::fs;
use std::path::{Path, PathBuf};

/// Top-level modules in the order of the map: each may use those in front of it, never those
/// behind.
const MODULES: [&str; 27] = [
    "money",
    "ids",
    "faults",
    "clock",
    "disk",
    "tls",
    "client",
    "market",
    "limits",
    "venue",
    "engine",
    "journal",
    "snapshot",
    "inspect",
    "shard",
    "auth",
    "backup",
    "service",
    "ws",
    "telemetry",
    "http",
    "config",
    "server",
    "record",
    "cli",
    "main",
    "simulation",
];

/// Modules without clock, randomness, I/O, tasks or logging.
const PURE: [&str; 18] = [
    "money",
    "ids",
    "clock/watch",
    "market/book",
    "market/walk",
    "market/catalogue",
    "market/price",
    "venue/polymarket/live/freshness",
    "venue/polymarket/live/backoff",
    "venue/polymarket/live/tracker",
    "engine",
    "limits",
    "journal/record",
    "snapshot/manifest",
    "snapshot/state",
    "inspect/describe",
    "auth/identity/tier_claim",
    "auth/identity/oidc/key_set",
];

const LINE_CHARACTERS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 600;
const MEDIAN_LINES_MAX: usize = 250;

struct Source {
    path: PathBuf,
    /// Relative to the package, with `/`.
    name: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folders: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
                let text = fs::read_to_string(&path).unwrap();
                found.push(Source { path, name, text });
            }
        }
    }
    assert!(!found.is_empty(), "no sources under {}", root().display());
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The text without its unit tests, which may reach for anything.
fn without_tests(text: &str) -> &str {
    text.split_once("\n#[cfg(test)]").map_or(text, |(code, _)| code)
}

fn is_test(source: &Source) -> bool {
    source.name.ends_with("/tests.rs") || source.name.contains("/tests/")
}

#[track_caller]
fn report(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn arrows_run_downward() {
    let rank = |module: &str| MODULES.iter().position(|&known| known == module);
    let mut broken = Vec::new();
    for source in sources(&["src"]) {
        let inside = source.name.trim_start_matches("src/").trim_end_matches(".rs");
        let module = inside.split('/').next().unwrap();
        if module == "lib" || is_test(&source) {
            continue;
        }
        let Some(own) = rank(module) else {
            broken.push(format!("{}: {module} is not on the list of modules", source.name));
            continue;
        };
        for (number, line) in (1..).zip(without_tests(&source.text).lines()) {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for part in line.split("crate::").skip(1) {
                let used: String =
                    part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if rank(&used).is_some_and(|other| other > own) {
                    broken.push(format!("{}:{number}: {module} uses {used}", source.name));
                }
            }
        }
    }
    report("a module may use what stands above it on the map, never what stands below", &broken);
}

#[test]
fn pure_modules_stay_pure() {
    const FORBIDDEN: [&str; 12] = [
        "tokio",
        "hyper::",
        "std::fs",
        "std::net",
        "std::thread",
        "SystemTime",
        "Instant",
        "Timestamp::now",
        "getrandom",
        "tracing",
        "parking_lot",
        "println!",
    ];
    /// The table of addresses, whose locks no request with a key meets. An address is a number
    /// there: nothing is sent to it.
    const EXCEPTIONS: [(&str, &str); 2] =
        [("src/limits/bucket.rs", "std::net"), ("src/limits/bucket.rs", "parking_lot")];
    let mut broken = Vec::new();
    for source in sources(&["src"]) {
        let inside = source.name.trim_start_matches("src/").trim_end_matches(".rs");
        let is_pure =
            PURE.iter().any(|pure| inside == *pure || inside.starts_with(&format!("{pure}/")));
        if !is_pure || is_test(&source) {
            continue;
        }
        for (number, line) in (1..).zip(without_tests(&source.text).lines()) {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for word in FORBIDDEN {
                let excepted = EXCEPTIONS.contains(&(source.name.as_str(), word));
                if line.contains(word) && !excepted {
                    broken.push(format!("{}:{number}: {word}", source.name));
                }
            }
        }
    }
    report("a pure module gets time, chance and the world as arguments", &broken);
}

#[test]
fn files_and_lines_are_short() {
    let mut broken = Vec::new();
    let mut lengths = Vec::new();
    for source in sources(&["src", "tests", "benches", "perf", "fuzz/fuzz_targets"]) {
        let length = source.text.lines().count();
        if length > FILE_LINES_MAX {
            broken.push(format!("{}: {length} lines", source.name));
        }
        if source.name.starts_with("src/") {
            lengths.push(length);
        }
        for (number, line) in (1..).zip(source.text.lines()) {
            if line.chars().count() > LINE_CHARACTERS_MAX {
                broken.push(format!("{}:{number}: over {LINE_CHARACTERS_MAX}", source.name));
            }
        }
    }
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    if median > MEDIAN_LINES_MAX {
        broken.push(format!("the median file of src has {median} lines"));
    }
    report("a file is one noun, a line fits the screen", &broken);
}

#[test]
fn every_module_says_what_it_is_for() {
    let mut broken = Vec::new();
    for source in sources(&["src", "benches", "tests", "perf"]) {
        let first = source.text.lines().next().unwrap_or_default();
        let includes = first.starts_with("#![doc = include_str!");
        if !first.starts_with("//!") && !includes && !is_test(&source) {
            broken.push(source.name);
        }
    }
    report("a module begins with what it is responsible for", &broken);
}

#[test]
fn every_rule_of_the_journal_names_a_test() {
    let face = fs::read_to_string(root().join("src/journal.rs")).unwrap();
    let sources = sources(&["src", "tests"]);
    let mut rules = Vec::new();
    let mut broken = Vec::new();
    for row in face.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let mut cells = row.split('|').map(str::trim);
        let (Some(number), Some(_), Some(test)) = (cells.next(), cells.next(), cells.next()) else {
            continue;
        };
        let Ok(number) = number.parse::<u32>() else { continue };
        rules.push(number);
        let definition = format!("fn {}(", test.trim_matches('`'));
        if !sources.iter().any(|source| source.text.contains(&definition)) {
            broken.push(format!("rule {number}: there is no {definition}"));
        }
    }
    rules.dedup();
    assert_eq!(rules, (1..=24).collect::<Vec<_>>(), "the table in src/journal.rs has every rule");
    report("each rule is held by a test", &broken);
}

#[test]
fn nothing_is_left_for_later() {
    // Spelled in halves, so that this file does not report itself.
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ign", "ore"),
    ];
    let mut broken = Vec::new();
    for source in sources(&["src", "tests", "benches", "perf", "fuzz/fuzz_targets"]) {
        for (number, line) in (1..).zip(source.text.lines()) {
            if marks.iter().any(|mark| line.contains(mark)) {
                broken.push(format!("{}:{number}: {}", source.name, line.trim()));
            }
        }
    }
    report("what is on main is finished", &broken);
}

#[test]
fn the_map_names_every_module() {
    let map = fs::read_to_string(root().join("src/README.md")).unwrap();
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let modules = lib.lines().filter_map(|line| {
        line.trim().strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';'))
    });
    let missing: Vec<String> =
        modules.filter(|module| !map.contains(&format!("`{module}"))).map(String::from).collect();
    report("src/README.md is the map", &missing);
}
