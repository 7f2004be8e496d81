//! Binds the public address, with one socket per worker on the same port, and the admin address.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// How many connections the kernel queues until they are accepted.
const BACKLOG: u32 = 4096;

pub(super) struct Listeners {
    /// The address, including the port if the system picked it.
    pub(super) address: SocketAddr,
    /// One per worker; the kernel spreads connections over them.
    pub(super) sockets: Vec<StdListener>,
}

pub(super) struct AdminListener {
    pub(super) address: SocketAddr,
    pub(super) socket: StdListener,
}

/// Binds the address once per worker.
pub(super) fn bind(address: SocketAddr, count: usize) -> io::Result<Listeners> {
    // Sockets that share a port would also share it with another server of the same user, which
    // nobody would notice until later. An exclusive bind detects that.
    if address.port() != 0 {
        drop(StdListener::bind(address)?);
    }
    let first = shared(address)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    while sockets.len() < count {
        sockets.push(shared(address)?);
    }
    Ok(Listeners { address, sockets })
}

pub(super) fn bind_admin(address: SocketAddr) -> anyhow::Result<AdminListener> {
    let socket = StdListener::bind(address)
        .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
        .with_context(|| format!("failed to listen on {address} for metrics"))?;
    let address = socket.local_addr().context("failed to read the admin address")?;
    Ok(AdminListener { address, socket })
}

fn shared(address: SocketAddr) -> io::Result<StdListener> {
    // Only tokio's socket calls are used here; they need a runtime's reactor.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workers_share_the_picked_port() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listeners = bind(any, 3).unwrap();
        assert_ne!(listeners.address.port(), 0);
        for socket in &listeners.sockets {
            assert_eq!(socket.local_addr().unwrap(), listeners.address);
        }
        let again = bind(listeners.address, 1);
        assert_eq!(again.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
    }
}
