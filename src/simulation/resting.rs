//! Orders that rest, in markets of their own whose books move, by traders who send nothing else:
//! what they send, and what must be true of every order after each start.

pub(super) mod answers;
pub(super) mod books;
pub(super) mod orders;
pub(super) mod venue;
