//! A client that sends one request after the other over one connection, and reads whole answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// A connection with its credential.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    /// A header line, or nothing.
    credential: String,
}

/// An answer.
pub(crate) struct Answer {
    /// The status of the response.
    pub(crate) status: u16,
    /// The body as text.
    pub(crate) body: String,
}

impl Client {
    /// Connects; every request will carry this header line.
    pub(crate) fn connect(address: &str, credential: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), credential: credential.to_owned() }
    }

    /// Asks without a body.
    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.send(&format!("GET {target} HTTP/1.1\r\n{}\r\n", self.head()), "")
    }

    /// Sends a body of JSON.
    pub(crate) fn post(&mut self, target: &str, json: &str) -> Answer {
        let head = self.head();
        let length = json.len();
        self.send(
            &format!("POST {target} HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n"),
            json,
        )
    }

    fn head(&self) -> String {
        let Self { credential, .. } = self;
        let line = if credential.is_empty() { String::new() } else { format!("{credential}\r\n") };
        format!("Host: paperbourse\r\nContent-Type: application/json\r\n{line}")
    }

    fn send(&mut self, head: &str, body: &str) -> Answer {
        self.stream.get_mut().write_all(format!("{head}{body}").as_bytes()).unwrap();
        let status = self.line().split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = 0;
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(told) = line.strip_prefix("content-length:") {
                length = told.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        Answer { status, body: String::from_utf8(body).unwrap() }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "the connection ended in the middle of an answer");
        line.trim_end().to_owned()
    }
}
