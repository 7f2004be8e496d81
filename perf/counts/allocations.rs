//! Memory requested from the allocator per trade: over a real socket, in all threads of the server.

use super::allocator::{self, Allocated, allocated};
use super::client::{Connection, Orders, Shape};
use super::recording;
use super::server::{Journal, Server, start_bare};
use super::table::Count;

/// Number of trades per window. The server's work after the last answer counts in the next window.
const TRADES_PER_WINDOW: u32 = 100;
/// Number of windows. In most of them, no table grows and no background timer fires.
const WINDOWS: usize = 21;
const WARM_UP_TRADES: u32 = 500;

/// The shapes of orders, with their names in the table.
const SHAPES: [(Shape, &str); 2] =
    [(Shape::Plain, "trade"), (Shape::Rich, "trade with two names and two levels")];

/// The places of the journal, with their names in the table.
const JOURNALS: [(Journal, &str); 2] = [(Journal::Memory, "in memory"), (Journal::Disk, "on disk")];

/// Counts for bare hyper and for each kind of trade.
pub(crate) fn count() -> Vec<Count> {
    let mut orders = Orders::new("ps_live_0123456789", recording::WITH_FEE, Shape::Plain);
    let bare = steady(&mut Connection::open(start_bare()), &mut orders);
    let mut counts = rows("bare hyper", bare);
    for (journal, place) in JOURNALS {
        let server = Server::in_process(journal);
        for (shape, name) in SHAPES {
            let mut orders = server.orders(name, shape);
            let trade = steady(&mut Connection::open(server.address), &mut orders);
            counts.extend(rows(&format!("{name}, {place}"), trade));
        }
    }
    counts
}

/// Prints the call sites of all allocations while the server answers one typical order.
pub(crate) fn print_sites() {
    let server = Server::in_process(Journal::Memory);
    let mut orders = server.orders("one", Shape::Plain);
    let mut connection = Connection::open(server.address);
    for _ in 0..WARM_UP_TRADES {
        connection.trade(&mut orders);
    }
    for site in allocator::sites(|| connection.trade(&mut orders)) {
        println!("{} bytes", site.bytes);
        for caller in &site.callers {
            println!("    {caller}");
        }
    }
}

fn rows(operation: &str, [allocations, bytes]: [f64; 2]) -> Vec<Count> {
    vec![
        Count::new(operation, "allocations", allocations),
        Count::new(operation, "allocated bytes", bytes),
    ]
}

/// Returns the allocations and bytes per order among many, each as the median of the windows.
fn steady(connection: &mut Connection, orders: &mut Orders) -> [f64; 2] {
    for _ in 0..WARM_UP_TRADES {
        connection.trade(orders);
    }
    let windows: Vec<_> = (0..WINDOWS)
        .map(|_| {
            let before = allocated();
            for _ in 0..TRADES_PER_WINDOW {
                connection.trade(orders);
            }
            allocated() - before
        })
        .collect();
    let median = |part: fn(&Allocated) -> usize| {
        let mut values: Vec<_> = windows.iter().map(part).collect();
        values.sort_unstable();
        let value = u32::try_from(values[WINDOWS / 2]).expect("a few megabytes at most");
        f64::from(value) / f64::from(TRADES_PER_WINDOW)
    };
    [median(|window| window.allocations), median(|window| window.bytes)]
}
