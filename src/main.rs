//! The `paperbourse` command.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: paperbourse::allocator::Allocator = paperbourse::allocator::Allocator;

fn main() -> ExitCode {
    paperbourse::cli::run()
}
