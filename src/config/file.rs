//! The configuration file: TOML with one key per flag, and nothing else.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

#[cfg(unix)]
use rustix::fs::OFlags;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of the file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A top-level key of the file, with its value.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Line of the key, counted from 1.
    pub(super) line: usize,
    pub(super) value: Value,
}

/// The value of a key.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// A string, a number or a boolean, in the form that the flag takes.
    One(String),
    /// A list of strings, numbers or booleans, each in the form that the flag takes.
    List(Vec<String>),
    /// A table, reduced to its keys.
    Table(Vec<String>),
    /// A value that no flag takes, as a description for the error message.
    Other(&'static str),
}

/// An error that keeps a file from being read.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// The file cannot be read.
    #[error("failed to read the file of --config: {0}")]
    Read(#[from] io::Error),
    /// The path is not a regular file, but for example a pipe or a folder.
    #[error("the file of --config must be a regular file, which SIGHUP can read again")]
    Kind,
    /// The file is longer than [`FILE_BYTES_MAX`].
    #[error("the file of --config is longer than {FILE_BYTES_MAX} bytes")]
    TooLong,
    /// The file is not UTF-8 text.
    #[error("the file of --config is not UTF-8 text")]
    NotText,
    /// The file is not valid TOML; `line` is counted from 1.
    #[error("{text}")]
    Syntax { line: usize, text: String },
}

/// Reads the entries of a file, in file order.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, FileError> {
    let mut bytes = Vec::new();
    let mut options = OpenOptions::new();
    options.read(true);
    // Without this, opening a pipe blocks until a writer opens it too.
    #[cfg(unix)]
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(FileError::Kind);
    }
    // One byte more than allowed, to tell a longer file from a file of the maximum size.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::TooLong);
    }
    parse(&String::from_utf8(bytes).map_err(|_| FileError::NotText)?)
}

fn parse(text: &str) -> Result<Vec<Entry>, FileError> {
    let line = |offset: usize| 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        let line = line(error.span().map_or(0, |span| span.start));
        let row = text.lines().nth(line - 1).unwrap_or_default();
        FileError::Syntax { line, text: quoted(row).unwrap_or_else(|| error.message().to_owned()) }
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_unstable_by_key(|(name, _)| name.span().start);
    let entries = entries.into_iter().map(|(name, value)| Entry {
        name: name.get_ref().to_string(),
        line: line(name.span().start),
        value: value_of(value.get_ref()),
    });
    Ok(entries.collect())
}

/// Suggests a replacement for the line if its value only lacks quotes.
fn quoted(row: &str) -> Option<String> {
    let (name, value) = row.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let quoted = format!("\"{value}\"");
    let is_cure = DeValue::parse(value).is_err() && DeValue::parse(&quoted).is_ok();
    is_cure.then(|| format!("text needs quotes: write {name} = {quoted}"))
}

fn value_of(value: &DeValue<'_>) -> Value {
    if let Some(text) = scalar(value) {
        return Value::One(text);
    }
    match value {
        DeValue::Array(values) => {
            let values = values.iter().map(|value| scalar(value.get_ref()));
            values.collect::<Option<_>>().map_or(Value::Other("a list of lists"), Value::List)
        }
        DeValue::Table(table) => {
            Value::Table(table.keys().map(Spanned::get_ref).map(ToString::to_string).collect())
        }
        DeValue::Integer(_) => Value::Other("a number that is not decimal"),
        _ => Value::Other("a date or a time"),
    }
}

/// Returns a value in the form that a flag takes, or `None` if no flag takes it.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_pipe_or_a_folder_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for path in [pipe.as_path(), folder.path()] {
            let found = read(path);
            assert!(matches!(found, Err(FileError::Kind)), "{}: {found:?}", path.display());
        }
    }

    #[test]
    fn values_are_read_as_the_flags_would_take_them() {
        for (text, expected) in [
            ("a = \"text\"", Value::One("text".into())),
            ("a = 'C:\\data'", Value::One("C:\\data".into())),
            ("a = 1_000", Value::One("1000".into())),
            ("a = -5", Value::One("-5".into())),
            ("a = 2.5", Value::One("2.5".into())),
            ("a = true", Value::One("true".into())),
            ("a = []", Value::List(Vec::new())),
            ("a = [\"x\", 5]", Value::List(vec!["x".into(), "5".into()])),
            ("a = [[\"x\"]]", Value::Other("a list of lists")),
            ("a = 0x10", Value::Other("a number that is not decimal")),
            ("a = 2026-11-23", Value::Other("a date or a time")),
            ("[a]\nb = 1\nc = 2", Value::Table(vec!["b".into(), "c".into()])),
            ("a.b = 1", Value::Table(vec!["b".into()])),
        ] {
            let text = format!("# A comment.\n\n{text}\n");
            let entries = parse(&text).unwrap();
            let line = if text.contains("[a]") { 3 } else { entries[0].line };
            assert_eq!(entries, [Entry { name: "a".into(), line, value: expected }], "{text}");
            assert_eq!(line, 3, "{text}");
        }
    }

    #[test]
    fn entries_keep_their_order_and_errors_their_line() {
        let names = |text| {
            let entries = parse(text).unwrap().into_iter();
            entries.map(|entry| (entry.name, entry.line)).collect::<Vec<_>>()
        };
        assert_eq!(names("b = 1\r\n\r\na = 2\n"), [("b".into(), 1), ("a".into(), 3)]);
        assert_eq!(names(""), []);
        for (text, expected) in [
            ("a = 1\nb = 127.0.0.1:80\n", 2),
            ("a = 1\nb = x\n", 2),
            ("a = 1\na = 2\n", 2),
            ("\n\na\n", 3),
            ("a = \"x\n", 1),
            ("a = [\"x\"\n", 1),
        ] {
            match parse(text) {
                Err(FileError::Syntax { line, text: message }) => {
                    assert!(line == expected || text.contains('['), "{text:?}: {line}: {message}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }
}
