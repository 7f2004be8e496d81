//! `serve --print-config`: a file that `--config` reads, with the source of each value.

use std::fs;

use super::{errors, in_folder};

#[test]
fn the_configuration_is_printed_with_its_sources() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["serve", "--print-config", "--identity", "hs256:/etc/secret", "--issuer", "i"];
    let file = "snapshot-cpu = 20\n\nvenue-delay = \"off\"\nworkers = 2\n";
    let tiers = ["--tier", "free=1/2/3/4", "--tier", "pro=5/6/7/8"];
    let output = in_folder(folder.path(), &[&words[..], &tiers].concat(), Some(file))
        .env("PAPERBOURSE_WORKERS", "3")
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in [
        "listen = \"127.0.0.1:8080\"  # default",
        "identity = \"hs256:/etc/secret\"  # flag",
        "workers = 3  # environment: PAPERBOURSE_WORKERS",
        "snapshot-cpu = 20  # file: bourse.toml:1",
        "venue-delay = \"off\"  # file: bourse.toml:3",
        "tier = [\"free=1/2/3/4\", \"pro=5/6/7/8\"]  # flag",
        "# admin-listen is not set",
    ] {
        assert!(printed.lines().any(|other| other == line), "{line}:\n{printed}");
    }
    assert!(!printed.contains("print-config") && !printed.contains("help"), "{printed}");
}

#[test]
fn what_was_printed_configures_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["serve", "--print-config", "--venue", "polymarket", "--venue-slug", "a,b"];
    let mut command = in_folder(folder.path(), &words, None);
    let mut print = |from: Option<&str>| {
        let mut again = in_folder(folder.path(), &words[..2], from);
        let output = from.map_or_else(|| command.output(), |_| again.output()).unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let first = print(None);
    let second = print(Some(&first));
    let third = print(Some(&second));
    assert_eq!(fs::read_to_string(folder.path().join("bourse.toml")).unwrap(), second);
    assert_eq!(third, second, "the sources are the same lines of the same file");
    let values = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.split_once("  # ")?.0.to_owned())).collect()
    };
    assert_eq!(values(&second), values(&first));
    assert!(values(&first).len() > 20, "{first}");
}

#[test]
fn a_configuration_that_cannot_serve_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["serve", "--print-config", "--identity", "hs256:/etc/secret"];
    let output = in_folder(folder.path(), &words, None).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(errors(&output).contains("needs --issuer"), "{output:?}");
}
