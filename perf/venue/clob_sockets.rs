//! Market sockets of the venue's interface, which all follow every token.

use std::fmt::Write as _;

use serde::Serialize;

use super::stand_in::token_id;
use super::{Followed, METRICS_AGE_MAX, QUANTILES, megabytes, quantiles};
use crate::price_readers::{PriceReaders, Reading, Stamp, Via};
use crate::report::Goal;
use crate::setup::Target;
use crate::spread::Spread;

/// Maximum p99 of the time from a change to its frame, in milliseconds.
const DELAY_P99_MS_MAX: f64 = 5.0;

/// Open sockets that have been sent every book.
pub(super) struct ClobSockets(Option<Open>);

struct Open {
    readers: PriceReaders,
    kilobytes: f64,
}

/// What the sockets got.
#[derive(Serialize)]
pub(super) struct ClobFigures {
    /// The server's resident memory with the sockets minus that without, for each socket.
    kilobytes: f64,
    /// Changes per second that all sockets together received.
    changes: f64,
    /// Time from the stand-in's timestamp of a change to the frame's arrival, in whole
    /// milliseconds.
    delay_ms: [f64; QUANTILES.len()],
    /// Load of the sockets' thread; 1 if it never waited.
    reader_cores: f64,
}

impl ClobSockets {
    /// Opens this many sockets, and waits until all books have been sent.
    pub(super) fn open(followed: &Followed, target: &Target, count: usize) -> anyhow::Result<Self> {
        if count == 0 {
            return Ok(Self(None));
        }
        let numbers = 0..followed.markets.len();
        let tokens = numbers.flat_map(|number| [token_id(number, 0), token_id(number, 1)]);
        let subscriptions = vec![tokens.collect::<Vec<_>>(); count];
        let reading = Reading { stamp: Stamp::Changed, ..Reading::of(Via::ClobSocket) };
        let before = megabytes(followed.server.pid())?;
        let mut readers = PriceReaders::open(target, &subscriptions, reading)?;
        loop {
            std::thread::sleep(METRICS_AGE_MAX);
            if readers.take()?.byte_count == 0 {
                break;
            }
        }
        let grown = megabytes(followed.server.pid())? - before;
        #[expect(clippy::cast_precision_loss, reason = "a count of sockets")]
        let kilobytes = grown * 1e3 / count as f64;
        Ok(Self(Some(Open { readers, kilobytes })))
    }

    /// Begins the measured time.
    pub(super) fn begin(&mut self) -> anyhow::Result<()> {
        if let Some(Open { readers, .. }) = &mut self.0 {
            drop(readers.take()?);
        }
        Ok(())
    }

    /// Ends the measured time, after this many seconds, and closes the sockets.
    #[expect(clippy::cast_precision_loss, reason = "counts within minutes")]
    pub(super) fn end(self, seconds: f64) -> anyhow::Result<Option<ClobFigures>> {
        let Some(Open { mut readers, kilobytes }) = self.0 else { return Ok(None) };
        readers.ensure_open()?;
        let counts = readers.take()?;
        readers.close()?;
        Ok(Some(ClobFigures {
            kilobytes,
            changes: counts.frame_count as f64 / seconds,
            delay_ms: quantiles(&counts.delay_ms, 1.0),
            reader_cores: counts.reader_cpu_seconds / seconds,
        }))
    }
}

impl ClobFigures {
    /// Returns the goal for these figures, if there are any.
    pub(super) fn goal<'a>(figures: impl Iterator<Item = &'a Self>) -> Option<Goal> {
        let worst = figures.map(|it| it.delay_ms[1]).reduce(f64::max)?;
        let title = "p99 from a change to its frame on a market socket (ms)";
        Some(Goal::at_most(title, worst, DELAY_P99_MS_MAX))
    }

    /// Returns a table of these figures, each with its number of tokens.
    pub(super) fn markdown(tokens: &[u32], rows: &[(u32, &Self)]) -> String {
        let mut out = "\nThe market sockets of the venue's interface, each with all tokens:\n\n\
                       | tokens | changes/s | delay p50, p99, p99.9 (ms) | readers (cores) | kB a \
                       socket |\n|---|---|---|---|---|\n"
            .to_owned();
        for &tokens in tokens {
            let cell = |digits, value: &dyn Fn(&Self) -> f64| {
                let figures = rows.iter().filter(|(of, _)| *of == tokens);
                Spread::of(figures.map(|(_, figures)| value(figures))).cell(digits)
            };
            let delays = [0, 1, 2].map(|place| cell(0, &|it| it.delay_ms[place]));
            let _ = writeln!(
                out,
                "| {tokens} | {} | {} | {} | {} |",
                cell(0, &|it| it.changes),
                delays.join(", "),
                cell(2, &|it| it.reader_cores),
                cell(0, &|it| it.kilobytes),
            );
        }
        out
    }
}
