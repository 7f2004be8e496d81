//! The pages for people: `/`, which says what this is and whether it is ready, and `/docs`, which
//! shows `/openapi.json` and `/asyncapi.json` and tries operations, and the guide below it.
//!
//! They are plain files beside this one. They load nothing from elsewhere, and their policy lets a
//! browser run no script and apply no style but these files.

pub(in crate::http) mod guide;

use std::sync::LazyLock;

use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};

use super::health;
use crate::build::VERSION_LINES;
use crate::http::exchange::Server;
use crate::http::file::File;
use crate::http::reply::Reply;

const HTML: &str = "text/html; charset=utf-8";

const POLICY: (HeaderName, HeaderValue) = (
    CONTENT_SECURITY_POLICY,
    HeaderValue::from_static(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
);

/// `GET /docs`.
pub(in crate::http) static PAGE: LazyLock<File> = LazyLock::new(|| {
    let page = include_str!("docs/page.html").replace("{guide}", &guide::contents("docs/"));
    File::new(HTML, page).header(POLICY)
});

/// `GET /docs/page.js`.
pub(in crate::http) static SCRIPT: LazyLock<File> =
    LazyLock::new(|| File::new("text/javascript; charset=utf-8", include_str!("docs/page.js")));

/// `GET /docs/page.css`.
pub(in crate::http) static STYLE: LazyLock<File> =
    LazyLock::new(|| File::new("text/css; charset=utf-8", include_str!("docs/page.css")));

/// Makes all pages but `/`.
pub(in crate::http) fn prepare() {
    guide::prepare();
    for file in [&PAGE, &SCRIPT, &STYLE] {
        LazyLock::force(file);
    }
}

/// `GET /`.
pub(in crate::http) fn home(server: &Server) -> Reply {
    let page = include_str!("docs/home.html")
        .replace("{build}", &VERSION_LINES.replace('\n', "; "))
        .replace("{state}", &state(server))
        .replace("{guide}", &guide::contents("docs/"));
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static(HTML)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        POLICY,
    ]);
    Reply { headers, ..Reply::json(StatusCode::OK, page.into_bytes()) }
}

/// Whether the server is ready, as a sentence. No reason has characters that HTML would escape.
fn state(server: &Server) -> String {
    let Some(troubles) = health::troubles(server) else {
        return "not ready: it is starting or shutting down".to_owned();
    };
    match troubles.first() {
        None => "ready".to_owned(),
        Some(reason) => format!("degraded: {reason}"),
    }
}
