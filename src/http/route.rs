//! Which operation a request line asks for, and what holds for that operation before its body is
//! read: who may call it, how long its body may be, whether it counts as a request of a key.
//!
//! Path parameters stay text here. Whether a text is an id is judged after the credential.

use std::borrow::Cow;

use hyper::Method;

use super::percent;
use crate::engine::key::Permission;
use crate::service::Makes;

/// The longest body of most operations.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// The longest body of an operation that takes many things at once.
pub const BATCH_BODY_BYTES_MAX: usize = 256 * 1024;

/// A path has at most this many segments; longer ones lead nowhere.
const SEGMENTS_MAX: usize = 4;

/// An operation and its path parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route<'a> {
    /// `POST /v1/keys/bootstrap`
    BootstrapKey,
    /// `POST /v1/keys`
    CreateKey,
    /// `GET /v1/keys`
    ListKeys,
    /// `PATCH /v1/keys/{key_id}`
    RenameKey {
        /// As it stands in the path.
        key_id: Cow<'a, str>,
    },
    /// `POST /v1/keys/{key_id}/rotate`
    RotateKey {
        /// As it stands in the path.
        key_id: Cow<'a, str>,
    },
    /// `DELETE /v1/keys/{key_id}`
    RevokeKey {
        /// As it stands in the path.
        key_id: Cow<'a, str>,
    },
    /// `GET /v1/keys/tiers`
    ListTiers,
    /// `POST /v1/keys/ws-token`
    CreateSocketToken,
    /// `POST /trade`
    Trade,
    /// `POST /trades/{order_id}/comments`
    AddComment {
        /// As it stands in the path.
        order_id: Cow<'a, str>,
    },
    /// `GET /trades/{order_id}/comments`
    ListComments {
        /// As it stands in the path.
        order_id: Cow<'a, str>,
    },
    /// `DELETE /comments/{comment_id}`
    DeleteComment {
        /// As it stands in the path.
        comment_id: Cow<'a, str>,
    },
    /// `POST /v1/orders/batch`
    PlaceBatch,
    /// `POST /v1/prices/batch`
    ListPrices,
    /// `GET /v1/markets`
    ListMarkets,
    /// `GET /v1/markets/{condition_id}`
    GetMarket {
        /// As it stands in the path.
        condition_id: Cow<'a, str>,
    },
    /// `GET /v1/markets/{condition_id}/book`
    GetMarketBook {
        /// As it stands in the path.
        condition_id: Cow<'a, str>,
    },
    /// `GET /v1/book`
    GetBook,
    /// `GET /v1/orders`
    ListOrders,
    /// `GET /v1/orders/{order_id}`
    GetOrder {
        /// As it stands in the path.
        order_id: Cow<'a, str>,
    },
    /// `GET /v1/account/balance`
    GetBalance,
    /// `GET /v1/account/positions`
    ListPositions,
    /// `GET /v1/account/settlements`
    ListSettlements,
    /// `GET /v1/ws/prices`, an upgrade
    PriceSocket,
    /// `GET /v1/status`
    Status,
    /// `GET /v1/time`
    Time,
    /// `GET /v1/health`
    Health,
    /// `GET /v1/health/live`
    HealthLive,
    /// `GET /v1/health/ready`
    HealthReady,
}

/// Why a request line asks for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RouteError {
    /// The path leads nowhere.
    #[error("no such path")]
    NotFound,
    /// The path leads somewhere, but not with this method.
    #[error("the path takes {allow}")]
    MethodNotAllowed {
        /// The methods that it takes, as the `Allow` header writes them.
        allow: &'static str,
    },
}

/// Who may call an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Everybody. A credential that is sent is checked all the same.
    Public,
    /// Who brings an access token as Bearer; an API key beside it does not count.
    Token,
    /// Who brings an access token, or a key with this permission; any key where there is none.
    KeyOrToken(Option<Permission>),
    /// Who brings a key with this permission. A token is told to use a key.
    Key(Permission),
    /// A socket: the credential is judged when the upgrade is accepted, so that the client can read
    /// the close code.
    Socket(Permission),
}

impl<'a> Route<'a> {
    /// The operation that a method and a path (without its query) ask for. `HEAD` asks for what
    /// `GET` does.
    pub fn find(method: &Method, path: &'a str) -> Result<Self, RouteError> {
        use Verb::{Delete, Get, Post};
        let not_allowed = |allow| Err(RouteError::MethodNotAllowed { allow });
        let mut segments = [""; SEGMENTS_MAX];
        let segments = split(path, &mut segments).ok_or(RouteError::NotFound)?;
        Ok(match (segments, Verb::of(method)) {
            (["trade"], Post) => Self::Trade,
            (["trade"], _) => return not_allowed("POST"),
            (["trades", order_id, "comments"], verb) => {
                let order_id = parameter(order_id)?;
                match verb {
                    Get => Self::ListComments { order_id },
                    Post => Self::AddComment { order_id },
                    _ => return not_allowed("GET, HEAD, POST"),
                }
            }
            (["comments", comment_id], verb) => {
                let comment_id = parameter(comment_id)?;
                match verb {
                    Delete => Self::DeleteComment { comment_id },
                    _ => return not_allowed("DELETE"),
                }
            }
            (["v1", rest @ ..], verb) => return Self::find_v1(verb, rest),
            _ => return Err(RouteError::NotFound),
        })
    }

    fn find_v1(verb: Verb, segments: &[&'a str]) -> Result<Self, RouteError> {
        use Verb::{Delete, Get, Patch, Post};
        let not_allowed = |allow| Err(RouteError::MethodNotAllowed { allow });
        let get = |route| if verb == Get { Ok(route) } else { not_allowed("GET, HEAD") };
        let post = |route| if verb == Post { Ok(route) } else { not_allowed("POST") };
        match segments {
            ["keys"] => match verb {
                Get => Ok(Self::ListKeys),
                Post => Ok(Self::CreateKey),
                _ => not_allowed("GET, HEAD, POST"),
            },
            ["keys", "bootstrap"] => post(Self::BootstrapKey),
            ["keys", "tiers"] => get(Self::ListTiers),
            ["keys", "ws-token"] => post(Self::CreateSocketToken),
            ["keys", key_id] => {
                let key_id = parameter(key_id)?;
                match verb {
                    Patch => Ok(Self::RenameKey { key_id }),
                    Delete => Ok(Self::RevokeKey { key_id }),
                    _ => not_allowed("PATCH, DELETE"),
                }
            }
            ["keys", key_id, "rotate"] => post(Self::RotateKey { key_id: parameter(key_id)? }),
            ["orders"] => get(Self::ListOrders),
            ["orders", "batch"] => post(Self::PlaceBatch),
            ["orders", order_id] => get(Self::GetOrder { order_id: parameter(order_id)? }),
            ["prices", "batch"] => post(Self::ListPrices),
            ["markets"] => get(Self::ListMarkets),
            ["markets", condition_id] => {
                get(Self::GetMarket { condition_id: parameter(condition_id)? })
            }
            ["markets", condition_id, "book"] => {
                get(Self::GetMarketBook { condition_id: parameter(condition_id)? })
            }
            ["book"] => get(Self::GetBook),
            ["account", "balance"] => get(Self::GetBalance),
            ["account", "positions"] => get(Self::ListPositions),
            ["account", "settlements"] => get(Self::ListSettlements),
            ["ws", "prices"] => get(Self::PriceSocket),
            ["status"] => get(Self::Status),
            ["time"] => get(Self::Time),
            ["health"] => get(Self::Health),
            ["health", "live"] => get(Self::HealthLive),
            ["health", "ready"] => get(Self::HealthReady),
            _ => Err(RouteError::NotFound),
        }
    }

    /// Who may call it.
    pub const fn access(&self) -> Access {
        match self {
            Self::BootstrapKey => Access::Token,
            Self::CreateKey
            | Self::RenameKey { .. }
            | Self::RotateKey { .. }
            | Self::RevokeKey { .. }
            | Self::CreateSocketToken => Access::KeyOrToken(None),
            Self::ListKeys | Self::GetBalance | Self::ListPositions | Self::ListSettlements => {
                Access::KeyOrToken(Some(Permission::Read))
            }
            Self::Trade | Self::AddComment { .. } | Self::DeleteComment { .. } => {
                Access::KeyOrToken(Some(Permission::Trade))
            }
            Self::PlaceBatch => Access::Key(Permission::Trade),
            Self::ListPrices | Self::ListOrders | Self::GetOrder { .. } => {
                Access::Key(Permission::Read)
            }
            Self::PriceSocket => Access::Socket(Permission::Read),
            Self::ListTiers
            | Self::ListComments { .. }
            | Self::ListMarkets
            | Self::GetMarket { .. }
            | Self::GetMarketBook { .. }
            | Self::GetBook
            | Self::Status
            | Self::Time
            | Self::Health
            | Self::HealthLive
            | Self::HealthReady => Access::Public,
        }
    }

    /// The longest body that it takes.
    pub const fn body_bytes_max(&self) -> usize {
        match self {
            Self::PlaceBatch | Self::ListPrices => BATCH_BODY_BYTES_MAX,
            _ => BODY_BYTES_MAX,
        }
    }

    /// What a call makes that has a limit of its own.
    pub const fn makes(&self) -> Makes {
        let (account, key) = match self {
            Self::BootstrapKey | Self::CreateKey => (true, true),
            Self::Trade | Self::AddComment { .. } => (true, false),
            Self::RotateKey { .. } => (false, true),
            _ => (false, false),
        };
        Makes { account, key }
    }

    /// Whether a call counts against the limits of its caller. Health stands outside of every
    /// limit, and sockets have a cap of their own.
    pub const fn is_rate_limited(&self) -> bool {
        !matches!(self, Self::Health | Self::HealthLive | Self::HealthReady | Self::PriceSocket)
    }
}

/// A method, as far as any path tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Get,
    Post,
    Patch,
    Delete,
    Other,
}

impl Verb {
    const fn of(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD => Self::Get,
            Method::POST => Self::Post,
            Method::PATCH => Self::Patch,
            Method::DELETE => Self::Delete,
            _ => Self::Other,
        }
    }
}

/// The segments of a path that begins with a slash; `None` for other paths and for longer ones.
fn split<'p, 's>(
    path: &'p str,
    segments: &'s mut [&'p str; SEGMENTS_MAX],
) -> Option<&'s [&'p str]> {
    let path = path.strip_prefix('/')?;
    let mut start = 0;
    let mut count = 0;
    for (end, byte) in path.bytes().enumerate() {
        if byte == b'/' {
            *segments.get_mut(count)? = &path[start..end];
            count += 1;
            start = end + 1;
        }
    }
    *segments.get_mut(count)? = &path[start..];
    Some(&segments[..=count])
}

/// A segment as text. One that is empty or not UTF-8 names nothing.
fn parameter(segment: &str) -> Result<Cow<'_, str>, RouteError> {
    if segment.is_empty() {
        return Err(RouteError::NotFound);
    }
    match percent::decode(segment, false) {
        Cow::Borrowed(_) => Ok(Cow::Borrowed(segment)),
        Cow::Owned(bytes) => {
            String::from_utf8(bytes).map(Cow::Owned).map_err(|_| RouteError::NotFound)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[track_caller]
    fn check(method: &Method, path: &str, expected: &Result<Route<'_>, RouteError>) {
        assert_eq!(Route::find(method, path), *expected, "{method} {path}");
    }

    #[test]
    fn every_operation_has_its_request_line() {
        let id = || Cow::Borrowed("77");
        for (method, path, route) in [
            (Method::POST, "/v1/keys/bootstrap", Route::BootstrapKey),
            (Method::POST, "/v1/keys", Route::CreateKey),
            (Method::GET, "/v1/keys", Route::ListKeys),
            (Method::PATCH, "/v1/keys/77", Route::RenameKey { key_id: id() }),
            (Method::POST, "/v1/keys/77/rotate", Route::RotateKey { key_id: id() }),
            (Method::DELETE, "/v1/keys/77", Route::RevokeKey { key_id: id() }),
            (Method::GET, "/v1/keys/tiers", Route::ListTiers),
            (Method::POST, "/v1/keys/ws-token", Route::CreateSocketToken),
            (Method::POST, "/trade", Route::Trade),
            (Method::POST, "/trades/77/comments", Route::AddComment { order_id: id() }),
            (Method::GET, "/trades/77/comments", Route::ListComments { order_id: id() }),
            (Method::DELETE, "/comments/77", Route::DeleteComment { comment_id: id() }),
            (Method::POST, "/v1/orders/batch", Route::PlaceBatch),
            (Method::POST, "/v1/prices/batch", Route::ListPrices),
            (Method::GET, "/v1/markets", Route::ListMarkets),
            (Method::GET, "/v1/markets/77", Route::GetMarket { condition_id: id() }),
            (Method::GET, "/v1/markets/77/book", Route::GetMarketBook { condition_id: id() }),
            (Method::GET, "/v1/book", Route::GetBook),
            (Method::GET, "/v1/orders", Route::ListOrders),
            (Method::GET, "/v1/orders/77", Route::GetOrder { order_id: id() }),
            (Method::GET, "/v1/account/balance", Route::GetBalance),
            (Method::GET, "/v1/account/positions", Route::ListPositions),
            (Method::GET, "/v1/account/settlements", Route::ListSettlements),
            (Method::GET, "/v1/ws/prices", Route::PriceSocket),
            (Method::GET, "/v1/status", Route::Status),
            (Method::GET, "/v1/time", Route::Time),
            (Method::GET, "/v1/health", Route::Health),
            (Method::GET, "/v1/health/live", Route::HealthLive),
            (Method::GET, "/v1/health/ready", Route::HealthReady),
        ] {
            if method == Method::GET {
                check(&Method::HEAD, path, &Ok(route.clone()));
            }
            check(&method, path, &Ok(route));
            check_allow(path);
        }
    }

    /// What the refusal of a method says is what the path takes.
    #[track_caller]
    fn check_allow(path: &str) {
        let methods = [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::DELETE];
        let taken: Vec<_> = methods
            .into_iter()
            .filter(|method| Route::find(method, path).is_ok())
            .map(|method| method.to_string())
            .collect();
        let Err(RouteError::MethodNotAllowed { allow }) = Route::find(&Method::PUT, path) else {
            panic!("{path} takes PUT");
        };
        assert_eq!(allow, taken.join(", "), "{path}");
    }

    #[test]
    fn what_leads_nowhere_is_told_from_a_wrong_method() {
        let not_allowed = |allow| Err(RouteError::MethodNotAllowed { allow });
        for (method, path, expected) in [
            (Method::GET, "", Err(RouteError::NotFound)),
            (Method::GET, "/", Err(RouteError::NotFound)),
            (Method::OPTIONS, "*", Err(RouteError::NotFound)),
            (Method::POST, "/trade/", Err(RouteError::NotFound)),
            (Method::POST, "//trade", Err(RouteError::NotFound)),
            (Method::POST, "/Trade", Err(RouteError::NotFound)),
            (Method::GET, "/v1/markets/", Err(RouteError::NotFound)),
            (Method::GET, "/v1/markets//book", Err(RouteError::NotFound)),
            (Method::GET, "/v1/markets/%FF", Err(RouteError::NotFound)),
            (Method::PATCH, "/v1/markets/%FF", Err(RouteError::NotFound)),
            (Method::GET, "/v1/markets/a/book/b", Err(RouteError::NotFound)),
            (Method::GET, "/v1/markets/a/book/b/c/d", Err(RouteError::NotFound)),
            (Method::GET, "/trade", not_allowed("POST")),
            (Method::POST, "/v1/orders", not_allowed("GET, HEAD")),
            (Method::POST, "/v1/keys/64", not_allowed("PATCH, DELETE")),
            (Method::PATCH, "/v1/keys/64/rotate", not_allowed("POST")),
            (Method::POST, "/v1/keys//rotate", Err(RouteError::NotFound)),
            (Method::PATCH, "/v1/keys/tiers", not_allowed("GET, HEAD")),
            (Method::PUT, "/v1/keys", not_allowed("GET, HEAD, POST")),
            (Method::DELETE, "/trades/64/comments", not_allowed("GET, HEAD, POST")),
        ] {
            check(&method, path, &expected);
        }
    }

    #[test]
    fn a_parameter_is_decoded_only_where_it_is_encoded() {
        let Ok(Route::GetMarket { condition_id }) = Route::find(&Method::GET, "/v1/markets/a%2Fb")
        else {
            panic!("a market");
        };
        assert_eq!(condition_id, "a/b");
        let Ok(Route::GetOrder { order_id: Cow::Borrowed(raw) }) =
            Route::find(&Method::GET, "/v1/orders/x+7")
        else {
            panic!("borrowed text");
        };
        assert_eq!(raw, "x+7", "judged after the credential, not here");
    }

    #[test]
    fn what_holds_before_the_body_is_read() {
        let rows = [
            Route::BootstrapKey,
            Route::CreateKey,
            Route::ListKeys,
            Route::RenameKey { key_id: "1".into() },
            Route::RotateKey { key_id: "1".into() },
            Route::RevokeKey { key_id: "1".into() },
            Route::ListTiers,
            Route::CreateSocketToken,
            Route::Trade,
            Route::AddComment { order_id: "1".into() },
            Route::ListComments { order_id: "1".into() },
            Route::DeleteComment { comment_id: "1".into() },
            Route::PlaceBatch,
            Route::ListPrices,
            Route::ListMarkets,
            Route::GetMarket { condition_id: "1".into() },
            Route::GetMarketBook { condition_id: "1".into() },
            Route::GetBook,
            Route::ListOrders,
            Route::GetOrder { order_id: "1".into() },
            Route::GetBalance,
            Route::ListPositions,
            Route::PriceSocket,
            Route::Status,
            Route::Time,
            Route::Health,
            Route::HealthLive,
            Route::HealthReady,
        ];
        let mut table = String::new();
        for route in rows {
            let name = format!("{route:?}");
            let name = name.split([' ', '{']).next().unwrap_or_default();
            let body = route.body_bytes_max() / 1024;
            let limited = if route.is_rate_limited() { "limited" } else { "free" };
            let access = format!("{:?}", route.access());
            writeln!(table, "{name:<17} {access:<23} {body:>3} KiB {limited}").unwrap();
        }
        insta::assert_snapshot!(table);
    }
}
