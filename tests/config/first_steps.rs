//! What somebody sees who has just installed paperbourse.

use std::path::Path;

use super::in_folder;

/// What this command prints, which must succeed.
fn printed(folder: &Path, words: &[&str]) -> String {
    let output = in_folder(folder, words, None).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
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
