//! The numbers of the event kinds. They are part of the format: never reused, never changed.

pub(crate) const ACCOUNT_OPENED: u16 = 1;
pub(crate) const KEY_CREATED: u16 = 2;
pub(crate) const KEY_REVOKED: u16 = 3;
pub(crate) const MARKET_INTRODUCED: u16 = 4;
pub(crate) const ORDER_FILLED: u16 = 5;
pub(crate) const COMMENT_ADDED: u16 = 6;
pub(crate) const COMMENT_DELETED: u16 = 7;
pub(crate) const STATE_CHECKED: u16 = 8;
pub(crate) const ORDER_FORGOTTEN: u16 = 9;
pub(crate) const KEY_FORGOTTEN: u16 = 10;
pub(crate) const KEY_RENAMED: u16 = 11;
pub(crate) const KEY_EXPIRY_SET: u16 = 12;
pub(crate) const SETTLEMENT_DECIDED: u16 = 13;
pub(crate) const POSITIONS_SETTLED: u16 = 14;
pub(crate) const MARKET_SETTLED: u16 = 15;
pub(crate) const ORDER_PLACED: u16 = 16;
pub(crate) const ORDER_ADMITTED: u16 = 17;
pub(crate) const RESTING_FILLED: u16 = 18;
pub(crate) const ORDER_ENDED: u16 = 19;
pub(crate) const HEARTBEAT_SET: u16 = 20;
pub(crate) const ORDER_DELAYED: u16 = 21;
pub(crate) const DELAYED_ORDER_DROPPED: u16 = 22;
pub(crate) const ACCOUNT_RESET: u16 = 23;
pub(crate) const OPERATOR_ACTED: u16 = 24;
pub(crate) const FILL_LOG_BEGUN: u16 = 25;
pub(crate) const RESTING_FILLED_OF_LEVELS: u16 = 26;
