//! The guide for bot authors and operators: the Markdown of `src/guide`, rendered as HTML.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::{iter, mem};

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use super::{HTML, POLICY, bots, escaped};
use crate::http::file::File;

/// A page: its name in the path, and its Markdown, which begins with its title.
type Page = (&'static str, &'static str);

macro_rules! pages {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../guide/", $name, ".md")))),*]
    };
}

/// The pages, grouped by their readers.
static GUIDE: [(&str, &[Page]); 2] = [
    (
        "For bots",
        &pages![
            "first-bot" "bots" "orders" "streams" "data" "keys" "api" "sdk" "clob" "trouble"
            "paper"
        ],
    ),
    (
        "For operators",
        &pages!["install" "operating" "configuration" "venues" "guarantees" "changes"],
    ),
];

/// The files of [`pages()`], in the same order.
static FILES: LazyLock<Vec<File>> =
    LazyLock::new(|| pages().map(|page| File::new(HTML, document(page)).header(POLICY)).collect());

/// Wraps content that may be wider than a narrow screen, so that it can be scrolled, even with the
/// keyboard.
const TABLE: &str = r#"<div class="wide" role="group" aria-label="Table" tabindex="0">"#;
const CODE: &str = r#"<div class="wide" role="group" aria-label="Code" tabindex="0">"#;
const END: &str = "</div>\n";

/// Minimum number of headings for a page to list them.
const OUTLINE_MIN: usize = 3;

/// Builds the pages ahead of the first request, because building them takes a while.
pub(super) fn prepare() {
    LazyLock::force(&FILES);
}

/// Returns the page with this name.
pub(in crate::http) fn page(name: &str) -> Option<&'static File> {
    // An unknown name must not build the pages.
    let at = pages().position(|(known, _)| *known == name)?;
    Some(&FILES[at])
}

/// Returns the names of all pages.
pub(in crate::http) fn names() -> Vec<&'static str> {
    pages().map(|(name, _)| *name).collect()
}

/// Returns all pages, in order.
fn pages() -> impl Iterator<Item = &'static Page> {
    GUIDE.iter().flat_map(|(_, pages)| pages.iter())
}

/// Builds links to all pages. `folder` is the path to the guide from the page with the links. The
/// link to the `current` page is marked.
pub(super) fn contents(folder: &str, current: Option<&str>) -> String {
    let mut list = String::new();
    for (readers, pages) in &GUIDE {
        write!(list, "<h2>{readers}</h2>\n<ul>\n").expect("a string takes all text");
        for (name, text) in *pages {
            let title = title(text);
            let mark = if current == Some(name) { " aria-current=\"page\"" } else { "" };
            writeln!(list, "<li><a href=\"{folder}{name}\"{mark}>{title}</a></li>")
                .expect("a string takes all text");
        }
        list.push_str("</ul>\n");
    }
    list
}

/// Builds links to the pages before and after the one with this name.
fn neighbours(name: &str) -> String {
    let pages: Vec<&Page> = pages().collect();
    let at = pages.iter().position(|(known, _)| *known == name).expect("the page is in the guide");
    let link = |relation: &str, word: &str, at: Option<usize>| {
        let Some((name, text)) = at.and_then(|at| pages.get(at)) else { return String::new() };
        let title = title(text);
        format!("<a rel=\"{relation}\" href=\"{name}\"><small>{word}</small> {title}</a>\n")
    };
    link("prev", "Previous", at.checked_sub(1)) + &link("next", "Next", Some(at + 1))
}

fn title(text: &'static str) -> &'static str {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("# ").expect("a page of the guide begins with its title")
}

fn document((name, text): &Page) -> String {
    include_str!("guide.html")
        .replace("{title}", title(text))
        .replace("{pages}", &contents("", Some(name)))
        .replace("{neighbours}", &neighbours(name))
        .replace("{text}", &rendered(text))
}

/// Renders Markdown as HTML. Headings get ids, and links lead to pages of the guide. A link to
/// another file of the repository is reduced to its text. Recipes follow the paragraph that links
/// to them. A long page lists its headings.
fn rendered(text: &str) -> String {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let mut outline = Vec::new();
    for at in 0..events.len() {
        let (before, after) = events.split_at_mut(at + 1);
        if let Event::Start(Tag::Heading { level, id, .. }) = &mut before[at] {
            let anchor = anchor(after);
            if *level == HeadingLevel::H2 {
                outline.push((anchor.clone(), heading(after)));
            }
            *id = Some(anchor.into());
        }
    }
    let mut is_dropped = false;
    let mut recipes = String::new();
    let mut cells = Cells::default();
    let events = events.into_iter().filter_map(|event| match cells.labelled(event) {
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let target = target(&dest_url);
            recipes.extend(recipe(&dest_url).map(recipe_html));
            is_dropped = target.is_none();
            let dest_url = target?.into();
            Some(Event::Start(Tag::Link { link_type, dest_url, title, id }))
        }
        Event::End(TagEnd::Link) if is_dropped => None,
        Event::End(TagEnd::Paragraph) if !recipes.is_empty() => {
            Some(Event::Html(format!("</p>\n{}", mem::take(&mut recipes)).into()))
        }
        other => Some(other),
    });
    let html = |text: &'static str| Some(Event::Html(text.into()));
    let mut outline = Some(outline).filter(|it| it.len() >= OUTLINE_MIN);
    let events = events.flat_map(|event| match event {
        Event::Start(Tag::Table(_)) => [html(TABLE), Some(event)],
        Event::Start(Tag::CodeBlock(_)) => [html(CODE), Some(event)],
        Event::End(TagEnd::Table | TagEnd::CodeBlock) => [Some(event), html(END)],
        Event::End(TagEnd::Heading(HeadingLevel::H1)) => {
            let list = outline.take().map(|outline| Event::Html(outline_html(&outline).into()));
            [Some(event), list]
        }
        other => [Some(other), None],
    });
    let mut page = String::new();
    html::push_html(&mut page, events.flatten());
    page
}

/// Builds a list of headings, each given by its id and its HTML. The page's script opens the list
/// where there is room.
fn outline_html(headings: &[(String, String)]) -> String {
    let mut list = "<details class=\"outline\"><summary>On this page</summary>\n<ul>\n".to_owned();
    for (id, text) in headings {
        writeln!(list, "<li><a href=\"#{id}\">{text}</a></li>").expect("a string takes all text");
    }
    list.push_str("</ul>\n</details>\n");
    list
}

/// Labels each table cell with the name of its column, which a narrow screen shows beside the cell.
#[derive(Default)]
struct Cells {
    /// The names of the columns read so far.
    names: Vec<String>,
    /// Number of columns read so far in the current row.
    count: usize,
    is_head: bool,
}

impl Cells {
    fn labelled<'t>(&mut self, event: Event<'t>) -> Event<'t> {
        match &event {
            Event::Start(Tag::TableHead) => *self = Self { is_head: true, ..Self::default() },
            Event::End(TagEnd::TableHead) => self.is_head = false,
            Event::Start(Tag::TableRow) => self.count = 0,
            Event::Start(Tag::TableCell) if self.is_head => self.names.push(String::new()),
            Event::Text(text) | Event::Code(text) if self.is_head => {
                self.names.last_mut().expect("a head has text only in cells").push_str(text);
            }
            Event::Start(Tag::TableCell) => {
                let name = escaped(&self.names[self.count]);
                self.count += 1;
                return Event::Html(format!("<td data-column=\"{name}\">").into());
            }
            Event::End(TagEnd::TableCell) if !self.is_head => return Event::Html("</td>".into()),
            _ => {}
        }
        event
    }
}

/// Returns the events of the heading at the start of `events`.
fn events_of_heading<'e, 't>(events: &'e [Event<'t>]) -> impl Iterator<Item = &'e Event<'t>> {
    events.iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))))
}

/// Returns the HTML of the heading at the start of `events`, without links.
fn heading(events: &[Event<'_>]) -> String {
    let is_text = |event: &&Event<'_>| matches!(event, Event::Text(_) | Event::Code(_));
    let mut text = String::new();
    html::push_html(&mut text, events_of_heading(events).filter(is_text).cloned());
    text
}

/// Returns the recipe that a link on a page leads to.
fn recipe(link: &str) -> Option<(&'static str, &'static str)> {
    bots::recipe(link.strip_prefix("bots/")?)
}

/// Renders a recipe as a code block.
fn recipe_html((language, text): (&str, &str)) -> String {
    let text = escaped(text);
    format!("{CODE}<pre><code class=\"language-{language}\">{text}</code></pre>\n{END}")
}

/// Returns the id of the heading at the start of `events`, formed as code hosts do.
fn anchor(events: &[Event<'_>]) -> String {
    let words = events_of_heading(events).filter_map(|event| match event {
        Event::Text(text) | Event::Code(text) => Some(text.to_lowercase()),
        _ => None,
    });
    let words: String = words.collect();
    let is_kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    words.chars().filter(is_kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Returns the target on this server of a link in the Markdown; `None` if the server does not have
/// it.
fn target(link: &CowStr<'_>) -> Option<String> {
    if link.starts_with('#') || link.starts_with("https://") || recipe(link).is_some() {
        return Some(link.to_string());
    }
    let (file, anchor) = link.split_once('#').map_or((&**link, ""), |(file, id)| (file, id));
    let name = file.strip_suffix(".md").filter(|name| !name.contains('/'))?;
    let anchor = iter::repeat_n('#', usize::from(!anchor.is_empty())).chain(anchor.chars());
    Some(name.chars().chain(anchor).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the targets of the Markdown links in a text.
    fn links(text: &str) -> Vec<String> {
        let links = Parser::new_ext(text, Options::ENABLE_TABLES).filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. }) => Some(dest_url.to_string()),
            _ => None,
        });
        links.collect()
    }

    #[test]
    fn markdown_becomes_html_with_anchors_and_links_of_the_server() {
        for (text, expected) in [
            ("# A page", "<h1 id=\"a-page\">A page</h1>\n"),
            (
                "## What `x-y` is, & why",
                "<h2 id=\"what-x-y-is--why\">What <code>x-y</code> is, &amp; why</h2>\n",
            ),
            ("[a](orders.md)", "<p><a href=\"orders\">a</a></p>\n"),
            ("[a](orders.md#batches)", "<p><a href=\"orders#batches\">a</a></p>\n"),
            ("[a](bots/none.py)\n\nb", "<p>a</p>\n<p>b</p>\n"),
            ("[a](#b)", "<p><a href=\"#b\">a</a></p>\n"),
            ("[a](../../perf/README.md), [b](keys.md)", "<p>a, <a href=\"keys\">b</a></p>\n"),
            (
                "|a|\n|-|\n|`<`|",
                &format!(
                    "{TABLE}<table><thead><tr><th>a</th></tr></thead><tbody>\n\
                     <tr><td data-column=\"a\"><code>&lt;</code></td></tr>\n</tbody></table>\n{END}"
                ),
            ),
        ] {
            assert_eq!(rendered(text), expected, "{text}");
        }
    }

    #[test]
    fn every_link_leads_somewhere() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guide");
        let readme = include_str!("../../../../../README.md");
        assert!(links(readme).len() > 10);
        for link in links(readme) {
            let is_there =
                link.starts_with("https://") || folder.join("../..").join(&link).is_file();
            assert!(is_there, "README.md: {link}");
        }
        for (name, text) in pages() {
            for link in links(text) {
                let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
                let path = if file.is_empty() { format!("{name}.md") } else { file.to_owned() };
                let page = std::fs::read_to_string(folder.join(&path));
                let page = page.unwrap_or_else(|error| panic!("{name}: {link}: {error}"));
                let id = format!("id=\"{anchor}\"");
                assert!(anchor.is_empty() || rendered(&page).contains(&id), "{name}: {link}");
            }
        }
    }

    #[test]
    fn every_file_of_the_guide_is_a_page() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guide");
        for entry in std::fs::read_dir(&folder).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            let Some(name) = file.strip_suffix(".md") else {
                assert_eq!(file, "bots");
                continue;
            };
            assert!(page(name).is_some(), "{file} is not in the list of pages");
            let mark = format!("href=\"docs/{name}\" aria-current=\"page\"");
            assert!(contents("docs/", Some(name)).contains(&mark));
        }
        let recipes = std::fs::read_dir(folder.join("bots")).unwrap();
        let mut recipes: Vec<String> =
            recipes.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let mut known = bots::names();
        recipes.sort_unstable();
        known.sort_unstable();
        assert_eq!(recipes, known);
        assert_eq!(pages().count(), FILES.len());
        assert!(page("page.css").is_none() && page("").is_none());
    }
}
