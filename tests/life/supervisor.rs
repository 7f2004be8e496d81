//! A stand-in for systemd: it starts a server and receives what the server says about itself.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use paperbourse_test_support::process::{Process, command};
use paperbourse_test_support::uninterrupted;
use tempfile::TempDir;

use crate::BINARY;

/// A message that does not come within this time does not come.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The fields of one message.
pub(crate) type Message = BTreeMap<String, String>;

/// Where a server reports how it is.
pub(crate) struct Supervisor {
    socket: UnixDatagram,
    /// What the server finds in `NOTIFY_SOCKET`.
    pub(crate) address: String,
    _folder: TempDir,
}

impl Supervisor {
    /// Receives in a file.
    pub(crate) fn in_file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, address: path.to_str().unwrap().to_owned(), _folder: folder }
    }

    /// Receives at an address without a file.
    #[cfg(target_os = "linux")]
    pub(crate) fn in_abstract() -> Self {
        use std::os::linux::net::SocketAddrExt as _;
        let folder = tempfile::tempdir().unwrap();
        // The folder's name is nobody else's.
        let name = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        Self { socket, address: format!("@{name}"), _folder: folder }
    }

    /// The command of a supervised server on this data folder.
    pub(crate) fn serve(&self, data: &Path, arguments: &[&str]) -> Command {
        let mut serve = command(BINARY);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(arguments);
        serve.env("NOTIFY_SOCKET", &self.address);
        serve
    }

    /// Starts a supervised server.
    #[track_caller]
    pub(crate) fn start(&self, data: &Path, arguments: &[&str]) -> Process {
        Process::spawn(&mut self.serve(data, arguments))
    }

    /// The next message; `None` if none comes within this time.
    pub(crate) fn next_within(&self, time: Duration) -> Option<Message> {
        self.socket.set_read_timeout(Some(time.max(Duration::from_millis(1)))).unwrap();
        let mut bytes = [0; 4096];
        let length = match uninterrupted(|| self.socket.recv(&mut bytes)) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => panic!("{error}"),
        };
        let text = str::from_utf8(&bytes[..length]).unwrap();
        let fields = text.lines().map(|line| line.split_once('=').unwrap());
        Some(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// The next message with this field, and those before it.
    #[track_caller]
    pub(crate) fn until(&self, field: &str) -> Vec<Message> {
        let began = Instant::now();
        let mut messages = Vec::new();
        while let Some(message) = self.next_within(PATIENCE.saturating_sub(began.elapsed())) {
            let is_wanted = message.contains_key(field);
            messages.push(message);
            if is_wanted {
                return messages;
            }
        }
        panic!("no {field} after {messages:?}");
    }
}
