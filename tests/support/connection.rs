//! A blocking connection.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Request, Response};

/// A server that leaves a request unanswered for this long hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where nothing listens: the discard port.
pub const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

/// How long a client waits before it asks a busy server again.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Reads, and again if a stop of this process has interrupted that: the kernel does not resume a
/// read that has a time limit.
pub fn uninterrupted<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// One connection, kept alive, with one request at a time.
pub struct Connection {
    stream: BufReader<TcpStream>,
}

/// A connection that sends the same credential with every request.
pub struct Client {
    connection: Connection,
    credential: Option<(&'static str, String)>,
}

impl Connection {
    /// Connects.
    #[track_caller]
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap()
    }

    /// Connects, or returns an error if nothing listens.
    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        Self::try_open_within(address, PATIENCE)
    }

    /// The same to a server that has this long for each answer.
    pub fn try_open_within(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// The local port, which identifies the connection at the other end.
    pub fn port(&self) -> u16 {
        self.stream.get_ref().local_addr().unwrap().port()
    }

    /// Writes bytes that the server must read.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Writes bytes that the server may no longer want to read.
    pub fn try_write(&mut self, bytes: &[u8]) {
        // A server may answer and close before it has read the whole body.
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// Sends a request and reads its response. A server that is busy, as with a slow disk, has done
    /// nothing and is asked again.
    #[track_caller]
    pub fn send(&mut self, request: &Request) -> Response {
        let began = Instant::now();
        loop {
            self.try_write(&request.to_bytes());
            let response = self.read(request.is_head());
            if !response.is_busy() || began.elapsed() > PATIENCE {
                return response;
            }
            thread::park_timeout(BUSY_PAUSE);
        }
    }

    /// Sends a request and reads its response. After an error its outcome is unknown.
    pub fn try_send(&mut self, request: &Request) -> io::Result<Response> {
        self.stream.get_mut().write_all(&request.to_bytes())?;
        self.try_read(request.is_head())
    }

    /// The response to a request that must succeed.
    #[track_caller]
    pub fn done(&mut self, request: &Request) -> Response {
        let response = self.send(request);
        assert!(matches!(response.status, 200 | 201), "{request:?}: {response:?}");
        response
    }

    /// The next response. A response to `HEAD` has no body, whatever length it declares.
    #[track_caller]
    pub fn read(&mut self, is_head: bool) -> Response {
        self.try_read(is_head).unwrap_or_else(|error| panic!("no response: {error}"))
    }

    /// The next response, or an error if there is none.
    pub fn try_read(&mut self, is_head: bool) -> io::Result<Response> {
        let response = self.read_head()?;
        if is_head { Ok(response) } else { self.read_body(response) }
    }

    /// The head of the next response.
    #[track_caller]
    pub(crate) fn read_head(&mut self) -> io::Result<Response> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("the connection ended after {head:?}"),
                ));
            }
        }
        Ok(Response::from_head(&head))
    }

    /// Adds the body to a response of which only the head was read.
    #[track_caller]
    pub(crate) fn read_body(&mut self, mut response: Response) -> io::Result<Response> {
        let mut body = vec![0; response.length()];
        self.stream.read_exact(&mut body)?;
        response.text = String::from_utf8(body).unwrap();
        Ok(response)
    }

    /// Whether the server has closed the connection without sending another byte.
    pub fn is_ended(&mut self) -> bool {
        let is_empty = uninterrupted(|| self.stream.fill_buf().map(<[u8]>::is_empty));
        // A reset counts as closed.
        is_empty.unwrap_or_default() || self.has_failed()
    }

    fn has_failed(&self) -> bool {
        self.stream.get_ref().take_error().is_ok_and(|error| error.is_some())
    }

    /// The stream, with any buffered bytes.
    pub fn into_stream(self) -> BufReader<TcpStream> {
        self.stream
    }
}

impl Client {
    /// Connects without a credential.
    #[track_caller]
    pub fn anonymous(address: SocketAddr) -> Self {
        Self { connection: Connection::open(address), credential: None }
    }

    /// Connects with an API key.
    #[track_caller]
    pub fn with_key(address: SocketAddr, key: &str) -> Self {
        Self { credential: Some(("x-api-key", key.to_owned())), ..Self::anonymous(address) }
    }

    /// Connects with an access token.
    #[track_caller]
    pub fn with_token(address: SocketAddr, token: &str) -> Self {
        let credential = Some(("authorization", format!("Bearer {token}")));
        Self { credential, ..Self::anonymous(address) }
    }

    /// Sends a `GET`.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Response {
        self.send(Request::get(path))
    }

    /// Sends a `POST` of a JSON body.
    #[track_caller]
    pub fn post(&mut self, path: &str, body: &Value) -> Response {
        self.send(Request::post(path, body))
    }

    /// Sends a request with the credential.
    #[track_caller]
    pub fn send(&mut self, request: Request) -> Response {
        let request = match &self.credential {
            Some((name, value)) => request.header(name, value.as_str()),
            None => request,
        };
        self.connection.send(&request)
    }
}
