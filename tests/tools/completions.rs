//! Completions: every shell has them, and bash completes what a user would type.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::world::tool;

#[track_caller]
fn completions(shell: &str) -> String {
    let printed = tool(&["completions", shell]);
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    String::from_utf8(printed.stdout).unwrap()
}

#[test]
fn every_shell_is_offered_every_command_and_flag() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = completions(shell);
        // fish names flags without their dashes.
        for word in ["serve", "backup", "journal", "completions", "admin-listen", "trusted-proxy"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let wrong = tool(&["completions", "tcsh"]);
    assert_eq!(wrong.status.code(), Some(2));
    let message = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        message.contains("[possible values: bash, elvish, fish, powershell, zsh]"),
        "{message}"
    );
}

/// Holds completions of the last of these words, as bash asks for them, to be exactly these.
#[track_caller]
fn check(words: &[&str], expected: &[&str]) {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("completions");
    fs::write(&script, completions("bash")).unwrap();
    let completed = Command::new("bash")
        .args(["--norc", "-c"])
        .arg(
            r#"source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
               _paperbourse paperbourse "${@: -1}" "${@: -2:1}"; printf '%s\n' "${COMPREPLY[@]}""#,
        )
        .arg(&script)
        .args(words)
        // What is neither a command nor a flag is a file of this folder.
        .current_dir(folder.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&completed.stderr);
    assert!(completed.status.success() && errors.is_empty(), "{words:?}: {errors}");
    let completed = String::from_utf8(completed.stdout).unwrap();
    assert_eq!(completed.lines().collect::<Vec<_>>(), expected, "{words:?}");
}

#[test]
fn bash_completes_commands_flags_and_values() {
    if Command::new("bash").arg("--version").output().is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no bash to complete in");
        eprintln!("SKIPPED: no bash to complete in");
        return;
    }
    check(&["paperbourse", "ser"], &["serve"]);
    check(&["paperbourse", "journal", "ver"], &["verify"]);
    check(&["paperbourse", "serve", "--admin"], &["--admin-listen"]);
    check(&["paperbourse", "serve", "--journal-sync", ""], &["always", "fdatasync", "never"]);
    check(&["paperbourse", "serve", "--config", "comp"], &["completions"]);
    check(&["paperbourse", "completions", "fi"], &["fish"]);
}
