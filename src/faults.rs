//! Faults that a test can put into the code that keeps its promise, to prove that the simulation
//! would notice them. Outside of tests none can be on, and nothing of this is in the program.

/// One way to break the promise that what was answered is on disk and comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The journal says that records are on disk before it writes them.
    AnswerBeforeSync,
    /// Names of files are never put on disk.
    NoDirectorySync,
    /// Damage anywhere in the journal is taken for an end that a crash left half written.
    TornTailAcceptedInTheMiddle,
    /// Blocks are read whatever their checksums say.
    CrcUnchecked,
    /// A snapshot gets its name before its content is on disk.
    SnapshotRenamedBeforeSync,
    /// Orders come out of a snapshot with other names, and the hash of a state does not cover them.
    IdempotencyNotRestored,
    /// A read is answered before what it has seen is on disk.
    ReadAnsweredEarly,
    /// A refusal is answered before what it rests on is on disk.
    RejectionAnsweredEarly,
    /// What somebody else has run for a request is told before it is on disk.
    HandedOverAnsweredEarly,
    /// Damage to the last block of the journal is always taken for a torn end.
    DamagedEndCut,
}

#[cfg(not(test))]
pub(crate) const fn is_on(_: Fault) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static ON: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Whether this thread works with the fault.
#[cfg(test)]
pub(crate) fn is_on(fault: Fault) -> bool {
    ON.get() == Some(fault)
}

/// From now on this thread works with this fault and no other.
#[cfg(test)]
pub(crate) fn switch_on(fault: Fault) {
    ON.set(Some(fault));
}
