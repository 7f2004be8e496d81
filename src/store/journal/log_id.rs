//! The identifier of a log.

use std::fmt;
use std::str::FromStr;

/// Identifier of a log, chosen at random when the log is created. As text, 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogId(pub(super) [u8; 16]);

/// Error for text that is not the id of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected 32 hexadecimal digits")]
pub struct NotALogId;

impl LogId {
    /// Creates the id from the bytes stored in files.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes stored in files.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for LogId {
    type Err = NotALogId;

    fn from_str(text: &str) -> Result<Self, NotALogId> {
        let id = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
        id.map(|id| Self(id.to_be_bytes())).ok_or(NotALogId)
    }
}
