//! How much came of a seed.

totals! {
    Totals:
    /// Orders that were answered as done.
    orders: "orders done",
    /// Those of them that were sent more than once, since an answer did not come.
    repeated: "of them sent again",
    /// Orders given up because no node had done anything about them.
    given_up: "orders given up",
    /// Looks at an account that were answered.
    looks: "looks",
    /// Requests that were answered with a 503.
    not_ready: "answers of nodes that are not ready",
    /// Orders whose answer did not come in time.
    unanswered: "orders without an answer",
    /// Processes killed.
    killed: "processes killed",
    /// Machines that lost their power.
    power_lost: "power losses",
    /// Processes that stood still for a while.
    stopped: "processes stopped",
    /// Lines to the brokers that were cut.
    cut: "lines cut",
    /// Lines that led to a broker cut off from the others.
    isolated: "lines to an isolated broker",
    /// Leaders of the brokers that died.
    elections: "elections",
    /// Blocks that all brokers had lost for a while.
    gaps: "blocks lost for a while",
    /// Processes told to end.
    left: "processes told to end",
    /// Logs taken that nobody owned.
    taken_free: "logs taken after a release",
    /// Logs taken from an owner.
    taken_over: "logs taken over",
    /// Processes that ended because the log, or the brokers, were lost to them.
    lost: "processes that lost the log",
}
