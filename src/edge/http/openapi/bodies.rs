//! The schemas of request bodies. The code that reads bodies is written by hand and collects every
//! error. A test sends bodies that these schemas allow and forbid, and checks that the code agrees.
#![expect(dead_code, reason = "only the schemas are used")]

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::in_any_case;
use crate::http::operations::batch::{BATCH_ENTRIES_MAX, FIELDS_OF_ANY_KIND};
use crate::http::operations::comments::COMMENT_CHARACTERS_MAX;
use crate::http::operations::heartbeats::LABEL_CHARACTERS_MAX;
use crate::http::operations::keys::{KEY_NAME_CHARACTERS_MAX, PERMISSIONS_LISTED_MAX};
use crate::http::operations::order_fields::{
    MARKET_ID_CHARACTERS_MAX, ORDER_NAME_CHARACTERS_MAX, OUTCOME_CHARACTERS_MAX, SIDES,
};
use crate::http::operations::orders::place::{KINDS, TIMES_IN_FORCE};
use crate::http::operations::prices::MARKETS_MAX;
use crate::http::parameter::words;

/// What every order says.
#[derive(JsonSchema)]
struct AnyOrder {
    /// The market's condition id.
    #[schemars(length(min = 1, max = MARKET_ID_CHARACTERS_MAX))]
    market_id: String,
    /// The outcome's label, in any case; `yes` and `no` also mean the first and the second of two.
    #[schemars(length(min = 1, max = OUTCOME_CHARACTERS_MAX))]
    outcome: String,
    /// In any case.
    side: SideWord,
    /// The price that slippage is measured from. By default the best price of the book.
    expected_price: Option<Price>,
    /// The most slippage to accept, in basis points; 500 with an `expected_price`, else unlimited.
    max_slippage_bps: Option<BasisPoints>,
    /// A name for the order. A repeated request with the same name gets the first answer again.
    #[schemars(length(max = ORDER_NAME_CHARACTERS_MAX))]
    client_order_id: Option<String>,
}

/// A market order, which fills completely or not at all.
#[derive(JsonSchema)]
pub(in crate::http) struct TradeRequest {
    #[schemars(flatten)]
    order: AnyOrder,
    /// In shares. More than six decimals are rounded down.
    quantity: Quantity,
}

/// A market or limit order. Words are accepted in any case.
#[derive(JsonSchema)]
pub(in crate::http) struct OrderRequest {
    #[schemars(flatten)]
    order: AnyOrder,
    /// By default `market`.
    order_type: Option<KindWord>,
    /// In shares. Required, except for a market purchase with an `amount`.
    quantity: Option<Quantity>,
    /// What a market purchase may spend, in dollars.
    amount: Option<Quantity>,
    /// The worst price to accept, on the market's tick. Required for a limit order.
    price: Option<Price>,
    /// By default `GTC` for a limit order and `FOK` for a market order. `IOC` is the same as `FAK`.
    time_in_force: Option<TimeInForceWord>,
    /// When a `GTD` order expires, in seconds since 1970. No other order takes one, but all take 0,
    /// which means none.
    expiration: Option<Expiration>,
    /// Whether to reject the order rather than fill any of it at once.
    post_only: Option<bool>,
}

/// Orders that succeed or fail independently.
#[derive(JsonSchema)]
pub(in crate::http) struct BatchRequest {
    /// The caller's tier may allow fewer.
    #[schemars(length(min = 1, max = BATCH_ENTRIES_MAX))]
    orders: Vec<BatchOrder>,
}

/// An entry of a batch. The constraints that tell its two forms apart are placed beside the
/// references to the forms, so that clients generated from the document get a union of the two.
struct BatchOrder;

impl JsonSchema for BatchOrder {
    fn schema_name() -> Cow<'static, str> {
        "BatchOrder".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut trade = generator.subschema_for::<TradeRequest>();
        let has_none = FIELDS_OF_ANY_KIND.map(|name| (name.to_owned(), json!({ "type": "null" })));
        trade.insert("properties".to_owned(), Map::from_iter(has_none).into());
        let mut order = generator.subschema_for::<OrderRequest>();
        let has_one = FIELDS_OF_ANY_KIND.map(|name| {
            json!({ "required": [name], "properties": { name: { "not": { "type": "null" } } } })
        });
        order.insert("anyOf".to_owned(), Value::from_iter(has_one));
        json_schema!({
            "description": "An order as for `/trade`, or one with a field that only `/v1/orders` \
                            has.",
            "anyOf": [trade, order],
        })
    }
}

/// Allows no control characters but newlines and tabs, and requires a character that is not a
/// space.
const CONTENT_PATTERN: &str = concat!(
    r"^[^\u0000-\u0008\u000b-\u001f\u007f-\u009f]*",
    r"[^\s\u0000-\u001f\u007f-\u009f]",
    r"[^\u0000-\u0008\u000b-\u001f\u007f-\u009f]*$",
);

/// A comment on an order.
#[derive(JsonSchema)]
pub(in crate::http) struct CommentRequest {
    /// Without control characters, except newlines and tabs. Space around it is removed.
    #[schemars(
        length(min = 1, max = COMMENT_CHARACTERS_MAX),
        extend("pattern" = CONTENT_PATTERN)
    )]
    content: String,
}

/// Which prices to get.
#[derive(JsonSchema)]
pub(in crate::http) struct PricesRequest {
    /// Condition ids. The caller's tier may allow fewer.
    #[schemars(
        length(min = 1, max = MARKETS_MAX),
        inner(length(min = 1, max = MARKET_ID_CHARACTERS_MAX))
    )]
    market_ids: Vec<String>,
}

/// The properties of a new key.
#[derive(JsonSchema)]
pub(in crate::http) struct NewKeyRequest {
    /// Shown in lists.
    name: Option<KeyName>,
    /// By default `free`; at most the caller's own.
    #[schemars(extend("enum" = ["free", "pro", "enterprise", null]))]
    tier: Option<String>,
    /// By default `read` and `trade`. Only `admin` may grant what the caller does not have.
    #[schemars(length(min = 1, max = PERMISSIONS_LISTED_MAX))]
    permissions: Option<Vec<PermissionName>>,
}

/// A new name for a key.
#[derive(JsonSchema)]
pub(in crate::http) struct RenameRequest {
    /// `null` removes the name.
    name: NewName,
}

/// How long a rotated key keeps working.
#[derive(JsonSchema)]
pub(in crate::http) struct RotateRequest {
    /// By default a day.
    overlap_seconds: Option<OverlapSeconds>,
}

/// Which open orders to cancel; the query may name them instead.
#[derive(JsonSchema)]
pub(in crate::http) struct CancelRequest {
    /// A condition id.
    #[schemars(length(max = MARKET_ID_CHARACTERS_MAX))]
    market: Option<String>,
    /// An outcome's token.
    #[schemars(length(max = MARKET_ID_CHARACTERS_MAX))]
    asset_id: Option<String>,
}

/// How often heartbeats come.
#[derive(JsonSchema)]
pub(in crate::http) struct HeartbeatRequest {
    /// By default 10,000.
    interval_ms: Option<IntervalMs>,
    /// Not shown anywhere.
    #[schemars(length(max = LABEL_CHARACTERS_MAX))]
    client_label: Option<String>,
}

/// Declares a type that stands for a schema.
macro_rules! schema {
    ($name:ident, $schema:tt) => {
        struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

schema!(SideWord, { "anyOf": in_any_case(&words(&SIDES)) });

schema!(KindWord, { "anyOf": in_any_case(&words(&KINDS)) });

schema!(TimeInForceWord, { "anyOf": in_any_case(&words(&TIMES_IN_FORCE)) });

// Numbers are also accepted as text, with at most six decimals.

schema!(Quantity, { "anyOf": [
    { "type": "number", "minimum": 0.000_001, "maximum": 1_000_000 },
    { "type": "string", "pattern": r"^(0\.[0-9]{0,5}[1-9]|[1-9][0-9]{0,5}(\.[0-9]{1,6})?)$" },
]});

schema!(Price, { "anyOf": [
    { "type": "number", "minimum": 0, "maximum": 1 },
    { "type": "string", "pattern": r"^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$" },
]});

schema!(BasisPoints, { "anyOf": [
    { "type": "integer", "minimum": 0, "maximum": 10_000 },
    { "type": "string", "pattern": "^([0-9]{1,4}|10000)$" },
]});

schema!(Expiration, { "anyOf": [
    { "type": "integer", "minimum": 0, "maximum": 9_223_372_036_u64 },
    { "type": "string", "pattern": "^[0-8]?[0-9]{1,9}$" },
]});

schema!(OverlapSeconds, { "anyOf": [
    { "type": "integer", "minimum": 0, "maximum": 2_592_000 },
    { "type": "string", "pattern": "^[0-9]{1,6}$" },
]});

schema!(IntervalMs, { "anyOf": [
    { "type": "integer", "minimum": 1_000, "maximum": 60_000 },
    { "type": "string", "pattern": "^([1-9][0-9]{3}|[1-5][0-9]{4})$" },
]});

schema!(KeyName, {
    "type": "string",
    "maxLength": KEY_NAME_CHARACTERS_MAX,
    "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$",
});

schema!(NewName, { "anyOf": [
    KeyName::json_schema(&mut SchemaGenerator::default()),
    { "type": "null" },
]});

schema!(PermissionName, { "type": "string", "enum": ["read", "trade", "admin"] });
