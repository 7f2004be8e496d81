//! Handles SIGHUP: reads the configuration again, applies the options that can change while the
//! server runs, and reports those that cannot.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::signal::unix::Signal;

use super::supervisor::Supervisor;
use crate::config::sources::{Configuration, Setting};
use crate::http::app::{AppState, Server};
use crate::telemetry;

/// The options that limit callers and can change while the server runs.
const RELOADED_LIMITS: [&str; 8] = [
    "tier",
    "default-tier",
    "address-limits",
    "public-rate",
    "bootstrap-rate",
    "failure-rate",
    "key-rate",
    "socket-rate",
];

/// Reloadable options that are applied one by one.
const LOG_LEVEL: &str = "log-level";
const ACCESS_LOG: &str = "access-log";
const STREAMS_PER_ADDRESS: &str = "streams-per-address";
const CORS_ORIGIN: &str = "cors-origin";

/// Whether an option can change while the server runs. All others need a restart.
fn is_reloaded(name: &str) -> bool {
    RELOADED_LIMITS.contains(&name)
        || [LOG_LEVEL, ACCESS_LOG, STREAMS_PER_ADDRESS, CORS_ORIGIN].contains(&name)
}

/// The configuration that the server was started with, and its current settings.
pub(super) struct Reloader {
    started_with: Configuration,
    settings: Vec<Setting>,
    was_terminal: bool,
}

impl Reloader {
    pub(super) fn new(started_with: &Configuration) -> Self {
        Self {
            settings: started_with.settings.clone(),
            started_with: started_with.clone(),
            was_terminal: io::stdout().is_terminal(),
        }
    }

    /// Reloads the configuration on every SIGHUP. Returns if a SIGHUP means that the terminal has
    /// closed, since a server running in the foreground must then exit.
    pub(super) async fn run(
        mut self,
        mut hangups: Signal,
        server: Arc<Server>,
        app: Arc<AppState>,
        supervisor: Arc<Supervisor>,
        status: String,
    ) {
        while hangups.recv().await.is_some() {
            if self.was_terminal && !io::stdout().is_terminal() {
                return;
            }
            supervisor.reloading();
            let (server, app) = (server.clone(), app.clone());
            // Off the runtime, since it reads a file and may visit every key.
            let reloaded = tokio::task::spawn_blocking(move || {
                self.reload(&server, &app);
                self
            });
            self = reloaded.await.expect("reloading does not panic");
            supervisor.ready(&status);
        }
    }

    fn reload(&mut self, server: &Server, app: &AppState) {
        let newer = match self.started_with.again() {
            Ok(newer) => newer,
            Err(mistakes) => {
                for mistake in mistakes.0 {
                    tracing::error!("SIGHUP changed nothing: {mistake}");
                }
                return;
            }
        };
        let changed = self.take(&newer.settings);
        let has_changed = |names: &[&str]| changed.iter().any(|it| names.contains(&&*it.name));
        if has_changed(&RELOADED_LIMITS) {
            app.service.set_limits(newer.arguments.limits());
        }
        if has_changed(&[STREAMS_PER_ADDRESS]) {
            let streams_max = newer.arguments.streams_per_address;
            app.streams_per_address_max.store(streams_max, Ordering::Relaxed);
        }
        if has_changed(&[CORS_ORIGIN]) {
            server.cors.set(&newer.arguments.cors_origins);
        }
        if has_changed(&[ACCESS_LOG])
            && let Err(error) = server.log_requests(newer.arguments.access_log)
        {
            tracing::error!(%error, "cannot start the access log's thread");
        }
        for Setting { name, values, source, .. } in &changed {
            tracing::info!(option = name, value = values.join(","), %source, "changed");
        }
        tracing::info!(changes = changed.len(), "read the configuration again");
        // Last, so that the new level does not hide the lines above.
        if has_changed(&[LOG_LEVEL]) {
            telemetry::set_log_filter(&newer.arguments.logs.log_level);
        }
    }

    /// Adopts the settings that can change, and returns those that have changed. Warns about
    /// changes to all others.
    fn take(&mut self, newer: &[Setting]) -> Vec<Setting> {
        let mut changed = Vec::new();
        for (setting, newer) in self.settings.iter_mut().zip(newer) {
            if setting.values == newer.values {
                continue;
            }
            if is_reloaded(&setting.name) {
                *setting = newer.clone();
                changed.push(newer.clone());
            } else {
                tracing::warn!(
                    option = newer.name,
                    value = newer.values.join(","),
                    running_with = setting.values.join(","),
                    source = %newer.source,
                    "this change needs a restart"
                );
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_change_is_taken() {
        let configuration = |flags: &[&str]| Configuration::from_flags(flags).unwrap();
        let mut reloader = Reloader::new(&configuration(&[]));
        for (flags, expected) in [
            (&[][..], &[][..]),
            (&["--workers", "3"], &[]),
            (&["--log-level", "warn", "--data", "memory"], &["log-level"]),
            (
                &["--public-rate", "1/1", "--tier", "pro=1/1/1/1"],
                &["tier", "public-rate", "log-level"],
            ),
            (&["--public-rate", "1/1", "--tier", "pro=1/1/1/1"], &[]),
            (&[], &["tier", "public-rate"]),
        ] {
            let taken = reloader.take(&configuration(flags).settings);
            let names: Vec<String> = taken.into_iter().map(|setting| setting.name).collect();
            assert_eq!(names, expected, "{flags:?}");
        }
        let names = reloader.settings.iter().map(|it| it.name.as_str());
        let reloaded: Vec<&str> = names.filter(|name| is_reloaded(name)).collect();
        assert_eq!(reloaded.len(), RELOADED_LIMITS.len() + 4, "{reloaded:?}");
    }
}
