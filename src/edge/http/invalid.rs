//! Validation errors of a request.
//!
//! Every failing field is reported, not only the first, in the format of `FastAPI` servers, which
//! clients know.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;

/// An invalid field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldError {
    /// The path to the field: `["body", "orders", "3", "quantity"]`.
    pub location: Location,
    /// The kind of error, for programs: `missing`, `greater_than`.
    pub kind: &'static str,
    /// The error message, for people.
    pub message: Cow<'static, str>,
}

/// The path to a field, starting with the part of the request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Location(SmallVec<[Step; 4]>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Name(&'static str),
    Index(usize),
}

impl Location {
    /// The body itself.
    pub fn body() -> Self {
        Self::of("body")
    }

    /// A part of the request.
    pub fn of(part: &'static str) -> Self {
        Self(SmallVec::from_slice(&[Step::Name(part)]))
    }

    /// A field inside.
    #[must_use]
    pub fn field(&self, name: &'static str) -> Self {
        self.step(Step::Name(name))
    }

    /// An element inside, counted from 0.
    #[must_use]
    pub fn element(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    /// The steps as text.
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

/// A request that cannot be used, and everything that is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} of the request's fields cannot be used", .errors.len())]
pub struct Invalid {
    /// What is wrong; never empty.
    pub errors: Vec<FieldError>,
}

impl From<FieldError> for Invalid {
    fn from(error: FieldError) -> Self {
        Self { errors: vec![error] }
    }
}

/// `value`, unless something is wrong.
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

    /// Each error as `body.orders.3.quantity: greater_than`.
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
