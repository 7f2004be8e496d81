//! A whole HTTP response.

use serde_json::Value;

/// A whole response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// All headers in their order, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub text: String,
}

impl Response {
    /// Reads a head: the status line and the headers, up to the empty line.
    #[track_caller]
    pub fn from_head(head: &str) -> Self {
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
        let status = status.parse().unwrap_or_else(|_| panic!("not a response: {head:?}"));
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Self { status, headers, text: String::new() }
    }

    /// The declared length of the body; 0 if there is none.
    #[track_caller]
    pub fn length(&self) -> usize {
        self.header("content-length").map_or(0, |text| text.parse().unwrap())
    }

    /// The value of a header; `None` if it is missing. Panics if there are two.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} was sent twice: {self:?}");
        value
    }

    /// Whether the server repeated an earlier answer instead of acting again.
    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Whether the server was too busy to do anything, and would hear the request again.
    pub fn is_busy(&self) -> bool {
        self.status == 503
            && self.header("x-polysim-code") == Some("SERVER_BUSY")
            && self.header("connection") != Some("close")
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as JSON, after checking the status.
    #[track_caller]
    pub fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }
}
