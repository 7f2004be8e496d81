//! Hands a running server over to its successor: the listening sockets and the idle connections.
//!
//! The successor connects to a socket in the data folder that only the server's user may open. By
//! then it has read the data written so far ([`read_ahead`]), so a damaged folder has already made
//! it fail. The running server sends its listening sockets, and keeps serving until the successor
//! confirms that it has them and is ready to start. Then the running server finishes requests in
//! flight, sends the connections that wait for their next request, and exits, which releases the
//! data folder. New clients wait in the kernel's queue meanwhile.
//!
//! ```text
//!   next server                          running server
//!        │  paperbourse take-over 1 ──────────► │
//!        │ ◄────────── P: public sockets        │
//!        │ ◄────────── A: the admin socket      │
//!        │ ◄────────── S: that is all           │
//!        │  + ────────────────────────────────► │ finishes requests, closes sockets, flushes
//!        │ ◄────────── C: connections at rest   │
//!        │ ◄────────── E: end                   │ exits
//! ```
//!
//! A message from the running server is a letter and a count, with that many descriptors attached.
//!
//! [`read_ahead`]: crate::snapshot::read_ahead

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::activation::Passed;
use crate::disk::Disk;
use crate::journal::{DataDirectory, OpenError};
use crate::operators::OperatorSocket;

/// The first message of the successor. The number is the protocol version.
const REQUEST: &[u8] = b"paperbourse take-over 1\n";

/// Timeout for [`REQUEST`].
const REQUEST_TIME_MAX: Duration = Duration::from_secs(1);

/// The successor's confirmation that it has the listening sockets. It starts the drain of the
/// running server.
const ACCEPTANCE: u8 = b'+';

/// Timeout for [`ACCEPTANCE`].
const ACCEPTANCE_TIME_MAX: Duration = Duration::from_secs(2);

/// Timeout for one message. The longest wait is for requests in flight to finish.
const MESSAGE_TIME_MAX: Duration = Duration::from_mins(1);

/// Maximum number of descriptors per message. The kernel allows 253.
const DESCRIPTORS_MAX: usize = 100;

/// The content of a message from the running server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Public,
    Admin,
    Complete,
    Connections,
    End,
}

impl Kind {
    const fn letter(self) -> u8 {
        match self {
            Self::Public => b'P',
            Self::Admin => b'A',
            Self::Complete => b'S',
            Self::Connections => b'C',
            Self::End => b'E',
        }
    }

    fn of(letter: u8) -> Option<Self> {
        let all = [Self::Public, Self::Admin, Self::Complete, Self::Connections, Self::End];
        all.into_iter().find(|kind| kind.letter() == letter)
    }
}

/// Returns the path of the socket for take-over requests.
fn socket_path(data: &Path) -> PathBuf {
    data.join("take-over.sock")
}

/// Whether a server on this data folder offers a take-over. A killed server leaves the file behind,
/// but not its lock on the folder.
pub(super) fn is_offered(data: &Path) -> bool {
    let is_in_use = || {
        let free = DataDirectory::require_free(&Disk::System, data);
        matches!(free, Err(OpenError::InUse { .. }))
    };
    socket_path(data).exists() && is_in_use()
}

/// The running server's listener for take-over requests.
pub(super) struct HandOver {
    listener: UnixListener,
    /// Removes the socket's file when dropped.
    _socket: OperatorSocket,
}

impl HandOver {
    /// Opens the socket in a data folder that this process has locked.
    pub(super) fn bind(data: &Path) -> io::Result<Self> {
        let socket = OperatorSocket::bind_at(data, &socket_path(data))?;
        Ok(Self { listener: UnixListener::from_std(socket.listener()?)?, _socket: socket })
    }

    /// Waits for a valid take-over request, and returns the server that sent it.
    pub(super) async fn asked(&self) -> Successor {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                // Most likely out of file descriptors: retry a little later.
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let mut request = [0; REQUEST.len()];
            let read = timeout(REQUEST_TIME_MAX, stream.read_exact(&mut request)).await;
            if !matches!(read, Ok(Ok(_))) {
                tracing::warn!("refused to hand over: no request came");
                continue;
            }
            if request != REQUEST {
                tracing::warn!("refused to hand over: the request is of another version");
                continue;
            }
            let prepared = stream.into_std().and_then(|stream| {
                // The sockets are sent with blocking calls. The timeout keeps a hung successor from
                // stalling them.
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(REQUEST_TIME_MAX))?;
                Ok(Successor { stream })
            });
            match prepared {
                Ok(successor) => return successor,
                Err(error) => tracing::warn!(%error, "failed to answer a server that takes over"),
            }
        }
    }
}

/// The successor, from the running server's point of view.
#[derive(Debug)]
pub(super) struct Successor {
    stream: StdUnixStream,
}

impl Successor {
    /// Sends the listening sockets, and waits until the successor has accepted them. An error means
    /// that the successor is gone or hangs, and that this server can keep serving.
    pub(super) async fn offer(
        self,
        public: &[StdListener],
        admin: Option<&StdListener>,
    ) -> io::Result<Self> {
        self.send_all(Kind::Public, public)?;
        self.send_all(Kind::Admin, admin.as_slice())?;
        self.send(Kind::Complete, &[])?;
        self.stream.set_nonblocking(true)?;
        let mut stream = UnixStream::from_std(self.stream)?;
        let said = timeout(ACCEPTANCE_TIME_MAX, stream.read_u8()).await??;
        if said != ACCEPTANCE {
            return Err(ErrorKind::InvalidData.into());
        }
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        Ok(Self { stream })
    }

    /// Sends the idle connections, and then the end of the hand-over.
    pub(super) fn send_connections(&self, connections: &[StdStream]) -> io::Result<()> {
        self.send_all(Kind::Connections, connections)?;
        self.send(Kind::End, &[])
    }

    fn send_all(&self, kind: Kind, descriptors: &[impl AsFd]) -> io::Result<()> {
        for some in descriptors.chunks(DESCRIPTORS_MAX) {
            let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
            self.send(kind, &some)?;
        }
        Ok(())
    }

    fn send(&self, kind: Kind, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        debug_assert!(descriptors.len() <= DESCRIPTORS_MAX, "more take several messages");
        let count = u8::try_from(descriptors.len()).expect("at most DESCRIPTORS_MAX");
        let message = [kind.letter(), count];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let has_room = control.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(has_room, "the space is for DESCRIPTORS_MAX");
        }
        let slices = [IoSlice::new(&message)];
        let send = || sendmsg(&self.stream, &slices, &mut control, SendFlags::NOSIGNAL);
        let sent = retry_on_intr(send)?;
        if sent < message.len() {
            return Err(ErrorKind::WriteZero.into());
        }
        Ok(())
    }
}

/// The running server, from the successor's point of view.
#[derive(Debug)]
pub(super) struct Predecessor {
    stream: StdUnixStream,
}

impl Predecessor {
    /// Asks the server on this data folder to hand over, and receives its listening sockets. That
    /// server keeps serving until they are [accepted](Self::accept). Returns `None` if no server is
    /// running.
    pub(super) fn ask(data: &Path) -> anyhow::Result<Option<(Self, Passed)>> {
        let path = socket_path(data);
        let mut stream = match StdUnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
            {
                return Ok(None);
            }
            Err(error) => {
                return Err(error).with_context(|| format!("failed to open {}", path.display()));
            }
        };
        let taken = (|| {
            stream.set_read_timeout(Some(MESSAGE_TIME_MAX))?;
            stream.write_all(REQUEST)?;
            let mut predecessor = Self { stream };
            let passed = predecessor.take_listeners()?;
            Ok::<_, io::Error>(Some((predecessor, passed)))
        })();
        taken.context("the running server did not answer the request to hand over; look at its log")
    }

    /// Tells the running server to end. All steps that can fail must come before this one.
    pub(super) fn accept(&mut self) -> anyhow::Result<()> {
        let said = self.stream.write_all(&[ACCEPTANCE]);
        said.context("the running server no longer hands over; look at its log")
    }

    fn take_listeners(&mut self) -> io::Result<Passed> {
        let mut passed = Passed::default();
        loop {
            let (kind, descriptors) = self.receive()?;
            let listeners = descriptors.into_iter().map(StdListener::from);
            match kind {
                Kind::Public => passed.public.extend(listeners),
                Kind::Admin => passed.admin = listeners.into_iter().next(),
                Kind::Complete if !passed.public.is_empty() => return Ok(passed),
                Kind::Complete | Kind::Connections | Kind::End => {
                    return Err(ErrorKind::InvalidData.into());
                }
            }
        }
    }

    /// Waits until the running server has finished, and takes over at most `connections_max` of its
    /// idle connections. Other clients have to reconnect, as after any other shutdown.
    pub(super) fn take_connections(mut self, connections_max: usize) -> Vec<StdStream> {
        let mut connections = Vec::new();
        loop {
            match self.receive() {
                Ok((Kind::Connections, descriptors)) => {
                    debug_assert!(connections.len() <= connections_max, "the rest is closed");
                    let room = connections_max - connections.len();
                    if descriptors.len() > room {
                        tracing::warn!(
                            closed = descriptors.len() - room,
                            connections_max,
                            "the last server had more connections than this one may have"
                        );
                    }
                    connections.extend(descriptors.into_iter().take(room).map(StdStream::from));
                }
                Ok((Kind::End, _)) => return connections,
                Ok((kind, _)) => {
                    tracing::warn!(?kind, "the last server sent something else than connections");
                }
                Err(error) => {
                    tracing::warn!(%error, "the last server ended before it had handed over");
                    return connections;
                }
            }
        }
    }

    fn receive(&mut self) -> io::Result<(Kind, Vec<OwnedFd>)> {
        let mut message = [0; 2];
        let mut descriptors = Vec::new();
        let mut received = 0;
        // A stream socket may deliver the two bytes one at a time.
        while received < message.len() {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut message[received..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let receive = || recvmsg(&self.stream, &mut slices, &mut control, flags);
            match retry_on_intr(receive)?.bytes {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                bytes => received += bytes,
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(some) = message {
                    descriptors.extend(some);
                }
            }
        }
        let [letter, count] = message;
        let kind = Kind::of(letter).filter(|_| descriptors.len() == usize::from(count));
        kind.map(|kind| (kind, descriptors)).ok_or_else(|| ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime;

    use super::*;

    #[test]
    fn sockets_and_connections_arrive_in_any_number() {
        for (sockets, has_admin, sent, connections_max, expected) in [
            (1, false, 0, 10, 0),
            (3, true, 250, 250, 250),
            (3, true, 250, 120, 120),
            (101, true, 1, 10, 1),
        ] {
            let (one, other) = StdUnixStream::pair().unwrap();
            let (successor, mut predecessor) =
                (Successor { stream: one }, Predecessor { stream: other });
            let bound = StdListener::bind("127.0.0.1:0").unwrap();
            let address = bound.local_addr().unwrap();
            let clone = || bound.try_clone().unwrap();
            let public: Vec<_> = (0..sockets).map(|_| clone()).collect();
            let admin = has_admin.then(clone);
            let client = StdStream::connect(address).unwrap();
            let at_rest: Vec<_> = (0..sent).map(|_| client.try_clone().unwrap()).collect();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let runtime = runtime::Builder::new_current_thread().enable_all().build();
                    let offered = successor.offer(&public, admin.as_ref());
                    let successor = runtime.unwrap().block_on(offered).unwrap();
                    successor.send_connections(&at_rest).unwrap();
                });
                let passed = predecessor.take_listeners().unwrap();
                predecessor.accept().unwrap();
                assert_eq!((passed.public.len(), passed.admin.is_some()), (sockets, has_admin));
                assert!(passed.public.iter().all(|it| it.local_addr().unwrap() == address));
                let taken = predecessor.take_connections(connections_max);
                assert_eq!(taken.len(), expected);
                let client = client.local_addr().unwrap();
                assert!(taken.iter().all(|it| it.local_addr().unwrap() == client));
            });
        }
    }

    #[test]
    fn a_server_that_ends_early_hands_over_what_it_has_sent() {
        let (one, other) = StdUnixStream::pair().unwrap();
        let bound = StdListener::bind("127.0.0.1:0").unwrap();
        let client = StdStream::connect(bound.local_addr().unwrap()).unwrap();
        let successor = Successor { stream: one };
        successor.send_all(Kind::Connections, &[client]).unwrap();
        drop(successor);
        assert_eq!(Predecessor { stream: other }.take_connections(10).len(), 1);
    }
}
