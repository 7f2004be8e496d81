//! The links of the document: the values in an answer that other operations take as input.

use serde_json::{Map, Value, json};

use crate::http::operation::{Operation, Verb};
use Gives::{Body, Parameter};
use Verb::{Delete, Get, Patch, Post};

/// A link from an answer to the operations that take one of its values.
struct Link {
    from: (Verb, &'static str),
    gives: Gives,
    to: &'static [(Verb, &'static str)],
}

/// Values are literal text, or JSON pointers into the answer if they start with `#`.
enum Gives {
    /// The name of a parameter, preceded by its location, and its value.
    Parameter(&'static str, &'static str),
    /// A body with these fields.
    Body(&'static [(&'static str, &'static str)]),
}

const KEY: [(Verb, &str); 3] = [
    (Patch, "/v1/keys/{key_id}"),
    (Post, "/v1/keys/{key_id}/rotate"),
    (Delete, "/v1/keys/{key_id}"),
];

/// All links. They come only from answers that always have the value; a list may be empty.
const LINKS: [Link; 10] = [
    Link {
        from: (Post, "/v1/keys/bootstrap"),
        gives: Parameter("header.X-API-Key", "#/raw_key"),
        to: &[(Post, "/trade"), (Post, "/v1/orders"), (Get, "/v1/me")],
    },
    Link { from: (Post, "/v1/keys/bootstrap"), gives: Parameter("path.key_id", "#/id"), to: &KEY },
    Link { from: (Post, "/v1/keys"), gives: Parameter("path.key_id", "#/id"), to: &KEY },
    Link {
        from: (Post, "/trade"),
        gives: Parameter("path.order_id", "#/order_id"),
        to: &[
            (Get, "/v1/orders/{order_id}"),
            (Get, "/trades/{order_id}/comments"),
            (Post, "/trades/{order_id}/comments"),
        ],
    },
    Link {
        from: (Post, "/v1/orders"),
        gives: Parameter("path.order_id", "#/order_id"),
        to: &[
            (Get, "/v1/orders/{order_id}"),
            (Delete, "/v1/orders/{order_id}"),
            (Post, "/trades/{order_id}/comments"),
        ],
    },
    Link {
        from: (Post, "/trades/{order_id}/comments"),
        gives: Parameter("path.comment_id", "#/id"),
        to: &[(Delete, "/comments/{comment_id}")],
    },
    Link {
        from: (Get, "/v1/markets/{condition_id}"),
        gives: Parameter("path.condition_id", "#/condition_id"),
        to: &[
            (Get, "/v1/markets/{condition_id}/book"),
            (Get, "/v1/markets/{condition_id}/candles"),
        ],
    },
    Link {
        from: (Get, "/v1/markets/{condition_id}"),
        gives: Parameter("query.token_id", "#/tokens/0/token_id"),
        to: &[(Get, "/v1/book"), (Get, "/v1/fee-rate"), (Get, "/v1/prices-history")],
    },
    Link {
        from: (Get, "/v1/markets/{condition_id}"),
        gives: Parameter("path.token_id", "#/tokens/0/token_id"),
        to: &[(Get, "/v1/markets-by-token/{token_id}")],
    },
    Link {
        from: (Get, "/v1/markets/{condition_id}"),
        gives: Body(&[
            ("market_id", "#/condition_id"),
            ("outcome", "#/outcomes/0"),
            ("side", "BUY"),
            ("quantity", "5"),
        ]),
        to: &[(Post, "/trade"), (Post, "/v1/orders")],
    },
];

/// Returns the links of an operation's answer; empty if it has none.
pub(super) fn links(operation: &Operation, id_of: impl Fn(Verb, &str) -> String) -> Value {
    let mut links = Map::new();
    let from = (operation.method, operation.path.as_str());
    for link in LINKS.iter().filter(|link| link.from == from) {
        for (method, path) in link.to {
            let id = id_of(*method, path);
            let mut described = json!({ "operationId": id });
            match link.gives {
                Parameter(name, value) => {
                    described["parameters"] = json!({ name: expression(value) });
                }
                Body(fields) => {
                    let fields = fields.iter().map(|(name, value)| (*name, expression(value)));
                    described["requestBody"] = fields.collect();
                }
            }
            let former = links.insert(id, described);
            debug_assert!(former.is_none(), "{operation:?} has two links to {path}");
        }
    }
    Value::Object(links)
}

fn expression(value: &str) -> String {
    if value.starts_with('#') { format!("$response.body{value}") } else { value.to_owned() }
}
