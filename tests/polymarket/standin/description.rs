//! Gamma's description of a market: the recorded text, or an edited one.

use serde_json::{Map, Value};

/// A description, kept verbatim until it is edited.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    raw: String,
    fields: Map<String, Value>,
}

impl Description {
    /// From the text of a JSON object.
    #[track_caller]
    pub(crate) fn of_text(raw: String) -> Self {
        let fields = serde_json::from_str(&raw).unwrap();
        Self { raw, fields }
    }

    /// From the fields of a JSON object.
    pub(crate) fn of_fields(fields: Map<String, Value>) -> Self {
        Self { raw: Value::Object(fields.clone()).to_string(), fields }
    }

    /// The text that Gamma sends.
    pub(crate) fn raw(&self) -> &str {
        &self.raw
    }

    /// The text that Gamma sends before it has filled in the tokens.
    pub(crate) fn raw_without_tokens(&self) -> String {
        let mut fields = self.fields.clone();
        fields.insert("clobTokenIds".to_owned(), Value::from(""));
        Value::Object(fields).to_string()
    }

    /// Edits the description.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Map<String, Value>)) {
        change(&mut self.fields);
        self.raw = Value::Object(self.fields.clone()).to_string();
    }

    /// A field; null if it is missing.
    pub(crate) fn field(&self, name: &str) -> &Value {
        self.fields.get(name).unwrap_or(&Value::Null)
    }

    /// A boolean field; false if it is missing or not a boolean.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.field(name) == &Value::Bool(true)
    }

    /// A number, written as a number or a text; zero if it is missing or neither.
    pub(crate) fn number(&self, name: &str) -> f64 {
        match self.field(name) {
            Value::String(text) => text.parse().unwrap_or(0.0),
            value => value.as_f64().unwrap_or(0.0),
        }
    }

    /// A list that is written as a text.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let Some(text) = self.field(name).as_str() else { return Vec::new() };
        let values: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
        values
            .iter()
            .map(|value| value.as_str().map_or_else(|| value.to_string(), Into::into))
            .collect()
    }

    /// Whether one of its events has this tag.
    pub(crate) fn has_tag(&self, id: &str) -> bool {
        self.is_of("tags", id)
    }

    /// Whether one of its events belongs to this series.
    pub(crate) fn has_series(&self, id: &str) -> bool {
        self.is_of("series", id)
    }

    fn is_of(&self, list: &str, id: &str) -> bool {
        let events = self.field("events").as_array().map(Vec::as_slice).unwrap_or_default();
        events
            .iter()
            .filter_map(|event| event[list].as_array())
            .flatten()
            .any(|item| item["id"] == id)
    }
}
