//! Checks of the structure of the sources that no lint can make. The rules are in `src/README.md`.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

mod production;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use production::Module;

const LINE_CHARACTERS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 600;
const MEDIAN_LINES_MAX: usize = 250;

struct Source {
    path: PathBuf,
    /// The path relative to the package, with `/`.
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

fn is_test(source: &Source) -> bool {
    source.name.ends_with("/tests.rs") || source.name.contains("/tests/")
}

#[track_caller]
fn report(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

/// A row of the map: a module, or several that share a row, and whether it is pure.
struct Row {
    modules: Vec<String>,
    is_pure: bool,
}

/// The table of modules in `src/README.md`. `a/{b,c/d}` is short for `a/b` and `a/c/d`.
fn map() -> Vec<Row> {
    let map = fs::read_to_string(root().join("src/README.md")).unwrap();
    let rows = map.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let (name, mark) = (cells.next()?.trim_end_matches('`'), cells.next()?);
        let modules = match name.split_once('{') {
            None => vec![name.to_owned()],
            Some((prefix, names)) => {
                let names = names.trim_end_matches('}').split(',');
                names.map(|name| format!("{prefix}{name}")).collect()
            }
        };
        Some(Row { modules, is_pure: mark == "P" })
    });
    rows.collect()
}

fn top(module: &str) -> &str {
    module.split('/').next().unwrap()
}

#[test]
fn arrows_run_downward() {
    let rows = map();
    let order: Vec<&str> = rows.iter().map(|row| top(&row.modules[0])).collect();
    let rank = |module: &str| order.iter().position(|&known| known == module);
    let mut broken = Vec::new();
    for Module { name, file, named } in production::modules() {
        let module = top(&name);
        if module.is_empty() {
            continue;
        }
        let Some(own) = rank(module) else {
            broken.push(format!("{file}: {module} is not on the map"));
            continue;
        };
        for path in named.iter().filter(|path| path[0] == "crate") {
            if path.get(1).and_then(|used| rank(used)).is_some_and(|other| other > own) {
                broken.push(format!("{file}: {}", path.join("::")));
            }
        }
    }
    report("a module may use those above it on the map, never those below", &broken);
}

/// Modules whose files depend on each other in one direction only.
const UNTANGLED: [&str; 3] = ["clock", "engine", "hours"];

#[test]
fn files_form_no_cycle() {
    let modules = production::modules();
    for untangled in UNTANGLED {
        let mut files: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for Module { name, named, .. } in modules.iter().filter(|it| top(&it.name) == untangled) {
            let used = named.iter().filter(|path| path[0] == "crate");
            let used = used.map(|path| production::module_of(&modules, &path[1..]));
            let used = used.filter(|used| top(used) == untangled && used != name).collect();
            files.insert(name, used);
        }
        assert!(files.len() > 1, "{untangled} has files");
        // A file that uses no remaining file is not part of a cycle.
        while let Some(bottom) =
            files.iter().find(|(_, used)| !used.iter().any(|used| files.contains_key(&**used)))
        {
            let bottom = *bottom.0;
            files.remove(bottom);
        }
        let cycle: Vec<String> = files
            .iter()
            .map(|(name, used)| {
                let used: Vec<&str> =
                    used.iter().map(|it| &**it).filter(|it| files.contains_key(it)).collect();
                format!("{name} uses {}", used.join(", "))
            })
            .collect();
        report("files of one module do not use each other in a cycle", &cycle);
    }
}

/// What pure modules may use of the standard library. Everything else does I/O, or blocks.
const PURE_STD: [&str; 23] = [
    "array",
    "borrow",
    "cell",
    "char",
    "cmp",
    "collections",
    "convert",
    "error",
    "fmt",
    "iter",
    "marker",
    "mem",
    "num",
    "ops",
    "option",
    "ptr",
    "result",
    "slice",
    "str",
    "string",
    "task",
    "u32",
    "vec",
];

/// Crates that only compute; `loom` is only used in models.
const PURE_CRATES: [&str; 14] = [
    "arc_swap",
    "base64",
    "crc32c",
    "foldhash",
    "hashbrown",
    "itoa",
    "jiff",
    "loom",
    "schemars",
    "serde",
    "serde_json",
    "smallvec",
    "thiserror",
    "triomphe",
];

/// Exceptions for pure modules, and why each is harmless.
const EXCEPTIONS: [(&str, &str, &str); 13] = [
    ("auth/identity/oidc/key_set", "aws_lc_rs::signature", "parses public keys"),
    ("auth/identity/oidc/key_set", "jsonwebtoken", "parses public keys"),
    ("auth/identity/tier_claim", "crate::auth::identity::TokenFlaw", "a value"),
    ("clob/credentials", "aws_lc_rs::constant_time", "compares"),
    ("clob/credentials", "aws_lc_rs::hmac", "computes"),
    ("clob/signature/ecdsa", "secp256k1", "computes"),
    ("clob/signature/keccak", "tiny_keccak", "computes"),
    ("engine/order/idempotency", "aws_lc_rs::digest", "computes"),
    ("limits/bucket", "parking_lot::Mutex", "no request with a key meets these locks"),
    ("market/price", "crate::market::MarketSnapshot", "a value"),
    ("snapshot/manifest", "crate::journal::ChainMark", "a value"),
    ("venue/polymarket/hash", "aws_lc_rs::digest", "computes"),
    ("venue/polymarket/hash", "std::io::Write", "writes into memory"),
];

#[test]
fn pure_modules_stay_pure() {
    let rows = map();
    let pure: Vec<&str> = rows
        .iter()
        .filter(|row| row.is_pure)
        .flat_map(|row| row.modules.iter().map(String::as_str))
        .collect();
    let is_within = |module: &str, pure: &str| {
        module.strip_prefix(pure).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_pure = |module: &str| pure.iter().any(|pure| is_within(module, pure));
    let modules = production::modules();
    for pure in &pure {
        assert!(modules.iter().any(|module| module.name == *pure), "{pure} is no module");
    }
    let mut excepted = BTreeSet::new();
    let mut broken = Vec::new();
    for module in modules.iter().filter(|module| is_pure(&module.name)) {
        for path in &module.named {
            // Pure modules are all checked, so what one reaches through another is checked too.
            let is_allowed = match path[0].as_str() {
                "crate" => is_pure(&production::module_of(&modules, &path[1..])),
                "std" => is_pure_std(&path[1..]),
                head => PURE_CRATES.contains(&head),
            };
            if is_allowed && path.last().is_none_or(|last| last != "now") {
                continue;
            }
            let path = path.join("::");
            let exception = EXCEPTIONS.iter().position(|(from, prefix, _)| {
                *from == module.name
                    && path
                        .strip_prefix(prefix)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            });
            match exception {
                Some(exception) => drop(excepted.insert(exception)),
                None => broken.push(format!("{}: {path}", module.file)),
            }
        }
    }
    report("a pure module gets time, randomness and I/O as arguments", &broken);
    assert_eq!(excepted.len(), EXCEPTIONS.len(), "unused exceptions; in use: {excepted:?}");
}

/// Whether this path of the standard library is pure: addresses and durations are just numbers.
fn is_pure_std(path: &[String]) -> bool {
    let second = path.get(1).map_or("", String::as_str);
    match path[0].as_str() {
        "net" => ["IpAddr", "Ipv4Addr", "Ipv6Addr"].contains(&second),
        "sync" => ["Arc", "atomic"].contains(&second),
        "time" => second == "Duration",
        // Fine as the type of an argument; creating one here would be random.
        "hash" => second != "RandomState" || path.len() == 2,
        "println!" | "print!" | "eprintln!" | "eprint!" | "dbg!" => false,
        name if name.ends_with('!') => true,
        name => PURE_STD.contains(&name),
    }
}

#[test]
fn files_and_lines_are_short() {
    let mut broken = Vec::new();
    let mut lengths = Vec::new();
    for source in sources(&["src", "tests", "benches", "perf", "fuzz/fuzz_targets", "fuzz/targets"])
    {
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
    report("files and lines are short", &broken);
}

#[test]
fn every_module_documents_its_purpose() {
    let mut broken = Vec::new();
    for source in sources(&["src", "benches", "tests", "perf"]) {
        let first = source.text.lines().next().unwrap_or_default();
        let includes = first.starts_with("#![doc = include_str!");
        if !first.starts_with("//!") && !includes && !is_test(&source) {
            broken.push(source.name);
        }
    }
    report("a module begins with its responsibility", &broken);
}

/// `.ci/models` runs every module named `model` of the default members, with all atomics replaced:
/// any other test that it picks up fails there, and only there.
#[test]
fn only_loom_tests_are_in_modules_named_model() {
    let mut broken = Vec::new();
    for source in sources(&["src"]).iter().filter(|source| !source.name.contains("src/cluster/")) {
        let lines = || source.text.lines().map(str::trim);
        // Each line with the one before it.
        for (before, line) in std::iter::once("").chain(lines()).zip(lines()) {
            let is_model = matches!(line, "mod model;" | "mod model {");
            if is_model && before != "#[cfg(all(test, paperbourse_loom))]" {
                broken.push(source.name.clone());
            }
        }
    }
    report("modules named `model` that are compiled without loom", &broken);
}

#[test]
fn every_rule_of_the_journal_names_a_test() {
    let face = fs::read_to_string(root().join("src/store/journal.rs")).unwrap();
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
    assert_eq!(
        rules,
        (1..=24).collect::<Vec<_>>(),
        "the table in src/store/journal.rs has every rule"
    );
    report("each rule names an existing test", &broken);
}

#[test]
fn no_unfinished_work_is_left() {
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
    for source in sources(&["src", "tests", "benches", "perf", "fuzz/fuzz_targets", "fuzz/targets"])
    {
        for (number, line) in (1..).zip(source.text.lines()) {
            if marks.iter().any(|mark| line.contains(mark)) {
                broken.push(format!("{}:{number}: {}", source.name, line.trim()));
            }
        }
    }
    report("unfinished work", &broken);
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

const MAP_LINES_MAX: usize = 200;

#[test]
fn every_stop_of_the_map_exists() {
    let map = fs::read_to_string(root().join("src/README.md")).unwrap();
    let length = map.lines().count();
    let mut broken = Vec::new();
    if length > MAP_LINES_MAX {
        broken.push(format!("the map has {length} lines"));
    }
    let quoted = map.split('`').skip(1).step_by(2);
    let stops: Vec<&str> =
        quoted.filter(|it| it.contains(".rs") && !it.contains([' ', '\n'])).collect();
    assert!(stops.len() > 50, "{stops:?}");
    for stop in stops {
        let (file, item) = stop.split_once("::").unwrap_or((stop, ""));
        let Ok(text) = fs::read_to_string(root().join("src").join(file)) else {
            broken.push(format!("{stop}: there is no such file"));
            continue;
        };
        let kinds = ["fn", "struct", "enum", "trait", "const", "static", "type", "mod"];
        let is_defined = |line: &str| {
            kinds.iter().any(|kind| {
                let after = line.split_once(&format!("{kind} {item}")).map(|(_, after)| after);
                after.is_some_and(|after| !after.starts_with(|it: char| it.is_alphanumeric()))
            })
        };
        if !item.is_empty() && !text.lines().any(is_defined) {
            broken.push(format!("{stop}: the file defines no {item}"));
        }
    }
    report("each stop of src/README.md is there", &broken);
}
