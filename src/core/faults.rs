//! Faults that tests inject to prove that the simulations detect them. None can be turned on
//! without the feature `test-util`.

/// A deliberate breach of one promise.
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
    /// Orders restored from a snapshot get different idempotency keys, and the state hash does not
    /// cover the keys.
    IdempotencyNotRestored,
    /// Open orders are restored from a snapshot without their reserves. Reserves are derived from
    /// the orders, so no hash covers them.
    ReserveNotRestored,
    /// A read is answered before the state that it observed is durable.
    ReadAnsweredEarly,
    /// A refusal is answered before the state it depends on is durable.
    RejectionAnsweredEarly,
    /// The result of a request that another thread executed is returned before it is durable.
    HandedOverAnsweredEarly,
    /// Any damage to the last block of the journal is treated as a torn write.
    DamagedEndCut,
    /// A repeated deposit is credited again.
    DepositRepeated,
    /// A suspended account accepts writes.
    SuspensionIgnored,
    /// Keys may have any tier, regardless of the tier their account was given.
    TierIgnored,
    /// The owner of a replicated log sends a block before the previous one is acknowledged.
    TwoInFlight,
    /// The owner of a replicated log treats a block as appended without an acknowledgement.
    UnknownTakenForAcknowledged,
    /// A reader of a replicated log skips a block that it cannot read.
    GapSkipped,
    /// A node that takes over a log does not read the block right below its fence.
    FenceUnread,
    /// A node that takes over a log does not wait until the former owner has stopped answering.
    FormerLeaseIgnored,
    /// An owner's lease starts when a block is acknowledged instead of when it is sent.
    LeaseFromAnswer,
    /// A standby takes over a log whose owner is alive.
    LiveOwnerForced,
}

/// Whether the fault is on in this thread. Always false without the feature `test-util`.
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

/// Turns on only this fault in this thread.
#[cfg(any(test, feature = "test-util"))]
pub fn switch_on(fault: Fault) {
    ON.set(Some(fault));
}
