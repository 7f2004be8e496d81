//! Holds every message that crosses a socket or stream to the document at `/asyncapi.json`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;

use jsonschema::Validator;
use paperbourse::http::asyncapi::document;
use paperbourse_test_support::witness::Witness;
use serde_json::{Value, json};

/// The channels of the document by path.
static CHANNELS: LazyLock<BTreeMap<String, Channel>> = LazyLock::new(|| channels(&document()));

/// A channel of the document.
pub(crate) struct Channel {
    /// What checks each message that the server sends. A field that is not described fails.
    pub(crate) sent: BTreeMap<String, Validator>,
    /// The same of those that it receives, in which other fields are ignored.
    pub(crate) received: BTreeMap<String, Validator>,
    /// Which messages answer each of them.
    replies: BTreeMap<String, Vec<String>>,
    close_codes: Vec<(u16, String)>,
}

/// The channels of a document by path.
fn channels(document: &Value) -> BTreeMap<String, Channel> {
    let operations = document["operations"].as_object().unwrap();
    let mut channels = BTreeMap::new();
    for (name, described) in document["channels"].as_object().unwrap() {
        let messages = described["messages"].as_object().unwrap();
        let own = json!(format!("#/channels/{name}"));
        let mut channel = Channel {
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            replies: BTreeMap::new(),
            close_codes: Vec::new(),
        };
        for operation in operations.values().filter(|it| it["channel"]["$ref"] == own) {
            let named = names(&operation["messages"]);
            let answers = names(&operation["reply"]["messages"]);
            if operation["action"] == "receive" {
                for name in named {
                    let validator = validator(document, &messages[&name]["payload"], false);
                    assert!(channel.received.insert(name.clone(), validator).is_none(), "{name}");
                    channel.replies.insert(name, answers.clone());
                }
            } else {
                assert_eq!((&operation["action"], answers.len()), (&json!("send"), 0));
            }
        }
        for (name, message) in messages.iter().filter(|(it, _)| !channel.received.contains_key(*it))
        {
            channel.sent.insert(name.clone(), validator(document, &message["payload"], true));
        }
        for code in described["x-close-codes"].as_array().into_iter().flatten() {
            let number = u16::try_from(code["code"].as_u64().unwrap()).unwrap();
            channel.close_codes.push((number, code["reason"].as_str().unwrap().to_owned()));
        }
        channels.insert(described["address"].as_str().unwrap().to_owned(), channel);
    }
    channels
}

/// The names of referenced messages.
fn names(references: &Value) -> Vec<String> {
    let references = references.as_array().into_iter().flatten();
    let names = references.map(|it| it["$ref"].as_str().unwrap().rsplit_once('/').unwrap().1);
    names.map(str::to_owned).collect()
}

/// What checks values against a schema of the document.
fn validator(document: &Value, schema: &Value, is_closed: bool) -> Validator {
    let mut schema = schema.clone();
    // The references in it are to the document.
    if schema["$ref"].is_string() {
        schema = json!({ "allOf": [schema] });
    }
    schema["components"] = document["components"].clone();
    if is_closed {
        close(&mut schema);
    }
    jsonschema::draft7::options().should_validate_formats(true).build(&schema).unwrap()
}

/// Forbids fields that are not described.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            let has_fields = fields.get("type").is_some_and(|it| it == "object")
                && !fields.contains_key("additionalProperties");
            if has_fields {
                fields.insert("additionalProperties".to_owned(), false.into());
            }
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

impl Channel {
    /// The channel at this path, if it is described.
    pub(crate) fn at(path: &str) -> Option<&'static Self> {
        CHANNELS.get(path)
    }

    /// What is wrong with a message that the server sent.
    pub(crate) fn objections(&self, name: &str, message: &Value) -> Vec<String> {
        let Some(validator) = self.sent.get(name) else {
            return vec![format!("{name} is not described")];
        };
        let errors = validator.iter_errors(message);
        errors.map(|error| format!("{}: {error}", error.instance_path())).collect()
    }

    /// The name of a message that a client sent, if the document allows it.
    pub(crate) fn name_of(&self, text: &[u8]) -> Option<&str> {
        let message = canonical(serde_json::from_slice(text).ok()?);
        let (name, validator) = self.received.get_key_value(message["action"].as_str()?)?;
        validator.is_valid(&message).then_some(name)
    }
}

/// A client's message with the names that the document uses, rather than those that it says are
/// accepted too.
fn canonical(mut message: Value) -> Value {
    let Some(fields) = message.as_object_mut() else { return message };
    fields.retain(|_, value| !value.is_null());
    for (name, other) in [("action", "type"), ("markets", "conditions")] {
        if let Some(value) = fields.remove(other)
            && !fields.contains_key(name)
        {
            fields.insert(name.to_owned(), value);
        }
    }
    if let Some(Value::String(action)) = fields.get_mut("action") {
        action.make_ascii_lowercase();
    }
    message
}

/// Looks at one socket or stream.
struct OfChannel {
    channel: &'static Channel,
    /// The client's messages without an answer: their names, or `None` for what is not described.
    waiting: VecDeque<Option<&'static str>>,
    /// Whether the client closes, so that the server returns the client's code.
    is_leaving: bool,
}

/// What looks at a socket or stream at this path, if it is described.
pub(crate) fn witness(path: &str) -> Option<Box<dyn Witness>> {
    let channel = Channel::at(path)?;
    Some(Box::new(OfChannel { channel, waiting: VecDeque::new(), is_leaving: false }))
}

impl Witness for OfChannel {
    fn sent(&mut self, text: &[u8]) {
        self.waiting.push_back(self.channel.name_of(text));
    }

    fn received(&mut self, name: &str, message: &Value) {
        let objections = self.channel.objections(name, message);
        assert!(objections.is_empty(), "{name}: {objections:#?} in {message}");
        let is_answer =
            self.channel.replies.values().any(|replies| replies.iter().any(|it| it == name));
        if !is_answer {
            return;
        }
        if name == "error" {
            // Of a message that cannot be used, or of what it asks for; then there may be another
            // answer too.
            if let Some(at) = self.waiting.iter().position(Option::is_none) {
                self.waiting.remove(at);
            }
            return;
        }
        let is_answered = |sent: Option<&str>| {
            sent.is_some_and(|sent| self.channel.replies[sent].iter().any(|it| it == name))
        };
        let at = self.waiting.iter().position(|sent| is_answered(*sent));
        let at =
            at.unwrap_or_else(|| panic!("{message} answers what is not described as answered"));
        self.waiting.remove(at);
    }

    fn leaves(&mut self) {
        self.is_leaving = true;
    }

    fn closed(&mut self, code: u16, reason: &str) {
        let described = &self.channel.close_codes;
        // Only a server that shuts down says when to come back, and it always does.
        let (reason, after) = match reason.split_once("; retry-after-ms=") {
            Some((reason, after)) => (reason, Some(after.parse::<u32>().unwrap())),
            None => (reason, None),
        };
        assert_eq!(after.is_some(), code == 1001, "{code} {reason:?} {after:?}");
        let is_described =
            described.iter().any(|(own, text)| (*own, text.as_str()) == (code, reason));
        let is_returned = self.is_leaving && reason.is_empty();
        assert!(is_described || is_returned, "{code} {reason:?} is not among {described:?}");
    }
}
