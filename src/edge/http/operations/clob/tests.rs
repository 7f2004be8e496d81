//! What the table says, and that each row is reached.

use super::*;
use crate::http::operations::OPERATIONS;
use crate::http::route::find;

/// Returns the request line of a row, with a name in place of its parameter.
fn path_of(operation: &Operation) -> String {
    operation.path.as_str().replace(&format!("{{{}}}", operation.path.parameter()), "77")
}

#[test]
fn rows_are_found_only_with_the_interface_and_never_hide_our_own() {
    for operation in &CLOB {
        let (method, path) = (operation.method.as_str().parse().unwrap(), path_of(operation));
        assert_eq!(find(&method, &path, true), Ok(operation), "{operation:?}");
        assert!(find(&method, &path, false).is_err(), "{operation:?}");
        assert!(operation.is_clob(), "{operation:?}");
    }
    for operation in &OPERATIONS {
        let (method, path) = (operation.method.as_str().parse().unwrap(), path_of(operation));
        assert_eq!(find(&method, &path, true), find(&method, &path, false), "{operation:?}");
        assert!(!operation.is_clob(), "{operation:?}");
    }
}
