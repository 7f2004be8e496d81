//! Log lines: one event is one line, whatever text it contains.
//!
//! Much of the logged text comes from outside: close reasons, the venue's texts, a provider's
//! errors, file names. A line break in it could forge a log line, and a control sequence could hide
//! one on a terminal. Both are escaped here, for every event.

use std::fmt::{self, Display, Write};

use tracing::Subscriber;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{DefaultFields, FormatFields, Writer};
use tracing_subscriber::fmt::{self as lines, MakeWriter};

/// Logs to standard output: time, level, text. Call once, before anything else.
pub fn start_logging() {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    tracing::subscriber::set_global_default(subscriber(std::io::stdout, is_terminal))
        .expect("logging is started once");
}

fn subscriber<W>(writer: W, is_terminal: bool) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    lines::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_target(false)
        .with_ansi(is_terminal)
        .fmt_fields(OneLineFields)
        .with_writer(writer)
        .finish()
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
    use std::io;
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

    /// What `log` writes.
    fn logged(is_terminal: bool, log: impl FnOnce()) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = subscriber(move || writer.clone(), is_terminal);
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(sink.0.lock().clone()).unwrap()
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
                let line = logged(is_terminal, log);
                assert!(line.contains("closed") && line.contains("é"), "{name}: {line:?}");
                let text = line.strip_suffix('\n').unwrap();
                assert!(
                    !text.contains(|char| is_unsafe(char) && char != '\u{1b}'),
                    "{name}: {text:?}"
                );
                // The escape sequences that colour the level are our own.
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
