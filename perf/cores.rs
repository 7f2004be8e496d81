//! Division of the cores between a server and the generator.
//!
//! On a shared core, server and generator wait for each other's time slices, which last
//! milliseconds, and waking the generator for every request takes as much CPU time as answering it.
//! On its own cores, the generator never sleeps in an open loop.

use anyhow::{Context as _, ensure};
use rustix::process::nice;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Amount by which a thread lowers its priority. A thread at the usual priority then gets about
/// nine times as much CPU time. At the lowest priority of all, other processes would starve the
/// thread.
const NICER: i32 = 10;

/// The cores that this process may use, divided between a server and the generator.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    all: CpuSet,
    server: Vec<usize>,
    generator: Vec<usize>,
}

impl Cores {
    /// Divides the cores. The generator gets at most `generator_max` of them, and at most half.
    pub(crate) fn divide(generator_max: u32) -> anyhow::Result<Self> {
        let all = sched_getaffinity(None).context("failed to read which cores may be used")?;
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)).collect();
        ensure!(
            cores.len() >= 2,
            "an open loop needs two cores, one for the server and one for the generator: measure \
             something else with --only"
        );
        let (server, generator) = divided(&cores, generator_max);
        Ok(Self { all, server: server.to_vec(), generator: generator.to_vec() })
    }

    /// Returns the generator's cores.
    pub(crate) fn generator(&self) -> &[usize] {
        &self.generator
    }

    /// Returns the number of the server's cores.
    pub(crate) fn server_count(&self) -> usize {
        self.server.len()
    }

    /// Restricts the processes that `start` starts to the server's cores.
    pub(crate) fn for_server<T>(
        &self,
        start: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        use_only(&self.server)?;
        let started = start();
        sched_setaffinity(None, &self.all).context("failed to use all cores again")?;
        started
    }

    /// Describes the division in words.
    pub(crate) fn description(&self) -> String {
        let (server, generator) = (self.server.len(), self.generator.len());
        format!("{server} for the server and {generator} for the generator")
    }
}

/// Restricts the calling thread, and the threads and processes it starts, to these cores.
pub(crate) fn use_only(cores: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    sched_setaffinity(None, &set).with_context(|| format!("failed to use only cores {cores:?}"))
}

/// Lowers the priority of the calling thread, and of the threads and processes it starts. They
/// leave most CPU time to the programs that are measured beside them.
pub(crate) fn give_way() -> anyhow::Result<()> {
    // On Linux, this affects the calling thread alone.
    nice(NICER).context("failed to lower the priority")?;
    Ok(())
}

/// Returns the server's cores and the generator's.
fn divided(cores: &[usize], generator_max: u32) -> (&[usize], &[usize]) {
    let generator_max = usize::try_from(generator_max).unwrap_or(usize::MAX);
    cores.split_at(cores.len() - (cores.len() / 2).min(generator_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_gets_at_least_half_of_the_cores() {
        assert_eq!(divided(&[0, 1], 2), (&[0][..], &[1][..]));
        assert_eq!(divided(&[2, 5, 7], 2), (&[2, 5][..], &[7][..]));
        assert_eq!(divided(&[0, 1, 2, 3, 4, 5], 2), (&[0, 1, 2, 3][..], &[4, 5][..]));
    }

    #[test]
    fn what_is_started_for_the_server_has_its_cores_alone() {
        let Ok(cores) = Cores::divide(1) else { return };
        let now = || {
            let set = sched_getaffinity(None).unwrap();
            (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect::<Vec<_>>()
        };
        let all = now();
        let inherited = cores.for_server(|| Ok(std::thread::spawn(now).join().unwrap())).unwrap();
        assert_eq!(inherited, cores.server);
        assert_eq!(now(), all);
    }
}
