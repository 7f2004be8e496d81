//! `paperbourse serve --print-config`: the configuration that results from flags and environment.
//!
//! The list is generated from the flags, so it is complete. No flag takes a secret: a flag names
//! the file that holds it.

use std::fmt::Write as _;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// Formats one line for each flag of this command: its value and where the value comes from. Flags
/// without a value are left out, since they request something other than serving, such as this
/// list.
pub(super) fn text(command: &Command, matches: &ArgMatches) -> String {
    let mut text = String::new();
    for flag in command.get_arguments().filter(|flag| flag.get_action().takes_values()) {
        let name = flag.get_long().expect("every argument of `serve` is a flag");
        match matches.get_raw(flag.get_id().as_str()) {
            None => writeln!(text, "# --{name} is not set"),
            Some(values) => {
                let values: Vec<_> = values.map(std::ffi::OsStr::to_string_lossy).collect();
                let source = source(flag, matches);
                writeln!(text, "--{name} {}  # {source}", values.join(","))
            }
        }
        .expect("writing to a string succeeds");
    }
    text
}

fn source(flag: &Arg, matches: &ArgMatches) -> String {
    match (matches.value_source(flag.get_id().as_str()), flag.get_env()) {
        (Some(ValueSource::CommandLine), _) => "from the command line".to_owned(),
        (Some(ValueSource::EnvVariable), Some(variable)) => {
            format!("from {}", variable.to_string_lossy())
        }
        _ => "default".to_owned(),
    }
}
