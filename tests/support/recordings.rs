//! The recorded payloads of the real venue, which are not part of the repository.

use std::path::{Path, PathBuf};

/// Their folder: `PAPERBOURSE_RECORDINGS`, or `shared/polymarket` beside the checkout; `None`, with
/// a message, if there is none.
pub fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("PAPERBOURSE_RECORDINGS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/polymarket"),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: no recordings at {}; set PAPERBOURSE_RECORDINGS", folder.display());
    None
}
