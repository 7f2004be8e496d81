//! `paperbourse serve --print-config`: what the flags and variables come to.
//!
//! Whatever the server can be told is in the list, since the list is made from the flags that it
//! knows. No flag takes a secret: where there is one, a flag names its file.

use std::fmt::Write as _;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// A line for each flag of this command, and where its value comes from. A flag without a value
/// asks for something else than to serve, such as this list.
pub(super) fn text(command: &Command, matches: &ArgMatches) -> String {
    let mut text = String::new();
    for flag in command.get_arguments().filter(|flag| flag.get_action().takes_values()) {
        let name = flag.get_long().expect("the server takes flags alone");
        match matches.get_raw(flag.get_id().as_str()) {
            None => writeln!(text, "# --{name} is not given"),
            Some(values) => {
                let values: Vec<_> = values.map(std::ffi::OsStr::to_string_lossy).collect();
                let source = source(flag, matches);
                writeln!(text, "--{name} {}  # {source}", values.join(","))
            }
        }
        .expect("a string grows");
    }
    text
}

fn source(flag: &Arg, matches: &ArgMatches) -> String {
    match (matches.value_source(flag.get_id().as_str()), flag.get_env()) {
        (Some(ValueSource::CommandLine), _) => "as on the command line".to_owned(),
        (Some(ValueSource::EnvVariable), Some(variable)) => {
            format!("from {}", variable.to_string_lossy())
        }
        _ => "the default".to_owned(),
    }
}
