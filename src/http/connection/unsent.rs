//! How much the kernel holds for a client that reads slowly.

use tokio::net::TcpStream;

/// Has the kernel take at most
/// [`KERNEL_UNSENT_BYTES_MAX`](crate::ws::bounds::KERNEL_UNSENT_BYTES_MAX) more than it can send
/// now. Prices that wait here instead are replaced by newer ones.
#[cfg(target_os = "linux")]
pub fn limit_unsent(stream: &TcpStream) {
    let limit = crate::ws::bounds::KERNEL_UNSENT_BYTES_MAX;
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_notsent_lowat(limit) {
        tracing::debug!("the kernel may take more for a slow client: {error}");
    }
}

/// Other systems take what they do by default.
#[cfg(not(target_os = "linux"))]
pub const fn limit_unsent(_stream: &TcpStream) {}
