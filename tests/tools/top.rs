//! `paperbourse top` beside a server, and with wrong addresses.

use paperbourse_test_support::NOBODY;
use paperbourse_test_support::process::ServerProcess;

use crate::world::{BINARY, tool};

fn admin_of(server: &ServerProcess) -> String {
    let line = server.logged("metrics on http://");
    let (_, url) = line.split_once("metrics on ").unwrap();
    url.trim().trim_end_matches("/metrics").to_owned()
}

#[test]
fn a_look_at_a_server_is_text_without_escapes() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(BINARY, data.path(), &["--admin-listen", "127.0.0.1:0"]);
    let admin = admin_of(&server);
    let mut client = paperbourse_test_support::Client::anonymous(server.address);
    client.get("/v1/health").ok(200);
    let output = tool(&["top", "--url", &admin]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let version = env!("CARGO_PKG_VERSION");
    let title = format!("paperbourse {version} at {admin}/metrics, up ");
    assert!(text.starts_with(&title), "{text}");
    for part in ["\nrequests ", "\norders ", "\njournal ", "\nprocess ", "\nGET /v1/health "] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn a_wrong_address_is_explained() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(BINARY, data.path(), &["--admin-listen", "127.0.0.1:0"]);
    for (arguments, code, said) in [
        (&["--url", &format!("http://{NOBODY}")], 1, "`serve --admin-listen`): client error"),
        (
            &["--url", &format!("http://{}", server.address)],
            1,
            "`serve --admin-listen`): the server answered with status 404",
        ),
        (
            &["--url", &format!("http://{}/v1/health", server.address)],
            1,
            "does not have the metrics of paperbourse",
        ),
        (&["--url", "127.0.0.1:9090"], 1, "does not begin with http://"),
        (&["--url", "ftp://127.0.0.1/metrics"], 1, "does not begin with http://"),
        (&["--interval", "0"], 2, "1..=3600"),
    ] {
        let output = tool(&[&["top"], &arguments[..]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}
