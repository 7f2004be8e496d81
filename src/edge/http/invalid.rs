//! Validation errors of a request.
//!
//! Every failing field is reported, not only the first, in the format of `FastAPI` servers, which
//! clients expect.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;

/// An invalid field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldError {
    /// The path to the field: `["body", "orders", "3", "quantity"]`.
    pub location: Location,
    /// The machine-readable kind of error, such as `missing` or `greater_than`.
    pub kind: &'static str,
    /// The human-readable error message.
    pub message: Cow<'static, str>,
}

/// The path to a field, starting with the part of the request that contains it, such as `body`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Location(SmallVec<[Step; 4]>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Name(&'static str),
    Index(usize),
}

impl Location {
    /// Returns the location of the body.
    pub fn body() -> Self {
        Self::of("body")
    }

    /// Returns the location of a part of the request, such as `path` or `query`.
    pub fn of(part: &'static str) -> Self {
        Self(SmallVec::from_slice(&[Step::Name(part)]))
    }

    /// Returns the location of a field inside this one.
    #[must_use]
    pub fn field(&self, name: &'static str) -> Self {
        self.step(Step::Name(name))
    }

    /// Returns the location of an element inside this one, counted from 0.
    #[must_use]
    pub fn element(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    /// Returns the steps as text.
    pub fn steps(&self) -> impl Iterator<Item = Cow<'static, str>> + '_ {
        self.0.iter().map(|step| match step {
            Step::Name(name) => Cow::Borrowed(*name),
            Step::Index(index) => Cow::Owned(index.to_string()),
        })
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            write!(formatter, "{dot}{step}")?;
        }
        Ok(())
    }
}

/// A request that failed validation, with all its errors.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} of the request's fields cannot be used", .errors.len())]
pub struct Invalid {
    /// The errors; never empty.
    pub errors: Vec<FieldError>,
}

impl From<FieldError> for Invalid {
    fn from(error: FieldError) -> Self {
        Self { errors: vec![error] }
    }
}

/// Returns `value`, or the errors if there are any. A missing value must have an error.
pub(super) fn unless_invalid<T>(errors: Vec<FieldError>, value: Option<T>) -> Result<T, Invalid> {
    match value {
        Some(value) if errors.is_empty() => Ok(value),
        _ => {
            assert!(!errors.is_empty(), "every missing value has an error");
            Err(Invalid { errors })
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Formats each error as `body.orders.3.quantity: greater_than`.
    pub(in crate::http) fn errors_of<T: fmt::Debug>(result: &Result<T, Invalid>) -> Vec<String> {
        let errors = match result {
            Ok(value) => panic!("accepted as {value:?}"),
            Err(Invalid { errors }) => errors,
        };
        errors.iter().map(|error| format!("{}: {}", error.location, error.kind)).collect()
    }

    #[test]
    fn a_location_reads_from_the_outside_in() {
        let location = Location::body().field("orders").element(3).field("quantity");
        assert_eq!(location.to_string(), "body.orders.3.quantity");
        assert_eq!(location.steps().collect::<Vec<_>>(), ["body", "orders", "3", "quantity"]);
    }
}
