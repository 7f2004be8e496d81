//! Limits how much unsent data the kernel holds for a slow client.

#[cfg(target_os = "linux")]
use std::any::Any;

#[cfg(target_os = "linux")]
use tokio::net::TcpStream;

/// Limits the kernel's unsent data of a TCP connection to about
/// [`KERNEL_UNSENT_BYTES_MAX`](crate::ws::bounds::KERNEL_UNSENT_BYTES_MAX). Prices that wait in
/// this process, rather than in the kernel, can still be replaced by newer ones.
#[cfg(target_os = "linux")]
pub(super) fn limit_unsent<Io: 'static>(io: &Io) {
    let Some(stream) = (io as &dyn Any).downcast_ref::<TcpStream>() else { return };
    let limit = crate::ws::bounds::KERNEL_UNSENT_BYTES_MAX;
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_notsent_lowat(limit) {
        tracing::debug!(%error, "failed to limit what the kernel holds unsent");
    }
}

/// Does nothing: other systems keep their default.
#[cfg(not(target_os = "linux"))]
pub(super) const fn limit_unsent<Io>(_io: &Io) {}
