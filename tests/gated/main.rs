//! No answer leaves before what it rests on is on disk.
//!
//! A whole server runs over a journal that holds its records back until the test lets them go.
//! While a record is held, nothing that shows or rests on it may be answered: not the write, not
//! its replay, not a refusal, not a read by anybody, not an upgrade. What rests on nothing that is
//! held is answered at once, so the wait is for this record and for no other reason. After the
//! release all answers come, and are right.
//!
//! Price frames show the venue's books and rest on no record: they go on while the disk stands
//! still.

mod client;
mod keys;
mod settlement;
mod trades;
mod world;
