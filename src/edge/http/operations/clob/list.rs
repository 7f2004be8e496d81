//! The trades of an account in the venue's form.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};

use paperbourse_core::ids::OrderId;

/// Returns a hash in place of that of a transaction, of which there is none: the same one each time
/// for a fill, and different ones for different fills.
pub(super) fn transaction_hash(order: OrderId, number: u32) -> String {
    let hash = digest(&SHA256, format!("paperbourse fill {order}-{number}").as_bytes());
    let mut text = String::from("0x");
    for byte in hash.as_ref() {
        write!(text, "{byte:02x}").expect("a string takes all text");
    }
    text
}
