//! `paperbourse health`: asks a server whether it is ready, for containers without other tools.

use std::io;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use hyper::Uri;

use crate::venue::client::Client;
use crate::venue::tls::{self, Roots};

/// Timeout for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum size of the answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[derive(Args, Debug)]
pub(super) struct HealthArgs {
    /// Address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Uri,
}

pub(super) fn run(arguments: &HealthArgs) -> anyhow::Result<()> {
    let url = &arguments.url;
    let roots = match url.scheme_str() {
        Some("http") => Roots::Nobody,
        Some("https") => Roots::System,
        _ => bail!("--url {url} does not begin with http:// or https://"),
    };
    let url: Uri = format!("{}/v1/health/ready", url.to_string().trim_end_matches('/')).parse()?;
    let client = Client::new(tls::client_config(roots)?, PATIENCE, 0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let answer = runtime
        .block_on(client.get(url.clone(), ANSWER_BYTES_MAX))
        .with_context(|| format!("{url} does not say that the server is ready"))?;
    // A closed stdout is not an error: the caller may only want the exit code.
    let _ = writeln!(io::stdout(), "{}", String::from_utf8_lossy(&answer));
    Ok(())
}
