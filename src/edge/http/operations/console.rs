//! The console at `/console`: a page on which people watch markets and an account, and trade.
//!
//! Its modules are stored beside this one and served as one script, because fetching thirty files
//! would take longer than all of the work that the modules do. The three libraries in
//! `console/vendor` are byte-for-byte copies from npm (`.ci/console` compares them). The page uses
//! only the public API, so these files are all that the server has for it.

use std::sync::LazyLock;

use super::docs::{HTML, POLICY};
use crate::http::app::Server;
use crate::http::file::File;

/// The name and the text of a file.
type Source = (&'static str, &'static str);

/// The media types of the files.
pub(super) const KINDS: [&str; 3] = ["text/css", "text/javascript", "text/plain"];

macro_rules! sources {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("console/", $folder, $name)))),*]
    };
}

/// The modules, each after the modules that it imports.
static MODULES: &[Source] = sources! { "":
    "decimal.js" "store.js" "api.js" "names.js" "order.js" "walk.js" "preview.js" "prices.js"
    "book.js" "markets.js" "account.js" "ticket.js" "keyboard.js"
    "view/html.js" "view/chart.js" "view/table.js" "view/book.js" "view/market.js" "view/list.js"
    "view/header.js" "view/keys.js" "view/ticket.js" "view/account.js" "view/app.js"
    "main.js"
};

static STYLE: Source = ("console.css", include_str!("console/console.css"));

static LIBRARIES: &[Source] = sources! { "vendor/":
    "htm.LICENSE" "htm.module.js" "preact.LICENSE" "preact.mjs" "uPlot.LICENSE"
    "uPlot.iife.min.js" "uPlot.min.css"
};

static PAGE: LazyLock<File> =
    LazyLock::new(|| File::new(HTML, include_str!("console/index.html")).header(POLICY));

/// The style sheet and the combined script, as they are served.
static PARTS: LazyLock<Vec<(&str, File)>> = LazyLock::new(|| {
    let (style_name, style) = STYLE;
    [(style_name, style.to_owned()), ("console.js", script())].map(made).into()
});

/// The files of [`LIBRARIES`], as they are served.
static LIBRARY_FILES: LazyLock<Vec<(&str, File)>> =
    LazyLock::new(|| LIBRARIES.iter().map(|&(name, text)| made((name, text.to_owned()))).collect());

/// Builds the files ahead of the first request, because building them takes a while.
pub(in crate::http) fn prepare() {
    LazyLock::force(&PAGE);
    LazyLock::force(&PARTS);
    LazyLock::force(&LIBRARY_FILES);
}

/// `GET /console`.
pub(super) fn page(server: &Server, _: &str) -> Option<&'static File> {
    server.has_console().then(|| &*PAGE)
}

/// `GET /console/{part}`.
pub(super) fn part(server: &Server, name: &str) -> Option<&'static File> {
    find(server, &PARTS, name)
}

/// `GET /console/vendor/{library}`.
pub(super) fn library(server: &Server, name: &str) -> Option<&'static File> {
    find(server, &LIBRARY_FILES, name)
}

fn find(server: &Server, files: &'static [(&str, File)], name: &str) -> Option<&'static File> {
    let (_, file) = files.iter().find(|(known, _)| *known == name)?;
    server.has_console().then_some(file)
}

/// Returns the values that this path parameter can have.
pub(in crate::http) fn names(parameter: &str) -> Vec<&'static str> {
    let files = if parameter == "library" { &*LIBRARY_FILES } else { &*PARTS };
    files.iter().map(|(name, _)| *name).collect()
}

fn made((name, text): (&'static str, String)) -> (&'static str, File) {
    (name, File::new(kind(name), text))
}

/// Joins all modules into one script. They share one scope, so each top-level name must be unique,
/// and imports between modules are dropped.
fn script() -> String {
    let lines = MODULES.iter().flat_map(|(_, text)| text.lines());
    let is_there = |line: &str| line.starts_with("import ") && !line.contains("/vendor/");
    let kept = lines.filter(|line| !is_there(line));
    kept.map(|line| line.replace("\"../vendor/", "\"./vendor/") + "\n").collect()
}

/// Returns the media type of a file with this name.
fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Maximum size of all the files that a browser loads, compressed.
    const BYTES_MAX: usize = 60_000;

    #[test]
    fn the_console_is_small() {
        let parts = [PARTS.iter(), LIBRARY_FILES.iter()].into_iter().flatten();
        let loaded = parts.filter(|(name, _)| !is_licence(name)).map(|(_, file)| file);
        let bytes: usize = loaded.chain([&*PAGE]).map(File::gzipped_bytes).sum();
        println!("{bytes} bytes");
        assert!(bytes <= BYTES_MAX, "{bytes} bytes of at most {BYTES_MAX}");
    }

    fn is_licence(name: &str) -> bool {
        name.ends_with(".LICENSE")
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("http/operations/console");
        let mut found = BTreeSet::new();
        for folder in ["", "view/", "vendor/"] {
            for entry in fs::read_dir(root.join(folder)).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_file() {
                    found.insert(format!("{folder}{}", entry.file_name().to_str().unwrap()));
                }
            }
        }
        assert!(found.remove("index.html") && found.remove("console.css"));
        let modules = MODULES.iter().map(|(name, _)| (*name).to_owned());
        let libraries = LIBRARIES.iter().map(|(name, _)| format!("vendor/{name}"));
        assert_eq!(modules.chain(libraries).collect::<BTreeSet<_>>(), found);
    }

    /// A browser fetches all files at once only if the page names them.
    #[test]
    fn the_page_names_every_script_and_style() {
        let page = include_str!("console/index.html");
        let libraries = LIBRARIES.iter().filter(|(name, _)| !is_licence(name));
        let libraries = libraries.map(|(name, _)| format!("vendor/{name}"));
        for name in ["console.css", "console.js"].map(str::to_owned).into_iter().chain(libraries) {
            let named = format!("=\"console/{name}\"");
            assert_eq!(page.matches(&named).count(), 1, "{name}");
        }
    }

    /// Returns the name that this line declares at the top level of its module, if any.
    fn declared(line: &str) -> Option<&str> {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let line = line.strip_prefix("async ").unwrap_or(line);
        let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        matches!(words.next()?, "function" | "class" | "const" | "let").then(|| words.next())?
    }

    #[test]
    fn modules_fit_into_one_script() {
        let mut names = BTreeSet::new();
        let mut modules = BTreeSet::new();
        for (name, text) in MODULES {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            for line in text.lines() {
                if let Some(declared) = declared(line) {
                    assert!(names.insert(declared), "{name} declares {declared} again");
                }
                let Some(import) = line.strip_prefix("import ") else { continue };
                let (imported, from) = import.rsplit_once(" from \"").expect("on one line");
                assert!(!imported.contains(" as "), "{name}: {line}");
                let from = from.strip_suffix("\";").expect("ends the line");
                let path = match from.strip_prefix("../") {
                    Some(path) => path.to_owned(),
                    None if folder.is_empty() => from[2..].to_owned(),
                    None => format!("{folder}/{}", &from[2..]),
                };
                let is_known = modules.contains(&path) || path.starts_with("vendor/");
                assert!(is_known, "{name} is before {path}, which it imports");
            }
            modules.insert((*name).to_owned());
        }
        let script = script();
        let imports = script.lines().filter(|line| line.starts_with("import "));
        assert!(imports.clone().count() > 0);
        assert!(imports.clone().all(|line| line.contains("\"./vendor/")));
    }

    /// A style attribute would violate the page's policy, and text from a venue must never become
    /// markup.
    #[test]
    fn text_never_becomes_markup() {
        for (name, text) in MODULES.iter().chain([&STYLE]) {
            for word in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "style=\""] {
                assert!(!text.contains(word), "{name} has {word}");
            }
            for word in ["localStorage", "document.cookie", "http:", "https:", "console."] {
                assert!(!text.contains(word), "{name} has {word}");
            }
        }
    }
}
