//! What the table says, and that each row is reached.

use std::collections::HashSet;

use hyper::header::{HeaderMap, HeaderValue};

use super::*;
use crate::http::operations::OPERATIONS;
use crate::http::route::{find, find_for, operation_names};

/// Returns the request line of a row, with a name in place of its parameter.
fn path_of(operation: &Operation) -> String {
    operation.path.as_str().replace(&format!("{{{}}}", operation.path.parameter()), "77")
}

#[test]
fn rows_are_found_only_with_the_interface_and_never_hide_our_own() {
    for operation in &CLOB {
        let (method, path) = (operation.method.as_str().parse().unwrap(), path_of(operation));
        if !operation.is_in_both {
            assert_eq!(find(&method, &path, true), Ok(operation), "{operation:?}");
            assert!(find(&method, &path, false).is_err(), "{operation:?}");
        }
        assert!(operation.is_clob(), "{operation:?}");
    }
    for operation in &OPERATIONS {
        let (method, path) = (operation.method.as_str().parse().unwrap(), path_of(operation));
        assert_eq!(find(&method, &path, true), find(&method, &path, false), "{operation:?}");
        assert!(!operation.is_clob(), "{operation:?}");
    }
}

#[test]
fn a_path_of_both_interfaces_is_the_venues_for_those_who_name_a_wallets_key() {
    let ours = HeaderMap::new();
    let mut venues = HeaderMap::new();
    venues.insert("poly_api_key", HeaderValue::from_static("x"));
    let mut count = 0;
    for own in &OPERATIONS {
        let line = |it: &&Operation| it.method == own.method && it.path == own.path;
        let row = CLOB.iter().find(line);
        assert_eq!(own.is_in_both, row.is_some(), "{own:?}");
        let (method, path) = (own.method.as_str().parse().unwrap(), path_of(own));
        assert_eq!(find_for(&method, &path, (None, &ours), true), Ok(own), "{own:?}");
        assert_eq!(find_for(&method, &path, (None, &venues), false), Ok(own), "{own:?}");
        assert_eq!(
            find_for(&method, &path, (None, &venues), true),
            Ok(row.unwrap_or(own)),
            "{own:?}"
        );
        count += usize::from(row.is_some());
    }
    assert_eq!(CLOB.iter().filter(|it| it.is_in_both).count(), count);
    let names = operation_names(true);
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
}
