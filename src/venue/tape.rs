//! A tape: what the services of a venue said, as they said it, with the time at which it came.
//!
//! ```text
//! DIR/gamma/20261122T031500.123Z-000001.tape.jsonl.gz   what the catalogue answered
//! DIR/clob/20261122T031500.123Z-000001.tape.jsonl.gz    what the book service and the data API did
//! DIR/ws/20261122T031500.123Z-000001.tape.jsonl.gz      what the sockets said
//!        └─ session: its start ─┘ └ file ┘
//! ```
//!
//! A session is one run of a recorder, and its name the time at which that began, in UTC. The files
//! of a session are numbered in each folder; all names sort by time. A file is gzip, so that `zcat`
//! and `jq` read it; inside is one JSON object a line:
//!
//! ```text
//! {"n":7,"ns":1795317300123456789,"kind":"frame","socket":0,"json":{"event_type":"book",…}}
//!  │      │                        │                         └─ the payload
//!  │      │                        └─ what it is, with keys of its own
//!  │      └─ when it came, in nanoseconds since 1970; never earlier than the line before it, but
//!  │         for the time that it waited for its turn
//!  └─ the number of the line in its session, from 1, over all three folders: the order in which
//!     things happened
//! ```
//!
//! | kind | folder | keys | what happened |
//! |---|---|---|---|
//! | `begin` | ws | `version`, `by`, addresses, `markets_max`, `lag_max_ms` | a session begins |
//! | `answer` | gamma, clob | `get`, and a payload or `error` | a service answered this request |
//! | `listed` | gamma | `ids` | the markets to follow, by the answers before it |
//! | `described` | gamma | `ids`, `second`, `third` | named; CLOB: `second`, data API: `third` |
//! | `follow` | ws | `socket`, `tokens` | from now on this socket tells of these tokens |
//! | `open` | ws | `socket`, `connection` | a connection is open |
//! | `frame` | ws | `socket`, and a payload | a text frame, `PONG`s left out |
//! | `lost` | ws | `socket`, `why` | a connection ended, or was not opened |
//! | `given_up` | ws | `socket`, `why` | a connection is not believed any more |
//! | `expired` | ws | `tokens` | nothing has proven these books for too long |
//! | `ask` | clob | `ask`, `tokens` | the books of these tokens are asked for |
//! | `books` | clob | `ask`, `asked_ns`, and a payload or `error` | the answer to that |
//! | `gap` | ws | `since_ns`, `lines`, `bytes` | the disk was too slow for these |
//! | `end` | ws | `why` | the session ends |
//!
//! A payload is, byte for byte, what came: under `json` where it is JSON of one line, under `text`
//! where it is other text, under `base64` where it is no text. Readers pass over keys and kinds
//! that they do not know; the version changes when that is not enough.
//!
//! What was written reaches the system within [`FLUSH_INTERVAL`], so that a process that is killed
//! loses no more than that; it is synced to the disk when a file ends. A file that ends in the
//! middle is read up to there.

mod file;
mod line;
mod queue;
mod reader;
mod recorder;

pub use file::{FILES_MAX, Folder, is_tape_file};
pub use line::{Line, PayloadError};
pub use queue::{Entry, Payload, QUEUE_BYTES_MAX};
pub use reader::{LINE_BYTES_MAX, Step, TORN_NAMED_MAX, Tape, TapeReport, TornFile};
pub use recorder::{FLUSH_INTERVAL, Recorder, TapeError, TapeLimits, TapeSender, TapeTotals};

/// The version that is written in the first line of a session.
pub const VERSION: u32 = 1;

#[cfg(test)]
mod tests;
