//! How much the sockets and streams may hold.
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
//!
//! | of all together | at most |
//! |---|---|
//! | what peers have not read | [`UNSENT_BYTES_MAX`] |
//! | subscriptions | [`SUBSCRIPTIONS_MAX`] |
//! | those with prices | [`READERS_MAX`] |
//!
//! Once the first of these is reached, a socket whose peer is behind is closed with 1013, even if
//! it reads: there is no room for what it has not taken. So is one whose peer takes nothing for ten
//! seconds; a stream is cut off. What hyper holds for another node is not counted. Prices that
//! nobody has taken are not kept, and fills are kept by the account. No new socket or stream is
//! opened while the process comes close to its memory limit.

use std::time::Duration;

pub use super::frame::CLIENT_FRAME_BYTES_MAX;

/// Size limit of the replies that a peer has not read, in bytes. The acknowledgements of fifty
/// markets added one by one in a single burst take about half of it.
pub const REPLY_BYTES_MAX: usize = 256 * 1024;

/// A socket stops adding prices to a batch at about this size, in bytes: about fifty prices. What
/// the peer does not take is not kept, so a batch may be large, which makes each frame cheaper:
/// with 16 KiB, 1,000 sockets with 50 markets at full speed get 0.88 of the frames.
pub const PRICES_BYTES_GOAL: usize = 64 * 1024;

/// The size of a batch of fills, of one for a stream, and of one for a socket that another node
/// passes on, where hyper may have to keep it, in bytes. A socket whose peer took a part of a batch
/// is offered about as much next, at least this many bytes, and this many more after each batch
/// that it takes whole.
pub const WRITE_BYTES_GOAL: usize = 16 * 1024;

/// The size of a batch for a stream whose peer is slow, in bytes: what waits for ten thousand of
/// them is no more than [`UNSENT_BYTES_MAX`], and newer.
pub const SLOW_WRITE_BYTES_GOAL: usize = 4 * 1024;

/// The peer of a stream is slow for this long after it did not take a batch at once.
pub const SLOW_TIME: Duration = Duration::from_secs(1);

/// About how many bytes the kernel may hold before they are on their way to the peer. By default it
/// takes megabytes, and nothing in it can be replaced by newer prices.
pub const KERNEL_UNSENT_BYTES_MAX: u32 = 16 * 1024;

/// How many resumes of a socket may wait. Each is answered with a page of fills, so a client that
/// sends more than it reads gets an error and has to wait.
pub const RESUMES_WAITING_MAX: usize = 8;

/// How many bytes all sockets and streams together may hold that their peers have not read: a frame
/// of each of tens of thousands of sockets, or the batches of four thousand streams that have
/// stopped reading, or of ten thousand that are slow.
pub const UNSENT_BYTES_MAX: usize = 64 << 20;

/// How many sockets and streams may receive prices.
pub const READERS_MAX: usize = 65_536;

/// How many subscriptions they may have in all: each 50. Together with [`READERS_MAX`], this bounds
/// everything the fan-out holds, about 250 MB of subscriptions.
pub const SUBSCRIPTIONS_MAX: usize = 50 * READERS_MAX;
