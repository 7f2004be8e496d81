//! Reports the state of the process to the supervisor, in the protocol of systemd's `sd_notify`.
//!
//! A message is a datagram to the socket that `NOTIFY_SOCKET` names. Without that variable, or if
//! the socket cannot be reached, nothing is sent: a server also runs without a supervisor.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{SendFlags, send};
use rustix::time::{ClockId, clock_gettime};

/// Timeout for sending one message to a supervisor that does not read.
const SEND_TIME_MAX: Duration = Duration::from_millis(500);

/// The program that started this process and follows its state.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    socket: Option<UnixDatagram>,
    has_failed: AtomicBool,
}

impl Supervisor {
    /// Connects to the supervisor that `NOTIFY_SOCKET` names. If that fails, logs a warning; the
    /// reports are then not sent.
    pub(super) fn from_environment() -> Self {
        let Some(address) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        match connect(&address) {
            Ok(socket) => Self { socket: Some(socket), has_failed: AtomicBool::new(false) },
            Err(error) => {
                tracing::warn!(
                    socket = %address.to_string_lossy(),
                    %error,
                    "cannot notify the supervisor: NOTIFY_SOCKET must be the path of a datagram \
                     socket, or @ and the name of an abstract one"
                );
                Self::default()
            }
        }
    }

    /// Reports that requests are served from now on.
    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports that the configuration is being read again. [`Self::ready`] marks the end of the
    /// reload.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let now_us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=reading the configuration again"
        ));
    }

    /// Reports that the process is about to end.
    pub(super) fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={status}"));
    }

    /// Reports that every part of the process makes progress. If [`watchdog_interval`] returns an
    /// interval, call this at least that often.
    pub(super) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Reports the current activity of the process, in a few words.
    pub(super) fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}"));
    }

    fn send(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        // The kernel does not restart a send with a timeout after a signal.
        match retry_on_intr(|| send(socket, message.as_bytes(), SendFlags::NOSIGNAL)) {
            Ok(_) => self.has_failed.store(false, Ordering::Relaxed),
            Err(error) => {
                // Log the first failure of a series only.
                if !self.has_failed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "failed to notify the supervisor");
                }
            }
        }
    }
}

/// Returns the interval at which the supervisor expects keep-alives, or `None` if it expects none.
pub(super) fn watchdog_interval() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let is_for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(process::id()));
    let interval_us = number("WATCHDOG_USEC").filter(|&interval_us| interval_us > 0)?;
    is_for_us.then_some(Duration::from_micros(interval_us))
}

fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match address.as_encoded_bytes() {
        [b'@', name @ ..] => connect_abstract(&socket, name)?,
        [b'/', ..] => socket.connect(address)?,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a socket")),
    }
    socket.set_write_timeout(Some(SEND_TIME_MAX))?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn connect_abstract(socket: &UnixDatagram, name: &[u8]) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt as _;
    socket.connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)
}

#[cfg(not(target_os = "linux"))]
fn connect_abstract(_: &UnixDatagram, _: &[u8]) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no abstract sockets"))
}
