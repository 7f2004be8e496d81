//! The limits on what sockets and streams may hold.
//!
//! | of each | at most |
//! |---|---|
//! | replies that its peer has not read | [`REPLY_BYTES_MAX`] |
//! | prices for a socket | a frame: those behind it are due again |
//! | prices for a socket that another node passes on | about four times [`WRITE_BYTES_GOAL`] |
//! | prices that are being written for a stream | [`WRITE_BYTES_GOAL`] and a frame |
//! | the same if its peer is slow | [`SLOW_WRITE_BYTES_GOAL`] and a frame |
//! | fills that are being written | [`WRITE_BYTES_GOAL`] and a page |
//! | what the kernel takes before it can send it | about [`KERNEL_UNSENT_BYTES_MAX`], on Linux |
//! | what its peer sends at a time | a frame of [`CLIENT_FRAME_BYTES_MAX`], and 8 KiB read ahead |
//! | resumes that wait | [`RESUMES_WAITING_MAX`] |
//! | orders and trades that wait | [`USER_OUTBOX_BYTES_MAX`] |
//!
//! | of all together | at most |
//! |---|---|
//! | what peers have not read | [`UNSENT_BYTES_MAX`] |
//! | subscriptions | [`SUBSCRIPTIONS_MAX`] |
//! | those with prices | [`READERS_MAX`] |
//!
//! Once [`UNSENT_BYTES_MAX`] is reached, a socket whose peer is behind is closed with 1013, even if
//! the peer reads: there is no room for the bytes that it has not read yet. A socket whose peer
//! takes nothing for ten seconds is closed too; a stream is cut off. Bytes that hyper holds for
//! another node are not counted. Prices that no peer has taken are not kept, and fills are kept by
//! the account. No new socket or stream is opened while the process is close to its memory limit.

use std::time::Duration;

pub use super::frame::CLIENT_FRAME_BYTES_MAX;

/// The maximum size of replies that a peer has not read, in bytes. The acknowledgements of fifty
/// markets added one by one in a single burst take about half of it.
pub const REPLY_BYTES_MAX: usize = 256 * 1024;

/// The approximate size at which a socket stops adding prices to a batch, in bytes: about fifty
/// prices. Prices that the peer does not take are not kept, so a batch may be large, which makes
/// each frame cheaper: with 16 KiB, 1,000 sockets with 50 markets at full speed get 0.88 of the
/// frames.
pub const PRICES_BYTES_GOAL: usize = 64 * 1024;

/// The approximate size of a batch, in bytes, for fills, for a stream, and for a socket forwarded
/// by another node, whose batch hyper may have to keep. After a peer has taken only part of a
/// batch, the next batch is about as large as that part, but at least this size. The size grows by
/// this much after each batch that the peer takes whole.
pub const WRITE_BYTES_GOAL: usize = 16 * 1024;

/// The approximate size of a batch for a stream whose peer is slow, in bytes. For ten thousand such
/// streams, the unsent bytes stay within [`UNSENT_BYTES_MAX`], and the prices are newer.
pub const SLOW_WRITE_BYTES_GOAL: usize = 4 * 1024;

/// How long the peer of a stream counts as slow after it did not take a batch at once.
pub const SLOW_TIME: Duration = Duration::from_secs(1);

/// The approximate number of bytes that the kernel may hold before sending them to the peer. By
/// default it accepts megabytes, in which nothing can be replaced by newer prices.
pub const KERNEL_UNSENT_BYTES_MAX: u32 = 16 * 1024;

/// The maximum size of frames about orders and trades that wait for a user socket, in bytes. A
/// socket that does not take them is closed. There is room for an account that cancels a thousand
/// orders at once.
pub const USER_OUTBOX_BYTES_MAX: usize = 1 << 20;

/// The maximum number of a socket's resumes in the queue. Each is answered with a page of fills, so
/// a client that sends more than it reads gets an error and has to wait.
pub const RESUMES_WAITING_MAX: usize = 8;

/// The maximum number of bytes that all sockets and streams together may hold because their peers
/// have not read them. There is room for a frame for each of tens of thousands of sockets, for the
/// batches of four thousand streams that have stopped reading, or for those of ten thousand slow
/// streams.
pub const UNSENT_BYTES_MAX: usize = 64 << 20;

/// The maximum number of sockets and streams that receive prices.
pub const READERS_MAX: usize = 65_536;

/// The maximum number of subscriptions of all sockets and streams: 50 for each. Together with
/// [`READERS_MAX`], this bounds everything that the fan-out holds, about 250 MB of subscriptions.
pub const SUBSCRIPTIONS_MAX: usize = 50 * READERS_MAX;
