//! What the operator decides about accounts.

use crate::money::Usd;

/// How many finished orders of an account are kept when the operator does not say.
pub const KEPT_ORDERS_MAX_DEFAULT: u32 = 100_000;

/// What the operator decides about accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// What a new account starts with.
    pub starting_balance: Usd,
    /// How many active keys an account may have.
    pub active_keys_max: u32,
    /// How many finished orders of an account are kept, with their names and comments: the newest.
    /// At least 1.
    pub kept_orders_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            starting_balance: Usd::from_micros(1_000_000_000),
            active_keys_max: 5,
            kept_orders_max: KEPT_ORDERS_MAX_DEFAULT,
        }
    }
}
