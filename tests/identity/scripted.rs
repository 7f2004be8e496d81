//! A scripted identity provider: it sends the replies that a test sets, and counts the requests.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The reply to a request for a path.
#[derive(Clone)]
pub(crate) enum Reply {
    /// 200 with this body.
    Body(String),
    /// Another status, with this header line.
    Status(u16, &'static str),
    /// No reply; the connection stays open.
    Silence,
}

/// The path of the discovery document.
pub(crate) const DISCOVERY: &str = "/.well-known/openid-configuration";

/// A provider that runs until the process ends.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    replies: HashMap<String, Reply>,
    counts: HashMap<String, usize>,
    /// Kept open, so that clients see no end of file.
    silent: Vec<TcpStream>,
}

impl Scripted {
    /// Starts a provider that publishes these keys.
    pub(crate) fn start(keys: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let provider = Self { address, state: Arc::default() };
        let issuer = provider.issuer();
        let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")});
        provider.reply(DISCOVERY, Reply::Body(document.to_string()));
        provider.reply("/keys", Reply::Body(json!({"keys": keys}).to_string()));
        let state = provider.state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &state);
            }
        });
        provider
    }

    /// The provider's URL.
    pub(crate) fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Replies to requests for this path with `reply` from now on.
    pub(crate) fn reply(&self, path: &str, reply: Reply) {
        self.state.lock().unwrap().replies.insert(path.to_owned(), reply);
    }

    /// The number of requests for this path.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.state.lock().unwrap().counts.get(path).copied().unwrap_or(0)
    }
}

fn answer(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head).unwrap() > 2 {}
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut state = state.lock().unwrap();
    *state.counts.entry(path.clone()).or_default() += 1;
    let reply = state.replies.get(&path).cloned().unwrap_or(Reply::Status(404, "x: y"));
    let text = match reply {
        Reply::Body(body) => {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        }
        Reply::Status(status, header) => {
            format!("HTTP/1.1 {status} Status\r\n{header}\r\ncontent-length: 0\r\n\r\n")
        }
        Reply::Silence => {
            state.silent.push(reader.into_inner());
            return;
        }
    };
    // The client may have closed the connection already.
    let _ = reader.get_mut().write_all(text.as_bytes());
}
