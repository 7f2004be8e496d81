//! The examples of the document: requests to a server, and what it answered. A test compares them
//! with what the server answers, and writes them.

use serde_json::{Map, Value};

use crate::http::operation::Operation;

const FILE: &str = include_str!("examples.json");

/// The committed examples.
pub(super) struct Examples(Value);

impl Examples {
    pub(super) fn read() -> Self {
        Self(serde_json::from_str(FILE).expect("a test writes the file"))
    }

    /// An error with each code.
    pub(super) fn errors(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0["errors"].as_object().into_iter().flatten()
    }

    /// The value of a parameter of the operation.
    pub(super) fn parameter(&self, operation: &Operation, name: &str) -> Option<&Value> {
        self.of(operation)?.get("parameters")?.get(name)
    }

    /// The operation's body.
    pub(super) fn body(&self, operation: &Operation) -> Option<&Value> {
        self.of(operation)?.get("body")
    }

    /// What the operation answered.
    pub(super) fn answer(&self, operation: &Operation) -> Option<&Value> {
        self.of(operation)?.get("answer")
    }

    /// What the operation answered when a check failed.
    pub(super) fn failed(&self, operation: &Operation) -> Option<&Value> {
        self.of(operation)?.get("failed")
    }

    fn of(&self, operation: &Operation) -> Option<&Map<String, Value>> {
        self.0["operations"][operation.name()].as_object()
    }
}
