//! The human-readable pages: `/` describes this server and says whether it is ready, and `/docs`
//! shows `/openapi.json` and `/asyncapi.json` and lets people try operations. The guide is below
//! `/docs`.
//!
//! The pages are plain files beside this one. They load nothing from elsewhere, and their content
//! security policy allows no scripts or styles but these files.

pub(in crate::http) mod bots;
pub(in crate::http) mod guide;

use std::iter;
use std::sync::LazyLock;

use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName,
    HeaderValue, LOCATION, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use pulldown_cmark::{Event, html};

use super::health;
use crate::build::VERSION_LINES;
use crate::http::app::Server;
use crate::http::error::{ApiError, CODE_HEADER};
use crate::http::file::{File, items};
use crate::http::reply::Reply;

pub(super) const HTML: &str = "text/html; charset=utf-8";
/// The link to the console on the home page.
const CONSOLE: &str =
    "<li><a href=\"console\">The console</a>: a page to watch markets and trade</li>\n";
/// Maximum depth of a missing path that is answered with a page. Each level makes all links of the
/// page longer.
const DEPTH_MAX: usize = 8;

pub(super) const POLICY: (HeaderName, HeaderValue) = (
    CONTENT_SECURITY_POLICY,
    HeaderValue::from_static(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
);

/// The page of `GET /docs`, without and with a link to the console.
static PAGES: LazyLock<[File; 2]> = LazyLock::new(|| {
    ["", "<p><a href=\"console\">The console</a></p>\n"].map(|console| {
        let page = include_str!("docs/page.html")
            .replace("{guide}", &guide::contents("docs/", None))
            .replace("{console}", console);
        File::new(HTML, page).header(POLICY)
    })
});

/// `GET /docs/page.js`.
pub(in crate::http) static SCRIPT: LazyLock<File> =
    LazyLock::new(|| File::new("text/javascript; charset=utf-8", include_str!("docs/page.js")));

/// `GET /docs/page.css`.
pub(in crate::http) static STYLE: LazyLock<File> =
    LazyLock::new(|| File::new("text/css; charset=utf-8", include_str!("docs/page.css")));

/// `GET /docs/code.js`.
pub(in crate::http) static CODE_SCRIPT: LazyLock<File> =
    LazyLock::new(|| File::new("text/javascript; charset=utf-8", include_str!("docs/code.js")));

/// Builds all pages but `/`.
pub(in crate::http) fn prepare() {
    bots::prepare();
    guide::prepare();
    LazyLock::force(&PAGES);
    for file in [&SCRIPT, &STYLE, &CODE_SCRIPT] {
        LazyLock::force(file);
    }
}

/// `GET /docs`.
pub(in crate::http) fn page(server: &Server) -> &'static File {
    &PAGES[usize::from(server.has_console())]
}

/// `GET /`. Clients of the venue ask here whether it is up; only browsers name HTML.
pub(in crate::http) fn home(server: &Server, headers: &HeaderMap) -> Reply {
    let has_clob = server.has_clob();
    if has_clob && !accepts_html(headers) {
        let headers = HeaderMap::from_iter([
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
            (VARY, HeaderValue::from_static("accept")),
        ]);
        return Reply { headers, ..Reply::ok(&"OK") };
    }
    let page = include_str!("docs/home.html")
        .replace("{build}", &VERSION_LINES.replace('\n', "; "))
        .replace("{state}", &state(server))
        .replace("{trouble}", &trouble(server))
        .replace("{console}", if server.has_console() { CONSOLE } else { "" })
        .replace("{guide}", &guide::contents("docs/", None));
    let mut reply = reply(StatusCode::OK, page);
    if has_clob {
        reply.headers.insert(VARY, HeaderValue::from_static("accept"));
    }
    reply
}

/// Whether a client names HTML among what it accepts, as browsers do.
fn accepts_html(headers: &HeaderMap) -> bool {
    let media_type = |item: &str| item.split(';').next().unwrap_or_default().trim().to_owned();
    items(headers, &ACCEPT).any(|item| media_type(item) == "text/html")
}

/// Builds a reply with a page that clients must not store.
fn reply(status: StatusCode, page: String) -> Reply {
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static(HTML)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        POLICY,
    ]);
    Reply { headers, ..Reply::json(status, page.into_bytes()) }
}

/// Returns the reply sent instead of an error about a missing path: a page for a browser or, for a
/// page's name with a trailing slash, a redirect to the page. `None` if the error itself is sent.
pub(in crate::http) fn instead(head: &Parts, error: &ApiError) -> Option<Reply> {
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    if error.code != "NOT_FOUND" || !is_read {
        return None;
    }
    let path = head.uri.path();
    if let Some(name) = path.strip_prefix("/docs/").and_then(|it| it.strip_suffix('/')) {
        let page = guide::page(name).map(|_| name);
        return page.map(moved).or_else(|| missing(head, error));
    }
    if path == "/docs/" { Some(moved("docs")) } else { missing(head, error) }
}

/// Builds a redirect to the name without its trailing slash.
fn moved(name: &str) -> Reply {
    let mut reply = reply(StatusCode::PERMANENT_REDIRECT, String::new());
    let location = HeaderValue::try_from(format!("../{name}"));
    reply.headers.insert(LOCATION, location.expect("the name of a page is ASCII"));
    reply
}

/// Builds the page for a browser that requests a missing path; `None` for any other client.
fn missing(head: &Parts, error: &ApiError) -> Option<Reply> {
    if !accepts_html(&head.headers) {
        return None;
    }
    let depth = head.uri.path().matches('/').count().checked_sub(1)?;
    if depth > DEPTH_MAX {
        return None;
    }
    let root = "../".repeat(depth);
    let page = include_str!("docs/missing.html")
        .replace("{guide}", &guide::contents(&format!("{root}docs/"), None))
        .replace("{home}", if depth == 0 { "." } else { &root })
        .replace("{root}", &root)
        .replace("{message}", &escaped(&error.message));
    let mut reply = reply(error.status, page);
    reply.headers.insert(CODE_HEADER, HeaderValue::from_static(error.code));
    reply.headers.insert(VARY, HeaderValue::from_static("accept"));
    Some(reply)
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut page = String::new();
    html::push_html(&mut page, iter::once(Event::Text(text.into())));
    page
}

/// Returns a paragraph that says that trouble on demand is on, if it is.
fn trouble(server: &Server) -> String {
    let trouble = server.app().and_then(|app| app.trouble.as_ref());
    let Some(plan) = trouble.map(|it| it.plan()).filter(|plan| !plan.is_quiet()) else {
        return String::new();
    };
    format!(
        "<p><a href=\"docs/trouble\">Trouble on demand</a> is on, so results say little: \
         <code>{}</code></p>\n",
        escaped(&plan.to_string())
    )
}

/// Returns text that says whether the server is ready. No reason contains characters that HTML
/// would escape.
fn state(server: &Server) -> String {
    let Some(troubles) = health::troubles(server) else {
        return "not ready: it is starting or shutting down".to_owned();
    };
    match troubles.first() {
        None => "ready".to_owned(),
        Some(reason) => format!("degraded: {reason}"),
    }
}
