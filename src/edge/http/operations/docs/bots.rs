//! The recipes for bots in `src/guide/bots`: files to download, which the guide also shows.

use std::sync::LazyLock;

use crate::http::file::File;

/// A recipe: the name of its file, and its text.
type Recipe = (&'static str, &'static str);

macro_rules! recipes {
    ($($file:literal)*) => {
        [$(($file, include_str!(concat!("../../../../guide/bots/", $file)))),*]
    };
}

static RECIPES: [Recipe; 6] =
    recipes!["maker.py" "maker.ts" "taker.py" "taker.ts" "recorder.py" "recorder.ts"];

/// The files of [`RECIPES`], as plain text, because a browser shows plain text but would save other
/// types.
static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    RECIPES.iter().map(|(_, text)| File::new("text/plain; charset=utf-8", *text)).collect()
});

/// Builds the files ahead of the first request, because building them takes a while.
pub(super) fn prepare() {
    LazyLock::force(&FILES);
}

/// `GET /docs/bots/{file}`.
pub(in crate::http) fn file(name: &str) -> Option<&'static File> {
    let at = RECIPES.iter().position(|(file, _)| *file == name)?;
    Some(&FILES[at])
}

/// Returns the names of all files.
pub(in crate::http) fn names() -> Vec<&'static str> {
    RECIPES.iter().map(|(file, _)| *file).collect()
}

/// Returns the recipe in this file: the name of its language in Markdown, and its text.
pub(super) fn recipe(file: &str) -> Option<(&'static str, &'static str)> {
    let (file, text) = RECIPES.iter().find(|(known, _)| *known == file)?;
    let is_python = file.strip_suffix(".py").is_some();
    Some((if is_python { "python" } else { "typescript" }, text))
}
