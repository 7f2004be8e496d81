//! h2o: a second ceiling besides bare hyper, of an HTTP server in C.
//!
//! It answers a trade with the bytes of a file, which it keeps open for a while. It takes no `POST`
//! for a file, so an internal redirect makes a `GET` of it. A handler in mruby takes longer.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::{free_port, logged};
use crate::canned;
use crate::process::{Ending, Process};
use crate::server::Kind;
use crate::setup::Target;

/// Seconds that the server may take to start.
const READY_SECONDS_MAX: u64 = 10;

/// A running h2o, stopped on drop.
pub(crate) struct H2o {
    process: Process,
    address: SocketAddr,
}

impl H2o {
    /// Starts a server with this number of threads.
    pub(crate) fn start(folder: &Path, thread_count: u32) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (port, log) = (free_port()?, folder.join("log"));
        let (file, answer) = (folder.join("h2o.conf"), folder.join("answer.json"));
        std::fs::write(&answer, canned::BODY)?;
        std::fs::write(&file, configuration(port, &answer, thread_count))?;
        let mut command = logged("h2o", &log)?;
        let process = Process::start(command.arg("-c").arg(&file), Ending::Kill)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self { process, address };
        let deadline = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        while TcpStream::connect(address).is_err() {
            server.process.ensure_runs(&log).context("h2o did not start")?;
            ensure!(Instant::now() < deadline, "h2o is not ready after {READY_SECONDS_MAX} s");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Returns the target of trades.
    pub(crate) fn target(&self) -> Target {
        Target {
            address: self.address,
            pids: vec![self.process.pid()],
            keys: Kind::bare_keys().into(),
            cores: None,
        }
    }
}

/// Returns a configuration in which every request gets the bytes of this file and the headers of a
/// trade result.
fn configuration(port: u16, answer: &Path, thread_count: u32) -> String {
    let mut configuration = format!(
        "\
listen: {{ host: 127.0.0.1, port: {port} }}
num-threads: {thread_count}
hosts:
  default:
    paths:
      /:
        redirect: {{ url: /answer, status: 302, internal: YES }}
      /answer:
        file.file: '{}'
        file.etag: OFF
",
        answer.display()
    );
    // The server knows the content type, which is the first, by the file's name.
    for (name, value) in canned::HEADERS.into_iter().skip(1) {
        let value = value.to_str().expect("the headers are text");
        let _ = writeln!(configuration, "        header.set: \"{name}: {value}\"");
    }
    configuration
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Connection, encode_request};
    use crate::process::ScratchFolder;

    #[test]
    fn a_trade_gets_the_canned_answer() {
        if !super::super::is_program("h2o") {
            eprintln!("SKIPPED: there is no h2o");
            return;
        }
        let folder = std::env::temp_dir().join(format!("perf-h2o-{}", std::process::id()));
        let folder = ScratchFolder::make(folder).unwrap();
        let server = H2o::start(&folder.0, 1).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut connection = Connection::open(server.address).await.unwrap();
            let request = encode_request("POST", "/trade", server.address, &[], "{}");
            let answer = connection.exchange(request.as_bytes()).await.unwrap();
            assert_eq!((answer.status, answer.body), (200, canned::BODY.as_bytes()));
        });
    }
}
