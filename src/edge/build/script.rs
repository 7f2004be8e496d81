//! The build script: determines the commit being built, and its date.
//!
//! The commit comes from the first of these that is known: `SOURCE_COMMIT`, for builds without git;
//! git itself; and, in an archive made by git, the line that git wrote to `.ci/archive`.
//! `SOURCE_DATE_EPOCH`, which reproducible builds set, overrides the date. Nothing else about the
//! machine enters the binary, so the same tree gives the same binary.
//!
//! Whenever this script reruns, everything that depends on it is rebuilt: the library and every
//! test. So only release builds, which operators run, check git after each commit. Other builds
//! check when another branch is checked out. They mark their commit with `+`, since the tree may
//! have changed since that commit. A release that differs from its commit has the same mark.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of digits of a commit to show. Fixed, so it does not depend on git's configuration.
const DIGITS: usize = 12;

/// The inputs of the binary. If any of them differ from the commit, the binary is marked with `+`.
const SOURCES: [&str; 3] = ["src", "Cargo.toml", "Cargo.lock"];

/// The file that git fills in when it makes an archive.
const ARCHIVE: &str = ".ci/archive";

#[cfg(not(test))]
fn main() {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    // The root of the tree: this package is in `src/edge`.
    let folder = package.ancestors().nth(2).expect("a folder of the tree").to_path_buf();
    let is_release = std::env::var("PROFILE").as_deref() == Ok("release");
    let given = |name| {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var(name).ok().filter(|value| !value.is_empty())
    };
    let (commit, epoch) = (given("SOURCE_COMMIT"), given("SOURCE_DATE_EPOCH"));
    println!("cargo::rerun-if-changed=build/script.rs");
    if commit.is_none() {
        for path in watched(&folder, is_release) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let Source { commit, date } = source(&folder, is_release, commit, epoch.as_deref());
    // Not named like the server's own environment variables, since `cargo run` passes the variables
    // set here to the server.
    println!("cargo::rustc-env=BUILD_COMMIT={commit}");
    println!("cargo::rustc-env=BUILD_COMMIT_DATE={date}");
}

/// The source of a build. Fields are empty if unknown.
#[derive(PartialEq, Eq, Debug)]
struct Source {
    /// The first digits of the commit, followed by `+` if the binary may differ from it.
    commit: String,
    /// The UTC date of the commit, such as 2026-11-28.
    date: String,
}

fn source(
    folder: &Path,
    is_release: bool,
    given_commit: Option<String>,
    given_epoch: Option<&str>,
) -> Source {
    let epoch_of = |text: &str| text.trim().parse::<i64>().ok();
    let (commit, epoch) = match given_commit {
        Some(commit) => (shortened(&commit), None),
        None => of_git(folder, is_release).or_else(|| of_archive(folder)).unwrap_or_default(),
    };
    let epoch = given_epoch.and_then(epoch_of).or(epoch);
    Source { commit, date: epoch.map(date).unwrap_or_default() }
}

/// Returns the commit that is checked out, and when it was made.
fn of_git(folder: &Path, is_release: bool) -> Option<(String, Option<i64>)> {
    // An archive may be unpacked inside another repository, whose commit does not describe it.
    if !git(folder, &["rev-parse", "--show-prefix"])?.is_empty() {
        return None;
    }
    let shown = git(folder, &["log", "-1", "--no-show-signature", "--format=%H %ct"])?;
    let (commit, epoch) = shown.split_once(' ')?;
    let is_exact = is_release && {
        let changes = ["status", "--porcelain", "--untracked-files=no", "--"];
        git(folder, &[&changes[..], &SOURCES].concat())?.is_empty()
    };
    let mark = if is_exact { "" } else { "+" };
    Some((format!("{}{mark}", shortened(commit)), epoch.parse().ok()))
}

/// Returns the commit and time that git wrote to the archive this tree was unpacked from.
fn of_archive(folder: &Path) -> Option<(String, Option<i64>)> {
    let text = std::fs::read_to_string(folder.join(ARCHIVE)).ok()?;
    let (commit, epoch) = text.lines().last()?.split_once(' ')?;
    let is_written = commit.len() >= DIGITS && commit.bytes().all(|it| it.is_ascii_hexdigit());
    is_written.then(|| (shortened(commit), epoch.parse().ok()))
}

/// Returns the files of git that change when another commit is checked out, and for a release also
/// the sources.
fn watched(folder: &Path, is_release: bool) -> Vec<PathBuf> {
    let of_git = |name| {
        let path = folder.join(git(folder, &["rev-parse", "--git-path", name])?);
        // Cargo treats a missing file as changed in every build.
        path.exists().then_some(path)
    };
    let mut paths: Vec<PathBuf> = of_git("HEAD").into_iter().collect();
    if is_release {
        // The reflog changes with every checkout and commit. Without one, watch all branches, which
        // other work trees change too.
        match of_git("logs/HEAD") {
            Some(list) => paths.push(list),
            None => paths.extend(["refs/heads", "packed-refs"].into_iter().filter_map(of_git)),
        }
        paths.extend(SOURCES.map(|name| folder.join(name)).into_iter().filter(|it| it.exists()));
    }
    paths
}

/// Runs git and returns its output without the final line break. `None` if git fails or is missing.
fn git(folder: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim_end().to_owned())
}

/// Keeps the first [`DIGITS`] characters that may be part of a commit's name.
fn shortened(commit: &str) -> String {
    commit.chars().filter(char::is_ascii_alphanumeric).take(DIGITS).collect()
}

/// Returns the UTC date of a Unix time in seconds, by Howard Hinnant's `civil_from_days`: years
/// start in March, so that the leap day is the last.
fn date(epoch: i64) -> String {
    let days = epoch.div_euclid(86_400) + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let march_based = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * march_based + 2) / 5 + 1;
    let month = if march_based < 10 { march_based + 3 } else { march_based - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{of_month:02}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// Creates a repository with one commit of a fixed time; `None` if git is not installed.
    fn repository() -> Option<(tempfile::TempDir, String)> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("src")).unwrap();
        fs::create_dir_all(folder.path().join(".ci")).unwrap();
        fs::write(folder.path().join("src/lib.rs"), "").unwrap();
        fs::write(folder.path().join(".ci/archive"), "$Format:%H %ct$\n").unwrap();
        fs::write(folder.path().join(".gitattributes"), ".ci/archive export-subst\n").unwrap();
        git(folder.path(), &["init", "--quiet"])?;
        commit(folder.path());
        let head = git(folder.path(), &["rev-parse", "HEAD"]).unwrap();
        Some((folder, head[..DIGITS].to_owned()))
    }

    fn commit(folder: &Path) {
        git(folder, &["add", "."]).unwrap();
        let made = Command::new("git")
            .current_dir(folder)
            .args(["-c", "user.name=n", "-c", "user.email=e@example.org"])
            .args(["commit", "--quiet", "--no-gpg-sign", "--message", "m"])
            .env("GIT_COMMITTER_DATE", "1764300000 +0200")
            .status();
        assert!(made.unwrap().success());
    }

    #[track_caller]
    fn check(folder: &Path, is_release: bool, commit: &str, date: &str) {
        let expected = Source { commit: commit.to_owned(), date: date.to_owned() };
        assert_eq!(source(folder, is_release, None, None), expected);
    }

    #[test]
    fn a_release_names_its_commit_and_whether_it_is_more_than_that() {
        let Some((folder, head)) = repository() else { return };
        let more = format!("{head}+");
        check(folder.path(), true, &head, "2025-11-28");
        check(folder.path(), false, &more, "2025-11-28");
        fs::write(folder.path().join("notes"), "not of the sources").unwrap();
        check(folder.path(), true, &head, "2025-11-28");
        fs::write(folder.path().join("src/lib.rs"), "fn f() {}").unwrap();
        check(folder.path(), true, &more, "2025-11-28");
        commit(folder.path());
        let next = git(folder.path(), &["rev-parse", "HEAD"]).unwrap();
        assert_ne!(next[..DIGITS], head);
        check(folder.path(), true, &next[..DIGITS], "2025-11-28");
    }

    #[test]
    fn an_archive_names_the_commit_that_it_was_made_of() {
        let Some((folder, head)) = repository() else { return };
        let unpacked = tempfile::tempdir().unwrap();
        let archive = unpacked.path().join("archive.tar");
        let archive = archive.to_str().unwrap();
        git(folder.path(), &["archive", "--output", archive, "HEAD"]).unwrap();
        let tar = Command::new("tar").args(["-xf", archive, "-C"]).arg(unpacked.path()).status();
        assert!(tar.unwrap().success());
        check(unpacked.path(), true, &head, "2025-11-28");
        // An archive unpacked inside another repository does not take that repository's commit.
        let inside = folder.path().join("unpacked");
        fs::create_dir_all(inside.join(".ci")).unwrap();
        fs::copy(unpacked.path().join(".ci/archive"), inside.join(".ci/archive")).unwrap();
        commit(folder.path());
        check(&inside, true, &head, "2025-11-28");
    }

    #[test]
    fn what_is_given_wins_and_what_nobody_knows_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        check(folder.path(), true, "", "");
        for (commit, epoch, expected) in [
            (Some(COMMIT), None, ["0123456789ab", ""]),
            (Some("v1.2; rm -rf /"), Some("0"), ["v12rmrf", "1970-01-01"]),
            (None, Some("1764300000"), ["", "2025-11-28"]),
            (None, Some("tomorrow"), ["", ""]),
        ] {
            let found = source(folder.path(), true, commit.map(str::to_owned), epoch);
            assert_eq!([&*found.commit, &*found.date], expected, "{commit:?} {epoch:?}");
        }
    }

    #[test]
    fn a_build_watches_what_is_there_and_a_release_more_of_it() {
        let Some((folder, _)) = repository() else { return };
        let of = |is_release| -> Vec<String> {
            let names = watched(folder.path(), is_release).into_iter();
            let names = names.map(|it| it.strip_prefix(folder.path()).unwrap().to_path_buf());
            names.map(|it| it.display().to_string()).collect()
        };
        assert_eq!(of(false), [".git/HEAD"]);
        assert_eq!(of(true), [".git/HEAD", ".git/logs/HEAD", "src"]);
        fs::remove_dir_all(folder.path().join(".git/logs")).unwrap();
        assert_eq!(of(true), [".git/HEAD", ".git/refs/heads", "src"]);
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for epoch in (-100..400).map(|index| index * 11_111_111) {
            let expected = jiff::Timestamp::from_second(epoch).unwrap();
            let expected = expected.to_zoned(jiff::tz::TimeZone::UTC).date();
            assert_eq!(date(epoch), expected.to_string(), "{epoch}");
        }
    }
}
