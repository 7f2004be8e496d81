//! Requests that the venue's own clients sent, which are not part of the repository, and forgeries
//! of them.
//!
//! `PAPERBOURSE_CLOB_VECTORS` names another file of the same form.

use std::path::PathBuf;

use paperbourse_test_support::recordings::reference_path;
use serde_json::Value;

/// The content of the file; `None`, with a message, if there is none.
pub(crate) fn read() -> Option<Value> {
    let chosen = std::env::var_os("PAPERBOURSE_CLOB_VECTORS").map(PathBuf::from);
    let path = chosen.or_else(|| reference_path("clob-vectors.json"))?;
    let content = std::fs::read(path).unwrap();
    Some(serde_json::from_slice(&content).unwrap())
}

/// The members of a list; empty if there is no such list.
pub(crate) fn rows<'a>(of: &'a Value, list: &str) -> &'a [Value] {
    of[list].as_array().map_or(&[], Vec::as_slice)
}

/// A text in this row; empty if it has no such text.
pub(crate) fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}
