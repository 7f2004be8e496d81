//! The examples of the document: requests to a server, and its answers. A test writes them, and
//! compares them with the server's current answers.

use serde_json::{Map, Value};

use crate::http::operation::Operation;

const FILE: &str = include_str!("examples.json");

/// The committed examples.
pub(super) struct Examples(Value);

impl Examples {
    pub(super) fn read() -> Self {
        Self(serde_json::from_str(FILE).expect("a test writes the file"))
    }

    /// Returns an example error for each code.
    pub(super) fn errors(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0["errors"].as_object().into_iter().flatten()
    }

    /// Returns the example value of a parameter of the operation.
    pub(super) fn parameter(&self, operation: &Operation, name: &str) -> Option<&Value> {
        self.of(operation)?.get("parameters")?.get(name)
    }

    /// Returns the example of the operation's body.
    pub(super) fn body(&self, operation: &Operation) -> Option<&Value> {
        self.of(operation)?.get("body")
    }

    /// Returns the example of the operation's answer.
    pub(super) fn answer(&self, operation: &Operation) -> Option<&Value> {
        self.of(operation)?.get("answer")
    }

    /// Returns the example of the operation's answer when a check fails.
    pub(super) fn failed(&self, operation: &Operation) -> Option<&Value> {
        self.of(operation)?.get("failed")
    }

    fn of(&self, operation: &Operation) -> Option<&Map<String, Value>> {
        self.0["operations"][operation.name()].as_object()
    }
}
