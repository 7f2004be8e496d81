//! `paperbourse check`: checks whether a server with this configuration would start now. Goes
//! through the startup steps without changing anything on disk.

mod disk;

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use hyper::{StatusCode, Uri};
use rustix::fs::{Access, access};

use super::listener::{AdminListener, EXPOSED, Listeners, METRICS_EXPOSED};
use super::{default_worker_count, descriptors, start};
use crate::auth::identity::embedded::EmbeddedIssuer;
use crate::auth::identity::oidc::discovery;
use crate::auth::identity::shared_secret::SharedSecret;
use crate::config::identity::IdentityConfig;
use crate::config::venue::VenueConfig;
use crate::config::{DataPlace, ServeArgs, Switch};
use crate::disk::Disk;
use crate::hours;
use crate::inspect::{self, InspectError};
use crate::journal::DataDirectory;
use crate::key_file::KeyFile;
use crate::snapshot::{self, Folder};
use crate::venue::client::{Client, ClientError, with_causes};
use crate::venue::live::LiveVenueConfig;
use crate::venue::recorded::Recorded;
use crate::venue::tls::{self, Roots};

/// Timeout for each request to the venue.
const VENUE_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of bytes to read of an answer. Only whether the venue answers counts.
const VENUE_BYTES_MAX: usize = 64 << 10;

/// A hint shown for a live venue, since the content of its answers is not checked here.
const LOOK: &str = "run `paperbourse doctor` to check what the venue's services answer";

/// The result of checking one part of the configuration.
#[derive(Debug)]
pub struct Finding {
    /// The part that was checked, such as `listen`.
    pub part: &'static str,
    /// Whether the server would start in spite of the finding.
    pub verdict: Verdict,
    /// The details, and the remedy if something is wrong.
    pub text: String,
}

/// The effect of a finding on startup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing is wrong.
    Ok,
    /// The server would start, but its setup is risky.
    Warning,
    /// The server would not start.
    Failed,
}

/// Formats the finding as one line.
impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failed => "failed",
        };
        write!(formatter, "{verdict:7} {:8}  {}", self.part, self.text)
    }
}

impl Finding {
    fn of(part: &'static str, result: anyhow::Result<String>) -> Self {
        let (verdict, text) = match result {
            Ok(text) => (Verdict::Ok, text),
            Err(error) => (Verdict::Failed, format!("{error:#}")),
        };
        Self { part, verdict, text }
    }

    fn warning(part: &'static str, text: impl Into<String>) -> Self {
        Self { part, verdict: Verdict::Warning, text: text.into() }
    }
}

/// Checks everything that startup needs, and passes each finding to `report`.
pub fn check(arguments: &ServeArgs, mut report: impl FnMut(Finding)) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    report(Finding::of("listen", listen(arguments)));
    if arguments.is_exposed_at(arguments.listen) {
        report(Finding::warning("listen", EXPOSED));
    }
    if let Some(address) = arguments.admin_listen {
        let bound = AdminListener::bind(address);
        report(Finding::of("metrics", bound.map(|_| format!("{address} is free"))));
        if ServeArgs::is_admin_exposed_at(address) {
            report(Finding::warning("metrics", METRICS_EXPOSED));
        }
    }
    report(Finding::of("data", data(&arguments.data)));
    if let DataPlace::Folder(folder) = &arguments.data {
        let there = Some(folder).filter(|folder| folder.is_dir());
        let hours = there.and_then(|folder| hours::flaw(&Folder::new(Disk::System, folder)));
        let risks = disk::risks(folder, arguments).into_iter().chain(hours);
        risks.for_each(|risk| report(Finding::warning("data", risk)));
    }
    report(Finding::of("identity", runtime.block_on(identity(arguments))));
    if arguments.clob == Switch::On {
        report(Finding::of("wallets", wallets(arguments)));
    }
    match arguments.venue.config()? {
        VenueConfig::Simulated { .. } => report(Finding::of("venue", Ok("simulated".to_owned()))),
        VenueConfig::Recorded { folder, .. } => report(Finding::of("venue", recorded(&folder))),
        VenueConfig::Live(venue) => {
            for result in runtime.block_on(live(&*venue)) {
                report(Finding::of("venue", result));
            }
            report(Finding::of("venue", Ok(LOOK.to_owned())));
        }
    }
    Ok(())
}

fn listen(arguments: &ServeArgs) -> anyhow::Result<String> {
    let address = arguments.listen;
    let worker_count = arguments.workers.map_or_else(default_worker_count, usize::from);
    let limit = descriptors::raise();
    let connections = descriptors::room(arguments.connections_max, limit, worker_count)?;
    let bound = Listeners::bind(address, 1);
    bound.map_err(|error| anyhow::anyhow!("{address}: {error} (--listen chooses another)"))?;
    Ok(format!("{address} is free, with room for {connections} connections"))
}

fn data(place: &DataPlace) -> anyhow::Result<String> {
    let DataPlace::Folder(path) = place else { return Ok("kept in memory only".to_owned()) };
    let shown = path.display();
    match path.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            require_access(disk::nearest(path))?;
            return Ok(format!("{shown} does not exist yet: the first start creates it"));
        }
        Err(error) => anyhow::bail!("{shown}: {error}"),
        Ok(metadata) if !metadata.is_dir() => anyhow::bail!("{shown} is not a folder"),
        Ok(_) => require_access(path)?,
    }
    DataDirectory::require_free(&Disk::System, path)?;
    match inspect::verify(path) {
        Ok(report) => match &report.damage {
            None => {
                let mut text = format!("{shown} is whole up to position {}", report.last_position);
                if snapshot::raises_format(&Disk::System, path)? {
                    text = format!("{text}; {}", start::NEWER_FORMAT);
                }
                Ok(text)
            }
            Some(damage) => Err(anyhow::anyhow!("{damage}")),
        },
        Err(InspectError::NoJournal { .. }) => Ok(format!("{shown} holds no journal yet")),
        Err(error) => Err(anyhow::anyhow!(error.message())),
    }
}

fn require_access(folder: &Path) -> anyhow::Result<()> {
    let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    access(folder, all).map_err(|error| {
        let error = io::Error::from(error);
        anyhow::anyhow!("{}: {error}: let this user read and write it", folder.display())
    })
}

async fn identity(arguments: &ServeArgs) -> anyhow::Result<String> {
    match arguments.identity.config()? {
        IdentityConfig::Embedded => {
            let Some(folder) = arguments.key_folder() else {
                return Ok("the embedded issuer, with a temporary key".to_owned());
            };
            Ok(match EmbeddedIssuer::open_existing(folder)? {
                Some(_) => format!("the embedded issuer, with its key in {}", folder.display()),
                None => "the embedded issuer: the first start creates its key".to_owned(),
            })
        }
        IdentityConfig::Oidc { url, authorities, .. } => {
            let client = start::provider_client(&url, authorities.as_deref())?;
            let keys = discovery::fetch(&client, &url).await;
            keys.map_err(|error| anyhow::anyhow!("{url}: {}", with_causes(&error)))?;
            Ok(format!("{url} has published its keys"))
        }
        IdentityConfig::Hs256 { path, issuer, audience, tier_claim } => {
            SharedSecret::open(&path, &issuer, &audience, tier_claim)?;
            Ok(format!("the secret in {}", path.display()))
        }
    }
}

fn wallets(arguments: &ServeArgs) -> anyhow::Result<String> {
    let Some(folder) = arguments.key_folder() else {
        return Ok("credentials of wallets are derived from a temporary key".to_owned());
    };
    KeyFile::Wallets.check(folder)?;
    let path = KeyFile::Wallets.path(folder);
    Ok(if path.exists() {
        format!("credentials of wallets are derived from {}", path.display())
    } else {
        format!("the first start creates {}, unless wallets have credentials", path.display())
    })
}

fn recorded(folder: &Path) -> anyhow::Result<String> {
    let shown = folder.display();
    Ok(match Recorded::open(folder)? {
        Recorded::Tape(_) => format!("{shown} holds a tape"),
        Recorded::Files(_, report) => format!("{shown}: {report}"),
    })
}

/// Requests a document from every address of a live venue. Any answer counts as success, except
/// server errors and statuses that deny access to this machine.
async fn live(venue: &dyn LiveVenueConfig) -> Vec<anyhow::Result<String>> {
    let tls = match tls::client_config(venue.authorities().map_or(Roots::System, Roots::File)) {
        Ok(tls) => tls,
        Err(error) => return vec![Err(anyhow::Error::from(error).context("--venue-ca"))],
    };
    let client = Client::new(tls, VENUE_PATIENCE, 0);
    let mut results = Vec::new();
    for (flag, address) in venue.addresses() {
        results.push(match client.get(as_web(&address), VENUE_BYTES_MAX).await {
            Ok(_) | Err(ClientError::Redirect { .. } | ClientError::TooLong { .. }) => {
                Ok(format!("{address} answers"))
            }
            Err(ClientError::Status { status, .. }) if is_answer(status) => {
                Ok(format!("{address} answers"))
            }
            Err(error) => Err(anyhow::anyhow!("{address}: {error} ({flag} chooses another)")),
        });
    }
    results
}

/// Whether the status blames the request, which shows that the service is up and grants access.
fn is_answer(status: StatusCode) -> bool {
    let is_closed = [StatusCode::FORBIDDEN, StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS];
    status.is_client_error() && !is_closed.contains(&status)
}

/// Returns a socket's address with the scheme `http` or `https`, and any other address unchanged.
fn as_web(address: &Uri) -> Uri {
    let text = address.to_string();
    let web = text.strip_prefix("ws").map_or_else(|| text.clone(), |rest| format!("http{rest}"));
    web.parse().expect("another scheme leaves an address one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_asked_over_http() {
        for (address, web) in [
            ("wss://venue.example.org/ws/market", "https://venue.example.org/ws/market"),
            ("ws://127.0.0.1:80/ws", "http://127.0.0.1:80/ws"),
            ("https://venue.example.org", "https://venue.example.org/"),
        ] {
            assert_eq!(as_web(&address.parse().unwrap()), web, "{address}");
        }
    }
}
