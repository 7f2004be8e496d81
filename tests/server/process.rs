//! The real binary as a process of its own: started on a free port, ended with its owner.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// The binary without the choices that the caller's environment makes for it.
pub(crate) fn command() -> Command {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PAPERBOURSE_") {
            command.env_remove(name);
        }
    }
    command
}

/// A server that is ready, and is killed when this is dropped.
pub(crate) struct ServerProcess {
    child: Child,
    /// Where it listens, as `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// What it logs after it was ready.
    log_rest: BufReader<ChildStdout>,
}

impl ServerProcess {
    /// Starts a server on this data folder and waits until it says that it is ready.
    pub(crate) fn start(data: &Path, arguments: &[&str]) -> Self {
        let mut child = command()
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log_rest = BufReader::new(child.stdout.take().unwrap());
        let (mut address, mut log) = (None, Vec::new());
        loop {
            let mut line = String::new();
            let is_ended = log_rest.read_line(&mut line).unwrap() == 0;
            assert!(!is_ended, "the server ended before it was ready:\n{}", log.join("\n"));
            let line = line.trim_end();
            log.push(line.to_owned());
            if let Some((_, told)) = line.split_once("listening on http://") {
                address = Some(told.to_owned());
            }
            if line.ends_with(" ready") {
                break;
            }
        }
        let address = address.expect("the address is told before anything else");
        Self { child, address, log_rest }
    }

    /// Ends it as an operator would, and returns what it logged from ready to its end.
    pub(crate) fn interrupt(mut self) -> Vec<String> {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let rest = self.log_rest.by_ref().lines().map(Result::unwrap).collect();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {rest:?}");
        rest
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
