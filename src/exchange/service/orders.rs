//! Placing, reading and cancelling orders.

mod cancel;
mod heartbeat;
mod place;
mod read;

pub use cancel::CancelRequest;
pub use heartbeat::ChainedBeat;
pub use place::{OrderRequest, PlaceRequest};
pub use read::{OnlyOrder, OrderList, OrdersRequest};
