//! A separate Postgres cluster in a folder, reached through a socket in it.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::{is_program, logged};
use crate::process::{self, Ending, Process};

/// Seconds that the cluster may take to start.
const READY_SECONDS_MAX: u64 = 30;

/// Settings of the cluster. Every commit is on disk before its answer, as by default. In favour of
/// Postgres, it has memory for all the data, and no checkpoint falls into the measurement.
const SETTINGS: [&str; 7] = [
    "fsync=on",
    "synchronous_commit=on",
    "listen_addresses=",
    "max_connections=100",
    "shared_buffers=512MB",
    "max_wal_size=8GB",
    "checkpoint_timeout=1h",
];

/// A running cluster.
pub(super) struct Postgres {
    process: Process,
    /// The folder of the socket.
    pub(super) folder: PathBuf,
}

impl Postgres {
    /// Creates a cluster in a new folder and starts it.
    pub(super) fn start(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let user = unprivileged_user()?;
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(folder, Some(user), Some(group))?;
        }
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
        let run_as = |command: &mut Command| {
            command.current_dir("/");
            if let Some((user, group)) = user {
                command.uid(user).gid(group);
            }
        };
        let find = |name| program(name).with_context(|| format!("{name} is not installed"));
        let data = folder.join("data");
        let mut command = Command::new(find("initdb")?);
        run_as(&mut command);
        command.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
        process::output(command.arg("-D").arg(&data)).context("failed to create a cluster")?;
        let log = folder.join("log");
        let mut command = logged(find("postgres")?, &log)?;
        run_as(&mut command);
        command.arg("-D").arg(&data).arg("-k").arg(folder);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        let process = Process::start(&mut command, Ending::Interrupt)?;
        let mut postgres = Self { process, folder: folder.to_owned() };
        let deadline = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        while postgres.query(&["-c", "SELECT 1"]).is_err() {
            postgres.process.ensure_runs(&log).context("PostgreSQL did not start")?;
            ensure!(
                Instant::now() < deadline,
                "PostgreSQL is not ready after {READY_SECONDS_MAX} s"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(postgres)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Runs `psql` with these arguments.
    pub(super) fn query(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("psql");
        command.args(["-U", "postgres", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1"]);
        process::output(command.arg("-h").arg(&self.folder).args(arguments))
    }
}

/// Returns the path of a Postgres program. Distributions keep these programs out of the search
/// path.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let path = entry.path().join("bin").join(name);
            path.is_file().then_some((version, path))
        })
        .max();
    newest.map(|(_, path)| path).or_else(|| is_program(name).then(|| name.into()))
}

/// Returns the user and group to run Postgres as under root, since it refuses to run as root.
fn unprivileged_user() -> anyhow::Result<Option<(u32, u32)>> {
    if std::fs::metadata("/proc/self").context("failed to find the current user")?.uid() != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let user = find_user(&users, "postgres");
    Ok(Some(user.context("run by root, it needs the user postgres, whom there is not")?))
}

fn find_user(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let id = |index: usize| fields.get(index)?.parse().ok();
        if fields[0] == name { Some((id(2)?, id(3)?)) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_matched_by_full_name() {
        let users = "root:x:0:0:root:/root:/bin/bash\npostgresql:x:1:2::/:/bin/false\n\
            postgres:x:104:111:PostgreSQL administrator:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(find_user(users, "postgres"), Some((104, 111)));
        assert_eq!(find_user(users, "root"), Some((0, 0)));
        assert_eq!(find_user(users, "nobody"), None);
    }
}
