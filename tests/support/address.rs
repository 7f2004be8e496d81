//! Addresses that a test may give to a process, or keep free.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU8, Ordering};

/// Listens on an address that stays this test's own after the listener is dropped: on a loopback
/// host that belongs to this process, where no other process asks for a free port.
///
/// On a system that has no loopback host but 127.0.0.1, it is any free address.
#[track_caller]
pub fn own_listener() -> TcpListener {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed) % 100;
    let [.., high, low] = process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 100 + number, high, low);
    TcpListener::bind((own, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

/// An address of this test's own, on which nobody listens.
#[track_caller]
pub fn own_address() -> SocketAddr {
    own_listener().local_addr().unwrap()
}
