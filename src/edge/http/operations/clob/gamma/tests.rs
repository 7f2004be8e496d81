//! That each row is reached below the folder and at the venue's host, and only there.

use hyper::Method;
use hyper::header::HeaderMap;

use super::*;
use crate::http::operations::OPERATIONS;
use crate::http::operations::clob::CLOB;
use crate::http::route::{RouteError, find, find_for};

fn host(name: &'static str) -> HeaderValue {
    HeaderValue::from_static(name)
}

/// Returns the path of a row, with a name in place of its parameter.
fn path_of(operation: &Operation) -> String {
    operation.path.as_str().replace(&format!("{{{}}}", operation.path.parameter()), "77")
}

#[test]
fn rows_are_found_in_the_folder_or_at_the_host() {
    let (none, plain) = (HeaderMap::new(), host("localhost:8080"));
    for row in &GAMMA {
        let path = path_of(row);
        let rest = path.strip_prefix(FOLDER).unwrap();
        assert!(row.is_clob(), "{row:?}");
        assert_eq!(find(&Method::GET, &path, true), Ok(row));
        assert_eq!(find(&Method::HEAD, &path, true), Ok(row));
        assert_eq!(find(&Method::GET, &path, false), Err(RouteError::NotFound), "{row:?}");
        let at = |host: &HeaderValue, path: &str, has_clob| {
            find_for(&Method::GET, path, (Some(host), &none), has_clob).ok()
        };
        for name in ["gamma-api.polymarket.com", "GAMMA-API:8080", "gamma-api"] {
            assert_eq!(at(&host(name), rest, true), Some(row), "{name}");
            assert_eq!(at(&host(name), &path, true), Some(row), "{name}");
            assert_ne!(at(&host(name), rest, false), Some(row), "{name}");
        }
        assert_ne!(at(&plain, rest, true), Some(row));
        assert_eq!(at(&plain, &path, true), Some(row));
    }
}

#[test]
fn at_the_host_all_other_paths_stay_as_they_are() {
    let (none, venue) = (HeaderMap::new(), host("gamma-api.polymarket.com"));
    let is_gamma = |path: &str| GAMMA.iter().any(|row| segment(row, path).is_some());
    for row in OPERATIONS.iter().chain(&CLOB) {
        let (method, path) = (row.method.as_str().parse().unwrap(), path_of(row));
        if !is_gamma(&path) {
            let found = find_for(&method, &path, (Some(&venue), &none), true);
            assert_eq!(found, find(&method, &path, true), "{row:?}");
        }
    }
}

#[test]
fn other_paths_and_methods_are_refused() {
    let get = |path| find(&Method::GET, path, true);
    for path in ["/gamma", "/gamma/", "/gammamarkets", "/gamma/gamma/markets", "/gamma/book"] {
        assert_eq!(get(path), Err(RouteError::NotFound), "{path}");
    }
    let post = find(&Method::POST, "/gamma/markets", true);
    assert!(matches!(post, Err(RouteError::MethodNotAllowed { .. })));
    for name in ["gamma", "xgamma-api", ""] {
        assert!(!is_host(Some(&host(name))), "{name}");
    }
    assert!(!is_host(None));
}
