//! The OTLP messages for traces, and the conversion of traces into spans. Attributes follow
//! OpenTelemetry's semantic conventions for HTTP; those that start with `paperbourse.` are our own.

use prost::{Message, Oneof};

use super::{Answered, Asked, Ended};
use paperbourse_exchange::trace::{Part, Stage};

const KIND_INTERNAL: i32 = 1;
const KIND_SERVER: i32 = 2;
const STATUS_ERROR: i32 = 2;

/// Flags of a sampled span that has no parent, or one in this process.
const FLAGS_LOCAL_PARENT: u32 = 0x101;
/// Flags of a sampled span whose parent is in another process.
const FLAGS_REMOTE_PARENT: u32 = 0x301;

/// The maximum number of characters logged of a collector's error message.
const COMPLAINT_MAX: usize = 200;

#[derive(Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Message)]
#[expect(clippy::struct_field_names, reason = "the names of OTLP")]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3, 5")]
    value: Option<Value>,
}

#[derive(Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(message, tag = "5")]
    List(ArrayValue),
}

#[derive(Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

/// A collector's response to an export request.
#[derive(Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

impl ExportResponse {
    /// Returns the number of spans rejected, at most `span_count`, and the collector's reason.
    pub(super) fn rejected(self, span_count: u64) -> (u64, String) {
        let Some(partial) = self.partial_success else { return (0, String::new()) };
        let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(span_count);
        (rejected, partial.error_message.chars().take(COMPLAINT_MAX).collect())
    }
}

impl From<&str> for AnyValue {
    fn from(text: &str) -> Self {
        Self { value: Some(Value::Text(text.to_owned())) }
    }
}

impl From<u64> for AnyValue {
    fn from(number: u64) -> Self {
        Self { value: Some(Value::Int(i64::try_from(number).unwrap_or(i64::MAX))) }
    }
}

fn attribute(key: &str, value: impl Into<AnyValue>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(value.into()) }
}

/// Builds the export request for these traces.
pub(super) fn request(batch: &[Ended]) -> ExportRequest {
    let attributes = vec![
        attribute("service.name", "paperbourse"),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let scope =
        Scope { name: "paperbourse".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let mut spans = Vec::new();
    for ended in batch {
        spans.push(ended.span());
        let parts = (1..).zip(&ended.parts.parts);
        spans.extend(parts.map(|(number, part)| ended.span_of_part(number, part)));
    }
    ExportRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
        }],
    }
}

impl Ended {
    /// Returns the Unix time in nanoseconds, this long after the request began.
    fn time_at(&self, elapsed_ns: u64) -> u64 {
        self.began_at.nanos().unsigned_abs().saturating_add(elapsed_ns)
    }

    /// Builds the span of the request itself.
    fn span(&self) -> Span {
        let mut attributes = self.asked.attributes();
        match &self.answered {
            Some(answered) => answered.describe(&mut attributes),
            None => attributes.push(attribute("error.type", "connection_closed")),
        }
        let account_id = self.parts.account_id;
        attributes.extend(account_id.map(|id| attribute("paperbourse.account_id", id)));
        let is_error = self.answered.is_some_and(|answered| answered.is_server_error());
        Span {
            trace_id: self.trace_id.to_vec(),
            span_id: self.span_id.to_be_bytes().to_vec(),
            parent_span_id: self.parent.map(|it| it.span_id.to_vec()).unwrap_or_default(),
            name: self.asked.span_name(),
            kind: KIND_SERVER,
            start_time_unix_nano: self.time_at(0),
            end_time_unix_nano: self.time_at(self.elapsed_ns),
            attributes,
            status: is_error.then_some(Status { code: STATUS_ERROR }),
            flags: if self.parent.is_some() { FLAGS_REMOTE_PARENT } else { FLAGS_LOCAL_PARENT },
        }
    }

    /// Builds the span of a part of the request, numbered from 1.
    fn span_of_part(&self, number: u64, part: &Part) -> Span {
        let &Part { stage, began_ns, ended_ns, position } = part;
        let position = position.map(|it| attribute("paperbourse.journal.position", it));
        Span {
            trace_id: self.trace_id.to_vec(),
            span_id: (self.span_id + number).to_be_bytes().to_vec(),
            parent_span_id: self.span_id.to_be_bytes().to_vec(),
            name: name_of(stage).to_owned(),
            kind: KIND_INTERNAL,
            start_time_unix_nano: self.time_at(began_ns),
            end_time_unix_nano: self.time_at(ended_ns.unwrap_or(self.elapsed_ns)),
            attributes: position.into_iter().collect(),
            status: None,
            flags: FLAGS_LOCAL_PARENT,
        }
    }
}

impl Asked {
    fn span_name(&self) -> String {
        let method = if self.method == "_OTHER" { "HTTP" } else { self.method };
        self.route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"))
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let ids = ArrayValue { values: vec![self.request_id.as_str().into()] };
        let ids = AnyValue { value: Some(Value::List(ids)) };
        let mut attributes = vec![
            attribute("http.request.method", self.method),
            attribute("url.scheme", "http"),
            attribute("network.protocol.version", self.version),
            attribute("http.response.header.x-request-id", ids),
        ];
        attributes.extend(self.route.map(|route| attribute("http.route", route)));
        attributes
    }
}

impl Answered {
    const fn is_server_error(&self) -> bool {
        self.status >= 500
    }

    fn describe(&self, attributes: &mut Vec<KeyValue>) {
        attributes.push(attribute("http.response.status_code", u64::from(self.status)));
        attributes.extend(self.key_id.map(|id| attribute("paperbourse.key_id", id)));
        if let Some(code) = self.error {
            attributes.push(attribute("paperbourse.error", code));
        }
        if self.is_server_error() {
            let status = self.status.to_string();
            attributes.push(attribute("error.type", self.error.unwrap_or(&status)));
        }
    }
}

/// Returns the name of a part's span.
const fn name_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Admission => "admission",
        Stage::Body => "body",
        Stage::Queue => "shard queue",
        Stage::Decision => "decision",
        Stage::Delay => "venue delay",
        Stage::Journal => "journal",
        Stage::Response => "response",
    }
}
