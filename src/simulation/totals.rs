//! What a run has seen: that nothing went wrong means little before everything did.

use std::fmt;
use std::ops::AddAssign;

/// Declares the figures, how they add up and how they read.
macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident: $text:literal,)*) => {
        /// How often what has happened.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub(super) struct Totals {
            $($(#[$doc])* pub(super) $name: u64,)*
        }

        impl AddAssign for Totals {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl fmt::Display for Totals {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{} crashes", self.crashes())?;
                $(write!(formatter, concat!(", {} ", $text), self.$name)?;)*
                Ok(())
            }
        }

        impl Totals {
            #[track_caller]
            pub(super) fn assert_everything_happened(&self) {
                $(assert!(self.$name > 0, "never: {}", $text);)*
            }
        }
    };
}

totals! {
    /// The power went while a process started.
    power_lost_in_start: "power losses while it starts",
    /// The power went in the middle of an operation.
    power_lost_in_operation: "in the middle of an operation",
    /// The power went between two operations.
    power_lost: "between operations",
    /// The process was killed, and the system lived on.
    killed: "processes killed",
    /// A write or a sync failed.
    disk_failed: "ended by a failed disk",
    /// Two things went wrong with the disk of one process.
    two_faults: "with two faults of the disk",
    /// It ended by itself.
    orderly: "orderly ends",
    /// The clock went hours or decades forward or back.
    clock_jumps: "jumps of the clock",
    /// Starts that succeeded, and were compared with what was known.
    recoveries: "recoveries compared",
    /// Snapshots that were made.
    snapshots: "snapshots",
    /// A start or a snapshot refused a file with a bit that had turned.
    flips_refused: "turned bits refused",
    /// Those of them in the segment to which the journal is being written.
    flips_refused_at_end: "of them in the open segment",
    /// A bit turned where nothing is read.
    flips_harmless: "turned bits without meaning",
    /// Writes of which somebody was told that they happened.
    acknowledged: "writes acknowledged",
    /// Orders that took several levels of a book.
    several_levels: "orders through several levels",
    /// Orders that paid a fee.
    with_fee: "orders with a fee",
    /// Requests that somebody else ran, who was at work in their shard.
    handed_over: "requests run by somebody else",
    /// Requests whose client did not wait for the answer.
    given_up: "requests given up",
    /// Orders that were sent again and led to what had happened before.
    replayed: "orders replayed",
    /// Answers that it was so already.
    already: "answers that it was so already",
    /// Reads that were answered.
    read: "reads answered",
    /// Requests that an account's state refused.
    rejected: "requests rejected",
    /// Markets that the settler had paid out in every shard.
    settled: "markets settled",
    /// Orders that came after their market was resolved.
    refused_resolved: "orders refused in resolved markets",
    /// Requests for which the journal had no room.
    journal_full: "refused by a full journal",
    /// Answers that were compared with what was known.
    compared: "answers compared",
    /// Operations of the disk.
    operations: "operations of the disk",
}

impl Totals {
    /// How many processes did not end by themselves.
    pub(super) fn crashes(&self) -> u64 {
        self.power_lost_in_start
            + self.power_lost_in_operation
            + self.power_lost
            + self.killed
            + self.disk_failed
    }
}
