//! The servers under measurement, either in this process or as a separate program.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{env, fs, process, thread};

use paperbourse::auth::identity::embedded::EmbeddedIssuer;
use paperbourse::config::sources::Configuration;
use paperbourse::ids::Timestamp;
use paperbourse_test_support::process::kill;

use super::canned::CannedServer;
use super::client::{Connection, Orders, Shape, post};
use super::recording;

/// Pause between readiness probes. The measured server answers them too, so they must be few.
const PROBE_PAUSE: Duration = Duration::from_millis(20);

/// A server with one worker thread and unchanging prices.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The thread that runs the server, if it is in this process.
    thread: Option<JoinHandle<()>>,
    folder: Folder,
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

/// The place of a server's journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Journal {
    Memory,
    Disk,
}

impl Server {
    /// Starts a server in this process, which must not run another one.
    pub(crate) fn in_process(journal: Journal) -> Self {
        let mut server = Self::prepare();
        let configuration = Configuration::from_flags(server.flags(journal)).expect("our flags");
        let run =
            move || paperbourse::server::run(&configuration, false).expect("the server starts");
        server.thread = Some(thread::spawn(run));
        server.wait_until_ready();
        server
    }

    /// Creates a folder with the venue's recording and picks a free port.
    pub(crate) fn prepare() -> Self {
        let folder = Folder::new();
        recording::write(&folder.0.join("recording"));
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let address = TcpListener::bind(any).and_then(|listener| listener.local_addr());
        Self { address: address.expect("a free port"), thread: None, folder }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.folder.0
    }

    pub(crate) fn flags(&self, journal: Journal) -> Vec<String> {
        let data = self.data().display();
        let place = match journal {
            Journal::Memory => "memory".to_owned(),
            Journal::Disk => data.to_string(),
        };
        [
            ("--listen", self.address.to_string()),
            ("--data", place),
            ("--issuer-data", data.to_string()),
            ("--venue", format!("recorded:{data}/recording")),
            ("--workers", "1".into()),
            // Always the same way: which one is faster depends on the file system.
            ("--journal-sync", "fdatasync".into()),
            ("--tier", "free=unlimited/unlimited/2/5".into()),
            ("--address-limits", "off".into()),
            ("--starting-balance", "1000000".into()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }

    pub(crate) fn wait_until_ready(&self) {
        const PROBE: &[u8] = b"GET /v1/health/ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        while !self.is_listening() {
            thread::sleep(PROBE_PAUSE);
        }
        let mut connection = Connection::open(self.address);
        while !connection.exchange(PROBE).starts_with("HTTP/1.1 200 ") {
            thread::sleep(PROBE_PAUSE);
        }
    }

    /// Whether the server listens. A connection to a port without a listener may get the same port
    /// as its source and so connect to itself, which does not count.
    fn is_listening(&self) -> bool {
        TcpStream::connect(self.address)
            .is_ok_and(|stream| stream.local_addr().ok() != Some(self.address))
    }

    /// Creates an account and returns orders for it.
    pub(crate) fn orders(&self, subject: &str, shape: Shape) -> Orders {
        let issuer = EmbeddedIssuer::open(self.data()).expect("the issuer's key is there");
        let token = issuer.mint(subject, None, 3_600, Timestamp::now()).expect("a token");
        let headers = format!("Authorization: Bearer {token}\r\n");
        let request = post("/v1/keys/bootstrap", &headers, "{}");
        let mut connection = Connection::open(self.address);
        let answer = connection.exchange(request.as_bytes());
        let key = answer.split_once(r#""raw_key":""#).and_then(|(_, rest)| rest.split_once('"'));
        let (key, _) = key.unwrap_or_else(|| panic!("no key: {answer}"));
        Orders::new(key, recording::WITH_FEE, shape)
    }
}

/// Waits for the server to end before its folder is removed, since it may still write into it.
impl Drop for Server {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // In this process, only the server handles the signal.
        let status = kill("-TERM", &process::id().to_string()).status();
        assert!(status.expect("kill runs").success(), "failed to signal this process");
        thread.join().expect("the server does not panic");
    }
}

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paperbourse-counts-{}-{number}", process::id());
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).expect("failed to make a temporary folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover folder does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts the bare HTTP server in this process.
pub(crate) fn start_bare() -> SocketAddr {
    let server = CannedServer::bind((Ipv4Addr::LOCALHOST, 0).into(), 1).expect("a free port");
    let address = server.address();
    thread::spawn(move || server.serve().expect("it serves"));
    address
}
