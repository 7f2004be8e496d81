//! A tape: everything that the services of a venue sent, byte for byte, with arrival times.
//!
//! ```text
//! DIR/gamma/20261122T031500.123Z-000001.tape.jsonl.gz   answers of the catalogue
//! DIR/clob/20261122T031500.123Z-000001.tape.jsonl.gz    answers of the book service and data API
//! DIR/ws/20261122T031500.123Z-000001.tape.jsonl.gz      frames of the sockets
//!        └─ session start ──┘ └file┘
//! ```
//!
//! A session is one run of a recorder, named by its start in UTC. The files of a session are
//! numbered in each folder, and all names sort by time. Files are gzip, so that `zcat` and `jq` can
//! read them, with one JSON object per line:
//!
//! ```text
//! {"n":7,"ns":1795317300123456789,"kind":"frame","socket":0,"json":{"event_type":"book",…}}
//!  │      │                        │                         └─ the payload
//!  │      │                        └─ the kind, followed by its own keys
//!  │      └─ the arrival, in nanoseconds since 1970; earlier than that of the previous line only
//!  │         by the time that the line was queued
//!  └─ the number of the line in its session, from 1, across all three folders: the order of events
//! ```
//!
//! | kind | folder | keys | event |
//! |---|---|---|---|
//! | `begin` | ws | `version`, `by`, addresses, `markets_max`, `lag_max_ms` | a session begins |
//! | `answer` | gamma, clob | `get`, and a payload or `error` | the answer to this request |
//! | `listed` | gamma | `ids` | the markets to follow, from the answers before it |
//! | `described` | gamma | `ids`, `second`, `third` | described; CLOB `second`, data API `third` |
//! | `delay` | clob | `ids` | how long these hold marketable orders, from the answers before it |
//! | `follow` | ws | `socket`, `tokens` | this socket carries these tokens from now on |
//! | `open` | ws | `socket`, `connection` | a connection was opened |
//! | `frame` | ws | `socket`, and a payload | a text frame other than `PONG` |
//! | `lost` | ws | `socket`, `why` | a connection ended or could not be opened |
//! | `given_up` | ws | `socket`, `why` | a connection is no longer trusted |
//! | `expired` | ws | `tokens` | the newest proof of these books is too old |
//! | `ask` | clob | `ask`, `tokens` | the books of these tokens were requested |
//! | `books` | clob | `ask`, `asked_ns`, and a payload or `error` | the answer to that |
//! | `gap` | ws | `since_ns`, `lines`, `bytes` | lines lost because the disk was too slow |
//! | `end` | ws | `why` | the session ends |
//!
//! A payload holds the received bytes: under `json` if they are JSON on one line, under `text` if
//! they are other text, else under `base64`. Readers skip unknown keys and kinds; the version
//! changes when that is not enough.
//!
//! Lines are flushed to the operating system within [`FLUSH_INTERVAL`], so a killed process loses
//! no more than that; a file is synced to disk when it is closed. A torn file, which ends in the
//! middle, is read up to the damage.

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

/// The format version in the first line of a session.
pub const VERSION: u32 = 1;

#[cfg(test)]
mod tests;
