//! Following a venue as it is now, whichever it is: how far each of its books can be trusted, how
//! late its messages are, and when it is asked again. Pure: time comes in.

pub(super) mod backoff;
pub mod books;
pub mod delay;
pub mod freshness;
pub(super) mod lag;
pub mod status;
pub mod timing;
pub(super) mod tracker;
