//! Mistakes in flags, variables and files: each is refused before the server listens, with a
//! message that says what to change.

use super::{errors, in_folder};

/// Where the mistake is made.
enum In {
    Flags(&'static [&'static str]),
    Variable(&'static str, &'static str),
    File(&'static str),
}

use In::{File, Flags, Variable};

/// Mistakes, each with the line that the operator reads, without what stands before it.
const MISTAKES: &[(In, &str)] = &[
    // Names.
    (Flags(&["--listn", "x"]), "error: unexpected argument '--listn' found"),
    (Flags(&["--listn", "x"]), "  tip: a similar argument exists: '--listen'"),
    (Flags(&["serve"]), "error: unexpected argument 'serve' found"),
    (
        Variable("PAPERBOURSE_ADMIN_LISTN", "127.0.0.1:9090"),
        "PAPERBOURSE_ADMIN_LISTN sets nothing: write PAPERBOURSE_ADMIN_LISTEN",
    ),
    (File("listn = \"x\""), "bourse.toml:1: listn is not an option: write listen"),
    (
        File("\n# Disk.\njournal_sync = \"always\""),
        "bourse.toml:3: journal_sync is not an option: write journal-sync",
    ),
    (
        File("colour = \"red\""),
        "bourse.toml:1: colour is not an option: `paperbourse serve --help` lists them",
    ),
    (
        File("[venue]\nspeed = 2"),
        "bourse.toml:1: venue is a table, but options stand at the top level: write them there, \
         as venue-speed = …",
    ),
    (
        File("[server]\nlisten = \"127.0.0.1:80\""),
        "bourse.toml:1: server is a table, but options stand at the top level: write them there, \
         as listen = …",
    ),
    // The file as a whole.
    (
        Flags(&["--config", "none.toml"]),
        "none.toml: failed to read the file of --config: No such file or directory (os error 2)",
    ),
    (
        Flags(&["--config", "."]),
        ".: the file of --config must be a regular file, which SIGHUP can read again",
    ),
    (
        File("config = \"other.toml\""),
        "bourse.toml:1: a file cannot name another one: remove config",
    ),
    (File("workers = 1\nworkers = 2"), "bourse.toml:2: duplicate key"),
    (
        File("listen = 127.0.0.1:80"),
        "bourse.toml:1: text needs quotes: write listen = \"127.0.0.1:80\"",
    ),
    (File("data = ./data"), "bourse.toml:1: text needs quotes: write data = \"./data\""),
    (File("data = \"./data"), "bourse.toml:1: invalid basic string, expected `\"`"),
    (File("--workers 3"), "bourse.toml:1: key with no value, expected `=`"),
    // Kinds of values.
    (
        File("listen = [\"127.0.0.1:80\"]"),
        "bourse.toml:1: listen takes one value: remove the brackets",
    ),
    (
        File("audience = 2026-11-23"),
        "bourse.toml:1: audience is a date or a time: write it in quotes, as for the flag",
    ),
    (File("address-limits = true"), "bourse.toml:1: address-limits is `true`: use on or off"),
    (File("identity-ca = \"\""), "bourse.toml:1: identity-ca is ``: a value is needed"),
    (File("data = \"\""), "bourse.toml:1: data is ``: not a folder: use its path, or `memory`"),
    // Addresses.
    (
        Flags(&["--listen", "localhost"]),
        "error: invalid value 'localhost' for '--listen <ADDR>': not an address: use IP:PORT, for \
         example 127.0.0.1:8080",
    ),
    (
        Variable("PAPERBOURSE_LISTEN", "8080"),
        "PAPERBOURSE_LISTEN is `8080`: not an address: use IP:PORT, for example 127.0.0.1:8080",
    ),
    (
        Variable("PAPERBOURSE_TRUSTED_PROXY", "10.0.0.5/8"),
        "PAPERBOURSE_TRUSTED_PROXY is `10.0.0.5/8`: the network is 10.0.0.0/8",
    ),
    (
        File("venue = \"polymarket\"\nvenue-gamma = \"gamma.example.org\""),
        "bourse.toml:2: venue-gamma is `gamma.example.org`: not an address: use https://HOST or \
         http://HOST",
    ),
    // Numbers.
    (
        Variable("PAPERBOURSE_WORKERS", "0"),
        "PAPERBOURSE_WORKERS is `0`: not a whole number from 1 to 1024",
    ),
    (
        File("snapshot-cpu = 12.5"),
        "bourse.toml:1: snapshot-cpu is `12.5`: not a whole number from 1 to 100",
    ),
    (
        File("memory-limit = \"2GB\""),
        "bourse.toml:1: memory-limit is `2GB`: not a number of bytes: use a whole number, alone or \
         with K, M, G or T (powers of 1024), such as 512M",
    ),
    (
        Flags(&["--starting-balance=-1"]),
        "error: invalid value '-1' for '--starting-balance <USD>': not between 0 and 1000000000 \
         dollars",
    ),
    // Limits.
    (
        File("tier = [\"gold=1/2/3/4\"]"),
        "bourse.toml:1: tier is `gold=1/2/3/4`: unknown tier `gold`: use free, pro or enterprise",
    ),
    (
        File("tier = \"pro=20/1200\""),
        "bourse.toml:1: tier is `pro=20/1200`: `pro=20/1200` does not read \
         NAME=PER_SECOND/PER_MINUTE/SOCKETS/BATCH[/MARKETS], for example \
         pro=20/1200/10/20/200",
    ),
    (
        Variable("PAPERBOURSE_PUBLIC_RATE", "10"),
        "PAPERBOURSE_PUBLIC_RATE is `10`: not RATE/BURST, for example 10/20, with both from 1 to \
         1000000",
    ),
    (
        Variable("PAPERBOURSE_DEFAULT_TIER", "gold"),
        "PAPERBOURSE_DEFAULT_TIER is `gold`: not a tier: use free, pro or enterprise",
    ),
    (
        Flags(&["--tier", "pro=1/2/3/4", "--tier", "pro=5/6/7/8"]),
        "--tier sets the limits of pro twice: keep one of them",
    ),
    // The log.
    (
        Variable("PAPERBOURSE_LOG_LEVEL", "inof"),
        "PAPERBOURSE_LOG_LEVEL is `inof`: `inof` is not a level: use off, error, warn, info, debug \
         or trace",
    ),
    (
        File("log-level = \"info,paperbourse::venu=debug\""),
        "bourse.toml:1: log-level is `info,paperbourse::venu=debug`: `paperbourse::venu` is not a \
         module of paperbourse",
    ),
    (
        Variable("PAPERBOURSE_LOG_FORMAT", "text"),
        "PAPERBOURSE_LOG_FORMAT is `text`: use auto, human or json",
    ),
    (
        File("access-log = 0.1"),
        "bourse.toml:1: access-log is `0.1`: use off, all, or 1/N for about one request in N",
    ),
    // Choices, and what contradicts them.
    (
        Flags(&["--journal-sync", "sometimes"]),
        "error: invalid value 'sometimes' for '--journal-sync <always|fdatasync|never>'",
    ),
    (
        Variable("PAPERBOURSE_VENUE", "kalshi"),
        "PAPERBOURSE_VENUE is `kalshi`: not a venue: use `simulated`, `simulated:SEED` with a \
         whole number, `recorded:DIR` or `polymarket`",
    ),
    (
        Variable("PAPERBOURSE_IDENTITY", "auth0"),
        "PAPERBOURSE_IDENTITY is `auth0`: not an identity source: use `embedded`, `oidc:URL` or \
         `hs256:FILE`",
    ),
    (
        File("identity = \"hs256:/etc/secret\""),
        "--identity hs256:/etc/secret needs --issuer ISSUER, the `iss` of the tokens, such as \
         https://PROJECT.supabase.co/auth/v1 (bourse.toml:1: identity)",
    ),
    (
        File("venue-markets = 5"),
        "takes no --venue-markets: it would have no effect (bourse.toml:1: venue-markets)",
    ),
    (
        Variable("PAPERBOURSE_TIER_CLAIM", "user_metadata.tier"),
        "PAPERBOURSE_TIER_CLAIM is `user_metadata.tier`: users can edit what is below",
    ),
];

#[test]
fn every_mistake_is_refused_with_what_to_change() {
    assert!(MISTAKES.len() >= 30);
    let folder = tempfile::tempdir().unwrap();
    for (place, expected) in MISTAKES {
        let mut command = match place {
            Flags(flags) => in_folder(folder.path(), &[&["serve"], *flags].concat(), None),
            Variable(name, value) => {
                let mut command = in_folder(folder.path(), &["serve"], None);
                command.env(name, value);
                command
            }
            File(text) => in_folder(folder.path(), &["serve"], Some(text)),
        };
        let output = command.output().unwrap();
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{expected}: {errors}");
        assert!(output.stdout.is_empty(), "it has started: {output:?}");
        assert!(errors.lines().any(|line| line.contains(expected)), "{expected}:\n{errors}");
        println!("{errors}");
    }
    assert!(!folder.path().join("data").exists(), "nothing was written");
}
