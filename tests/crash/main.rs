//! Acknowledged writes survive a crash, and no crash executes anything twice.
//!
//! The real binary runs under load and is killed without warning, round after round. After each
//! restart the clients compare the server with their own books, which they keep from the answers
//! alone. Some traders place orders that rest and fill while the venue's books move: theirs are
//! compared row by row, since a fill has no answer.
//!
//! Killing a process does not test the disk, because the kernel keeps what was written. So `trace`
//! watches the server's system calls: each answer must leave after the sync that covers it.
//!
//! Meanwhile clients of the execution socket lose their connections: what they receive must be what
//! the accounts did, each fill once. Clients of the venue's user socket must be told what is on
//! disk when the server is killed, and all of it.
//!
//! By default only a few rounds run. `PAPERBOURSE_CRASH_ROUNDS=200` runs more, and
//! `PAPERBOURSE_RECONNECTS=200` makes more connections of each follower of executions, and
//! `PAPERBOURSE_USER_KILLS=100 PAPERBOURSE_USER_BOTS=20` does that for user sockets;
//! `PAPERBOURSE_CRASH_SEED` repeats the requests and kill times of a run, but not how threads and
//! disk interleave.

mod books;
mod executions;
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "../http/asyncapi/frames.rs"]
mod frames;
mod load;
mod random;
mod resting;
mod rounds;
mod server;
#[cfg(target_os = "linux")]
mod trace;
mod user_socket;
