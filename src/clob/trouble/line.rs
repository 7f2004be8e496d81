//! The record of trouble: what was done to whom, and what they did.

use serde::{Deserialize, Serialize};

use super::Kind;

/// A line of the record, as JSON.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(untagged)]
pub enum Line {
    /// Somebody met trouble.
    Met(Met),
    /// Somebody did something.
    Act(Act),
}

/// Trouble that somebody met.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Met {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The kind of trouble.
    #[serde(with = "kind_name")]
    pub trouble: Kind,
    /// The number of the draw, counted from 1 for its kind and subject.
    pub number: u64,
    /// How long it takes, in milliseconds; 0 for kinds without a length.
    pub length_ms: u32,
    /// The wallet; `None` if the request or socket has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wallet: Option<Box<str>>,
    /// The address that the request or socket comes from, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<Box<str>>,
    /// The orders of the request, or the order of the fill or frame.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub orders: Vec<Box<str>>,
    /// The outcome that a fill, frame or tick is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token: Option<Box<str>>,
}

/// Maximum number of outcomes in an [`Act`].
pub const TOKENS_MAX: usize = 500;

/// Something that somebody did.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Act {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What.
    pub act: ActKind,
    /// The wallet; `None` if the request has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wallet: Option<Box<str>>,
    /// The address that the request or socket comes from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<Box<str>>,
    /// The status of the answer; 0 for sockets.
    #[serde(default)]
    pub status: u16,
    /// The order that was placed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub order: Option<OrderAct>,
    /// The outcomes whose books were read, or to which a market socket is subscribed. At most
    /// [`TOKENS_MAX`].
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tokens: Vec<Box<str>>,
}

/// What somebody did.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum ActKind {
    /// Placed an order, alone or in a list.
    Order,
    /// Cancelled orders.
    Cancel,
    /// Read orders or trades.
    Look,
    /// Read the balance of cash or shares.
    Balance,
    /// Read books or prices.
    Book,
    /// Opened a user socket.
    UserSocket,
    /// A user socket ended.
    UserSocketEnd,
    /// Subscribed to outcomes on a market socket.
    MarketSocket,
    /// A market socket ended.
    MarketSocketEnd,
    /// Any other request.
    Other,
}

/// An order that somebody placed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct OrderAct {
    /// The salt of the order, which a repeated one shares with the first.
    pub salt: Box<str>,
    /// The order's id, if the order was taken.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<Box<str>>,
    /// The outcome's token.
    pub token: Box<str>,
    /// `BUY` or `SELL`.
    pub side: Box<str>,
    /// What the signer gives, in millionths of a dollar or share.
    pub making_micros: u64,
    /// What the signer gets, in millionths of a share or dollar.
    pub taking_micros: u64,
    /// The error, if the order was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<Box<str>>,
    /// Whether the order was refused because bought shares are not settled yet.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_unsettled: bool,
}

mod kind_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::trouble::Kind;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(kind: &Kind, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(kind.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Kind, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(input)?;
        Kind::named(&name).ok_or_else(|| D::Error::custom(format!("{name:?} is no kind")))
    }
}
