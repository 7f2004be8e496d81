//! How much the kernel holds for a client that reads slowly.

#[cfg(target_os = "linux")]
use std::any::Any;

#[cfg(target_os = "linux")]
use tokio::net::TcpStream;

/// Has the kernel take only about
/// [`KERNEL_UNSENT_BYTES_MAX`](crate::ws::bounds::KERNEL_UNSENT_BYTES_MAX) more of a TCP connection
/// than it can send now. Prices that wait here instead are replaced by newer ones.
#[cfg(target_os = "linux")]
pub(super) fn limit_unsent<Io: 'static>(io: &Io) {
    let Some(stream) = (io as &dyn Any).downcast_ref::<TcpStream>() else { return };
    let limit = crate::ws::bounds::KERNEL_UNSENT_BYTES_MAX;
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_notsent_lowat(limit) {
        tracing::debug!(%error, "failed to limit what the kernel holds unsent");
    }
}

/// Other systems keep their default.
#[cfg(not(target_os = "linux"))]
pub(super) const fn limit_unsent<Io>(_io: &Io) {}
