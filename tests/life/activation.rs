//! Sockets that a supervisor has bound: socket activation.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use paperbourse_test_support::process::{Process, command};
use paperbourse_test_support::{Connection, Request};

use crate::BINARY;

/// A server that gets these sockets as a supervisor passes them: as descriptors 3 and 4.
pub(crate) fn serve(data: &Path, sockets: &[&TcpListener], names: &str) -> Command {
    let mut serve = command("sh");
    // A shell can only pass on what it has got, which is the three standard streams.
    let moved = match sockets {
        [] => "",
        [_] => "3<&0 0</dev/null",
        _ => "3<&0 4<&2 0</dev/null 2>/dev/null",
    };
    let script = format!("export LISTEN_PID=${{PID:-$$}}; exec \"$0\" \"$@\" {moved}");
    serve.args(["-c", &script, BINARY, "serve", "--listen", "127.0.0.1:0", "--data"]);
    serve.arg(data).env("LISTEN_FDS", sockets.len().to_string()).env("LISTEN_FDNAMES", names);
    let descriptor = |socket: &&TcpListener| OwnedFd::from(socket.try_clone().unwrap());
    if let [first, rest @ ..] = sockets {
        serve.stdin(descriptor(first));
        if let [second] = rest {
            serve.stderr(descriptor(second));
        }
    }
    serve
}

fn bound() -> (TcpListener, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn health(connection: &mut Connection) {
    connection.send(&Request::get("/v1/health/ready")).ok(200);
}

#[test]
fn who_connects_between_two_servers_waits_for_the_next_one() {
    let (socket, address) = bound();
    let data = tempfile::tempdir().unwrap();
    let mut waiting = Connection::open(address);
    for workers in ["1", "3"] {
        waiting.write(&Request::get("/v1/health/ready").to_bytes());
        let mut serve = serve(data.path(), &[&socket], "paperbourse.socket");
        let mut server = Process::spawn(serve.args(["--workers", workers])).ready();
        assert_eq!(server.address, address);
        waiting.read(false).ok(200);
        let mut connections: Vec<_> = (0..20).map(|_| Connection::open(address)).collect();
        connections.iter_mut().for_each(health);
        drop(connections);

        server.signal("-TERM");
        assert!(waiting.is_ended());
        assert!(server.wait().success());
        waiting = Connection::open(address);
    }
}

#[test]
fn sockets_are_told_apart_by_their_names() {
    let data = tempfile::tempdir().unwrap();
    let ((first, admin), (second, public)) = (bound(), bound());
    let mut serve = serve(data.path(), &[&first, &second], "admin:public");
    let server = Process::spawn(&mut serve).ready();
    assert_eq!(server.address, public);
    health(&mut Connection::open(public));
    let metrics = Connection::open(admin).send(&Request::get("/metrics"));
    assert!(metrics.text.contains("paperbourse_"), "{metrics:?}");
    server.terminate();
}

#[test]
fn the_sockets_of_another_process_are_left_alone() {
    let data = tempfile::tempdir().unwrap();
    let (socket, address) = bound();
    let mut serve = serve(data.path(), &[&socket], "public");
    let server = Process::spawn(serve.env("PID", "1")).ready();
    assert_ne!(server.address, address);
    server.terminate();
}

#[test]
fn sockets_that_cannot_be_served_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let (first, _) = bound();
    let (second, _) = bound();
    let check = |command: &mut Command, expected: &str| {
        let output = command.stdout(Stdio::piped()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(expected), "{error}");
    };
    // A file, not a socket.
    let mut file = serve(data.path(), &[&first], "public");
    check(file.stdin(Stdio::null()).stderr(Stdio::piped()), "is not a TCP socket that listens");
    // The second of two has no name; standard error is one of them, so the log must do.
    let mut unnamed = serve(data.path(), &[&first, &second], "public");
    assert_eq!(unnamed.stdout(Stdio::null()).status().unwrap().code(), Some(1));
}
