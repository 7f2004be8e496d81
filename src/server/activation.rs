//! systemd's socket activation: the sockets that a supervisor has bound and passes to this process.
//!
//! These sockets outlive the process, so clients that connect while no server is running wait in
//! the sockets' queues.

use std::env;
use std::net::TcpListener as StdListener;

use anyhow::Context as _;
use listenfd::ListenFd;

/// The name, set by the supervisor, of a socket that serves requests.
const PUBLIC: &str = "public";
/// The name, set by the supervisor, of a socket that serves metrics.
const ADMIN: &str = "admin";

/// Maximum number of sockets that the supervisor may pass.
const SOCKETS_MAX: usize = 64;

/// The sockets passed to this process, by the supervisor or by the predecessor.
#[derive(Default, Debug)]
pub(super) struct Passed {
    pub(super) public: Vec<StdListener>,
    pub(super) admin: Option<StdListener>,
}

/// Takes the sockets that `LISTEN_FDS`, `LISTEN_PID` and `LISTEN_FDNAMES` announce. Call it once,
/// while the process has a single thread.
pub(super) fn passed() -> anyhow::Result<Passed> {
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names: Vec<&str> = names.split(':').collect();
    let mut sockets = ListenFd::from_env();
    let count = sockets.len();
    anyhow::ensure!(
        count <= SOCKETS_MAX,
        "the supervisor passes {count} sockets, and {SOCKETS_MAX} is the most that are served"
    );
    let mut passed = Passed::default();
    for index in 0..count {
        let name = names.get(index).copied().unwrap_or_default();
        let socket = sockets.take_tcp_listener(index);
        let socket = socket.with_context(|| not_a_listener(name))?;
        let socket = socket.with_context(|| not_a_listener(name))?;
        socket.set_nonblocking(true).with_context(|| not_a_listener(name))?;
        let is_listening = rustix::net::sockopt::socket_acceptconn(&socket);
        anyhow::ensure!(is_listening.unwrap_or(true), not_a_listener(name));
        match name {
            ADMIN if passed.admin.is_none() => passed.admin = Some(socket),
            ADMIN => anyhow::bail!("the supervisor passes two sockets named {ADMIN}: pass one"),
            PUBLIC => passed.public.push(socket),
            // A unit with one socket need not name it.
            _ if count == 1 => passed.public.push(socket),
            other => anyhow::bail!(
                "the supervisor passes a socket named `{other}`: name it {PUBLIC} or {ADMIN} \
                 (FileDescriptorName= in its unit)"
            ),
        }
    }
    Ok(passed)
}

fn not_a_listener(name: &str) -> String {
    format!("the socket `{name}` of the supervisor is not a TCP socket that listens")
}
