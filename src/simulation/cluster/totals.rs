//! Counts of the events in a seed's run.

totals! {
    Totals:
    /// Orders answered as done.
    orders: "orders done",
    /// Orders done that were sent more than once, since an answer was missing.
    repeated: "of them sent again",
    /// Orders given up after a node answered that it had not executed them.
    given_up: "orders given up",
    /// Reads of an account that were answered.
    looks: "looks",
    /// Requests answered with a 503.
    not_ready: "answers of nodes that are not ready",
    /// Orders whose answer did not arrive in time.
    unanswered: "orders without an answer",
    /// Processes killed.
    killed: "processes killed",
    /// Machines that lost power.
    power_lost: "power losses",
    /// Processes paused for a while.
    stopped: "processes stopped",
    /// Connections to the brokers that were cut.
    cut: "lines cut",
    /// Connections that led to a broker cut off from the others.
    isolated: "lines to an isolated broker",
    /// Broker leaders that died.
    elections: "elections",
    /// Blocks that all brokers lost for a while.
    gaps: "blocks lost for a while",
    /// Processes told to shut down.
    left: "processes told to end",
    /// Logs taken while they had no owner.
    taken_free: "logs taken after a release",
    /// Logs taken from an owner.
    taken_over: "logs taken over",
    /// Processes that ended because they lost the log or the brokers.
    lost: "processes that lost the log",
}
