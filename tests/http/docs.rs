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
    for script in ["/docs/page.js", "/docs/code.js"] {
        check_file(&shared().get(script), "text/javascript; charset=utf-8");
    }
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
    for path in &pages {
        let page = shared().get(format!("/{path}"));
        assert_eq!(page.header("content-security-policy"), Some(POLICY));
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(page.text.matches("<h1").count(), 2, "{path} has one title");
        assert_eq!(attributes(&page.text, "src"), ["code.js"]);
        let name = path.strip_prefix("docs/").unwrap();
        let current = format!("<a href=\"{name}\" aria-current=\"page\">");
        assert_eq!(page.text.matches("aria-current").count(), 1, "{path}");
        assert!(page.text.contains(&current), "{path} does not mark itself");
        let headings = page.text.matches("<h2 id=").count();
        let outline = page.text.split_once("class=\"outline\"").map_or("", |(_, rest)| rest);
        let outline = outline.split_once("</details>").map_or("", |(outline, _)| outline);
        let listed = attributes(outline, "href").len();
        assert_eq!(listed, if headings < 3 { 0 } else { headings }, "{path} lists its headings");
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
    // The pages in their order, one after the other.
    let (mut at, mut walked) = (pages[0].strip_prefix("docs/").unwrap().to_owned(), Vec::new());
    loop {
        let page = shared().get(format!("/docs/{at}")).text;
        let linked = |relation: &str| {
            let (_, rest) = page.split_once(&format!("<a rel=\"{relation}\" href=\""))?;
            Some(rest.split_once('"').unwrap().0.to_owned())
        };
        assert_eq!(linked("prev").as_ref(), walked.last());
        walked.push(at);
        let Some(next) = linked("next") else { break };
        at = next;
    }
    assert!(walked.iter().map(|name| format!("docs/{name}")).eq(pages.iter().map(|it| **it)));
    for missing in ["/docs/nothing", "/docs/orders.md", "/docs/page", "/docs/%FF", "/docs/a/b"] {
        let answer = shared().get(missing);
        let code = answer.header("x-polysim-code");
        assert_eq!((answer.status, code), (404, Some("NOT_FOUND")), "{missing}");
    }
    assert_eq!(shared().get("/docs/ord%65rs").text, shared().get("/docs/orders").text);
}

#[test]
fn recipes_are_files_and_part_of_the_guide() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/bots");
    let page = shared().get("/docs/bots").text;
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let text = fs::read_to_string(entry.path()).unwrap();
        let file = shared().get(format!("/docs/bots/{name}"));
        assert_eq!((file.status, &file.text), (200, &text), "{name}");
        assert_eq!(file.header("content-type"), Some("text/plain; charset=utf-8"));
        assert!(attributes(&page, "href").contains(&&*format!("bots/{name}")), "{name}");
        // The page has the text with the characters that HTML needs otherwise.
        let shown = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let is_shown = page.replace("&quot;", "\"").contains(&shown.replace("&quot;", "\""));
        assert!(is_shown, "{name}");
        count += 1;
    }
    assert_eq!(count, 6);
    assert_eq!(shared().get("/docs/bots/nothing.py").header("x-polysim-code"), Some("NOT_FOUND"));
}

#[test]
fn a_path_that_does_not_exist_is_a_page_for_browsers_and_json_for_bots() {
    const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let get =
        |path: &str, accept: &str| shared().send(&Request::get(path).header("accept", accept));
    for (path, home, styles) in [
        ("/nothing", ".", "docs/page.css"),
        ("/docs/nothing", "../", "../docs/page.css"),
        ("/v1/nothing/", "../../", "../../docs/page.css"),
        ("/docs/nothing/", "../../", "../../docs/page.css"),
    ] {
        let page = get(path, BROWSER);
        assert_eq!(page.status, 404, "{path}");
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(page.header("content-security-policy"), Some(POLICY));
        assert_eq!(page.header("x-polysim-code"), Some("NOT_FOUND"));
        assert_eq!(page.header("vary"), Some("accept"));
        let links = attributes(&page.text, "href");
        assert!(links.contains(&home) && links.contains(&styles), "{path}: {links:?}");
        assert!(page.text.contains("<h1>No such page</h1>"), "{}", page.text);
        for part in ["{guide}", "{home}", "{root}", "{message}"] {
            assert!(!page.text.contains(part), "{}", page.text);
        }
        for accept in ["*/*", "application/json", "text/htmlx"] {
            let answer = get(path, accept);
            assert_eq!((answer.status, answer.json()["error"].as_str()), (404, Some("NOT_FOUND")));
        }
    }
    let deep = format!("/{}", "a/".repeat(20));
    assert_eq!(get(&deep, BROWSER).json()["error"], "NOT_FOUND", "a deep path has no page");
    let known = get("/v1/markets/0x12", BROWSER);
    assert_eq!(known.json()["error"], "MARKET_NOT_FOUND", "a known path has its own errors");
    let posted = shared().send(&Request::new("POST", "/nothing").header("accept", BROWSER));
    assert_eq!(posted.json()["error"], "NOT_FOUND", "a browser is never shown what it posts");
    for (path, location) in [("/docs/", "../docs"), ("/docs/orders/", "../orders")] {
        for accept in [BROWSER, "*/*"] {
            let answer = get(path, accept);
            assert_eq!((answer.status, answer.header("location")), (308, Some(location)));
        }
    }
}

#[test]
fn files_are_sent_compressed_and_only_once() {
    for path in [
        "/docs",
        "/docs/page.js",
        "/docs/code.js",
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

#[test]
fn the_first_page_says_that_trouble_is_on() {
    for (plan, is_said) in [("seed=7,lost=2%", true), ("seed=7,lost=off", false)] {
        let server = Server::unlimited_with(&["--clob", "on", "--clob-trouble", plan]);
        let page = server.send(&Request::get("/").header("accept", "text/html")).text;
        let said = "<a href=\"docs/trouble\">Trouble on demand</a> is on";
        assert_eq!(page.contains(said), is_said, "{page}");
        assert!(!is_said || page.contains("<code>seed=7,lost=2%</code>"), "{page}");
        assert!(!page.contains('{'), "{page}");
    }
}

#[test]
fn the_console_is_served_unless_it_is_turned_off() {
    let page = shared().get("/console");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("content-security-policy"), Some(POLICY));
    for name in [attributes(&page.text, "href"), attributes(&page.text, "src")].concat() {
        if name != "data:," {
            let file = shared().get(format!("/{name}"));
            assert_eq!(file.status, 200, "{name}");
            let kind = match name.rsplit_once('.') {
                Some((_, "css")) => "text/css; charset=utf-8",
                Some((_, "js" | "mjs")) => "text/javascript; charset=utf-8",
                _ => continue,
            };
            assert_eq!(file.header("content-type"), Some(kind), "{name}");
        }
    }
    let off = Server::start(&["--console", "off"]);
    for (server, is_served) in [(shared(), true), (&off, false)] {
        let status = if is_served { 200 } else { 404 };
        for path in ["/console", "/console/console.js", "/console/vendor/preact.mjs"] {
            assert_eq!(server.get(path).status, status, "{path}");
        }
        for path in ["/console/", "/console/main.js", "/console/vendor/", "/console/../console.js"]
        {
            assert_eq!(server.get(path).status, 404, "{path}");
        }
        for path in ["/", "/docs"] {
            let page = server.get(path).text;
            let is_linked = attributes(&page, "href").contains(&"console");
            assert_eq!(is_linked, is_served, "{path}");
        }
    }
}
