//! Log lines as JSON: one object per line, with the time, the level, the target, the message and
//! the other fields.

use std::error::Error;
use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::{filter, is_unsafe};
use paperbourse_venue::client::with_causes;

/// Formats each event as a JSON object.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (metadata, Fields { message, others }) = (event.metadata(), fields);
        writer.write_str("{\"time\":\"")?;
        SystemTime.format_time(&mut writer)?;
        write!(writer, "\",\"level\":\"{}\",\"target\":", metadata.level())?;
        let (package, path) = filter::shown(metadata.target());
        write_text(&mut writer, &format!("{package}{path}"))?;
        writer.write_str(",\"message\":")?;
        write_text(&mut writer, &message)?;
        writeln!(writer, ",\"fields\":{{{others}}}}}")
    }
}

/// The fields of an event: its message as text, and the others as the members of a JSON object.
#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Fields {
    fn text(&mut self, field: &Field, text: &str) {
        if field.name() == "message" {
            self.message.push_str(text);
        } else {
            self.name(field);
            let _ = write_text(&mut self.others, text);
        }
    }

    fn number(&mut self, field: &Field, number: impl fmt::Display) {
        self.name(field);
        let _ = write!(self.others, "{number}");
    }

    fn name(&mut self, field: &Field) {
        if !self.others.is_empty() {
            self.others.push(',');
        }
        let _ = write_text(&mut self.others, field.name());
        self.others.push(':');
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.text(field, &with_causes(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity and no NaN, so these values are written as text.
        if value.is_finite() {
            self.number(field, value);
        } else {
            self.text(field, &value.to_string());
        }
    }
}

/// Writes a JSON string. Characters that could control a terminal are escaped too.
fn write_text(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for char in text.chars() {
        match char {
            '"' | '\\' => write!(out, "\\{char}")?,
            char if is_unsafe(char) => write!(out, "\\u{:04x}", u32::from(char))?,
            char => out.write_char(char)?,
        }
    }
    out.write_char('"')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::logged;
    use super::super::{LogFilter, LogFormat};

    fn line(log: impl FnOnce()) -> (Value, String) {
        let text = logged(LogFormat::Json, false, &LogFilter::default(), log);
        let mut value: Value = serde_json::from_str(&text).expect(&text);
        assert!(text.ends_with('\n') && text.matches('\n').count() == 1, "{text:?}");
        let time = value.as_object_mut().unwrap().remove("time").unwrap();
        assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{time}");
        (value, text)
    }

    #[test]
    fn a_line_is_an_object_with_its_message_and_fields() {
        let error: &(dyn std::error::Error + 'static) = &std::io::Error::other("out of paper");
        let text = "a \"b\"\\\n\u{1b}[2K\u{202e}é";
        let (value, line) = line(|| {
            tracing::warn!(
                target: "paperbourse::server",
                count = 3_u64,
                below = -1_i64,
                share = 0.5,
                none = f64::NAN,
                is_on = true,
                error,
                text,
                shown = %text,
                "printed {text}"
            );
        });
        assert_eq!(
            value,
            json!({
                "level": "WARN",
                "target": "paperbourse::server",
                "message": format!("printed {text}"),
                "fields": {
                    "count": 3,
                    "below": -1,
                    "share": 0.5,
                    "none": "NaN",
                    "is_on": true,
                    "error": "out of paper",
                    "text": text,
                    "shown": text,
                },
            })
        );
        assert!(!line.contains(['\u{1b}', '\u{202e}']), "{line:?}");
    }

    #[test]
    fn the_address_stays_in_the_message() {
        let (value, text) = line(|| tracing::info!("listening on http://{}", "127.0.0.1:8080"));
        assert_eq!(value["message"], "listening on http://127.0.0.1:8080");
        assert_eq!(value["fields"], json!({}));
        assert!(text.contains("\"message\":\"listening on http://127.0.0.1:8080\""), "{text}");
    }
}
