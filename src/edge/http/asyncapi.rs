//! The AsyncAPI 3.0 document of the WebSockets and the price stream, built from their rows in the
//! table of operations and the schemas of the frames.
//!
//! The document takes the server's point of view: the server *receives* what clients send. The
//! examples are frames recorded from a running server; a test compares them with the frames that a
//! server sends today.

use std::sync::LazyLock;

use schemars::generate::{Contract, SchemaSettings};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::file::File;
use super::openapi::{one_line, schema_of_kind, sentence};
use super::operation::{Access, Operation};
use super::operations::OPERATIONS;
use crate::ws::CLIENT_FRAME_BYTES_MAX;
use crate::ws::close::CloseReason;
use crate::ws::event_stream::{Event, KEEPALIVE_INTERVAL, MARKETS_MAX};
use crate::ws::execution_frame::{ExecutionReply, ExecutionRequest, Fill};
use crate::ws::price_frame::{Price, StatusChange};
use crate::ws::protocol::{PriceReply, Reply, Request};
use crate::ws::watch::{PING_INTERVAL, SILENCE_MAX};
use paperbourse_core::wire::{SchemaOf, schema_of};

const INFO: &str = "\
The WebSockets and the stream of prices of a self-hosted paper exchange for prediction markets; \
`/openapi.json` describes everything else. Prices, sizes and money are text. Messages may get new \
fields, and there may be new types of messages: ignore those that you do not know.";

/// The file served at `GET /asyncapi.json`.
pub(super) static FILE: LazyLock<File> = LazyLock::new(|| {
    let text = serde_json::to_vec(&document()).expect("a tree of JSON values has a text");
    File::new("application/json", text)
});

/// A path on which the server sends messages.
struct Channel {
    name: &'static str,
    path: &'static str,
    server: &'static str,
    /// Schemas of the messages that the server sends. Each schema is one message or a choice of
    /// several.
    sends: &'static [SchemaOf],
    /// Schemas of the messages that the server receives, in the same form.
    receives: &'static [SchemaOf],
    /// The possible replies to each received message. All other messages are sent unprompted.
    replies: &'static [(&'static str, &'static [&'static str])],
}

const CHANNELS: [Channel; 3] = [
    Channel {
        name: "prices",
        path: "/v1/ws/prices",
        server: "sockets",
        sends: &[
            schema_of::<PriceReply<'static>>,
            schema_of::<Price<'static>>,
            schema_of::<StatusChange<'static>>,
            REPLY,
        ],
        receives: &[schema_of::<Request>],
        replies: &[
            ("subscribe", &["subscribed", "error"]),
            ("unsubscribe", &["subscribed", "error"]),
            ("ping", &["pong"]),
        ],
    },
    Channel {
        name: "executions",
        path: "/v1/ws/executions",
        server: "sockets",
        sends: &[schema_of::<ExecutionReply>, schema_of::<Fill<'static>>, REPLY],
        receives: &[schema_of::<ExecutionRequest>],
        replies: &[
            ("resume", &["resumed", "error"]),
            ("subscribe", &["subscribed"]),
            ("ping", &["pong"]),
        ],
    },
    Channel {
        name: "stream",
        path: "/prices/stream",
        server: "streams",
        sends: &[schema_of::<Event>],
        receives: &[],
        replies: &[],
    },
];

const REPLY: SchemaOf = schema_of::<Reply<'static>>;

/// Builds the AsyncAPI document.
pub fn document() -> Value {
    let mut sent = generator(Contract::Serialize);
    let mut received = generator(Contract::Deserialize);
    let mut channels = Map::new();
    let mut operations = Map::new();
    for channel in &CHANNELS {
        let sends = channel.messages(channel.sends, &mut sent);
        let receives = channel.messages(channel.receives, &mut received);
        operations.extend(channel.operations(&sends, &receives));
        let messages = receives.into_iter().chain(sends).collect();
        channels.insert(channel.name.to_owned(), channel.describe(&messages));
    }
    let mut schemas = received.take_definitions(true);
    schemas.extend(sent.take_definitions(true));
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "paperbourse",
            "version": env!("CARGO_PKG_VERSION"),
            "description": INFO,
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "defaultContentType": "application/json",
        "servers": servers(),
        "channels": channels,
        "operations": operations,
        "components": {
            "schemas": one_line(Value::Object(schemas)),
            "securitySchemes": security_schemes(),
        },
    })
}

/// Creates a generator of draft 7 schemas, the version on which AsyncAPI's own schemas are based.
fn generator(contract: Contract) -> SchemaGenerator {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings.contract = contract;
    });
    settings.into_generator()
}

fn servers() -> Value {
    let server = |protocol: &str, secure: &str| {
        json!({
            "host": "{address}",
            "protocol": protocol,
            "description": format!("Behind a proxy that speaks TLS, `{secure}`."),
            "variables": { "address": {
                "default": "127.0.0.1:8080",
                "description": "The host that this document comes from.",
            }},
        })
    };
    let mut servers = json!({ "sockets": server("ws", "wss"), "streams": server("http", "https") });
    let schemes = ["apiKey", "bearerKey", "socketToken"];
    let references = schemes.map(|name| reference(&["components", "securitySchemes", name]));
    servers["sockets"]["security"] = references.into();
    servers
}

fn security_schemes() -> Value {
    json!({
        "apiKey": {
            "type": "httpApiKey",
            "in": "header",
            "name": "X-API-Key",
            "description": "An API key with the permission `read`.",
        },
        "bearerKey": {
            "type": "http",
            "scheme": "bearer",
            "description": "The same key, as `Authorization: Bearer KEY`.",
        },
        "socketToken": {
            "type": "httpApiKey",
            "in": "query",
            "name": "token",
            "description": "A token of `POST /v1/keys/ws-token`, for browsers, which cannot send \
                            headers. It wins over a key.",
        },
    })
}

fn reference(names: &[&str]) -> Value {
    // A pointer writes a slash in a name as `~1`, but no name here has one.
    json!({ "$ref": format!("#/{}", names.join("/")) })
}

impl Channel {
    fn row(&self) -> &'static Operation {
        let row = OPERATIONS.iter().find(|row| row.path.as_str() == self.path);
        row.expect("a channel is a row in the table of operations")
    }

    fn describe(&self, messages: &Map<String, Value>) -> Value {
        let row = self.row();
        let mut channel = json!({
            "address": self.path,
            "summary": sentence(row.summary),
            "servers": [reference(&["servers", self.server])],
            "messages": messages,
        });
        if row.access == Access::Socket {
            channel["description"] = socket_text().into();
            channel["bindings"] = json!({ "ws": {
                "method": row.method.as_str(),
                "query": query(row),
                "headers": credentials(),
                "bindingVersion": "0.1.0",
            }});
            channel["x-close-codes"] = close_codes();
        } else {
            channel["description"] = stream_text().into();
        }
        channel
    }

    /// Describes what the server does on this channel: it answers the messages that it receives,
    /// and sends the rest unprompted.
    fn operations(
        &self,
        sends: &Map<String, Value>,
        receives: &Map<String, Value>,
    ) -> Map<String, Value> {
        let own = reference(&["channels", self.name]);
        let message = |name: &str| reference(&["channels", self.name, "messages", name]);
        let mut operations = Map::new();
        for (name, received) in receives {
            let replies = self.replies.iter().find(|(of, _)| of == name);
            let (_, replies) = replies.expect("every message that is received has its replies");
            let replies: Vec<Value> = replies.iter().map(|name| message(name)).collect();
            let operation = json!({
                "action": "receive",
                "channel": own,
                "summary": received["summary"],
                "messages": [message(name)],
                "reply": { "channel": own, "messages": replies },
            });
            operations.insert(format!("{}_{name}", self.name), operation);
        }
        let is_unasked = |name: &&String| {
            !self.replies.iter().any(|(_, replies)| replies.contains(&name.as_str()))
        };
        let unasked: Vec<Value> =
            sends.keys().filter(is_unasked).map(|name| message(name)).collect();
        let mut operation = json!({ "action": "send", "channel": own, "messages": unasked });
        if self.row().access != Access::Socket {
            operation["bindings"] = json!({ "http": {
                "method": self.row().method.as_str(),
                "query": query(self.row()),
                "bindingVersion": "0.3.0",
            }});
        }
        operations.insert(format!("{}_send", self.name), operation);
        operations
    }

    /// Returns the messages described by these schemas, by name.
    fn messages(
        &self,
        schemas: &[SchemaOf],
        generator: &mut SchemaGenerator,
    ) -> Map<String, Value> {
        let forms = schemas.iter().flat_map(|schema_of| {
            let mut schema = schema_of(generator);
            for transform in generator.transforms_mut() {
                transform.transform(&mut schema);
            }
            forms(&schema, generator)
        });
        forms.map(|form| self.message(form)).collect()
    }

    fn message(&self, form: Form) -> (String, Value) {
        let Form { name, summary, payload, is_event } = form;
        let mut message = json!({
            "name": name,
            "summary": summary,
            "payload": one_line(payload),
        });
        let mut example = json!({ "payload": EXAMPLES[self.name][name.as_str()] });
        if is_event {
            message["headers"] = json!({
                "type": "object",
                "properties": { "event": { "const": name } },
                "required": ["event"],
            });
            example["headers"] = json!({ "event": name });
        }
        message["examples"] = json!([example]);
        (name, message)
    }
}

/// Frames recorded from a running server, by channel and message name.
static EXAMPLES: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("asyncapi/examples.json")).expect("the examples are JSON")
});

/// A message described by a schema.
struct Form {
    name: String,
    summary: String,
    payload: Value,
    /// Whether the message's name is sent beside its payload, as in an event stream, rather than
    /// within it.
    is_event: bool,
}

/// Returns the messages that a schema describes: one per variant of an enum, otherwise one.
fn forms(schema: &Schema, generator: &SchemaGenerator) -> Vec<Form> {
    match schema.get("oneOf") {
        Some(Value::Array(variants)) => variants.iter().map(|it| form(it, generator)).collect(),
        _ => vec![form(schema.as_value(), generator)],
    }
}

fn form(schema: &Value, generator: &SchemaGenerator) -> Form {
    let name_of = |found: &Value| {
        let names = ["type", "action", "event"].iter();
        let mut names = names.filter_map(|it| found["properties"][it]["const"].as_str());
        names.next().expect("a message has a name").to_owned()
    };
    let mut payload = schema.clone();
    let mut found = match schema["$ref"].as_str() {
        Some(reference) => {
            let (_, name) = reference.rsplit_once('/').expect("a reference has a path");
            generator.definitions()[name].clone()
        }
        None => payload.clone(),
    };
    let summary = found["description"].take();
    let summary = summary.as_str().expect("a message is documented").replace('\n', " ");
    let is_event = found["properties"]["event"].is_object();
    if is_event {
        payload = found["properties"]["data"].clone();
    } else if let Some(fields) = payload.as_object_mut() {
        fields.remove("description");
    }
    Form { name: name_of(&found), summary, payload, is_event }
}

/// Returns an object schema whose properties are the query parameters.
fn query(row: &Operation) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for parameter in row.query {
        let mut schema = schema_of_kind(parameter.kind);
        schema["description"] = sentence(parameter.summary).into();
        properties.insert(parameter.name.to_owned(), schema);
        if parameter.is_required {
            required.push(parameter.name);
        }
    }
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

/// Returns the schema of the credential headers. A socket needs one of them or a token.
fn credentials() -> Value {
    json!({ "type": "object", "properties": {
        "X-API-Key": { "type": "string", "description": "An API key." },
        "Authorization": { "type": "string", "description": "The same, as `Bearer KEY`." },
    }})
}

fn socket_text() -> String {
    format!(
        "Each text frame is one JSON object. Those of clients have at most {} KiB, are not \
         fragmented, and may have `type` in place of `action`, in any case. A frame that cannot be \
         used is answered with an `error`, and the socket stays open. The server pings every {} s, \
         and drops a client that sends no frame for {} s. A request with an insufficient \
         credential is upgraded and then closed, because browsers show scripts only close codes.",
        CLIENT_FRAME_BYTES_MAX / 1024,
        PING_INTERVAL.as_secs(),
        SILENCE_MAX.as_secs(),
    )
}

fn stream_text() -> String {
    format!(
        "Server-sent events: the name of a message is its `event`, and the payload its `data`. \
         After the first event, one comes at least every {} s. A stream has up to {} markets and \
         never ends by itself: an end means that the connection was lost, or that the server is \
         shutting down. `retry` says how long to wait before coming back, in milliseconds. A \
         client that comes back with the last `id` as `Last-Event-ID` gets no snapshot, but the \
         markets that have changed since.",
        KEEPALIVE_INTERVAL.as_secs(),
        MARKETS_MAX,
    )
}

fn close_codes() -> Value {
    let codes = CloseReason::OWN.iter();
    let codes = codes.map(|reason| {
        json!({ "code": reason.code(), "reason": reason.text(), "advice": reason.advice() })
    });
    codes.collect()
}
