//! The recorded payloads of the real venue, cases that other people's programs make, and what those
//! programs send, which are not part of the repository.

use std::path::{Path, PathBuf};

/// The folder of the recordings: `PAPERBOURSE_RECORDINGS`, or `shared/polymarket` beside the
/// checkout or above it; `None`, with a message, if there is none.
pub fn folder() -> Option<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checkout = checkout.canonicalize().unwrap();
    let is_there = |folder: &PathBuf| folder.is_dir();
    let chosen = std::env::var_os("PAPERBOURSE_RECORDINGS").map(PathBuf::from);
    let found = match &chosen {
        Some(folder) => Some(folder.clone()).filter(is_there),
        None => checkout.ancestors().skip(1).map(|it| it.join("shared/polymarket")).find(is_there),
    };
    if found.is_none() {
        let missing = chosen.unwrap_or_else(|| checkout.join("../shared/polymarket"));
        eprintln!("SKIPPED: no recordings at {}; set PAPERBOURSE_RECORDINGS", missing.display());
    }
    found
}

/// The folder of a case, in `cases` beside the recordings; `None`, with a message, if it is not
/// there.
pub fn case_path(name: &str) -> Option<PathBuf> {
    beside("cases", name, Path::is_dir)
}

/// A file of the reference, in `reference` beside the recordings; `None`, with a message, if it is
/// not there.
pub fn reference_path(name: &str) -> Option<PathBuf> {
    beside("reference", name, Path::is_file)
}

/// What has this name in a folder beside the recordings; `None`, with a message, if nothing has.
fn beside(kind: &str, name: &str, is_there: fn(&Path) -> bool) -> Option<PathBuf> {
    let path = folder()?.join("..").join(kind).join(name);
    if is_there(&path) {
        return Some(path);
    }
    eprintln!("SKIPPED: nothing at {}", path.display());
    None
}
