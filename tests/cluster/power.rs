//! The power fails at all brokers and nodes at once: each has a disk of its own, which keeps only
//! what was synced, or written back by the kernel, at that moment.
//!
//! The disks are ext4 in image files. While all processes stand still, the images are copied: what
//! the kernel has not written by then, the copies lack. Takes root and loop devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use paperbourse_test_support::brokers::{self, BROKERS, Brokers};
use tempfile::TempDir;

use crate::load::{Load, Trader};
use crate::nodes::{NODES, Nodes, UNLIMITED};
use crate::{new_cluster, setting};

/// Room for the files of a broker or of a node.
const DISK_BYTES: u64 = 512 << 20;

/// A file system of its own, until this is dropped.
struct Disk {
    image: PathBuf,
    folder: PathBuf,
}

impl Disk {
    /// An empty disk, mounted in this folder. An error if this process may not do that.
    fn new(folder: &Path) -> Result<Self, String> {
        let image = folder.with_extension("image");
        let file = fs::File::create(&image).unwrap();
        file.set_len(DISK_BYTES).unwrap();
        fs::create_dir(folder).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let disk = Self { image, folder: folder.to_owned() };
        disk.mount().map(|()| disk)
    }

    fn mount(&self) -> Result<(), String> {
        // The kernel writes nothing on its own for ten minutes, but what is old.
        let options = ["-o", "loop,commit=600"];
        run(Command::new("mount").args(options).arg(&self.image).arg(&self.folder))
    }

    /// Copies what is on the disk now.
    fn copy(&self) {
        let arguments = ["--sparse=always", "--reflink=auto"];
        run(Command::new("cp").args(arguments).arg(&self.image).arg(self.copied())).unwrap();
    }

    fn copied(&self) -> PathBuf {
        self.image.with_extension("copy")
    }

    /// Goes on with the copy. Nobody may use the disk.
    fn replace(&self) {
        run(Command::new("umount").arg(&self.folder)).unwrap();
        fs::rename(self.copied(), &self.image).unwrap();
        self.mount().unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Also under a process that has not quite ended.
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.folder));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_owned();
    let Output { status, stderr, .. } =
        command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&stderr);
    if status.success() { Ok(()) } else { Err(format!("{}: {said}", program.display())) }
}

/// Brokers and nodes with a disk each.
struct World {
    // Dropped in this order: a disk only when nobody uses it any more.
    nodes: Nodes,
    brokers: Brokers,
    disks: Vec<Disk>,
    folder: TempDir,
}

impl World {
    /// `None`, and a reason on stdout, if this machine lacks something.
    fn start() -> Option<Self> {
        let program = brokers::program()?;
        let folder = TempDir::new().unwrap();
        let of_brokers = (0..BROKERS).map(|number| format!("broker-{number}"));
        let names = of_brokers.chain((0..NODES).map(|number| format!("node-{number}")));
        let disks = names.map(|name| Disk::new(&folder.path().join(name)));
        let disks = match disks.collect::<Result<Vec<Disk>, String>>() {
            Ok(disks) => disks,
            Err(reason) => {
                println!(
                    "SKIPPED: disks that lose their power take root and loop devices: {reason}"
                );
                return None;
            }
        };
        let brokers = Brokers::start(&program, folder.path(), "always", "");
        let file = new_cluster(folder.path(), &brokers, "logs = 1");
        let mut nodes = Nodes::start(folder.path(), &file, 0).with(&UNLIMITED);
        (0..NODES).for_each(|number| nodes.run(number));
        nodes.all_answer();
        Some(Self { nodes, brokers, disks, folder })
    }

    /// The power fails everywhere. Nothing runs afterwards.
    fn cut(&mut self) {
        let nodes = self.nodes.processes.iter().flatten();
        nodes.for_each(|node| node.signal("-STOP"));
        (0..BROKERS).for_each(|number| self.brokers.signal(number, "-STOP"));
        self.disks.iter().for_each(Disk::copy);
        self.nodes.processes.iter_mut().for_each(|node| *node = None);
        (0..BROKERS).for_each(|number| self.brokers.kill(number));
        self.disks.iter().for_each(Disk::replace);
    }
}

/// `PAPERBOURSE_POWER_CUTS=20 PAPERBOURSE_POWER_SECONDS=60` for a long run.
#[test]
fn no_acknowledged_order_is_lost_when_the_power_fails_everywhere() {
    let Some(mut world) = World::start() else { return };
    let cuts = setting("PAPERBOURSE_POWER_CUTS", 2);
    let load = Duration::from_secs(setting("PAPERBOURSE_POWER_SECONDS", 1));
    let addresses = world.nodes.addresses.clone();
    let is_over = AtomicBool::new(false);
    let accounts = Load::new(3, world.folder.path(), &world.nodes);
    thread::scope(|scope| {
        let running = accounts.begin(scope, &addresses, &is_over);
        for cut in 0..cuts {
            let (before, began) = (accounts.count(), Instant::now());
            running.wait_for_orders(30, || {});
            while began.elapsed() < load {
                running.wait_for_orders(1, || {});
            }
            world.cut();
            let done = accounts.count() - before;
            println!("cut {cut}: {done} orders acknowledged since the last one");
            world.brokers.restart_all();
            (0..NODES).for_each(|number| world.nodes.run(number));
        }
        world.nodes.all_answer();
    });
    world.nodes.check(&accounts);
}

/// The brokers' default is to sync every two minutes.
#[test]
fn brokers_that_do_not_sync_lose_acknowledged_orders_and_nodes_notice() {
    let Some(mut world) = World::start() else { return };
    // Behind the nodes' backs, which would refuse to start.
    for number in 0..BROKERS {
        world.brokers.terminate(number);
        world.brokers.set_sync_interval(number, "2m");
        world.brokers.restart(number);
    }
    world.nodes.all_answer();
    let addresses = world.nodes.addresses.clone();
    let trader = Trader::new(world.folder.path(), &addresses.lock().unwrap(), 0);
    (0..300).for_each(|number| trader.buy(&addresses, number));
    world.cut();
    for (sync_interval, expected) in [
        ("2m", "acknowledges before it syncs: set sync_interval: always"),
        ("always", "the brokers have lost blocks that this node has"),
    ] {
        (0..BROKERS).for_each(|number| world.brokers.set_sync_interval(number, sync_interval));
        world.brokers.restart_all();
        let refused = world.nodes.serve(0).output().unwrap();
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(error.contains(expected), "{error}");
        assert_eq!(refused.status.code(), Some(1));
        (0..BROKERS).for_each(|number| world.brokers.terminate(number));
    }
}
