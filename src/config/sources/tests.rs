use std::fs;

use super::*;
use crate::limits::tier::Tier;

/// What these sources say; the text of a file, if there is one, is in `FILE`.
fn read(
    flags: &[&str],
    variables: &[(&str, &str)],
    file: Option<&str>,
) -> Result<Configuration, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("FILE");
    let mut flags: Vec<OsString> = flags.iter().map(OsString::from).collect();
    if let Some(text) = file {
        fs::write(&path, text).unwrap();
        flags.extend(["--config".into(), path.clone().into()]);
    }
    let matches = without_variables(options()).try_get_matches_from(flags);
    let matches = matches.map_err(|error| error.to_string())?;
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    let path = path.display().to_string();
    let read = Sources::new(&matches, variables).read();
    read.map_err(|mistakes| mistakes.to_string().replace(&path, "FILE"))
}

#[test]
fn a_flag_wins_over_a_variable_and_that_over_the_file() {
    let file = "workers = 1\ntier = [\"free=1/1/1/1\"]\ndefault-tier = \"pro\"\n";
    let variables =
        [("PAPERBOURSE_WORKERS", "2"), ("PAPERBOURSE_TIER", "free=2/2/2/2,pro=2/2/2/2")];
    let flags = ["--workers", "3", "--tier", "free=3/3/3/3"];
    for (flags, variables, [workers, tiers, sockets], source) in [
        (&flags[..], &variables[..], [3, 1, 3], "flag"),
        (&[], &variables, [2, 2, 2], "environment: PAPERBOURSE_WORKERS"),
        (&[], &[], [1, 1, 1], "file"),
        (&[], &[("PAPERBOURSE_WORKERS", "")], [1, 1, 1], "file"),
    ] {
        let Configuration { arguments, settings, .. } = read(flags, variables, Some(file)).unwrap();
        assert_eq!(arguments.workers.map(usize::from), Some(workers));
        assert_eq!(arguments.tiers.len(), tiers);
        let free = arguments.tier_table().get(Tier::Free).sockets_max;
        assert_eq!(usize::try_from(free).unwrap(), sockets);
        assert_eq!(arguments.default_tier, Tier::Pro);
        let workers = settings.iter().find(|setting| setting.name == "workers").unwrap();
        assert!(workers.source.to_string().starts_with(source), "{workers:?}");
    }
    let nothing = read(&[], &[], None).unwrap();
    assert!(nothing.settings.iter().all(|setting| setting.source == Source::Default));
}

/// The configuration without comments, which say where it came from.
fn values(printed: &str) -> Vec<&str> {
    printed.lines().filter_map(|line| line.split("  # ").next()).collect()
}

#[test]
fn a_printed_configuration_reads_as_the_same_and_prints_itself() {
    for flags in [
        &[][..],
        &["--trusted-proxy", "10.0.0.0/8,fd00::/8", "--tier", "free=unlimited/2/3/4"],
        &[
            "--venue",
            "polymarket",
            "--venue-slug",
            "a",
            "--venue-tag",
            "7",
            "--venue-volume",
            "5.5",
        ],
        &["--identity", "hs256:/a \"b\"\\c\u{7f}\n# é", "--issuer", "i  # j", "--workers", "0003"],
    ] {
        let first = read(flags, &[], None).unwrap();
        let printed = first.to_string();
        let again = read(&[], &[], Some(&printed)).unwrap();
        assert_eq!(
            format!("{:?}", again.arguments.identity),
            format!("{:?}", first.arguments.identity)
        );
        assert_eq!(values(&again.to_string()), values(&printed), "{flags:?}");
        let values = |it: Configuration| -> Vec<_> {
            it.settings.into_iter().filter(|it| it.name != "config").map(|it| it.values).collect()
        };
        assert_eq!(values(again), values(first), "{flags:?}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once_with_their_places() {
    let file = "workers = 0\nlistn = 1\nvenue.speed = 2\n";
    let variables = [("PAPERBOURSE_SNAPSHOT_CPU", "101"), ("PAPERBOURSE_LISTN", "x")];
    let error = read(&[], &variables, Some(file)).unwrap_err();
    assert_eq!(
        error.split("; ").collect::<Vec<_>>(),
        [
            "PAPERBOURSE_LISTN sets nothing: write PAPERBOURSE_LISTEN",
            "FILE:2: listn is not an option: write listen",
            "FILE:3: venue is a table, but options stand at the top level: write them there, as \
             venue-speed = …",
            "FILE:1: workers is `0`: not a whole number from 1 to 1024",
            "PAPERBOURSE_SNAPSHOT_CPU is `101`: not a whole number from 1 to 100",
        ]
    );
}

#[test]
fn a_file_is_right_as_a_whole_but_only_the_variables_that_count_are_checked() {
    let error = read(&["--workers", "2"], &[], Some("workers = 0")).unwrap_err();
    assert!(error.starts_with("FILE:1: workers is `0`"), "{error}");
    let variables = [("PAPERBOURSE_WORKERS", "0")];
    assert!(read(&["--workers", "2"], &variables, None).is_ok());
    assert!(read(&[], &variables, None).is_err());
}

#[test]
fn variables_of_others_are_left_alone() {
    let names = [
        ("PAPERBOURSE_PORT_8080_TCP", false),
        ("PAPERBOURSE_SERVICE_HOST", false),
        ("PAPERBOURSE_RECORDINGS", true),
        ("PAPERBOURSE_VERSION", true),
        ("OTHER_LISTN", false),
    ];
    let variables = names.map(|(name, _)| (name, "tcp://10.0.0.1:8080"));
    let unknown = names.iter().filter(|(_, is_unknown)| *is_unknown).map(|(name, _)| *name);
    let found = read(&[], &variables, None).unwrap().unknown_variables;
    assert_eq!(found, unknown.collect::<Vec<_>>());
}

#[test]
fn every_option_has_a_variable_of_its_name() {
    for option in options().get_arguments() {
        let variable = format!("{PREFIX}{}", name_of(option).to_uppercase().replace('-', "_"));
        assert_eq!(option.get_env(), Some(OsStr::new(&variable)));
    }
}
