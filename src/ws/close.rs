//! Why a socket is closed, and the code and text that tell it. Pure.

/// Why the server closes a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The peer closed with this code, which is sent back.
    Returned(u16),
    /// The server shuts down.
    GoingAway,
    /// The peer broke the rules of RFC 6455.
    Protocol,
    /// A binary message: only text means something here.
    Binary,
    /// A text message that is not UTF-8.
    NotUtf8,
    /// The peer sends more than its allowance, or asks without reading the answers.
    TooMuch,
    /// A frame above the size limit, or a message in fragments.
    TooBig,
    /// The server holds as many sockets as it can.
    Busy,
    /// The credential is not valid, or not any more.
    BadCredential,
    /// The account has as many open sockets as its tier allows.
    TooManySockets,
}

impl CloseReason {
    /// The code of the close frame.
    pub const fn code(self) -> u16 {
        match self {
            Self::Returned(code) => code,
            Self::GoingAway => 1001,
            Self::Protocol => 1002,
            Self::Binary => 1003,
            Self::NotUtf8 => 1007,
            Self::TooMuch => 1008,
            Self::TooBig => 1009,
            Self::Busy => 1013,
            Self::BadCredential => 4001,
            Self::TooManySockets => 4002,
        }
    }

    /// The text of the close frame, below the 123 bytes that fit.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Returned(_) => "",
            Self::GoingAway => "the server shuts down",
            Self::Protocol => "protocol error",
            Self::Binary => "only text frames are understood",
            Self::NotUtf8 => "a text frame that is not UTF-8",
            Self::TooMuch => "too many frames",
            Self::TooBig => "a frame above 16 KiB, or a fragmented message",
            Self::Busy => "too many sockets on this server, try again later",
            Self::BadCredential => "the credential is not valid",
            Self::TooManySockets => "too many open sockets for this tier",
        }
    }
}
