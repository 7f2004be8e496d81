//! The limit of open files, and the share of it that connections may use.
//!
//! Connections and files count against the same limit: if connections used it up, the journal could
//! not create its next segment.

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::http::app::REFUSALS_MAX;
use crate::http::connection::LEAVING_MAX;

/// Descriptors per worker, for its listener, its poll and its waker.
const PER_WORKER: usize = 4;
/// A generous allowance for files, outgoing connections, scrapers and system libraries.
const FILES: usize = 128;

/// Returns the number of descriptors that connections leave to everything else.
const fn reserve(worker_count: usize) -> usize {
    FILES + LEAVING_MAX + REFUSALS_MAX + PER_WORKER * worker_count
}

/// Raises the soft limit of open files to the hard limit and returns it; `None` if there is no
/// limit.
pub(super) fn raise() -> Option<usize> {
    let before = getrlimit(Resource::Nofile);
    if before.current != before.maximum {
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(
                %error,
                current = before.current,
                maximum = before.maximum,
                "failed to raise the limit of open files to its maximum"
            );
        }
    }
    let limit = getrlimit(Resource::Nofile).current?;
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Returns the number of connections to allow: `wanted`, or fewer, with a warning, if the limit has
/// no room for all of them.
pub(super) fn connections_max(
    wanted: usize,
    limit: Option<usize>,
    worker_count: usize,
) -> anyhow::Result<usize> {
    let connections_max = room(wanted, limit, worker_count)?;
    if connections_max < wanted {
        tracing::warn!(
            wanted,
            connections_max,
            open_files_max = limit,
            reserve = reserve(worker_count),
            "allowing fewer connections than --connections-max: raise the limit of open files \
             (`ulimit -n`, LimitNOFILE)"
        );
    }
    Ok(connections_max)
}

/// Returns `wanted`, or fewer if the limit has no room for that many connections. Fails if it has
/// no room at all.
pub(super) fn room(
    wanted: usize,
    limit: Option<usize>,
    worker_count: usize,
) -> anyhow::Result<usize> {
    let Some(limit) = limit else { return Ok(wanted) };
    let reserve = reserve(worker_count);
    let room = limit.checked_sub(reserve).filter(|&room| room > 0).with_context(|| {
        format!(
            "the limit of {limit} open files is too low: {reserve} are needed besides \
             connections. Raise it (`ulimit -n`, LimitNOFILE) or lower --workers"
        )
    })?;
    Ok(wanted.min(room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_reserve_of_descriptors() {
        let reserve = reserve(2);
        for (wanted, limit, expected) in [
            (10_000, None, Some(10_000)),
            (10_000, Some(1 << 20), Some(10_000)),
            (10_000, Some(10_000 + reserve), Some(10_000)),
            (10_000, Some(10_000 + reserve - 1), Some(9_999)),
            (10_000, Some(1_024), Some(1_024 - reserve)),
            (10, Some(1_024), Some(10)),
            (10, Some(reserve + 1), Some(1)),
            (10, Some(reserve), None),
            (10, Some(0), None),
        ] {
            assert_eq!(connections_max(wanted, limit, 2).ok(), expected, "{wanted} {limit:?}");
        }
    }

    #[test]
    fn the_limit_is_raised_to_its_maximum() {
        let limit = raise();
        let now = getrlimit(Resource::Nofile);
        assert_eq!(limit.map(|limit| limit as u64), now.current);
        if cfg!(target_os = "linux") {
            assert_eq!(now.current, now.maximum);
        }
    }
}
