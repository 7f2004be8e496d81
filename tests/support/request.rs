//! An HTTP request and its bytes on the wire.

use std::io::Write as _;

use serde_json::Value;

/// A request. Sending it again sends the same bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    method: &'static str,
    path: String,
    host: &'static str,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
    is_chunked: bool,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: &'static str, path: impl Into<String>) -> Self {
        let path = path.into();
        let (headers, body) = (Vec::new(), Vec::new());
        Self { method, path, host: "test", headers, body, is_chunked: false }
    }

    /// The path, with its query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A `GET`.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    /// A `POST` of a JSON body.
    pub fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new("POST", path).json(body)
    }

    /// A `PATCH` with a JSON body.
    pub fn patch(path: impl Into<String>, body: &Value) -> Self {
        Self::new("PATCH", path).json(body)
    }

    /// A `DELETE`.
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path)
    }

    /// With a JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body(body.to_string())
    }

    /// With these bytes as a body, declared as JSON.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("content-type", "application/json")
    }

    /// With the body in chunks instead of a declared length.
    #[must_use]
    pub fn chunked(mut self) -> Self {
        self.is_chunked = true;
        self
    }

    /// To this host.
    #[must_use]
    pub fn host(self, host: &'static str) -> Self {
        Self { host, ..self }
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With an API key.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("x-api-key", key)
    }

    /// With an access token.
    #[must_use]
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    /// With an idempotency key.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.header("idempotency-key", name)
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json_body(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Whether the response has no body, whatever length it declares.
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// The bytes on the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes =
            format!("{} {} HTTP/1.1\r\nhost: {}\r\n", self.method, self.path, self.host)
                .into_bytes();
        if self.is_chunked {
            bytes.extend_from_slice(b"transfer-encoding: chunked\r\n");
        } else if !self.body.is_empty() || self.method == "POST" {
            write!(bytes, "content-length: {}\r\n", self.body.len()).unwrap();
        }
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        if self.is_chunked {
            for chunk in self.body.chunks(4096) {
                write!(bytes, "{:x}\r\n", chunk.len()).unwrap();
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_these_bytes() {
        for (request, expected) in [
            (Request::get("/a?b"), "GET /a?b HTTP/1.1\r\nhost: test\r\n\r\n"),
            (
                Request::new("POST", "/a").key("k"),
                "POST /a HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\nx-api-key: k\r\n\r\n",
            ),
            (
                Request::patch("/a", &json!({})).bearer("t").named("n"),
                "PATCH /a HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\
                 content-type: application/json\r\nauthorization: Bearer t\r\n\
                 idempotency-key: n\r\n\r\n{}",
            ),
            (
                Request::delete("/a").body("x").chunked(),
                "DELETE /a HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\
                 content-type: application/json\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            ),
        ] {
            assert_eq!(String::from_utf8(request.to_bytes()).unwrap(), expected);
        }
    }
}
