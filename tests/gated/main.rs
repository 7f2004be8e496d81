//! No answer leaves before the records it depends on are on disk.
//!
//! A whole server runs over a journal that holds its records back until the test releases them.
//! While a record is held, nothing that shows it or depends on it may be answered: not the write,
//! its replay, a refusal, a read by any account, or an upgrade. Requests that depend on no held
//! record are answered at once, which shows that the others wait for this record only. After the
//! release all answers arrive, and are correct.
//!
//! Price frames show the venue's books and depend on no record, so they continue while the disk
//! stalls.

mod client;
mod delayed;
mod executions;
mod keys;
mod operators;
mod reset;
mod resting;
mod settlement;
mod suspend;
mod trades;
mod world;
