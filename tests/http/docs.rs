//! The pages for people: what they name exists, and a browser may load nothing else.

use std::fs;
use std::process::Command;

use paperbourse_test_support::process::{Process, command};
use paperbourse_test_support::{Connection, Request, Response};

use super::server::{Server, shared};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The values of this attribute in a page.
fn attributes<'p>(page: &'p str, name: &str) -> Vec<&'p str> {
    let rest = page.split(name).skip(1).filter_map(|rest| rest.strip_prefix("=\""));
    rest.map(|rest| rest.split_once('"').unwrap().0).collect()
}

#[track_caller]
fn check_file(response: &Response, kind: &str) {
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.header("content-type"), Some(kind));
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    // A page that loads from elsewhere would have to name it.
    for elsewhere in ["http:", "https:", "url(", "@import", "importScripts", "\"//", "'//"] {
        assert!(!response.text.contains(elsewhere), "{elsewhere} in {}", response.text);
    }
}

#[test]
fn pages_load_nothing_from_elsewhere() {
    for (path, linked) in [
        (
            "/",
            &["docs", "docs/page.css", "openapi.json", "asyncapi.json", "v1/markets", "v1/status"]
                [..],
        ),
        ("/docs", &[".", "docs/page.css", "docs/page.js", "openapi.json", "asyncapi.json"]),
    ] {
        let page = shared().get(path);
        check_file(&page, "text/html; charset=utf-8");
        assert_eq!(page.header("content-security-policy"), Some(POLICY));
        for inline in ["<style", " style=", "<script>", " onclick=", " onload=", "javascript:"] {
            assert!(!page.text.contains(inline), "{path} has {inline}");
        }
        let named = [attributes(&page.text, "href"), attributes(&page.text, "src")].concat();
        for name in &named {
            let is_of_page = name.starts_with('#') || *name == "data:,";
            if !is_of_page {
                assert_eq!(shared().get(format!("/{}", name.trim_matches('.'))).status, 200);
            }
        }
        for link in linked {
            assert!(named.contains(link), "{path} names {named:?}");
        }
    }
    check_file(&shared().get("/docs/page.css"), "text/css; charset=utf-8");
    check_file(&shared().get("/docs/page.js"), "text/javascript; charset=utf-8");
}

/// The start waits until somebody writes the secret into a pipe, and the end for a request.
#[test]
fn the_front_page_says_when_the_server_is_not_ready() {
    const NOT_READY: &str = "not ready: it is starting or shutting down";
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    let made = Command::new("mkfifo").args(["-m", "600"]).arg(&secret).status();
    assert!(made.unwrap().success());
    let process = Process::spawn(
        command(env!("CARGO_BIN_EXE_paperbourse"))
            .args(["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--data", "memory"])
            .args(["--identity", &format!("hs256:{}", secret.display()), "--issuer", "i"]),
    );
    let line = process.wait_for_line(|line| line.contains("listening on http://"));
    let (_, address) = line.split_once("listening on http://").unwrap();
    let address = address.trim().parse().unwrap();
    let front_page = || Connection::open(address).send(&Request::get("/"));
    let page = front_page();
    assert!(page.status == 200 && page.text.contains(NOT_READY), "{}", page.text);
    assert_eq!(page.header("cache-control"), Some("no-store"));

    fs::write(&secret, "a secret of at least thirty-two bytes").unwrap();
    let server = process.ready();
    let mut late = Connection::open(address);
    let request = Request::get("/").to_bytes();
    let (head, end) = request.split_at(request.len() - 2);
    late.write(head);
    // Connections are accepted in order, so the server has the other one by now.
    let page = front_page();
    assert!(page.status == 200 && !page.text.contains("not ready"), "{}", page.text);
    server.signal("-TERM");
    server.logged("draining");
    late.write(end);
    let page = late.read(false);
    assert!(page.status == 200 && page.text.contains(NOT_READY), "{}", page.text);
}

#[test]
fn the_guide_has_pages_that_link_each_other() {
    let home = shared().get("/");
    let is_guide = |link: &&&str| link.starts_with("docs/") && !link.contains('.');
    let links = attributes(&home.text, "href");
    let pages: Vec<&&str> = links.iter().filter(is_guide).collect();
    assert!(pages.len() > 10, "{links:?}");
    for path in pages {
        let page = shared().get(format!("/{path}"));
        assert_eq!(page.header("content-security-policy"), Some(POLICY));
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(page.text.matches("<h1").count(), 2, "{path} has one title");
        assert_eq!(attributes(&page.text, "src"), Vec::<&str>::new());
        for link in attributes(&page.text, "href") {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => format!("/{path}"),
                "data:," => continue,
                ".." => "/".to_owned(),
                "../docs" => "/docs".to_owned(),
                file if file.starts_with("https://") => continue,
                file => format!("/docs/{file}"),
            };
            let linked = shared().get(target);
            assert_eq!(linked.status, 200, "{path} links {link}");
            let id = format!("id=\"{anchor}\"");
            assert!(anchor.is_empty() || linked.text.contains(&id), "{path} links {link}");
        }
    }
    for missing in ["/docs/nothing", "/docs/orders.md", "/docs/page", "/docs/%FF", "/docs/a/b"] {
        let answer = shared().get(missing);
        let code = answer.header("x-polysim-code");
        assert_eq!((answer.status, code), (404, Some("NOT_FOUND")), "{missing}");
    }
    assert_eq!(shared().get("/docs/ord%65rs").text, shared().get("/docs/orders").text);
}

#[test]
fn files_are_sent_compressed_and_only_once() {
    for path in [
        "/docs",
        "/docs/page.js",
        "/docs/page.css",
        "/docs/orders",
        "/openapi.json",
        "/asyncapi.json",
    ] {
        let whole = shared().get(path);
        let head = |name, value: &str| {
            shared().send(&Request::new("HEAD", path).header(name, value.as_bytes()))
        };
        let gzipped = head("accept-encoding", "gzip, deflate, br");
        assert_eq!(gzipped.header("content-encoding"), Some("gzip"));
        assert!(gzipped.length() * 2 < whole.text.len() + 500, "{path}: {gzipped:?}");
        let tag = whole.header("etag").unwrap();
        for response in [&whole, &gzipped] {
            assert_eq!(response.header("etag"), Some(tag));
            assert_eq!(response.header("cache-control"), Some("no-cache"));
            assert_eq!(response.header("vary"), Some("accept-encoding"));
        }
        let held = shared().send(&Request::get(path).header("if-none-match", tag));
        assert_eq!((held.status, held.text.as_str()), (304, ""), "{held:?}");
        assert_eq!(held.header("content-type"), None);
        assert_eq!(head("if-none-match", "\"other\"").status, 200);
    }
}

#[test]
fn the_first_page_says_whether_the_server_is_ready() {
    for (server, state) in [
        (&Server::unlimited(), "ready"),
        (&Server::bookless(), "degraded: no open market has a fresh order book"),
    ] {
        let page = server.get("/");
        let shown = format!("This server is <strong id=\"state\">{state}</strong>.");
        assert!(page.text.contains(&shown), "{}", page.text);
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert!(!page.text.contains('{'), "{}", page.text);
    }
}
