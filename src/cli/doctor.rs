//! `paperbourse doctor`: checks that the live venue still behaves as the connector expects.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::{WRONG_CONFIGURATION, print_report};
use crate::config::venue::AddressArgs;
use crate::config::whole_number;
use crate::telemetry::OneLine;
use crate::venue::follow::timing::Timing;
use crate::venue::polymarket::doctor::{Report, Sample};
use crate::venue::polymarket::filter::MarketFilter;
use crate::venue::polymarket::live::LiveConfig;
use crate::venue::polymarket::live::look::{DURATION_MAX, look};
use crate::venue::tls::{self, Roots};

pub(super) const EXIT_CODES: &str = "\
Exit codes: 0 every assumption behind fills and payouts holds; 1 one of them does not; \
2 wrong command line, or a service could not be reached";

/// The name of the file that `--save` writes.
const SAMPLES_FILE: &str = "samples.jsonl";

#[derive(Args, Debug)]
pub(super) struct DoctorArgs {
    /// How long to observe the venue, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 40,
          value_parser = whole_number(1..=DURATION_MAX.as_secs()))]
    seconds: u64,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Write short samples of unexpected data to samples.jsonl in this folder, replacing those of
    /// an earlier run; host names, wallets and keys are left out
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,

    #[command(flatten)]
    addresses: AddressArgs,
}

/// Runs the checks. An error says nothing about the venue, so the exit code is that of an
/// unreachable service.
pub(super) fn run(arguments: &DoctorArgs) -> ExitCode {
    match examine(arguments) {
        Ok(report) if !report.is_sound() => ExitCode::FAILURE,
        Ok(report) if report.is_reached() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(WRONG_CONFIGURATION),
        Err(error) => {
            eprintln!("paperbourse: {}", OneLine(format_args!("{error:#}")));
            ExitCode::from(WRONG_CONFIGURATION)
        }
    }
}

fn examine(arguments: &DoctorArgs) -> anyhow::Result<Report> {
    let roots = arguments.addresses.venue_ca.as_deref().map_or(Roots::System, Roots::File);
    let tls = tls::client_config(roots)
        .context("failed to load the certificate authorities to trust; see --venue-ca")?;
    let addresses = arguments.addresses.addresses();
    let config = LiveConfig::new(addresses, tls, MarketFilter::default(), Timing::VENUE);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let (report, samples) = runtime.block_on(look(config, Duration::from_secs(arguments.seconds)));
    // A connection that hangs must not delay the report.
    runtime.shutdown_background();
    print_report(&report, arguments.json)?;
    if let Some(folder) = arguments.save.as_deref().filter(|_| !samples.is_empty()) {
        save(folder, &samples)
            .with_context(|| format!("failed to write samples to {}", folder.display()))?;
    }
    Ok(report)
}

fn save(folder: &Path, samples: &[Sample]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut text = Vec::new();
    for sample in samples {
        serde_json::to_writer(&mut text, sample)?;
        writeln!(text)?;
    }
    fs::write(folder.join(SAMPLES_FILE), text)
}
