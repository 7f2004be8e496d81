//! Child processes that end with this program, on every path.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use paperbourse_test_support::process::kill;

/// Seconds that a process may take to end before it is killed.
const END_SECONDS_MAX: u64 = 10;

/// The processes to end and folders to remove when a signal ends this program.
static LEFTOVERS: Mutex<Leftovers> =
    Mutex::new(Leftovers { processes: Vec::new(), folders: Vec::new() });

struct Leftovers {
    processes: Vec<(u32, Ending)>,
    folders: Vec<PathBuf>,
}

/// The way to end a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// At once, since it has no children and nothing to clean up.
    Kill,
    /// With an interrupt, as from a terminal, so that it can end its own children first, or write
    /// what it has recorded.
    Interrupt,
}

/// A child process, ended on drop.
pub(crate) struct Process {
    child: Child,
    ending: Ending,
}

/// A folder, removed on drop.
pub(crate) struct ScratchFolder(pub(crate) PathBuf);

impl Process {
    /// Starts a program.
    pub(crate) fn start(command: &mut Command, ending: Ending) -> anyhow::Result<Self> {
        let child = command
            .spawn()
            .with_context(|| format!("failed to start {}", command.get_program().display()))?;
        leftovers(|left| left.processes.push((child.id(), ending)));
        Ok(Self { child, ending })
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the child itself, for its pipes.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Fails if the process has ended early.
    pub(crate) fn ensure_runs(&mut self, log: &Path) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            anyhow::bail!("the process ended with {status}: {}", said.trim());
        }
        Ok(())
    }

    fn end(&mut self) -> Option<ExitStatus> {
        if self.ending == Ending::Interrupt && self.child.try_wait().ok()?.is_none() {
            send("-INT", self.child.id());
            let deadline = Instant::now() + Duration::from_secs(END_SECONDS_MAX);
            while Instant::now() < deadline {
                if let Some(status) = self.child.try_wait().ok()? {
                    return Some(status);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.child.kill().ok()?;
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may already be gone.
        let _ = self.end();
        let pid = self.child.id();
        leftovers(|left| left.processes.retain(|&(known, _)| known != pid));
    }
}

impl ScratchFolder {
    /// Creates the folder.
    pub(crate) fn make(path: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&path)
            .with_context(|| format!("failed to make {}", path.display()))?;
        leftovers(|left| left.folders.push(path.clone()));
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // A leftover folder stays among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
        leftovers(|left| left.folders.retain(|folder| *folder != self.0));
    }
}

/// Makes signals end the children and remove the folders before they end this program.
pub(crate) fn end_children_on_signals() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupted, mut terminated) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupted.recv() => (),
                _ = terminated.recv() => (),
            }
        });
        eprintln!("ending what was started");
        leftovers(|left| {
            for &(pid, ending) in &left.processes {
                send(if ending == Ending::Kill { "-KILL" } else { "-INT" }, pid);
            }
            // Interrupted processes need time to end their own children.
            std::thread::sleep(Duration::from_secs(2));
            for folder in &left.folders {
                let _ = std::fs::remove_dir_all(folder);
            }
            std::process::exit(130);
        });
    });
    Ok(())
}

/// Runs a program to its end and returns its output. Fails if the program does.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().display().to_string();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command, Ending::Interrupt)?;
    let mut stderr = process.child.stderr.take().expect("stderr is a pipe");
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| bytes)
    });
    let mut stdout = Vec::new();
    process.child.stdout.take().expect("stdout is a pipe").read_to_end(&mut stdout)?;
    let status = process.child.wait()?;
    let stderr = errors.join().expect("reading a pipe does not panic")?;
    let output = Output { status, stdout, stderr };
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} ended with {status}: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn leftovers<T>(change: impl FnOnce(&mut Leftovers) -> T) -> T {
    change(&mut LEFTOVERS.lock().expect("no thread panics while it holds the lock"))
}

fn send(signal: &str, pid: u32) {
    // The process may already be gone.
    let _ = kill(signal, &pid.to_string()).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_process_ends() {
        for ending in [Ending::Kill, Ending::Interrupt] {
            let mut command = Command::new("sleep");
            let process = Process::start(command.arg("600"), ending).unwrap();
            let path = PathBuf::from(format!("/proc/{}", process.pid()));
            assert!(path.exists());
            drop(process);
            assert!(!path.exists(), "{ending:?}");
        }
    }

    #[test]
    fn the_error_of_a_failed_program_has_its_status_and_stderr() {
        let text = output(Command::new("sh").args(["-c", "echo fine"])).unwrap();
        assert_eq!(text, "fine\n");
        let error = output(Command::new("sh").args(["-c", "echo broken >&2; exit 3"]));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("broken"), "{error}");
    }
}
