//! Resting orders, in separate markets whose books move, from traders who send nothing else.
//! Creates the requests, and checks every order after each start.

pub(super) mod answers;
pub(super) mod books;
pub(super) mod orders;
pub(super) mod venue;
