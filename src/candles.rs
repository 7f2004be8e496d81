//! The past of prices, beyond what the feed records: what is traded on this exchange, and the file
//! that carries the hours over a restart.
//!
//! Prices are not money: whatever goes wrong here is logged, and nothing else suffers.

mod bytes;
mod file;
mod traded;

pub use file::HoursFile;
pub use traded::TradeCounter;
