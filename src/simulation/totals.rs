//! Statistics of a run: a run without failures proves little unless everything has happened in it.

/// Declares a struct of statistics that can be added and printed.
macro_rules! totals {
    ($totals:ident: $($(#[$doc:meta])* $name:ident: $text:literal,)*) => {
        /// Number of times that each event happened.
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
    /// Power failures while a process started.
    power_lost_in_start: "power losses while it starts",
    /// Power failures during an operation.
    power_lost_in_operation: "in the middle of an operation",
    /// Power failures between two operations.
    power_lost: "between operations",
    /// Processes killed while the system kept running.
    killed: "processes killed",
    /// Failed writes and syncs.
    disk_failed: "ended by a failed disk",
    /// Processes with two disk faults.
    two_faults: "with two faults of the disk",
    /// Processes that shut down by themselves.
    orderly: "orderly ends",
    /// Orderly ends that found the disk full, and left delayed orders to the next process.
    left_delayed: "that left delayed orders",
    /// Orderly ends that decided delayed orders once the disk had room again.
    waited_for_room: "that waited for room to decide them",
    /// Jumps of the clock by hours or decades, in either direction.
    clock_jumps: "jumps of the clock",
    /// Starts that succeeded and whose state was compared.
    recoveries: "recoveries compared",
    /// Snapshots taken.
    snapshots: "snapshots",
    /// Starts and snapshots that refused a file with a flipped bit.
    flips_refused: "flipped bits refused",
    /// Refused bit flips in the segment that was being written.
    flips_refused_at_end: "of them in the open segment",
    /// Bit flips in bytes that are never read.
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
    /// Commands whose work was already done.
    already: "commands already done",
    /// Reads answered.
    read: "reads answered",
    /// Requests rejected because of the account's state.
    rejected: "requests rejected",
    /// Markets that the settler has paid out in every shard.
    settled: "markets settled",
    /// Orders sent after their market was resolved.
    refused_resolved: "orders refused in resolved markets",
    /// Orders that may rest, answered for the first time.
    placed: "limit orders placed",
    /// Orders that were recovered at startup and that no answer had reported before.
    found_unanswered: "of them found without an answer",
    /// Runs in which an account dropped its oldest finished orders.
    forgotten: "runs that forgot some",
    /// Delayed orders that were answered once they were decided.
    delayed: "delayed orders decided",
    /// Delayed orders that a start recovered.
    found_delayed: "delayed orders found by a start",
    /// Delayed orders that clients knew of, and that were refused when they were decided.
    dropped: "known delayed orders dropped",
    /// Fills of resting orders.
    filled_later: "fills of resting orders",
    /// Orders cancelled by their trader.
    cancelled: "orders cancelled",
    /// Cancels that arrived after the order had ended.
    cancelled_too_late: "cancels too late",
    /// Orders that expired.
    expired: "orders expired",
    /// Orders that ended because their account missed its heartbeat.
    silent: "ended by a missing heartbeat",
    /// Orders that ended together with their market.
    ended_with_market: "ended with their market",
    /// Accounts reset by a request.
    resets: "accounts reset",
    /// Orders that ended because their account was reset.
    ended_by_reset: "orders ended by a reset",
    /// Post-only orders that waited for a book and were crossed by it.
    crossed_fresh_book: "crossed by their first fresh book",
    /// Operators' acts that changed something.
    acts: "acts of operators",
    /// Accounts erased by an operator.
    erased: "accounts erased",
    /// Requests refused because the journal was full.
    journal_full: "refused by a full journal",
    /// Answers compared with known facts.
    compared: "answers compared",
    /// Disk operations.
    operations: "operations of the disk",
}

impl Totals {
    /// Returns the number of processes that did not shut down by themselves.
    pub(super) fn crashes(&self) -> u64 {
        self.power_lost_in_start
            + self.power_lost_in_operation
            + self.power_lost
            + self.killed
            + self.disk_failed
    }
}
