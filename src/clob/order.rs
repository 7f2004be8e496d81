//! Orders that wallets have signed.
//!
//! An order goes through three steps, which a caller takes one by one:
//!
//! ```text
//!  body ── PostedOrder::parse ──► token ──► the caller looks up the market
//!       ── PostedOrder::verify ─► SignedOrder, with its id ──► the caller looks for the id
//!       ── SignedOrder::terms ──► OrderTerms, if the id is new
//! ```
//!
//! The same order may be posted again, and gets its first answer however much later. By then the
//! tick of its market and the time may have made it invalid, so only the last step looks at them.
//!
//! Only [`PostedOrder::verify`] takes long: it recovers the signer, once or twice, and thrice for a
//! V1 order in a neg-risk market. A recovery takes some 40 microseconds.

mod amounts;
mod digest;
mod json;
#[cfg(any(test, feature = "test-util"))]
pub mod signing;
#[cfg(test)]
mod tests;
mod wrapped;

use std::fmt;
use std::ops::Range;

pub use amounts::{OrderSize, OrderTerms};
use digest::{Contents, Exchange, exchanges};

use crate::signature::Chain;
use crate::signature::address::Address;
use crate::signature::ecdsa::Signature;
use crate::signature::eip712;
use crate::signature::keccak::Word;
use crate::signature::wallets::Wallets;
use crate::text;

/// By how many seconds the expiration of a GTD order must lie ahead of the server's clock.
pub const EXPIRATION_AHEAD_SECONDS_MIN: u64 = 180;

/// By how many seconds a GTD order ends before its expiration.
pub const EXPIRATION_EARLY_SECONDS: u64 = 60;

/// Number of bytes of an order's id.
pub const ORDER_ID_BYTES: usize = 32;

/// The bytes of a position id that are 0, where other tokens have the bits of a hash.
const POSITION_ZEROS: Range<usize> = 19..27;

/// The id of an order: the digest that its wallet has signed. For a deposit wallet, whose signature
/// covers more than the order, it is the digest of the order alone.
///
/// `Display` writes `0x` and 64 hexadecimal digits in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId([u8; ORDER_ID_BYTES]);

impl OrderId {
    /// Restores an id from its bytes, most significant first.
    pub const fn from_bytes(bytes: [u8; ORDER_ID_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes of the id, most significant first.
    pub const fn bytes(&self) -> &[u8; ORDER_ID_BYTES] {
        &self.0
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "0x{}", text::hex(&self.0))
    }
}

impl fmt::Debug for OrderId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The version of the contracts for which an order is signed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Version {
    /// With a nonce and a fee rate, from before April 2026.
    V1,
    /// With the time of the signature.
    V2,
    /// As V2, for outcomes that are named by position ids.
    V3,
}

/// Which kind of wallet an order is from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SignatureType {
    /// The account that signs: type 0.
    Eoa,
    /// Its proxy wallet, which exists on [`Chain::Polygon`] alone: type 1.
    Proxy,
    /// Its Gnosis Safe: type 2.
    Safe,
    /// Its deposit wallet, not for V1 orders: type 3.
    Deposit,
}

impl SignatureType {
    /// The number of the type, as clients send it.
    pub fn number(self) -> u8 {
        match self {
            Self::Eoa => 0,
            Self::Proxy => 1,
            Self::Safe => 2,
            Self::Deposit => 3,
        }
    }
}

/// Whether an order buys or sells shares.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The maker pays dollars and takes shares.
    Buy,
    /// The maker gives shares and takes dollars.
    Sell,
}

/// How long an order may wait for a match. It is not signed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OrderType {
    /// Good til cancelled.
    Gtc,
    /// Good til date.
    Gtd,
    /// Fill or kill.
    Fok,
    /// Fill and kill: whatever is not filled at once is cancelled.
    Fak,
}

impl OrderType {
    /// Whether it is the type of a limit order, which may rest in the book. Market orders have the
    /// others.
    pub fn may_rest(self) -> bool {
        matches!(self, Self::Gtc | Self::Gtd)
    }
}

/// Which of the venue's contracts settles a market.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MarketKind {
    /// A market of its own.
    Standard,
    /// A market of an event of which exactly one outcome happens (`neg_risk`).
    NegRisk,
    /// A market whose outcomes are named by position ids, neg-risk or not.
    Position,
}

impl MarketKind {
    /// Returns the kind of the market to which a token belongs, or `None` if the text is no token:
    /// a number below 2^256 in decimal digits. A position id has 64 bits of zeros from bit 40 on.
    pub fn of_token(token_id: &str, is_neg_risk: bool) -> Option<Self> {
        let token = text::decimal_word(token_id.as_bytes())?;
        let is_position = token[POSITION_ZEROS] == [0; POSITION_ZEROS.end - POSITION_ZEROS.start];
        Some(match (is_position, is_neg_risk) {
            (true, _) => Self::Position,
            (false, true) => Self::NegRisk,
            (false, false) => Self::Standard,
        })
    }
}

/// What an order needs to know of its market.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarketFacts {
    /// Which contract settles it.
    pub kind: MarketKind,
    /// The smallest difference of prices, in micro-dollars, above 0 and below 1,000,000.
    pub tick_micros: u64,
}

/// Who has sent a request that posts orders.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The account of its credentials: `POLY_ADDRESS`.
    pub address: Address,
    /// The key of its credentials: `POLY_API_KEY`.
    pub api_key: &'a str,
}

/// An order as a client has posted it. Nothing is verified yet but its form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostedOrder {
    owner: String,
    token_id: String,
    signature: String,
    contents: Contents,
    order_type: OrderType,
    post_only: bool,
    defer_exec: bool,
}

/// An order that its wallet has signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignedOrder {
    /// What tells the order from all others of all wallets.
    pub id: OrderId,
    /// The version of the contracts for which it is signed.
    pub version: Version,
    /// The chain for which it is signed.
    pub chain: Chain,
    /// The kind of the maker's wallet.
    pub signature_type: SignatureType,
    /// The account whose key has signed, that of the caller.
    pub signer: Address,
    /// The wallet that trades: the signer or a contract that belongs to it.
    pub maker: Address,
    /// Whether it buys or sells.
    pub side: Side,
    /// What the maker gives, in micro-dollars or micro-shares; above 0.
    pub maker_amount_micros: u64,
    /// What the maker takes, in micro-shares or micro-dollars; above 0.
    pub taker_amount_micros: u64,
    /// How long it may wait for a match.
    pub order_type: OrderType,
    /// When a GTD order expires, in seconds since 1970; 0 if never. Not signed in V2 and V3.
    pub expiration_s: u64,
    /// Whether it must not take liquidity.
    pub post_only: bool,
    /// `deferExec`, which no client sets by itself. It is not signed.
    pub defer_exec: bool,
}

/// The reason why an order is refused, in the venue's words. The venue's status is 400 for each.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrderError {
    /// The body is not an order.
    #[error("Invalid order payload")]
    Payload,
    /// `owner` is not the API key of the request.
    #[error("the order owner has to be the owner of the API KEY")]
    Owner,
    /// `signer` is not the account of the request, nor a deposit wallet of it for an order of one.
    #[error("the order signer address has to be the address of the API KEY")]
    Signer,
    /// A V1 order for a market that V1 contracts cannot settle.
    #[error("order_version_mismatch")]
    Version,
    /// The signature is malformed, or is not that of the signer for this order in this market; or
    /// the maker is not the signer's wallet of this type.
    #[error("invalid signature")]
    Signature,
    /// A post-only order that may not rest.
    #[error("invalid post-only order: only GTC and GTD order types are allowed")]
    PostOnly,
    /// A GTD order without an expiration, or with one too near, or another order with one.
    #[error("invalid expiration")]
    Expiration,
    /// The price is not between 0 and 1, or that of a limit order not a multiple of the tick.
    #[error("order {id} is invalid. Price ({price}) breaks minimum tick size rule: {tick}")]
    Tick {
        /// The order.
        id: OrderId,
        /// Its price in dollars, rounded to 16 decimals.
        price: String,
        /// The tick of its market in dollars.
        tick: String,
    },
    /// The dollars or shares of a market order that buys have too many decimals.
    #[error(
        "invalid amounts, the market buy orders maker amount supports a max accuracy of 2 \
         decimals, taker amount a max of 4 decimals"
    )]
    MarketBuyDecimals,
    /// The dollars or shares of a limit order that buys have too many decimals.
    #[error(
        "invalid amounts, the buy orders maker amount supports a max accuracy of \
         {dollar_decimals_max} decimals, taker amount a max of 2 decimals"
    )]
    BuyDecimals {
        /// The number of decimals that the dollars may have.
        dollar_decimals_max: u32,
    },
    /// The shares of an order that sells have too many decimals.
    #[error(
        "invalid amounts, the sell orders maker amount supports a max accuracy of 2 decimals, \
         taker amount a max of {dollar_decimals_max} decimals"
    )]
    SellDecimals {
        /// The number of decimals that the dollars may have.
        dollar_decimals_max: u32,
    },
}

impl PostedOrder {
    /// Parses the body of `POST /order`, or an entry in that of `POST /orders`. Fails with
    /// [`OrderError::Payload`].
    ///
    /// Names that no client sends are ignored, but each name may occur only once. Amounts, times,
    /// the nonce and the fee rate may have 64 bits, a token 256, and a salt 53.
    pub fn parse(json: &[u8]) -> Result<Self, OrderError> {
        json::parse(json).ok_or(OrderError::Payload)
    }

    /// The token of the outcome, in decimal digits as it was sent.
    pub fn token_id(&self) -> &str {
        &self.token_id
    }

    /// Verifies that the order belongs to the caller, and that its wallet has signed it for the
    /// contract of this market, on either [`Chain`].
    pub fn verify(
        &self,
        caller: &Caller<'_>,
        market: &MarketFacts,
    ) -> Result<SignedOrder, OrderError> {
        if self.owner != caller.api_key {
            return Err(OrderError::Owner);
        }
        let order = &self.contents;
        let (version, exchanges) =
            exchanges(&order.rest, market.kind).ok_or(OrderError::Version)?;
        self.verify_wallets(caller.address)?;
        let (id, chain) = match order.signature_type {
            SignatureType::Deposit => self.verify_wrapped(caller.address, exchanges)?,
            _ => self.verify_plain(caller.address, exchanges)?,
        };
        Ok(SignedOrder {
            id: OrderId(id),
            version,
            chain,
            signature_type: order.signature_type,
            signer: caller.address,
            maker: order.maker,
            side: order.side,
            maker_amount_micros: order.maker_amount_micros,
            taker_amount_micros: order.taker_amount_micros,
            order_type: self.order_type,
            expiration_s: order.expiration_s,
            post_only: self.post_only,
            defer_exec: self.defer_exec,
        })
    }

    /// Verifies that the maker and the signer of the order are wallets of this account.
    fn verify_wallets(&self, account: Address) -> Result<(), OrderError> {
        let Contents { maker, signer, signature_type, .. } = self.contents;
        let is_signer = match signature_type {
            SignatureType::Deposit => {
                let wallets = Wallets::of(account);
                [wallets.deposit, wallets.deposit_without_beacon].contains(&signer)
            }
            _ => signer == account,
        };
        if !is_signer {
            return Err(OrderError::Signer);
        }
        let expected_maker = match signature_type {
            SignatureType::Eoa | SignatureType::Deposit => signer,
            SignatureType::Proxy => Wallets::of(account).proxy,
            SignatureType::Safe => Wallets::of(account).safe,
        };
        if maker == expected_maker { Ok(()) } else { Err(OrderError::Signature) }
    }

    /// Verifies that `account` has signed the order for one of these contracts. Returns the digest
    /// and the contract's chain.
    fn verify_plain(
        &self,
        account: Address,
        exchanges: &[Exchange],
    ) -> Result<(Word, Chain), OrderError> {
        let signature = Signature::parse(self.signature.as_bytes());
        let signature = signature.map_err(|_| OrderError::Signature)?;
        let hash = self.contents.hash();
        for exchange in exchanges {
            // Nobody can have a proxy wallet where it has no factory.
            let is_proxy = self.contents.signature_type == SignatureType::Proxy;
            if is_proxy && exchange.chain != Chain::Polygon {
                continue;
            }
            let digest = eip712::digest(&exchange.separator, &hash);
            if signature.signer(digest) == Ok(account) {
                return Ok((digest, exchange.chain));
            }
        }
        Err(OrderError::Signature)
    }
}

impl SignedOrder {
    /// Verifies that a GTD order expires late enough, at the time `now_s` in seconds since 1970.
    /// Fails with [`OrderError::Expiration`].
    ///
    /// Only for an order that is new: one that is posted again keeps its first answer.
    pub fn check_expiration(&self, now_s: u64) -> Result<(), OrderError> {
        let earliest_s = now_s.saturating_add(EXPIRATION_AHEAD_SECONDS_MIN);
        if self.order_type == OrderType::Gtd && self.expiration_s < earliest_s {
            return Err(OrderError::Expiration);
        }
        Ok(())
    }

    /// When a GTD order ends, in seconds since 1970; `None` for other orders.
    pub fn ends_at_s(&self) -> Option<u64> {
        let is_gtd = self.order_type == OrderType::Gtd;
        is_gtd.then(|| self.expiration_s.saturating_sub(EXPIRATION_EARLY_SECONDS))
    }
}
