//! Finds the operation for a request line.
//!
//! Path parameters stay text here: ids are parsed after the credential is checked.

use std::borrow::Cow;

use hyper::Method;
use hyper::header::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;

use super::fields::closest;
use super::operation::{Allow, Operation, Verb};
use super::operations::OPERATIONS;
use super::operations::clob::gamma::{self, GAMMA};
use super::operations::clob::{CLOB, names_wallet_key};

/// Why a request line matches no operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RouteError {
    /// No operation has this path.
    #[error("no such path")]
    NotFound,
    /// The original service has this operation; this server leaves it out on purpose.
    #[error("not offered: {reason}")]
    NotOffered {
        /// The reason, as a sentence.
        reason: &'static str,
    },
    /// The path exists, but not for this method.
    #[error("the path takes {allow}")]
    MethodNotAllowed {
        /// The methods that the path accepts.
        allow: Allow,
    },
}

/// Finds the operation for a method and a path without its query string. `HEAD` finds the `GET`
/// operation.
///
/// The first row whose pattern matches the path decides, whatever the method. So in the table a
/// path without a parameter precedes patterns that would match its last segment, and `POST /trade`,
/// the hottest operation, comes first.
///
/// With `has_clob`, a path that this server's own interface does not have is looked up in the
/// venue's: below [`gamma::FOLDER`] in that of its catalogue, and elsewhere in that of its books.
pub fn find(method: &Method, path: &str, has_clob: bool) -> Result<&'static Operation, RouteError> {
    let found = match find_offered(&OPERATIONS, method, path) {
        Err(RouteError::NotFound) if has_clob && gamma::is_below_folder(path) => {
            find_gamma(method, path)
        }
        Err(RouteError::NotFound) if has_clob => find_offered(&CLOB, method, path),
        found => found,
    };
    found.map_err(|error| {
        not_offered(method, path).map_or(error, |reason| RouteError::NotOffered { reason })
    })
}

/// Finds the operation for a request to this host with these headers. At the host of the venue's
/// catalogue, its paths come first. Where both interfaces have a path, a request that names the API
/// key of a wallet is for the venue's. Otherwise this is [`find`].
pub(super) fn find_for(
    method: &Method,
    path: &str,
    (host, headers): (Option<&HeaderValue>, &HeaderMap),
    has_clob: bool,
) -> Result<&'static Operation, RouteError> {
    if has_clob && gamma::is_host(host) {
        let found = find_gamma(method, path);
        if !matches!(found, Err(RouteError::NotFound)) {
            return found;
        }
    }
    let found = find(method, path, has_clob);
    match found {
        Ok(own) if own.is_in_both && has_clob && names_wallet_key(headers) => {
            find_offered(&CLOB, method, path)
        }
        found => found,
    }
}

/// Returns the operation that an unknown path was perhaps meant for, such as `POST /trade`.
/// Tolerates a missing or extra `/v1`, an extra slash, capital letters and misspellings.
pub(super) fn nearest(method: &Method, path: &str) -> Option<String> {
    let bare = path.trim_end_matches('/').to_ascii_lowercase().replace("//", "/");
    let below = bare.strip_prefix("/api").unwrap_or(&bare);
    let other = match below.strip_prefix("/v1") {
        Some(rest) => rest.to_owned(),
        None => format!("/v1{below}"),
    };
    let known: Vec<&'static str> = OPERATIONS.iter().map(|it| it.path.as_str()).collect();
    let misspelt = closest(&bare, &known).or_else(|| closest(&other, &known));
    let candidates = [bare.as_str(), below, &other].into_iter().chain(misspelt);
    candidates.filter(|candidate| *candidate != path).find_map(|candidate| {
        let row = match find_offered(&OPERATIONS, method, candidate) {
            Ok(row) => row,
            Err(RouteError::MethodNotAllowed { .. }) => {
                OPERATIONS.iter().find(|it| it.path.segment(candidate).is_some())?
            }
            Err(_) => return None,
        };
        let is_known = find_offered(&OPERATIONS, method, candidate).is_ok();
        let path = row.path.as_str();
        Some(if is_known { format!("{row:?}") } else { path.to_owned() })
    })
}

/// Returns the operation's place in [`operation_names`].
pub(super) fn row(operation: Option<&'static Operation>) -> usize {
    let Some(operation) = operation else { return OPERATIONS.len() };
    OPERATIONS.element_offset(operation).unwrap_or_else(|| {
        let in_gamma = || Some(CLOB.len() + GAMMA.element_offset(operation)?);
        let row = CLOB.element_offset(operation).or_else(in_gamma);
        OPERATIONS.len() + 1 + row.expect("an operation is in one of the tables")
    })
}

/// Returns the number of operations of a server.
pub(super) fn operation_count(has_clob: bool) -> usize {
    OPERATIONS.len() + if has_clob { CLOB.len() + GAMMA.len() } else { 0 }
}

/// Returns the names of a server's operations in metrics. `none`, for requests that match no
/// operation, follows those of its own interface.
pub(super) fn operation_names(has_clob: bool) -> Vec<String> {
    let [clob, gamma] = if has_clob { [&CLOB[..], &GAMMA] } else { [&[][..]; 2] };
    let own = OPERATIONS.iter().map(Operation::name).chain(["none".to_owned()]);
    own.chain(clob.iter().chain(gamma).map(Operation::name)).collect()
}

/// The segment below `/v1/markets` that begins another path. No condition id looks like this, and
/// some clients retry for a minute if they are told that a market is unknown.
const NO_CONDITION_ID: &str = "by-slug";

fn find_offered(
    table: &'static [Operation],
    method: &Method,
    path: &str,
) -> Result<&'static Operation, RouteError> {
    find_fitting(table, method, |operation| operation.path.segment(path))
}

/// Finds a row of the venue's catalogue, for a path that may lack its folder.
fn find_gamma(method: &Method, path: &str) -> Result<&'static Operation, RouteError> {
    find_fitting(&GAMMA, method, |operation| gamma::segment(operation, path))
}

/// Finds the first row that fits, for which the parameter is returned.
fn find_fitting<'p>(
    table: &'static [Operation],
    method: &Method,
    fits: impl Fn(&Operation) -> Option<&'p str>,
) -> Result<&'static Operation, RouteError> {
    let found = table.iter().enumerate().find_map(|(row, it)| Some((row, fits(it)?)));
    let (row, segment) = found.ok_or(RouteError::NotFound)?;
    // `Call::parameter` relies on this check.
    if !segment.is_empty() {
        decode(segment).ok_or(RouteError::NotFound)?;
    }
    if segment == NO_CONDITION_ID && table[row].path.parameter() == "condition_id" {
        return Err(RouteError::NotFound);
    }
    let wanted = Verb::of(method);
    let mut same_path = table[row..].iter().filter(|it| it.path == table[row].path);
    same_path.clone().find(|it| Some(it.method) == wanted).ok_or_else(|| {
        let allow = same_path.by_ref().map(|it| it.method).collect();
        RouteError::MethodNotAllowed { allow }
    })
}

/// Returns why this server leaves out an operation of the original service, if it does.
fn not_offered(method: &Method, path: &str) -> Option<&'static str> {
    let is_below = |folder: &str| path.strip_prefix(folder).is_some_and(|it| it.starts_with('/'));
    if path == "/v1/simulation" || is_below("/v1/simulation") {
        return Some("This server does not simulate trades on past books.");
    }
    if path == "/prices/live" || is_below("/prices/live") || is_below("/prices/ptb") {
        return Some("This server has no prices of currencies.");
    }
    let names_wallet = is_below("/v1/me/wallets") && path.matches('/').count() == 4;
    let changes_wallets = match *method {
        Method::POST => path == "/v1/me/wallets",
        Method::PATCH | Method::DELETE => names_wallet,
        _ => false,
    };
    changes_wallets.then_some("An account of this server has one wallet, which stays as it is.")
}

/// Decodes a percent-encoded segment; `None` if it is not UTF-8.
pub(super) fn decode(segment: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(segment).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(operation: &Operation) -> String {
        let pattern = operation.path.as_str();
        pattern.replace(&format!("{{{}}}", operation.path.parameter()), "77")
    }

    #[test]
    fn every_operation_has_its_request_line() {
        let methods = [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::DELETE];
        for (index, operation) in OPERATIONS.iter().enumerate() {
            let path = path_of(operation);
            let mut taken = Vec::new();
            assert_eq!(
                row(find(&operation.method.as_str().parse().unwrap(), &path, false).ok()),
                index
            );
            for method in &methods {
                let found = find(method, &path, false);
                if Verb::of(method) == Some(operation.method) {
                    assert_eq!(found, Ok(operation), "{method} {path}");
                }
                if found.is_ok() {
                    taken.push(method.as_str());
                }
            }
            let Err(RouteError::MethodNotAllowed { allow }) = find(&Method::PUT, &path, false)
            else {
                panic!("{path} takes PUT");
            };
            assert_eq!(allow.to_string(), taken.join(", "), "{path}");
        }
    }

    #[test]
    fn an_unknown_path_differs_from_a_wrong_method() {
        for (method, path, expected) in [
            (Method::GET, "", ""),
            (Method::GET, "/x", ""),
            (Method::POST, "/", "GET, HEAD"),
            (Method::GET, "/docs/", ""),
            (Method::OPTIONS, "*", ""),
            (Method::POST, "/trade/", ""),
            (Method::POST, "//trade", ""),
            (Method::POST, "/Trade", ""),
            (Method::POST, "/%74rade", ""),
            (Method::GET, "/v1/markets/", ""),
            (Method::GET, "/v1/markets//book", ""),
            (Method::GET, "/v1/markets/%FF", ""),
            (Method::POST, "/v1/markets/updown", "GET, HEAD"),
            (Method::POST, "/v1/markets/updown/intervals", "GET, HEAD"),
            (Method::GET, "/v1/markets/by-slug", ""),
            (Method::POST, "/v1/markets/by-slug", ""),
            (Method::POST, "/v1/markets/by-slug/updown", "GET, HEAD"),
            (Method::POST, "/v1/markets/by-slug/book", "GET, HEAD"),
            (Method::PATCH, "/v1/markets/%FF", ""),
            (Method::GET, "/v1/markets/a/book/b", ""),
            (Method::GET, "/v1/markets/a/book/b/c/d", ""),
            (Method::GET, "/v1/keys/bootstrap/x", ""),
            (Method::GET, "/trade", "POST"),
            (Method::PATCH, "/v1/orders", "GET, HEAD, POST"),
            (Method::POST, "/v1/orders/64", "GET, HEAD, DELETE"),
            (Method::GET, "/v1/orders/batch", "POST"),
            (Method::POST, "/v1/keys/64", "PATCH, DELETE"),
            (Method::PATCH, "/v1/keys/bootstrap", "POST"),
            (Method::PATCH, "/v1/keys/64/rotate", "POST"),
            (Method::GET, "/v1/keys/bootstrap/rotate", "POST"),
            (Method::POST, "/v1/keys//rotate", ""),
            (Method::PATCH, "/v1/keys/tiers", "GET, HEAD"),
            (Method::PUT, "/v1/keys", "GET, HEAD, POST"),
            (Method::DELETE, "/trades/64/comments", "GET, HEAD, POST"),
        ] {
            let allowed = match find(&method, path, false).expect_err(path) {
                RouteError::NotFound | RouteError::NotOffered { .. } => String::new(),
                RouteError::MethodNotAllowed { allow } => allow.to_string(),
            };
            assert_eq!(allowed, expected, "{method} {path}");
        }
    }

    #[test]
    fn what_is_left_out_on_purpose_says_so() {
        let all = [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::DELETE];
        let [get, head, post, patch, delete] = &all;
        for (path, left_out) in [
            ("/v1/simulation", &all[..]),
            ("/v1/simulation/fill", &all),
            ("/v1/simulation/backtests/7/trades", &all),
            ("/v1/simulations", &[]),
            ("/prices/live", &all),
            ("/prices/live/BTC", &all),
            ("/prices/lively", &[]),
            ("/prices/ptb/0xa", &all),
            ("/prices/ptb", &[]),
            ("/prices", &[]),
            ("/v1/me/wallets", std::slice::from_ref(post)),
            ("/v1/me/wallets/64", &[patch.clone(), delete.clone()]),
            ("/v1/me/wallets/64/reset", &[]),
            ("/v1/me/walletsx/64", &[]),
        ] {
            for method in [get, head, post, patch, delete] {
                let found = find(method, path, false);
                let is_left_out = matches!(found, Err(RouteError::NotOffered { .. }));
                assert_eq!(is_left_out, left_out.contains(method), "{method} {path}");
            }
        }
    }

    #[test]
    fn a_parameter_is_decoded_only_where_it_is_encoded() {
        for (path, expected) in [
            ("/v1/markets/a%2Fb", "a/b"),
            ("/v1/markets/%zz%41%", "%zzA%"),
            ("/v1/markets/x+7", "x+7"),
            ("/v1/markets/%C3%a9", "é"),
        ] {
            let operation = find(&Method::GET, path, false).expect(path);
            let segment = operation.path.segment(path).expect(path);
            assert_eq!(decode(segment).as_deref(), Some(expected), "{path}");
        }
        assert!(matches!(decode("x+7"), Some(Cow::Borrowed("x+7"))));
    }
}
