//! wrk, a well-known load generator, which repeats some rows to check our own generator.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::machine::{CpuClock, cpu_seconds};
use crate::process;
use crate::setup::{Target, instrument};

/// The script of the requests that wrk sends.
const SCRIPT: &str = include_str!("../trades.lua");

/// The result of a load by wrk.
pub(crate) struct WrkOutcome {
    pub(crate) figures: Figures,
    pub(crate) server_cpu_seconds: f64,
    pub(crate) generator_cpu_seconds: f64,
}

/// The figures on the script's last line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Figures {
    pub(crate) request_count: f64,
    pub(crate) duration_us: f64,
    pub(crate) error_count: f64,
    /// p50, p90, p99, p99.9, p99.99 and the maximum.
    pub(crate) quantiles_us: [f64; 6],
}

/// Sends trades in a closed loop for a whole number of seconds.
pub(crate) fn load(
    target: &Target,
    folder: &Path,
    connection_count: usize,
    thread_count: u32,
    seconds: f64,
    run_number: u32,
) -> anyhow::Result<WrkOutcome> {
    std::fs::create_dir_all(folder)?;
    let (script, keys) = (folder.join("trades.lua"), folder.join("keys"));
    std::fs::write(&script, SCRIPT)?;
    std::fs::write(&keys, target.keys.join("\n") + "\n")?;
    let instrument = instrument();
    let mut command = Command::new("wrk");
    command.arg(format!("-t{thread_count}")).arg(format!("-c{connection_count}"));
    command.arg(format!("-d{:.0}s", seconds.ceil().max(1.0))).arg("-s").arg(&script);
    command.arg(format!("http://{}", target.address)).arg("--").arg(&keys);
    command.args([&instrument.market_id, &instrument.outcome, &run_number.to_string()]);
    let cpu = || {
        let server = cpu_seconds(CpuClock::Trees(&target.pids))?;
        anyhow::Ok((server, cpu_seconds(CpuClock::EndedChildren)?))
    };
    let (server_before, generator_before) = cpu()?;
    let text = process::output(&mut command)?;
    let (server_after, generator_after) = cpu()?;
    let figures = parse(&text).with_context(|| format!("unexpected output of wrk: {text}"))?;
    ensure!(figures.error_count == 0.0, "wrk received errors: {text}");
    Ok(WrkOutcome {
        figures,
        server_cpu_seconds: server_after - server_before,
        generator_cpu_seconds: generator_after - generator_before,
    })
}

fn parse(text: &str) -> Option<Figures> {
    let line = text.lines().find_map(|line| line.strip_prefix("measured "))?;
    let values: BTreeMap<&str, f64> = line
        .split(' ')
        .map(|field| field.split_once('='))
        .map(|field| field.and_then(|(name, value)| Some((name, value.parse().ok()?))))
        .collect::<Option<_>>()?;
    let value = |name: &str| values.get(name).copied();
    let mut quantiles_us = [0.0; 6];
    for (slot, name) in quantiles_us.iter_mut().zip(["50", "90", "99", "99.9", "99.99", "100"]) {
        *slot = value(&format!("p{name}"))?;
    }
    Some(Figures {
        request_count: value("requests")?,
        duration_us: value("duration_us")?,
        error_count: value("status_errors")? + value("socket_errors")?,
        quantiles_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_come_from_the_last_line() {
        let text = "Running 3s test @ http://127.0.0.1:8765\nRequests/sec: 26.81\n\
            measured requests=83 duration_us=3095679 status_errors=42 socket_errors=22 \
            p50=1105 p90=1708 p99=1975 p99.9=1976 p99.99=1977 p100=1978\n";
        let expected = Figures {
            request_count: 83.0,
            duration_us: 3_095_679.0,
            error_count: 64.0,
            quantiles_us: [1105.0, 1708.0, 1975.0, 1976.0, 1977.0, 1978.0],
        };
        assert_eq!(parse(text), Some(expected));
        for broken in [
            text.replace("measured ", "measures "),
            text.replace("p99=1975 ", ""),
            text.replace("requests=83", "requests=many"),
        ] {
            assert_eq!(parse(&broken), None, "{broken}");
        }
    }
}
