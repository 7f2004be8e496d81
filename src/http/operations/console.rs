//! The console, `/console`: a page on which people watch markets and an account, and trade.
//!
//! Plain files beside this one, and three libraries in `console/vendor`, byte for byte as npm has
//! them (`.ci/console` compares). `console/main.js` is where it starts. The page knows nothing that
//! the API does not tell everyone, so the server has nothing for it but these files.

use std::sync::LazyLock;

use super::docs::{HTML, POLICY};
use crate::http::exchange::Server;
use crate::http::file::File;

/// A file: its folder in the path, empty or with a slash behind it; its name, and its text.
type Source = (&'static str, &'static str, &'static str);

/// The media types of the files.
pub(super) const KINDS: [&str; 3] = ["text/css", "text/javascript", "text/plain"];

/// The folder of what shows a part of the page.
const VIEW: &str = "view/";
/// The folder of other people's files.
const VENDOR: &str = "vendor/";

macro_rules! sources {
    ($($folder:literal: $($name:literal)*;)*) => {
        &[$($(($folder, $name, include_str!(concat!("console/", $folder, $name)))),*),*]
    };
}

static SOURCES: &[Source] = sources! {
    "": "account.js" "api.js" "book.js" "console.css" "decimal.js" "keyboard.js" "main.js"
        "markets.js" "names.js" "order.js" "preview.js" "prices.js" "store.js" "ticket.js"
        "walk.js";
    "view/": "account.js" "app.js" "book.js" "chart.js" "header.js" "html.js" "keys.js" "list.js"
        "market.js" "table.js" "ticket.js";
    "vendor/": "htm.LICENSE" "htm.module.js" "preact.LICENSE" "preact.mjs" "uPlot.LICENSE"
        "uPlot.iife.min.js" "uPlot.min.css";
};

static PAGE: LazyLock<File> =
    LazyLock::new(|| File::new(HTML, include_str!("console/index.html")).header(POLICY));

/// The files of [`SOURCES`].
static FILES: LazyLock<Vec<File>> = LazyLock::new(|| SOURCES.iter().map(made).collect());

/// Makes the files, which takes a while.
pub(in crate::http) fn prepare() {
    LazyLock::force(&PAGE);
    LazyLock::force(&FILES);
}

/// `GET /console`.
pub(super) fn page(server: &Server, _: &str) -> Option<&'static File> {
    server.has_console().then(|| &*PAGE)
}

/// `GET /console/{part}`.
pub(super) fn part(server: &Server, name: &str) -> Option<&'static File> {
    file(server, "", name)
}

/// `GET /console/view/{view}`.
pub(super) fn view(server: &Server, name: &str) -> Option<&'static File> {
    file(server, VIEW, name)
}

/// `GET /console/vendor/{library}`.
pub(super) fn library(server: &Server, name: &str) -> Option<&'static File> {
    file(server, VENDOR, name)
}

fn file(server: &Server, folder: &str, name: &str) -> Option<&'static File> {
    let is_it = |source: &Source| (source.0, source.1) == (folder, name);
    let at = SOURCES.iter().position(is_it)?;
    server.has_console().then(|| &FILES[at])
}

/// The names that this parameter of a path can have.
pub(in crate::http) fn names(parameter: &str) -> Vec<&'static str> {
    let wanted = match parameter {
        "view" => VIEW,
        "library" => VENDOR,
        _ => "",
    };
    SOURCES.iter().filter(|(folder, ..)| *folder == wanted).map(|(_, name, _)| *name).collect()
}

fn made(&(folder, name, text): &Source) -> File {
    let body = if folder == VENDOR { text.to_owned() } else { condensed(text) };
    File::new(kind(name), body)
}

/// A script or a style of ours without comments and indentation, a fifth of it. Lines keep
/// their numbers.
fn condensed(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut is_in_comment = false;
    for line in text.lines() {
        let start = line.trim_start();
        if is_in_comment || start.starts_with("/*") {
            is_in_comment = !line.ends_with("*/");
        } else if !start.starts_with("//") {
            kept.push_str(start);
        }
        kept.push('\n');
    }
    kept
}

/// The media type of a file with this name.
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

    /// What a browser loads, compressed.
    const BYTES_MAX: usize = 60_000;

    #[test]
    fn the_console_is_small() {
        let loaded = SOURCES.iter().zip(&*FILES).filter(|((_, name, _), _)| !is_licence(name));
        let files = loaded.map(|(_, file)| file).chain([&*PAGE]);
        let bytes: usize = files.map(File::gzipped_bytes).sum();
        println!("{bytes} bytes");
        assert!(bytes <= BYTES_MAX, "{bytes} bytes of at most {BYTES_MAX}");
    }

    fn is_licence(name: &str) -> bool {
        name.ends_with(".LICENSE")
    }

    #[test]
    fn only_comments_and_indentation_are_left_out() {
        let text =
            "// One.\n  a(\"// two\");\n  /** Three\n   * four. */\n\nb(); // five\n/* 6 */\n";
        assert_eq!(condensed(text), "\na(\"// two\");\n\n\n\nb(); // five\n\n");
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/operations/console");
        let mut found = BTreeSet::new();
        for folder in ["", "view/", "vendor/"] {
            for entry in fs::read_dir(root.join(folder)).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_file() {
                    found.insert(format!("{folder}{}", entry.file_name().to_str().unwrap()));
                }
            }
        }
        assert!(found.remove("index.html"));
        let served = SOURCES.iter().map(|(folder, name, _)| format!("{folder}{name}"));
        assert_eq!(served.collect::<BTreeSet<_>>(), found);
    }

    /// The page fetches all modules at once only if it names them.
    #[test]
    fn the_page_names_every_script_and_style() {
        let page = include_str!("console/index.html");
        for (folder, name, _) in SOURCES.iter().filter(|(_, name, _)| !is_licence(name)) {
            let named = format!("=\"console/{folder}{name}\"");
            assert_eq!(page.matches(&named).count(), 1, "{folder}{name}");
        }
    }

    /// A style attribute would break the policy of the page, and text from a venue must never
    /// become markup.
    #[test]
    fn text_never_becomes_markup() {
        for (folder, name, text) in SOURCES.iter().filter(|(folder, ..)| *folder != VENDOR) {
            for word in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "style=\""] {
                assert!(!text.contains(word), "{folder}{name} has {word}");
            }
            for word in ["localStorage", "document.cookie", "http:", "https:", "console."] {
                assert!(!text.contains(word), "{folder}{name} has {word}");
            }
        }
    }
}
