//! The log filter: a default level, and overrides for some modules.

use std::fmt;
use std::str::FromStr;

use tracing_subscriber::filter::{LevelFilter, Targets};

/// The prefix of our own log targets.
const CRATE: &str = "paperbourse";

/// Our packages, and the module path that stands for each in filters and JSON lines.
const PACKAGES: [(&str, &str); 7] = [
    (CRATE, CRATE),
    ("paperbourse_cluster", "paperbourse::cluster"),
    ("paperbourse_core", CRATE),
    ("paperbourse_edge", CRATE),
    ("paperbourse_exchange", CRATE),
    ("paperbourse_store", CRATE),
    ("paperbourse_venue", "paperbourse::venue"),
];

/// The modules that may follow [`CRATE`] in a filter: those of `src/README.md`, and the access log.
const MODULES: [&str; 38] = [
    "access",
    "allocator",
    "auth",
    "backup",
    "build",
    "candles",
    "cli",
    "clock",
    "cluster",
    "config",
    "disk",
    "engine",
    "hours",
    "http",
    "ids",
    "inspect",
    "journal",
    "key_file",
    "limits",
    "market",
    "money",
    "operators",
    "record",
    "server",
    "service",
    "shard",
    "rows",
    "sizes",
    "snapshot",
    "telemetry",
    "trace",
    "trouble",
    "venue",
    "wire",
    "ws",
    "simulation",
    "faults",
    "histogram",
];

/// A default level, and other levels for some modules, such as `info,paperbourse::venue=debug`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFilter {
    default: LevelFilter,
    modules: Vec<(Box<str>, LevelFilter)>,
}

/// Why a text is not a valid [`LogFilter`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogFilterError {
    /// No level has this name.
    #[error(
        "`{0}` is not a level: use off, error, warn, info, debug or trace, or a module with a \
         level, as in info,paperbourse::venue=debug"
    )]
    Level(Box<str>),
    /// No module has this name.
    #[error(
        "`{0}` is not a module of paperbourse: use one from src/README.md, as in \
             paperbourse::venue=debug"
    )]
    Module(Box<str>),
    /// A module, or the default, has two levels.
    #[error("there are two levels for {0}: keep one of them")]
    Twice(Box<str>),
}

impl Default for LogFilter {
    fn default() -> Self {
        Self { default: LevelFilter::INFO, modules: Vec::new() }
    }
}

impl LogFilter {
    pub(super) fn targets(&self) -> Targets {
        let modules = self.modules.iter().flat_map(|(module, level)| {
            let of = |(package, root)| {
                module.strip_prefix(root).map(|path| (format!("{package}{path}"), *level))
            };
            PACKAGES.into_iter().filter_map(of)
        });
        let targets = Targets::new().with_default(self.default).with_targets(modules);
        // At level info, `async_nats` logs two lines for each connection, and a node has a
        // connection for each worker.
        let is_chatty = self.default == LevelFilter::INFO;
        if is_chatty { targets.with_target("async_nats", LevelFilter::WARN) } else { targets }
    }
}

impl FromStr for LogFilter {
    type Err = LogFilterError;

    fn from_str(text: &str) -> Result<Self, LogFilterError> {
        let (mut default, mut modules) = (None, Vec::<(Box<str>, LevelFilter)>::new());
        for part in text.split(',').map(str::trim) {
            let Some((module, level)) = part.split_once('=') else {
                if default.replace(level_from(part)?).is_some() {
                    return Err(LogFilterError::Twice("everything else".into()));
                }
                continue;
            };
            if !is_module(module) {
                return Err(LogFilterError::Module(module.into()));
            }
            if modules.iter().any(|(other, _)| **other == *module) {
                return Err(LogFilterError::Twice(module.into()));
            }
            modules.push((module.into(), level_from(level)?));
        }
        Ok(Self { default: default.unwrap_or(LevelFilter::INFO), modules })
    }
}

/// The format that [`LogFilter::from_str`] reads.
impl fmt::Display for LogFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.default.fmt(formatter)?;
        self.modules.iter().try_for_each(|(module, level)| write!(formatter, ",{module}={level}"))
    }
}

/// Splits the target of a log line into the root to show and the path below it. Targets of all our
/// packages are shown as modules of `paperbourse`.
pub(super) fn shown(target: &str) -> (&str, &str) {
    let package = target.split("::").next().unwrap_or_default();
    match PACKAGES.iter().find(|(own, _)| *own == package) {
        Some((_, root)) => (root, &target[package.len()..]),
        None => (target, ""),
    }
}

fn level_from(name: &str) -> Result<LevelFilter, LogFilterError> {
    let names = ["off", "error", "warn", "info", "debug", "trace"];
    let level = names.contains(&name).then(|| name.parse().ok()).flatten();
    level.ok_or_else(|| LogFilterError::Level(name.into()))
}

/// Whether this is a valid module path of ours. Only the first module below [`CRATE`] is checked.
fn is_module(target: &str) -> bool {
    let mut path = target.split("::");
    path.next() == Some(CRATE)
        && path.next().is_none_or(|module| MODULES.contains(&module))
        && path.all(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_is_a_level_and_levels_of_modules() {
        for (text, expected) in [
            ("info", Ok("info")),
            ("off", Ok("off")),
            (" warn , paperbourse::venue=debug", Ok("warn,paperbourse::venue=debug")),
            ("paperbourse::http::connection=trace", Ok("info,paperbourse::http::connection=trace")),
            ("paperbourse=error", Ok("info,paperbourse=error")),
            ("", Err("`` is not a level")),
            ("inof", Err("`inof` is not a level: use off,")),
            ("INFO", Err("`INFO` is not a level")),
            ("3", Err("`3` is not a level")),
            ("paperbourse::venue", Err("`paperbourse::venue` is not a level")),
            ("venue=debug", Err("`venue` is not a module")),
            ("paperbourse::venu=debug", Err("`paperbourse::venu` is not a module")),
            ("paperbourse::venue::=debug", Err("`paperbourse::venue::` is not a module")),
            ("hyper=debug", Err("`hyper` is not a module")),
            ("paperbourse::venue=", Err("`` is not a level")),
            ("info,debug", Err("two levels for everything else")),
            ("paperbourse::ws=info,paperbourse::ws=warn", Err("two levels for paperbourse::ws")),
        ] {
            match (text.parse::<LogFilter>(), expected) {
                (Ok(filter), Ok(shown)) => {
                    assert_eq!(filter.to_string(), shown, "{text}");
                    assert_eq!(shown.parse(), Ok(filter), "{text}");
                }
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains(part), "{text}: {error}");
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_module_has_its_own_level() {
        for (filter, target, level, is_wanted) in [
            ("warn,paperbourse::venue=debug", "paperbourse::server", Level::INFO, false),
            ("warn,paperbourse::venue=debug", "paperbourse::server", Level::WARN, true),
            ("warn,paperbourse::venue=debug", "paperbourse_venue", Level::DEBUG, true),
            ("warn,paperbourse::venue=debug", "paperbourse_venue::feed", Level::DEBUG, true),
            ("warn,paperbourse::venue=debug", "paperbourse_venue::feed", Level::TRACE, false),
            ("warn,paperbourse::venue::feed=info", "paperbourse_venue::live", Level::INFO, false),
            ("warn,paperbourse::market=info", "paperbourse_core::market::book", Level::INFO, true),
            ("warn,paperbourse::market=info", "paperbourse_core::clock", Level::INFO, false),
            ("off,paperbourse=info", "paperbourse_core::clock", Level::INFO, true),
            ("off,paperbourse=info", "paperbourse_venue::live", Level::INFO, true),
            ("info", "async_nats::connector", Level::INFO, false),
            ("info", "async_nats::connector", Level::WARN, true),
            ("debug", "async_nats::connector", Level::DEBUG, true),
            ("error", "async_nats::connector", Level::WARN, false),
        ] {
            let targets = filter.parse::<LogFilter>().unwrap().targets();
            let shown = format!("{filter}: {target} {level}");
            assert_eq!(targets.would_enable(target, &level), is_wanted, "{shown}");
        }
    }

    #[test]
    fn a_module_is_shown_as_it_is_filtered() {
        for (target, expected) in [
            ("paperbourse_core::clock", "paperbourse::clock"),
            ("paperbourse::ws::watch", "paperbourse::ws::watch"),
            ("paperbourse::access", "paperbourse::access"),
            ("paperbourse_store", CRATE),
            ("paperbourse_venue", "paperbourse::venue"),
            ("paperbourse_venue::feed", "paperbourse::venue::feed"),
            ("paperbourse_elsewhere::feed", "paperbourse_elsewhere::feed"),
            ("hyper::proto", "hyper::proto"),
        ] {
            let (package, path) = shown(target);
            assert_eq!(format!("{package}{path}"), expected);
        }
    }

    #[test]
    fn every_module_can_be_named() {
        let roots = [
            include_str!("../../../lib.rs"),
            include_str!("../../../core/lib.rs"),
            include_str!("../../../exchange/lib.rs"),
            include_str!("../../lib.rs"),
            include_str!("../../../store/lib.rs"),
        ];
        let modules = roots.iter().flat_map(|root| root.lines()).filter_map(|line| {
            let line = line.strip_suffix(';')?;
            let line = line.strip_prefix("pub ").unwrap_or(line);
            line.strip_prefix("mod ").or_else(|| Some(line.split_once(" as ")?.1))
        });
        let mut expected: Vec<&str> = modules.chain(["access"]).collect();
        let mut known = MODULES.to_vec();
        expected.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, expected);
    }
}
