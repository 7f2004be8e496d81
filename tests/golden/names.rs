//! The debug text of events and rows, as the snapshots have it.

/// Names in it, and those that they had when the snapshots were written.
const FORMER_NAMES: [(&str, &str); 8] = [
    ("OrderDelayed", "OrderHeld"),
    ("DelayedOrderDropped", "HeldOrderDropped"),
    ("delay: ", "hold: "),
    ("Delay {", "Hold {"),
    ("OrderState {", "Life {"),
    ("order_state: ", "life: "),
    ("is_delayed: ", "is_held: "),
    ("delayed_ms: ", "held_ms: "),
];

/// What says that an order is not delayed, never was, and has used no level, and that a key was
/// granted to no wallet: the snapshots predate it.
const ABSENT: [&str; 5] =
    [", delayed_ms: 0", ", is_delayed: false", ", delay: None", ", used: []", ", wallet: None"];

/// The text without [`ABSENT`], with the former names.
pub(super) fn without_delays(text: String) -> String {
    let text = ABSENT.into_iter().fold(text, |text, absent| text.replace(absent, ""));
    FORMER_NAMES.into_iter().fold(text, |text, (new, former)| text.replace(new, former))
}
