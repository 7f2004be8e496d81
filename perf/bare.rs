//! The bare server: the cost of HTTP alone on the runtime layout of `paperbourse serve`.
//!
//! It is the ceiling in the comparison. It reads each request completely, and does nothing else: no
//! routes, no keys, no market, no disk.

mod canned;
#[path = "bare/fan_out.rs"]
mod fan_out;
#[path = "bare/plan.rs"]
mod plan;

use std::io::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;

use canned::CannedServer;
use plan::Plan;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Answers every request with the same trade result.
#[derive(Parser, Debug)]
#[command(name = "paperbourse-bare", version, about, max_term_width = 100)]
struct Arguments {
    /// Where to listen. Port 0 picks a free port, which is printed on the first line
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR")]
    listen: SocketAddr,

    /// Threads that serve requests [default: one per core]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// Upgrade every request to a socket, and write the frames of this plan to all of them
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let workers = match arguments.workers {
        Some(workers) => workers,
        None => std::thread::available_parallelism().context("failed to count the cores")?,
    };
    let say = |address| {
        let mut stdout = std::io::stdout();
        writeln!(stdout, "listening on http://{address}")?;
        stdout.flush()
    };
    if let Some(file) = &arguments.plan {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let plan: Plan = serde_json::from_str(&text).context("no plan of a fan-out")?;
        return Ok(plan.serve(arguments.listen, workers.get(), say)?);
    }
    let server = CannedServer::bind(arguments.listen, workers.get())
        .with_context(|| format!("failed to listen on {}", arguments.listen))?;
    say(server.address())?;
    server.serve().context("failed to serve")
}
