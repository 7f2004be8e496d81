//! `paperbourse health`: 0 exactly if the server says that it is ready.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use tempfile::TempDir;

use crate::world::{start, tool};

#[track_caller]
fn check(url: &str, code: i32, expected: &str) {
    let output = tool(&["health", "--url", url]);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(output.status.code(), Some(code), "{url}: {said}");
    assert!(said.contains(expected), "{url}: {said}");
}

/// The address of a server that gives this one answer.
fn answering(head: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        write!(stream, "HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .unwrap();
    });
    format!("http://{address}")
}

#[test]
fn the_exit_code_says_whether_the_server_is_ready() {
    let data = TempDir::new().unwrap();
    let server = start(data.path());
    check(&format!("http://{}", server.address), 0, "\"journal\":{\"status\":\"ok\"}");
    check(&format!("http://{}/", server.address), 0, "\"journal\":{\"status\":\"ok\"}");
    let gone = format!("http://{}", server.address);
    server.interrupt();
    check(&gone, 1, "does not say that the server is ready: ");
    check(&answering("503 Service Unavailable"), 1, "the server answered with status 503");
    check("127.0.0.1:8080", 1, "does not begin with http:// or https://");
}
