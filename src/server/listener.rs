//! The listening sockets: bound here or inherited, and dealt out to the workers.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};

use anyhow::Context as _;
use tokio::net::TcpSocket;

use super::welcome::reachable;
use crate::config::{ServeArgs, Switch};

/// Maximum number of connections that the kernel queues until they are accepted.
const BACKLOG: u32 = 4096;

/// Warning about an address that other machines can reach without a TLS proxy.
pub(super) const EXPOSED: &str = "other machines can reach this server and it does not speak TLS, \
                                  so keys and tokens travel in the clear: put a TLS proxy in front \
                                  of it and name it with --trusted-proxy";

/// Warning about metrics that other machines can read.
pub(super) const METRICS_EXPOSED: &str =
    "other machines can read the metrics: --admin-listen asks for no credential";

#[derive(Debug)]
pub(super) struct Listeners {
    /// The distinct addresses, with the port that the system picked for port 0.
    pub(super) addresses: Vec<SocketAddr>,
    /// The sockets. The kernel spreads connections over sockets with the same address.
    sockets: Vec<StdListener>,
    /// Whether the sockets were inherited.
    is_passed: bool,
}

pub(super) struct AdminListener {
    pub(super) address: SocketAddr,
    pub(super) socket: StdListener,
}

impl Listeners {
    /// Binds the public address, or takes the sockets that the supervisor or the predecessor has
    /// passed.
    pub(super) fn open(
        arguments: &ServeArgs,
        passed: Vec<StdListener>,
        worker_count: usize,
    ) -> anyhow::Result<Self> {
        let address = arguments.listen;
        if passed.is_empty() {
            Self::bind(address, worker_count).with_context(|| {
                format!("failed to listen on {address} (--listen chooses another address)")
            })
        } else {
            let passed =
                Self::of(passed).context("failed to read the address of a passed socket")?;
            Ok(Self { is_passed: true, ..passed })
        }
    }

    /// Logs the addresses, with a warning if other machines can reach one of them.
    pub(super) fn announce(&self, arguments: &ServeArgs) {
        for address in &self.addresses {
            tracing::info!("listening on http://{address}");
        }
        if let (Switch::On, Some(&address)) = (arguments.console, self.addresses.first()) {
            tracing::info!("console at http://{}/console", reachable(address));
        }
        if self.is_passed {
            tracing::info!("using the listening sockets passed to this process, ignoring --listen");
        }
        if self.addresses.iter().any(|&address| arguments.is_exposed_at(address)) {
            tracing::warn!("{EXPOSED}");
        }
    }

    /// Binds the address `count` times, usually once per worker.
    pub(super) fn bind(address: SocketAddr, count: usize) -> io::Result<Self> {
        // Another server of the same user could share the port as well, and the clash would only
        // show later. An exclusive bind detects it now.
        if address.port() != 0 {
            drop(StdListener::bind(address)?);
        }
        // The first socket picks the port that the others share.
        let first = shared(address)?;
        let address = first.local_addr()?;
        let mut sockets = vec![first];
        while sockets.len() < count {
            sockets.push(shared(address)?);
        }
        Self::of(sockets)
    }

    /// Wraps sockets that already listen.
    pub(super) fn of(sockets: Vec<StdListener>) -> io::Result<Self> {
        let mut addresses = Vec::new();
        for socket in &sockets {
            let address = socket.local_addr()?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(Self { addresses, sockets, is_passed: false })
    }

    pub(super) fn sockets(&self) -> &[StdListener] {
        &self.sockets
    }

    /// Deals the sockets out to `count` workers. Every socket gets a worker, since the kernel
    /// assigns it a share of the connections, and every worker gets a socket for each address.
    pub(super) fn deal(&self, count: usize) -> io::Result<Vec<Vec<StdListener>>> {
        debug_assert!(count > 0, "there is a worker to deal to");
        let mut hands: Vec<Vec<StdListener>> = (0..count).map(|_| Vec::new()).collect();
        for &address in &self.addresses {
            let mut of_address = Vec::new();
            for socket in &self.sockets {
                if socket.local_addr()? == address {
                    of_address.push(socket);
                }
            }
            debug_assert!(!of_address.is_empty(), "every address is that of a socket");
            for index in 0..count.max(of_address.len()) {
                hands[index % count].push(of_address[index % of_address.len()].try_clone()?);
            }
        }
        Ok(hands)
    }
}

/// Formats the addresses for the supervisor's status.
impl fmt::Display for Listeners {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.addresses.iter().enumerate() {
            let before = if index == 0 { "serving on" } else { " and" };
            write!(formatter, "{before} http://{address}")?;
        }
        Ok(())
    }
}

impl AdminListener {
    pub(super) fn bind(address: SocketAddr) -> anyhow::Result<Self> {
        let bound = StdListener::bind(address).and_then(|socket| {
            socket.set_nonblocking(true)?;
            Self::of(socket)
        });
        bound.with_context(|| format!("failed to listen on {address} for metrics"))
    }

    /// Wraps a socket that already listens.
    pub(super) fn of(socket: StdListener) -> io::Result<Self> {
        Ok(Self { address: socket.local_addr()?, socket })
    }
}

fn shared(address: SocketAddr) -> io::Result<StdListener> {
    // `TcpSocket` needs a reactor, although it only sets options here.
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
        let listeners = Listeners::bind(any, 3).unwrap();
        let [address] = listeners.addresses[..] else { panic!("{listeners:?}") };
        assert_ne!(address.port(), 0);
        for socket in &listeners.sockets {
            assert_eq!(socket.local_addr().unwrap(), address);
        }
        let again = Listeners::bind(address, 1);
        assert_eq!(again.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
    }

    /// Binds the given number of sockets on each of several addresses, and checks how many sockets
    /// each worker gets.
    #[track_caller]
    fn check_deal(sockets: &[usize], workers: usize, expected: &[usize]) {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let bound = sockets.iter().flat_map(|&count| Listeners::bind(any, count).unwrap().sockets);
        let listeners = Listeners::of(bound.collect()).unwrap();
        let hands = listeners.deal(workers).unwrap();
        let sizes: Vec<usize> = hands.iter().map(Vec::len).collect();
        assert_eq!(sizes, expected, "{sockets:?} for {workers}");
        for address in &listeners.addresses {
            for hand in &hands {
                assert!(hand.iter().any(|it| it.local_addr().unwrap() == *address));
            }
        }
    }

    #[test]
    fn every_socket_has_a_worker_and_every_worker_all_addresses() {
        check_deal(&[3], 3, &[1, 1, 1]);
        check_deal(&[1], 3, &[1, 1, 1]);
        check_deal(&[3], 2, &[2, 1]);
        check_deal(&[4], 1, &[4]);
        check_deal(&[1, 1], 2, &[2, 2]);
        check_deal(&[2, 1], 1, &[3]);
    }
}
