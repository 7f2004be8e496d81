//! The OpenAPI 3.1 document of the API, built from the table of operations and the schemas of
//! requests and answers.

pub(super) mod answers;
pub(super) mod bodies;
mod errors;
mod examples;
mod links;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use hyper::StatusCode;
use schemars::SchemaGenerator;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value, json};

use super::error::codes::CODES;
use super::file::File;
use super::operation::{Access, Answers, Operation, Run, Verb};
use super::operations::OPERATIONS;
use super::operations::console;
use super::operations::docs::{bots, guide};
use super::parameter::{Parameter, ParameterKind};
use errors::Errors;
use examples::Examples;
use paperbourse_core::engine::key::Permission;
use paperbourse_core::wire::SchemaOf;

const INFO: &str = "\
A self-hosted paper exchange for prediction markets. `/trade` and comments answer with JSON \
numbers; everything under `/v1` writes prices, sizes and money as text, unless it says otherwise. \
Bodies may have fields that are not described here; they are ignored.

A write is answered once it is on disk. Every answer has an `X-Request-Id`; errors have their code \
in `error` and in `X-Polysim-Code`.";

/// The file served at `GET /openapi.json`.
pub(super) static FILE: LazyLock<File> = LazyLock::new(|| {
    let text = serde_json::to_vec(&document()).expect("a tree of JSON values has a text");
    File::new("application/json", text)
});

/// Builds the OpenAPI document.
pub fn document() -> Value {
    let mut shared = Shared::new();
    let mut paths: Map<String, Value> = Map::new();
    for operation in &OPERATIONS {
        let path = paths.entry(operation.path.as_str()).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_lowercase()] = describe(operation, &mut shared);
    }
    let examples: Map<String, Value> =
        shared.examples.errors().map(|(code, it)| (code.clone(), json!({ "value": it }))).collect();
    let (responses, schemas) = (shared.errors.responses(), shared.schemas());
    let tags: Vec<Value> = TAGS.iter().map(describe_tag).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "paperbourse",
            "version": env!("CARGO_PKG_VERSION"),
            "description": INFO,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": tags,
        "paths": paths,
        "components": {
            "examples": examples,
            "responses": responses,
            "schemas": schemas,
            "headers": headers(),
            "securitySchemes": {
                "apiKey": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-API-Key",
                    "description": "An API key. `Authorization: Bearer KEY` does the same.",
                },
                "accessToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the identity provider that the server trusts.",
                },
                "socketToken": {
                    "type": "apiKey",
                    "in": "query",
                    "name": "token",
                    "description": "A token of `POST /v1/keys/ws-token`.",
                },
            },
        },
    })
}

/// The groups of operations, in the order in which clients use them: name, description and path
/// prefixes. An operation belongs to the group with the longest matching prefix.
const TAGS: [(&str, &str, &[&str]); 8] = [
    (
        "orders",
        "Placing, listing and cancelling orders.",
        &[
            "/trade",
            "/comments",
            "/v1/orders",
            "/v1/cancel",
            "/v1/heartbeats",
            "/heartbeats",
            "/v1/ws/executions",
        ],
    ),
    (
        "prices",
        "Prices now and over time.",
        &["/v1/prices", "/prices", "/v1/ws/prices", "/v1/markets/{condition_id}/candles"],
    ),
    (
        "markets",
        "What can be traded.",
        &["/v1/markets", "/markets", "/v1/events", "/v1/book", "/v1/fee-rate"],
    ),
    ("account", "The caller's money, positions and fills.", &["/v1/me", "/v1/account"]),
    ("keys", "API keys and socket tokens.", &["/v1/keys"]),
    ("exports", "Files of fills and settlements.", &["/v1/export"]),
    ("venue", "Orders and fills in the venue's form.", &["/v1/data"]),
    ("server", "The state of the server.", &["/"]),
];

fn tag_of(path: &str) -> &'static str {
    let length = |(.., prefixes): &(_, _, &[&str])| {
        prefixes.iter().filter(|it| path.starts_with(**it)).map(|it| it.len()).max()
    };
    TAGS.iter().max_by_key(|tag| length(tag)).expect("there are tags").0
}

/// Describes a group. It lists the group's operations in the order of the table, because a JSON
/// object does not keep the order of its paths.
fn describe_tag((name, text, _): &(&str, &str, &[&str])) -> Value {
    let own = OPERATIONS.iter().filter(|it| tag_of(it.path.as_str()) == *name);
    let ids: Vec<String> = own.map(|it| operation_id(it.method, it.path.as_str())).collect();
    json!({ "name": name, "description": text, "x-operations": ids })
}

/// The components that several operations refer to.
struct Shared {
    /// The schemas of bodies, whose optional fields may be absent.
    bodies: SchemaGenerator,
    /// The schemas of answers, whose fields are always present.
    answers: SchemaGenerator,
    errors: Errors,
    examples: Examples,
}

impl Shared {
    fn new() -> Self {
        let generator = |contract| {
            let settings = SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
                settings.contract = contract;
            });
            settings.into_generator()
        };
        Self {
            bodies: generator(Contract::Deserialize),
            answers: generator(Contract::Serialize),
            errors: Errors::new(),
            examples: Examples::read(),
        }
    }

    fn answer(&mut self, schema_of: SchemaOf) -> Value {
        one_line(schema_of(&mut self.answers).to_value())
    }

    fn body(&mut self, schema_of: SchemaOf) -> Value {
        one_line(schema_of(&mut self.bodies).to_value())
    }

    fn schemas(mut self) -> Value {
        let mut all = Map::new();
        all.extend(self.bodies.take_definitions(true));
        all.extend(self.answers.take_definitions(true));
        all.extend(self.errors.schemas());
        one_line(Value::Object(all))
    }
}

/// Joins the lines of descriptions, which are doc comments and therefore wrapped.
pub(super) fn one_line(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == "description" => {
                        *text = text.replace('\n', " ");
                    }
                    field => *field = one_line(field.take()),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|it| *it = one_line(it.take())),
        _ => {}
    }
    value
}

fn describe(operation: &Operation, shared: &mut Shared) -> Value {
    let path = operation.path.as_str();
    let parameter = operation.path.parameter();
    let mut parameters = Vec::new();
    if !parameter.is_empty() {
        parameters.push(path_parameter(parameter));
    }
    // The token of a socket is described as a credential instead.
    let query = operation.query.iter().filter(|_| operation.access != Access::Socket);
    parameters.extend(query.map(|it| describe_parameter(it, "query")));
    parameters.extend(operation.headers.iter().map(|it| describe_parameter(it, "header")));
    let mut described = json!({
        "operationId": operation_id(operation.method, path),
        "tags": [tag_of(path)],
        "summary": sentence(operation.summary),
        "parameters": parameters,
        "security": security(operation.access),
        "responses": responses(operation, shared),
    });
    let mut notes: Vec<String> = Vec::new();
    if let Some(permission) = permission(operation.access) {
        notes.push(format!("A key needs the permission `{permission}`."));
    }
    if matches!(operation.answers, Answers::Socket | Answers::Events) {
        notes.push("`/asyncapi.json` describes the messages.".to_owned());
    }
    if !notes.is_empty() {
        described["description"] = notes.join(" ").into();
    }
    if let Some(body) = &operation.body {
        let mut content = json!({ "schema": shared.body(body.schema) });
        if let Some(example) = shared.examples.body(operation) {
            content["example"] = example.clone();
        }
        described["requestBody"] = json!({
            "required": body.is_required,
            "content": { "application/json": content },
        });
    }
    for parameter in described["parameters"].as_array_mut().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default();
        if let Some(example) = shared.examples.parameter(operation, name) {
            parameter["example"] = example.clone();
        }
    }
    described
}

/// Returns the id of an operation: `get_v1_orders_order_id` for `GET /v1/orders/{order_id}`.
fn operation_id(method: Verb, path: &str) -> String {
    let path = path.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let words: Vec<&str> = path.split('_').filter(|word| !word.is_empty()).collect();
    format!("{}_{}", method.as_str().to_lowercase(), words.join("_"))
}

/// Turns a summary into a sentence, with a capital letter and a full stop.
pub(super) fn sentence(summary: &str) -> String {
    let mut characters = summary.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", characters.as_str())
}

fn permission(access: Access) -> Option<&'static str> {
    match access {
        Access::KeyOrToken(Some(permission)) | Access::Key(permission) => Some(permission.as_str()),
        Access::Socket => Some(Permission::Read.as_str()),
        Access::Public | Access::Token | Access::KeyOrToken(None) => None,
        Access::Wallet | Access::WalletKey(_) => unreachable!("not part of the document"),
    }
}

fn security(access: Access) -> Value {
    match access {
        Access::Public => json!([]),
        Access::Token => json!([{ "accessToken": [] }]),
        Access::KeyOrToken(_) => json!([{ "apiKey": [] }, { "accessToken": [] }]),
        Access::Key(_) => json!([{ "apiKey": [] }]),
        Access::Socket => json!([{ "apiKey": [] }, { "socketToken": [] }]),
        Access::Wallet | Access::WalletKey(_) => unreachable!("not part of the document"),
    }
}

fn path_parameter(name: &'static str) -> Value {
    let (schema, text) = match name {
        "order_id" | "comment_id" | "key_id" => (json!({ "type": "integer", "minimum": 1 }), ""),
        "wallet_id" => (
            json!({ "type": "string", "pattern": "^([1-9][0-9]{0,18}|api|all)$" }),
            "The account's wallet, by its id or as `api` or `all`.",
        ),
        "condition_id" => (json!({ "type": "string", "minLength": 1 }), "The market."),
        "token_id" => (json!({ "type": "string", "minLength": 1 }), "The outcome's token."),
        "page" => (json!({ "type": "string", "enum": guide::names() }), "The page."),
        "part" | "library" => {
            (json!({ "type": "string", "enum": console::names(name) }), "The file.")
        }
        "file" => (json!({ "type": "string", "enum": bots::names() }), "The recipe."),
        _ => (json!({ "type": "string", "minLength": 1 }), ""),
    };
    let mut parameter = json!({ "name": name, "in": "path", "required": true, "schema": schema });
    if !text.is_empty() {
        parameter["description"] = text.into();
    }
    if let Some(first) = parameter["schema"]["enum"].get(0).cloned() {
        parameter["example"] = first;
    }
    parameter
}

fn describe_parameter(parameter: &Parameter, place: &str) -> Value {
    let Parameter { name, kind, is_required, summary } = parameter;
    let mut described = json!({ "name": name, "in": place, "schema": schema_of_kind(*kind) });
    if *is_required {
        described["required"] = true.into();
    }
    if !summary.is_empty() {
        described["description"] = sentence(summary).into();
    }
    described
}

/// Returns two schemas for a choice: one with these words, so that a program can still list them,
/// then one with the words in any case.
fn in_any_case(words: &[&str]) -> Value {
    let either = |letter: char| {
        let (upper, lower) = (letter.to_ascii_uppercase(), letter.to_ascii_lowercase());
        if upper == lower { lower.to_string() } else { format!("[{upper}{lower}]") }
    };
    let patterns: Vec<String> =
        words.iter().map(|word| word.chars().map(either).collect()).collect();
    json!([
        { "type": "string", "enum": words },
        { "type": "string", "pattern": format!("^({})$", patterns.join("|")) },
    ])
}

pub(super) fn schema_of_kind(kind: ParameterKind) -> Value {
    match kind {
        ParameterKind::Number { min, max, default } => {
            let mut schema = json!({ "type": "integer", "minimum": min, "maximum": max });
            if let Some(default) = default {
                schema["default"] = default.into();
            }
            schema
        }
        ParameterKind::Text { min, max } => {
            json!({ "type": "string", "minLength": min, "maxLength": max })
        }
        ParameterKind::Flag => json!({ "type": "boolean" }),
        ParameterKind::Choice { words } => json!({ "anyOf": in_any_case(words) }),
        ParameterKind::Time => json!({ "anyOf": [
            { "type": "string", "format": "date-time" },
            { "type": "string", "format": "date" },
        ]}),
        ParameterKind::Seconds => json!({ "anyOf": [
            { "type": "integer", "exclusiveMinimum": -100_000_000_000_i64,
              "exclusiveMaximum": 100_000_000_000_i64 },
            { "type": "string", "pattern": r"^[+-]?[0-9]{1,11}\.[0-9]+$" },
            { "type": "string", "format": "date-time" },
            { "type": "string", "format": "date" },
        ]}),
        ParameterKind::Wallet => {
            json!({ "type": "string", "pattern": "^([1-9][0-9]{0,18}|api|all)$" })
        }
        ParameterKind::Cursor | ParameterKind::Own { pattern: "" } => json!({ "type": "string" }),
        ParameterKind::Own { pattern } => json!({ "type": "string", "pattern": pattern }),
    }
}

fn responses(operation: &Operation, shared: &mut Shared) -> Value {
    let mut responses = Map::new();
    let (status, mut response) = match operation.answers {
        Answers::Json(schema) => (200, json_response("Done.", &shared.answer(schema))),
        Answers::Checked(schema) => {
            (200, json_response("Every check passed.", &shared.answer(schema)))
        }
        Answers::Created(schema) => (201, json_response("Created.", &shared.answer(schema))),
        Answers::Number => (200, json_response("Done.", &json!({ "type": "number" }))),
        Answers::Any => (200, json_response("Done.", &json!({ "type": "object" }))),
        Answers::File(kind) => (200, text_response("The file.", &[kind])),
        Answers::Files(kinds) => (200, text_response("The file.", kinds)),
        Answers::Csv => (200, text_response("A CSV file.", &["text/csv"])),
        Answers::Events => (200, text_response("Server-sent events.", &["text/event-stream"])),
        Answers::Socket => (101, json!({ "description": "A WebSocket." })),
    };
    if status != 101 && !matches!(operation.run, Run::Health(_) | Run::File(_)) {
        response["headers"] = success_headers();
    }
    if let Some(example) = shared.examples.answer(operation) {
        for content in response["content"].as_object_mut().into_iter().flat_map(Map::values_mut) {
            content["example"] = example.clone();
        }
    }
    let links = links::links(operation, operation_id);
    if links != json!({}) {
        response["links"] = links;
    }
    if matches!(operation.run, Run::File(_)) {
        let text = "The file has the `ETag` that `If-None-Match` names.";
        responses.insert("304".to_owned(), json!({ "description": text }));
    }
    responses.insert(status.to_string(), response);
    for (status, _) in &CODES {
        let codes = codes_of(operation, *status);
        if !codes.is_empty() {
            responses.insert(status.as_str().to_owned(), shared.errors.response(*status, &codes));
        }
    }
    if let Answers::Checked(schema) = operation.answers {
        let error = shared.errors.schema(StatusCode::SERVICE_UNAVAILABLE, &["NOT_READY"]);
        let schema = json!({ "anyOf": [shared.answer(schema), error] });
        let text = "A check failed, or the server is starting or draining (`NOT_READY`).";
        let mut response = json_response(text, &schema);
        response["content"]["application/json"]["examples"] = json!({
            "failed": { "value": shared.examples.failed(operation) },
            "NOT_READY": { "$ref": "#/components/examples/NOT_READY" },
        });
        responses.insert("503".to_owned(), response);
    }
    Value::Object(responses)
}

/// Returns the error codes with this status that an operation can answer.
fn codes_of(operation: &Operation, status: StatusCode) -> Vec<&'static str> {
    let of_status = CODES.iter().filter(|(it, _)| *it == status).flat_map(|(_, codes)| *codes);
    of_status.filter(|code| operation.can_answer(code)).copied().collect()
}

fn json_response(text: &str, schema: &Value) -> Value {
    json!({ "description": text, "content": { "application/json": { "schema": schema } } })
}

fn text_response(text: &str, kinds: &[&str]) -> Value {
    let content = kinds.iter().map(|&kind| (kind, json!({ "schema": { "type": "string" } })));
    json!({ "description": text, "content": content.collect::<BTreeMap<_, _>>() })
}

const LIMIT_HEADERS: [(&str, &str); 5] = [
    ("X-RateLimit-Limit", "Requests per minute that the tier allows; 2147483647 means unlimited."),
    ("X-RateLimit-Limit-Per-Second", "Requests per second that the tier allows."),
    ("X-RateLimit-Remaining", "Requests left in the last minute's window."),
    ("X-RateLimit-Remaining-Per-Second", "Requests left in the last second's window."),
    ("X-RateLimit-Reset", "The second since 1970 from which one request is sure to be admitted."),
];

fn headers() -> Value {
    let mut headers = json!({
        "X-Request-Id": {
            "description": "The request's own id, or one that the server gave it.",
            "schema": { "type": "string" },
        },
        "X-Polysim-Code": {
            "description": "The error's code.",
            "schema": { "type": "string" },
        },
        "Retry-After": {
            "description": "Seconds after which to try again.",
            "schema": { "type": "integer", "minimum": 1 },
        },
        "X-RateLimit-Tier": {
            "description": "The tier of the credential; absent without one.",
            "schema": { "type": "string", "enum": ["free", "pro", "enterprise"] },
        },
    });
    for (name, text) in LIMIT_HEADERS {
        headers[name] = json!({ "description": text, "schema": { "type": "integer" } });
    }
    headers
}

fn success_headers() -> Value {
    let names = LIMIT_HEADERS.iter().map(|(name, _)| *name);
    let names = ["X-Request-Id", "X-RateLimit-Tier"].into_iter().chain(names);
    let reference = |name| json!({ "$ref": format!("#/components/headers/{name}") });
    Value::Object(names.map(|name| (name.to_owned(), reference(name))).collect())
}
