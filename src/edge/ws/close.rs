//! The reasons for closing a socket, with their close codes and texts. Pure.

/// Why the server closes a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The peer closed with this code, which is echoed.
    Returned(u16),
    /// The server is shutting down.
    GoingAway,
    /// The peer violated RFC 6455.
    Protocol,
    /// A binary message; only text is supported.
    Binary,
    /// A text message is not valid UTF-8.
    NotUtf8,
    /// The peer exceeded its frame rate, or does not read the replies to its requests.
    TooMuch,
    /// A frame exceeded the size limit, or a message was fragmented.
    TooBig,
    /// The server has reached its limit of sockets.
    Busy,
    /// The peer does not read fast enough.
    TooSlow,
    /// The credential is missing, invalid or no longer valid.
    BadCredential(Credential),
    /// The account has reached its tier's limit of open sockets.
    TooManySockets,
    /// A client of the venue has not subscribed as it should have.
    Clob(ClobFlaw),
}

/// What is wrong with what a client of the venue has sent, or not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClobFlaw {
    /// No valid frame has arrived for a while after the upgrade.
    Late,
    /// A frame exceeded the size limit, or a message was fragmented.
    TooBig,
    /// A frame is no subscription.
    NoSubscription,
    /// The first frame of a user socket shows no credentials.
    NoCredential,
    /// The credentials in the first frame are not good.
    Credential,
    /// The account has failed too often, or opens sockets too often.
    TooOften,
    /// The socket would have too many markets.
    TooManyMarkets,
    /// The address has reached its limit of open sockets.
    TooManySockets,
}

/// What is wrong with a socket's credential.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credential {
    /// The credential that opened the socket is no longer valid.
    Ended,
    /// No credential was given.
    Missing,
    /// The `token` in the query is not valid.
    SocketToken,
    /// The key in `X-API-Key` is not valid.
    Key,
    /// The key in `Authorization` is not valid.
    Authorization,
    /// An access token was given, which cannot open a socket.
    AccessToken,
    /// The key lacks the permission to read.
    Unpermitted,
}

impl CloseReason {
    /// All reasons for which this server closes its own sockets, without those that echo the peer's
    /// code.
    pub const OWN: [Self; 16] = [
        Self::GoingAway,
        Self::Protocol,
        Self::Binary,
        Self::NotUtf8,
        Self::TooMuch,
        Self::TooBig,
        Self::Busy,
        Self::TooSlow,
        Self::BadCredential(Credential::Ended),
        Self::BadCredential(Credential::Missing),
        Self::BadCredential(Credential::SocketToken),
        Self::BadCredential(Credential::Key),
        Self::BadCredential(Credential::Authorization),
        Self::BadCredential(Credential::AccessToken),
        Self::BadCredential(Credential::Unpermitted),
        Self::TooManySockets,
    ];

    /// Returns the code of the close frame.
    pub const fn code(self) -> u16 {
        match self {
            Self::Returned(code) => code,
            Self::GoingAway => 1001,
            Self::Protocol => 1002,
            Self::Binary => 1003,
            Self::NotUtf8 => 1007,
            Self::TooBig | Self::Clob(ClobFlaw::TooBig) => 1009,
            Self::Busy | Self::TooSlow => 1013,
            Self::BadCredential(_) | Self::Clob(ClobFlaw::NoCredential | ClobFlaw::Credential) => {
                4001
            }
            Self::TooManySockets | Self::Clob(ClobFlaw::TooManySockets) => 4002,
            Self::TooMuch | Self::Clob(_) => 1008,
        }
    }

    /// Returns the text of the close frame, at most the 123 bytes that fit. On shutdown, the time
    /// after which this client should reconnect is appended to it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Returned(_) => "",
            Self::GoingAway => "the server is shutting down",
            Self::Protocol => "protocol error",
            Self::Binary => "only text frames are accepted",
            Self::NotUtf8 => "text frame is not valid UTF-8",
            Self::TooMuch => "too many frames",
            Self::TooBig => "frame above 16 KiB or fragmented message",
            Self::Busy => "too many sockets on this server, try again later",
            Self::TooSlow => "the peer reads too slowly",
            Self::BadCredential(credential) => match credential {
                Credential::Ended => "the credential is not valid",
                Credential::Missing => {
                    "a credential is required: ?token= (POST /v1/keys/ws-token), or a key as \
                     X-API-Key or Bearer"
                }
                Credential::SocketToken => {
                    "?token= is unknown or has expired: POST /v1/keys/ws-token makes another"
                }
                Credential::Key => "the key in X-API-Key is not valid",
                Credential::Authorization => "the key in Authorization is not valid",
                Credential::AccessToken => {
                    "an access token opens no socket: POST /v1/keys/ws-token makes a ?token= of it"
                }
                Credential::Unpermitted => "the key lacks the permission read",
            },
            Self::TooManySockets => "too many open sockets for this tier",
            Self::Clob(flaw) => match flaw {
                ClobFlaw::Late => "no subscription within 10 s",
                ClobFlaw::TooBig => "frame above 128 KiB or fragmented message",
                ClobFlaw::NoSubscription => {
                    "a frame must be PING, or JSON with assets_ids or markets, as texts in a list"
                }
                ClobFlaw::NoCredential => {
                    "the first frame must be JSON with auth: apiKey, secret and passphrase"
                }
                ClobFlaw::Credential => "the credentials in auth are not valid",
                ClobFlaw::TooOften => "too many sockets or failures in a short time",
                ClobFlaw::TooManyMarkets => "too many markets on this socket",
                ClobFlaw::TooManySockets => "too many open sockets from this address",
            },
        }
    }

    /// Returns advice for a client whose socket was closed for this reason, as a sentence for the
    /// documentation.
    pub const fn advice(self) -> &'static str {
        match self {
            // The venue's sockets are not in the document that gives advice.
            Self::Returned(_) | Self::Clob(_) => "",
            Self::GoingAway => {
                "Wait the number of milliseconds after `retry-after-ms=` in the reason, then \
                 connect again."
            }
            Self::Busy => "Connect again after a pause.",
            Self::Protocol => "Use a WebSocket client that follows RFC 6455.",
            Self::Binary => "Send text frames.",
            Self::NotUtf8 => "Send text as UTF-8.",
            Self::TooMuch => "Send fewer frames, and read the replies.",
            Self::TooBig => "Send each message in one frame of at most 16 KiB.",
            Self::TooSlow => "Connect again, and keep reading.",
            Self::BadCredential(_) => {
                "Connect again with a valid key that has the permission `read`, or a new token."
            }
            Self::TooManySockets => "Close another socket of the account first.",
        }
    }
}
