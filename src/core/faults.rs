//! Faults that tests inject, to prove that the simulations would detect them. Without the feature
//! `test-util`, none can be turned on.

/// One way to break a promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The journal reports records as durable before writing them.
    AnswerBeforeSync,
    /// Directories are never synced.
    NoDirectorySync,
    /// Damage anywhere in the journal is treated as a torn tail.
    TornTailAcceptedInTheMiddle,
    /// Block checksums are ignored.
    CrcUnchecked,
    /// A snapshot is renamed before its content is synced.
    SnapshotRenamedBeforeSync,
    /// Orders are restored from a snapshot with other idempotency keys, and the state hash does not
    /// cover them.
    IdempotencyNotRestored,
    /// Open orders are restored from a snapshot without what they hold back. It follows from the
    /// orders, so no hash covers it.
    ReserveNotRestored,
    /// A read is answered before the state it observed is durable.
    ReadAnsweredEarly,
    /// A refusal is answered before the state it depends on is durable.
    RejectionAnsweredEarly,
    /// The result of a request that another thread executed is returned before it is durable.
    HandedOverAnsweredEarly,
    /// Damage to the last block of the journal is always treated as a torn write.
    DamagedEndCut,
    /// A deposit that comes again is made again.
    DepositRepeated,
    /// A suspended account takes writes.
    SuspensionIgnored,
    /// Keys get any tier, whatever their account was given.
    TierIgnored,
    /// The owner of a replicated log sends a block before the one in front of it is acknowledged.
    TwoInFlight,
    /// The owner of a replicated log takes a block for appended without an acknowledgement.
    UnknownTakenForAcknowledged,
    /// A reader of a replicated log passes over a block that it does not get.
    GapSkipped,
    /// A node that takes a log does not read what is right below its fence.
    FenceUnread,
    /// A node that takes a log does not wait until the former owner has stopped answering.
    FormerLeaseIgnored,
    /// The lease of an owner begins when a block is acknowledged, not when it is sent.
    LeaseFromAnswer,
    /// A standby takes a log from an owner that is alive.
    LiveOwnerForced,
}

/// Whether the fault is on in this thread: never, without the feature `test-util`.
#[cfg(not(any(test, feature = "test-util")))]
pub const fn is_on(_: Fault) -> bool {
    false
}

#[cfg(any(test, feature = "test-util"))]
thread_local! {
    static ON: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Whether the fault is on in this thread.
#[cfg(any(test, feature = "test-util"))]
pub fn is_on(fault: Fault) -> bool {
    ON.get() == Some(fault)
}

/// Turns on this fault, and no other, in this thread.
#[cfg(any(test, feature = "test-util"))]
pub fn switch_on(fault: Fault) {
    ON.set(Some(fault));
}
