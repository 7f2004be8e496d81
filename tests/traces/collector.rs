//! A stand-in for an OpenTelemetry collector. It decodes what it is sent with the official messages
//! of OTLP, not with those of the server.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use paperbourse_test_support::PATIENCE;
use paperbourse_test_support::otlp::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use paperbourse_test_support::otlp::common::v1::{AnyValue, any_value};
use paperbourse_test_support::otlp::trace::v1::Span as RawSpan;
use prost::Message as _;

/// How a collector answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mood {
    /// It takes everything.
    Takes,
    /// It takes all but this many spans of each request.
    Rejects(i64),
    /// With status 500.
    Fails,
    /// It reads the request and never answers.
    Hangs,
}

/// A span as the collector understood it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace_id: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) kind: i32,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) is_error: bool,
    pub(crate) flags: u32,
}

impl Span {
    /// The value of an attribute, as text; empty if it is missing.
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

/// A collector that listens on a port of its own, as long as the process lives.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    received: Arc<Received>,
}

#[derive(Default)]
struct Received {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Every byte that arrived, request by request.
    bytes: Vec<Vec<u8>>,
    spans: Vec<Span>,
    resources: Vec<BTreeMap<String, String>>,
}

impl Collector {
    pub(crate) fn start(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Received>::default();
        thread::spawn({
            let received = received.clone();
            move || {
                for stream in listener.incoming() {
                    let received = received.clone();
                    thread::spawn(move || serve(stream.unwrap(), mood, &received));
                }
            }
        });
        Self { address, received }
    }

    /// The spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.state(|state| state.spans.clone())
    }

    /// What the spans so far say of their sender, request by request.
    pub(crate) fn resources(&self) -> Vec<BTreeMap<String, String>> {
        self.state(|state| state.resources.clone())
    }

    /// The number of requests so far.
    pub(crate) fn request_count(&self) -> usize {
        self.state(|state| state.bytes.len())
    }

    /// Whether these bytes arrived in any request.
    pub(crate) fn has_received(&self, text: &str) -> bool {
        let is_in = |bytes: &Vec<u8>| bytes.windows(text.len()).any(|it| it == text.as_bytes());
        self.state(|state| state.bytes.iter().any(is_in))
    }

    /// Waits for the span of the request with this id, and returns it with its children in the
    /// order of their beginnings.
    #[track_caller]
    pub(crate) fn trace_of(&self, request_id: &str) -> (Span, Vec<Span>) {
        let is_it =
            |span: &&Span| span.attribute("http.response.header.x-request-id") == request_id;
        let state = self.received.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |state: &mut State| !state.spans.iter().any(|span| is_it(&span));
        let waited = self.received.changed.wait_timeout_while(state, PATIENCE, is_missing);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let span = state.spans.iter().find(is_it);
        let span = span.unwrap_or_else(|| panic!("no span of {request_id}: {:?}", state.spans));
        let is_child = |other: &&Span| other.trace_id == span.trace_id && other.parent == span.id;
        let mut children: Vec<Span> = state.spans.iter().filter(is_child).cloned().collect();
        children.sort_by_key(|span| (span.began_ns, span.ended_ns));
        (span.clone(), children)
    }

    fn state<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.received.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, mood: Mood, received: &Received) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some((head, body)) = read(&mut reader) {
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        let is_protobuf =
            head.to_lowercase().contains("\r\ncontent-type: application/x-protobuf\r\n");
        assert!(is_protobuf, "{head}");
        note(received, head, &body);
        let partial = match mood {
            Mood::Takes => None,
            Mood::Rejects(rejected_spans) => {
                let error_message = "out of room".to_owned();
                Some(ExportTracePartialSuccess { rejected_spans, error_message })
            }
            Mood::Fails => {
                writer.write_all(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n").unwrap();
                continue;
            }
            Mood::Hangs => {
                // Until the server gives up.
                drop(reader.read_to_end(&mut Vec::new()));
                return;
            }
        };
        let answer = ExportTraceServiceResponse { partial_success: partial }.encode_to_vec();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
        writer.write_all(&[head.as_bytes(), &answer].concat()).unwrap();
    }
}

/// Reads a request; `None` if the connection has ended.
fn read(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.expect("a request has a length")];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn note(received: &Received, head: String, body: &[u8]) {
    let request = ExportTraceServiceRequest::decode(body).expect("a request of OTLP");
    let mut state = received.state.lock().unwrap_or_else(PoisonError::into_inner);
    state.bytes.push([head.into_bytes(), body.to_vec()].concat());
    for of_resource in request.resource_spans {
        let resource = of_resource.resource.expect("spans say who sent them");
        let attributes = resource.attributes.into_iter().map(|it| (it.key, text(it.value)));
        state.resources.push(attributes.collect());
        for of_scope in of_resource.scope_spans {
            state.spans.extend(of_scope.spans.into_iter().map(understood));
        }
    }
    drop(state);
    received.changed.notify_all();
}

fn understood(span: RawSpan) -> Span {
    assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8), "{span:?}");
    assert!(span.trace_id.iter().any(|&byte| byte != 0), "{span:?}");
    assert!(span.span_id.iter().any(|&byte| byte != 0), "{span:?}");
    let count = span.attributes.len();
    let attributes: BTreeMap<_, _> =
        span.attributes.into_iter().map(|it| (it.key, text(it.value))).collect();
    assert_eq!(attributes.len(), count, "an attribute twice: {attributes:?}");
    Span {
        trace_id: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name,
        kind: span.kind,
        began_ns: span.start_time_unix_nano,
        ended_ns: span.end_time_unix_nano,
        attributes,
        is_error: span.status.is_some_and(|status| status.code == 2),
        flags: span.flags,
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from_digit(digit.into(), 16).unwrap()).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::ArrayValue(list)) => {
            let values: Vec<_> = list.values.into_iter().map(|value| text(Some(value))).collect();
            values.join(",")
        }
        other => panic!("no such value is sent: {other:?}"),
    }
}
