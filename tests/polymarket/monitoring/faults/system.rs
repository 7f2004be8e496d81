//! Faults of the system below a server: its disk, its clock, its source of random bytes.

use std::path::Path;

use tempfile::TempDir;

use super::super::bourse::admin_address;
use super::*;

/// From the fortieth sync of a thread on, each takes longer than the alert allows.
pub(super) const SLOW_SYNCS: [&str; 7] = [
    "strace",
    "-D",
    "-f",
    "--quiet=all",
    "-o/dev/null",
    "-etrace=fdatasync",
    "-einject=fdatasync:delay_enter=8000000:when=40+",
];

/// Runs its arguments where this folder is a file system of a few megabytes.
const SMALL_DISK: &str = "mount -t tmpfs -o size=5m none \"$0\" && exec \"$@\"";

/// Overrides what the system tells a process.
const BROKEN_SYSTEM: &str = include_str!("broken_system.c");

/// Why no process can be traced here.
pub(super) fn lack_of_tracing() -> Option<&'static str> {
    let can = Command::new("strace").arg("-V").output().is_ok();
    (!can).then_some("strace is not installed")
}

/// Why no file system can be mounted here.
pub(super) fn lack_of_mounts() -> Option<&'static str> {
    let folder = tempfile::tempdir().unwrap();
    let script = ["--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK];
    let mounted = Command::new("unshare").args(script).arg(folder.path()).arg("true").output();
    let can = mounted.is_ok_and(|it| it.status.success());
    (!can).then_some("no file system can be mounted here")
}

/// A server with a disk of its own, of a few megabytes, and an account that may trade there.
pub(super) fn on_small_disk(flags: &[&str]) -> (Bourse, Trader) {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().to_str().unwrap();
    let wrapper = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, disk];
    let server = Bourse::spawn(&wrapper, &folder.path().join("data"), flags);
    let bourse = Bourse { admin: admin_address(&server), server, folder };
    let trader = bourse.trader(&disk_of(&bourse).join("data"));
    (bourse, trader)
}

/// Uses up the disk, so that the next segment of the journal finds no room.
pub(super) fn fill_disk(bourse: &Bourse) {
    let mut filler = fs::File::create(disk_of(bourse).join("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
}

/// The server's disk as this process sees it: the server has file systems of its own.
fn disk_of(bourse: &Bourse) -> PathBuf {
    let root = Path::new("/proc").join(bourse.server.id().to_string()).join("root");
    root.join(bourse.folder.path().strip_prefix("/").unwrap())
}

/// A system whose faults begin on request.
pub(super) struct BrokenSystem {
    folder: TempDir,
}

impl BrokenSystem {
    /// Why there can be none here.
    pub(super) fn lack() -> Option<&'static str> {
        (!cfg!(target_env = "gnu")).then_some("nothing can be preloaded here")
    }

    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("broken_system.c");
        fs::write(&source, BROKEN_SYSTEM).unwrap();
        // Rust links with the same program.
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(folder.path().join("broken_system.so"))
            .arg(&source)
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{compiled:?}");
        Self { folder }
    }

    /// A server on this system.
    pub(super) fn start(&self) -> Bourse {
        let folder = self.folder.path().display();
        let library = format!("LD_PRELOAD={folder}/broken_system.so");
        Bourse::start_under(&["env", &library, &format!("FAULTS={folder}")], &[])
    }

    fn begin(&self, fault: &str) {
        fs::write(self.folder.path().join(fault), "").unwrap();
    }

    /// The wall clock jumps an hour ahead.
    pub(super) fn jump_clock(&self) {
        self.begin("clock-jump");
    }

    /// There are no more random bytes, and somebody asks for keys.
    pub(super) fn lose_random_bytes(&self, bourse: &Bourse, stage: &Stage<'_>) {
        let bootstrap = Bourse::bootstrap(&bourse.data());
        self.begin("no-random-bytes");
        while !stage.is_over_soon() {
            Connection::open(bourse.server.address).send(&bootstrap);
        }
    }
}

/// Puts a file in the place of the folder of snapshots, and fills segments.
pub(super) fn lose_snapshots(bourse: &Bourse, stage: &Stage<'_>) {
    // There may be no snapshot yet.
    let _ = fs::remove_dir_all(bourse.data().join("snapshots"));
    fs::write(bourse.data().join("snapshots"), "").unwrap();
    stage.keep_trading(bourse.trader(&bourse.data()));
}

/// Opens more connections than are allowed.
pub(super) fn crowd(bourse: &Bourse, stage: &Stage<'_>) {
    loop {
        let address = bourse.server.address;
        let _open: Vec<_> = (0..4).map(|_| Connection::try_open(address)).collect();
        if stage.is_over_soon() {
            break;
        }
    }
}
