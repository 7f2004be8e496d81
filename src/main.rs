//! The `paperbourse` command.

fn main() {}
