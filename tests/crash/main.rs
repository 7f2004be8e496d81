//! What a client was told survives a crash, and a crash makes nothing happen twice.
//!
//! The real binary runs under load and is killed without warning, over and over. Each time the
//! clients compare the restarted server with their own books, which they fill from nothing but the
//! answers that they got.
//!
//! A killed process says nothing about the disk, since the kernel keeps what it was given. That
//! each answer leaves after the sync that covers it is shown by `trace`, which watches the server's
//! system calls.
//!
//! The short form runs with all other tests. `PAPERBOURSE_CRASH_ROUNDS=200` makes it long;
//! `PAPERBOURSE_CRASH_SEED` repeats the requests and the moments of a run, though not the way in
//! which threads and disk interleave.

mod books;
mod load;
mod random;
mod rounds;
mod server;
#[cfg(target_os = "linux")]
mod trace;
