//! Log lines: one event is one line, whatever text it contains.
//!
//! Much of the logged text comes from outside: close reasons, the venue's texts, a provider's
//! errors, file names. A line break in it could forge a log line, and a control sequence could hide
//! one on a terminal. Both are escaped here, for every event.

mod filter;
mod json;

use std::fmt::{self, Display, Write};
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

use clap::ValueEnum;
use tracing::Subscriber;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{DefaultFields, FormatFields, Writer};
use tracing_subscriber::fmt::{self as lines, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry, reload};

pub use filter::{LogFilter, LogFilterError};
use json::JsonLines;

/// How a log line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people on a terminal, else JSON.
    Auto,
    /// Time, level, text.
    Human,
    /// One JSON object per line.
    Json,
}

/// The handle that replaces the filter while the process runs.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Starts logging to standard output. Must be called once, before anything is logged.
pub fn start_logging(format: LogFormat, filter: &LogFilter) {
    let is_terminal = io::stdout().is_terminal();
    let (subscriber, handle) = subscriber(io::stdout, format, is_terminal, filter);
    let is_first = FILTER.set(handle).is_ok();
    let is_set = tracing::subscriber::set_global_default(subscriber).is_ok();
    assert!(is_first && is_set, "logging is started once");
}

/// Replaces the filter from now on. Does nothing if logging was not started.
pub fn set_log_filter(filter: &LogFilter) {
    if let Some(handle) = FILTER.get() {
        handle.reload(filter.targets()).expect("the subscriber lives as long as the process");
    }
}

fn subscriber<W>(
    writer: W,
    format: LogFormat,
    is_terminal: bool,
    filter: &LogFilter,
) -> (impl Subscriber + Send + Sync, reload::Handle<Targets, Registry>)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter.targets());
    // A failure to write the log must not end the process.
    let layer = lines::layer().with_writer(writer).log_internal_errors(false);
    let is_json = match format {
        LogFormat::Auto => !is_terminal,
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    let layer = if is_json {
        layer.event_format(JsonLines).boxed()
    } else {
        layer.with_target(false).with_ansi(is_terminal).fmt_fields(OneLineFields).boxed()
    };
    (tracing_subscriber::registry().with(filter).with(layer), handle)
}

/// Formats an event's fields, including its message, without line breaks.
struct OneLineFields;

impl<'a> FormatFields<'a> for OneLineFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'a>, fields: R) -> fmt::Result {
        let mut escaping = Escaping(writer);
        DefaultFields::new().format_fields(Writer::new(&mut escaping), fields)
    }
}

/// Displays a value on one line, with control characters escaped.
pub struct OneLine<T>(pub T);

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(formatter), "{}", self.0)
    }
}

struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut plain = 0;
        for (at, unsafe_char) in text.char_indices().filter(|&(_, char)| is_unsafe(char)) {
            self.0.write_str(&text[plain..at])?;
            write!(self.0, "{}", unsafe_char.escape_default())?;
            plain = at + unsafe_char.len_utf8();
        }
        self.0.write_str(&text[plain..])
    }
}

/// Whether a character can break a line, control a terminal, or reorder the displayed text.
fn is_unsafe(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines written while `log` runs.
    pub(super) fn logged(
        format: LogFormat,
        is_terminal: bool,
        filter: &LogFilter,
        log: impl FnOnce(),
    ) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let (subscriber, _) = subscriber(move || writer.clone(), format, is_terminal, filter);
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(sink.0.lock().clone()).unwrap()
    }

    #[test]
    fn a_terminal_gets_text_and_everything_else_json() {
        for (format, is_terminal, is_json) in [
            (LogFormat::Auto, true, false),
            (LogFormat::Auto, false, true),
            (LogFormat::Human, false, false),
            (LogFormat::Json, true, true),
        ] {
            let line = logged(format, is_terminal, &LogFilter::default(), || tracing::info!("a"));
            assert_eq!(line.starts_with('{'), is_json, "{format:?} {is_terminal}: {line}");
        }
    }

    #[test]
    fn a_filter_can_be_changed_while_logging() {
        let sink = Sink::default();
        let writer = sink.clone();
        let filter = |text: &str| text.parse::<LogFilter>().unwrap();
        let (subscriber, handle) =
            subscriber(move || writer.clone(), LogFormat::Human, false, &filter("warn"));
        tracing::subscriber::with_default(subscriber, || {
            for (new, level) in [("warn", "one"), ("info", "two"), ("off", "three")] {
                handle.reload(filter(new).targets()).unwrap();
                tracing::info!("line {level}");
            }
        });
        let text = String::from_utf8(sink.0.lock().clone()).unwrap();
        assert!(text.ends_with("INFO line two\n") && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn no_text_forges_a_line() {
        const TEXT: &str = "bye\r\n2026-11-22T00:00:00Z ERROR the journal is lost \u{1b}[2K \
                            \u{9b}2K \u{2028}\u{202e}\u{7f}\0é";
        #[derive(Debug, thiserror::Error)]
        #[error("{TEXT}")]
        struct Foreign;

        let error: &(dyn std::error::Error + 'static) = &Foreign;
        let events: [(&str, &dyn Fn()); 6] = [
            ("a displayed field", &|| tracing::warn!(reason = %TEXT, "closed")),
            ("a text field", &|| tracing::warn!(reason = TEXT, "closed")),
            ("a debugged field", &|| tracing::warn!(reason = ?TEXT, "closed")),
            ("an error", &|| tracing::warn!(error, "closed")),
            ("a displayed error", &|| tracing::warn!(error = %Foreign, "closed")),
            ("the message", &|| tracing::warn!("closed: {TEXT}")),
        ];
        for (name, log) in events {
            for is_terminal in [false, true] {
                let filter = LogFilter::default();
                let line = logged(LogFormat::Human, is_terminal, &filter, log);
                assert!(line.contains("closed") && line.contains("é"), "{name}: {line:?}");
                let text = line.strip_suffix('\n').unwrap();
                assert!(
                    !text.contains(|char| is_unsafe(char) && char != '\u{1b}'),
                    "{name}: {text:?}"
                );
                // Escape sequences that colour the level are allowed: the formatter writes those.
                assert!(!text.contains("\u{1b}[2K"), "{name}: {text:?}");
                assert!(is_terminal || !text.contains('\u{1b}'), "{name}: {text:?}");
            }
        }
    }

    #[test]
    fn only_control_characters_are_escaped() {
        for (text, shown) in [
            ("", ""),
            ("plain é ✓ text", "plain é ✓ text"),
            ("a\nb", "a\\nb"),
            ("\ttab\r", "\\ttab\\r"),
            ("\u{1b}[2K", "\\u{1b}[2K"),
            ("\u{202e}x\u{2028}", "\\u{202e}x\\u{2028}"),
        ] {
            assert_eq!(OneLine(text).to_string(), shown);
        }
    }
}
