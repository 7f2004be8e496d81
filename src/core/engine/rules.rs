//! The operator's settings for accounts.

use crate::money::Usd;

/// The default of [`Rules::kept_orders_max`].
pub const KEPT_ORDERS_MAX_DEFAULT: u32 = 100_000;

/// The default of [`Rules::open_orders_max`].
pub const OPEN_ORDERS_MAX_DEFAULT: u32 = 1_000;

/// The default of [`Rules::author_comments_max`].
pub const AUTHOR_COMMENTS_MAX_DEFAULT: u32 = 1_000;

/// The operator's settings for accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The play money granted to a new account.
    pub starting_balance: Usd,
    /// The maximum number of active keys per account.
    pub active_keys_max: u32,
    /// The maximum number of finished orders an account keeps, with their names and comments; the
    /// oldest are forgotten first. At least 1.
    pub kept_orders_max: u32,
    /// The maximum number of open orders per account.
    pub open_orders_max: u32,
    /// The maximum number of comments per author, on all orders together. At least 1.
    pub author_comments_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            starting_balance: Usd::from_micros(1_000_000_000),
            active_keys_max: 5,
            kept_orders_max: KEPT_ORDERS_MAX_DEFAULT,
            open_orders_max: OPEN_ORDERS_MAX_DEFAULT,
            author_comments_max: AUTHOR_COMMENTS_MAX_DEFAULT,
        }
    }
}
