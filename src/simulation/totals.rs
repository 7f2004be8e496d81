//! Statistics of a run: a run without failures proves little unless everything has happened in it.

/// Declares the statistics, their sum and their text.
macro_rules! totals {
    ($totals:ident: $($(#[$doc:meta])* $name:ident: $text:literal,)*) => {
        /// How often each thing happened.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub(super) struct $totals {
            $($(#[$doc])* pub(super) $name: u64,)*
        }

        impl std::ops::AddAssign for $totals {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl std::fmt::Display for $totals {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let counts = [$(format!(concat!("{} ", $text), self.$name),)*];
                formatter.write_str(&counts.join(", "))
            }
        }

        impl $totals {
            #[track_caller]
            pub(super) fn assert_everything_happened(&self) {
                $(assert!(self.$name > 0, "never: {}", $text);)*
            }
        }
    };
}

totals! {
    Totals:
    /// The power failed while a process started.
    power_lost_in_start: "power losses while it starts",
    /// The power failed during an operation.
    power_lost_in_operation: "in the middle of an operation",
    /// The power failed between two operations.
    power_lost: "between operations",
    /// The process was killed while the system kept running.
    killed: "processes killed",
    /// A write or a sync failed.
    disk_failed: "ended by a failed disk",
    /// Two disk faults occurred in one process.
    two_faults: "with two faults of the disk",
    /// The process shut down by itself.
    orderly: "orderly ends",
    /// An orderly end found the disk full, and left held orders to the next process.
    left_held: "that left held orders",
    /// An orderly end decided held orders once the disk had room again.
    waited_for_room: "that waited for room to decide them",
    /// The clock jumped by hours or decades, in either direction.
    clock_jumps: "jumps of the clock",
    /// Starts that succeeded and whose state was compared.
    recoveries: "recoveries compared",
    /// Snapshots taken.
    snapshots: "snapshots",
    /// A start or a snapshot refused a file with a flipped bit.
    flips_refused: "flipped bits refused",
    /// Those of them in the segment being written.
    flips_refused_at_end: "of them in the open segment",
    /// A bit was flipped where nothing is read.
    flips_harmless: "harmless bit flips",
    /// Writes that were acknowledged.
    acknowledged: "writes acknowledged",
    /// Orders that filled at several levels.
    several_levels: "orders through several levels",
    /// Orders that paid a fee.
    with_fee: "orders with a fee",
    /// Requests executed by another thread, which had their shard's turn.
    handed_over: "requests executed by another worker",
    /// Requests whose client stopped waiting.
    given_up: "requests given up",
    /// Orders sent again and answered with their first result.
    replayed: "orders replayed",
    /// Commands that found their work already done.
    already: "commands already done",
    /// Reads answered.
    read: "reads answered",
    /// Requests rejected by the account's state.
    rejected: "requests rejected",
    /// Markets that the settler has paid out in every shard.
    settled: "markets settled",
    /// Orders sent after their market was resolved.
    refused_resolved: "orders refused in resolved markets",
    /// Orders that may rest, answered for the first time.
    placed: "limit orders placed",
    /// Orders that a start found and no answer had reported.
    found_unanswered: "of them found without an answer",
    /// Runs in which an account forgot its oldest finished orders.
    forgotten: "runs that forgot some",
    /// Orders that were held, and answered once they were decided.
    held: "held orders decided",
    /// Held orders that a start found.
    found_held: "held orders found by a start",
    /// Held orders that were known, and refused when they were decided.
    dropped: "known held orders dropped",
    /// Fills of orders that rested.
    filled_later: "fills of resting orders",
    /// Orders that their trader cancelled.
    cancelled: "orders cancelled",
    /// Cancels that came after the order had ended.
    cancelled_too_late: "cancels too late",
    /// Orders that ended at their time.
    expired: "orders expired",
    /// Orders that ended because their account fell silent.
    silent: "ended by a missing heartbeat",
    /// Orders that ended with their market.
    ended_with_market: "ended with their market",
    /// Accounts that a request reset.
    resets: "accounts reset",
    /// Orders that ended because their account was reset.
    ended_by_reset: "orders ended by a reset",
    /// Post-only orders that waited for a book, which crossed them.
    crossed_fresh_book: "crossed by their first fresh book",
    /// Acts of operators that changed something.
    acts: "acts of operators",
    /// Accounts that an operator erased.
    erased: "accounts erased",
    /// Requests refused because the journal was full.
    journal_full: "refused by a full journal",
    /// Answers compared with known facts.
    compared: "answers compared",
    /// Disk operations.
    operations: "operations of the disk",
}

impl Totals {
    /// How many processes did not shut down by themselves.
    pub(super) fn crashes(&self) -> u64 {
        self.power_lost_in_start
            + self.power_lost_in_operation
            + self.power_lost
            + self.killed
            + self.disk_failed
    }
}
