//! Writes and parses single lines of a tape.

use std::borrow::Cow;
use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::queue::{Entry, Payload};

/// The start of every line, before its number.
const NUMBER_KEY: &[u8] = br#"{"n":"#;

/// A parsed line. Keys that its kind does not have are `None`.
#[derive(Deserialize, Debug)]
#[expect(missing_docs, reason = "the table in the module's documentation lists them")]
pub struct Line<'a> {
    pub n: u64,
    pub ns: i64,
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    pub version: Option<u32>,
    pub markets_max: Option<usize>,
    pub lag_max_ms: Option<u64>,
    pub socket: Option<usize>,
    pub connection: Option<u64>,
    #[serde(borrow)]
    pub get: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub ids: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    pub second: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    pub third: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    pub tokens: Option<Vec<Cow<'a, str>>>,
    pub ask: Option<u64>,
    pub lines: Option<u64>,
    #[serde(borrow)]
    json: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    base64: Option<Cow<'a, str>>,
}

/// The payload of a line is not valid base64.
#[derive(Debug, thiserror::Error)]
#[error("invalid base64 payload: {0}")]
pub struct PayloadError(#[from] base64::DecodeError);

impl<'a> Line<'a> {
    /// Parses a line.
    pub fn read(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }

    /// Returns the received bytes; `None` for a line without a payload.
    pub fn payload(&self) -> Result<Option<Cow<'_, [u8]>>, PayloadError> {
        Ok(if let Some(json) = self.json {
            Some(Cow::Borrowed(json.get().as_bytes()))
        } else if let Some(text) = &self.text {
            Some(Cow::Borrowed(text.as_bytes()))
        } else if let Some(base64) = &self.base64 {
            Some(Cow::Owned(BASE64.decode(&**base64)?))
        } else {
            None
        })
    }
}

/// Parses the number of a line without parsing the rest.
pub(super) fn number(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(NUMBER_KEY)?;
    let end = digits.iter().position(|byte| *byte == b',')?;
    str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// Appends a line to `out`.
pub(super) fn write(out: &mut Vec<u8>, number: u64, entry: &Entry) {
    out.extend_from_slice(NUMBER_KEY);
    let _ = write!(out, r#"{number},"ns":{},"#, entry.at.nanos());
    out.extend_from_slice(entry.fields.as_bytes());
    let bytes = entry.payload.bytes();
    match (&entry.payload, str::from_utf8(bytes)) {
        (Payload::None, _) => {}
        (Payload::Error(error), _) => write_string(out, "error", error),
        (_, Ok(text)) if is_json_of_one_line(text) => {
            out.extend_from_slice(br#","json":"#);
            out.extend_from_slice(bytes);
        }
        (_, Ok(text)) => write_string(out, "text", text),
        (_, Err(_)) => write_string(out, "base64", &BASE64.encode(bytes)),
    }
    out.extend_from_slice(b"}\n");
}

fn write_string(out: &mut Vec<u8>, key: &str, text: &str) {
    let _ = write!(out, r#","{key}":"#);
    serde_json::to_writer(out, text).expect("writing a string to memory cannot fail");
}

/// Returns whether the text can be embedded in a line as JSON and read back unchanged.
fn is_json_of_one_line(text: &str) -> bool {
    let is_whole = |raw: &RawValue| raw.get().len() == text.len();
    !text.contains(['\n', '\r']) && serde_json::from_str::<&RawValue>(text).is_ok_and(is_whole)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::tape::Folder;
    use paperbourse_core::ids::Timestamp;

    fn written(payload: Payload) -> String {
        let (at, fields) = (Timestamp::from_nanos(12), r#""kind":"frame","socket":3"#.to_owned());
        let mut out = Vec::new();
        write(&mut out, 7, &Entry { at, folder: Folder::Ws, fields, payload });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_payload_is_written_as_json_text_or_base64() {
        let bytes = |bytes: &'static [u8]| Payload::Bytes(Bytes::from_static(bytes));
        for (payload, expected) in [
            (bytes(br#"{ "a" : 1.50 }"#), r#","json":{ "a" : 1.50 }"#),
            (bytes(b"[1]"), r#","json":[1]"#),
            (bytes(b"[1] "), r#","text":"[1] ""#),
            (bytes(b"[1,\n2]"), r#","text":"[1,\n2]""#),
            (bytes(b"[1,\r2]"), r#","text":"[1,\r2]""#),
            (bytes(b"{\"a\":"), r#","text":"{\"a\":""#),
            (bytes(b""), r#","text":"""#),
            (bytes(b"NO NEW ASSETS"), r#","text":"NO NEW ASSETS""#),
            (bytes(b"\xff\x00"), r#","base64":"/wA=""#),
            (Payload::Error("no\"".to_owned()), r#","error":"no\"""#),
            (Payload::None, ""),
        ] {
            let line = written(payload);
            let head = r#"{"n":7,"ns":12,"kind":"frame","socket":3"#;
            assert_eq!(line, format!("{head}{expected}}}\n"));
            assert_eq!(number(line.as_bytes()), Some(7));
            assert_eq!(Line::read(line.as_bytes()).unwrap().socket, Some(3));
        }
        for line in ["", "{}", r#"{"n":x,"#, r#"{"n":1"#, r#"{"ns":1,"n":2}"#] {
            assert_eq!(number(line.as_bytes()), None, "{line}");
        }
    }

    fn check_round_trip(bytes: &[u8]) {
        let line = written(Payload::Bytes(bytes.to_vec().into()));
        assert_eq!(line.lines().count(), 1);
        let read = Line::read(line.as_bytes()).unwrap();
        assert_eq!(read.payload().unwrap().as_deref(), Some(bytes), "{line}");
    }

    proptest! {
        #[test]
        fn every_payload_round_trips(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            check_round_trip(&bytes);
        }

        #[test]
        fn text_like_json_round_trips(text in r#"[ \n\t\r{}\[\],:"\\eE.0-9a-u\u{2028}é-]{0,40}"#) {
            check_round_trip(text.as_bytes());
        }
    }
}
