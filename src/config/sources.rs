//! The sources of each option's value, in order of precedence: its flag, its environment variable,
//! the configuration file, the default.
//!
//! Every value goes through the parser of its flag. An error message names the place to correct:
//! the flag, the variable, or the line of the file.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _};

use super::ServeArgs;
use super::file::{self, FileError, Value};

/// Prefix of paperbourse's environment variables.
const PREFIX: &str = "PAPERBOURSE_";

/// Prefixes of the variables that Kubernetes sets in a pod beside a service named `paperbourse`.
const OF_KUBERNETES: [&str; 2] = ["PAPERBOURSE_PORT", "PAPERBOURSE_SERVICE_"];

/// Maximum number of characters of a wrong value that a message quotes.
const SHOWN_MAX: usize = 80;

/// Minimum similarity between a misspelled name and the suggested one, from 0 to 1.
const LIKENESS_MIN: f64 = 0.8;

/// The flags and variables of this process. Each [`Sources::read`] reads the configuration file
/// again.
#[derive(Debug)]
pub struct Sources {
    flags: Layer,
    variables: Layer,
    unknown_variables: Vec<String>,
}

/// The values from one source, by flag name.
type Layer = BTreeMap<String, Given>;

#[derive(Debug)]
struct Given {
    values: Vec<OsString>,
    source: Source,
}

/// The source of an option's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The command line.
    Flag,
    /// The environment variable with this name.
    Variable(String),
    /// The configuration file.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The line of the key, counted from 1.
        line: usize,
    },
    /// The default.
    Default,
}

/// One option with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The name of the flag, without dashes.
    pub name: String,
    /// The values of the flag; empty if it is not set.
    pub values: Vec<String>,
    /// Whether the flag can be repeated.
    pub is_list: bool,
    /// The source of the value.
    pub source: Source,
}

/// The server's options, with the source of each value.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The options.
    pub arguments: ServeArgs,
    /// The options as text, in the order of `--help`.
    pub settings: Vec<Setting>,
    /// Environment variables with our prefix that match no option.
    pub unknown_variables: Vec<String>,
    sources: Arc<Sources>,
}

/// All errors in a configuration, one line per mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistakes(pub Vec<String>);

impl fmt::Display for Mistakes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for Mistakes {}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => formatter.write_str("flag"),
            Self::Variable(name) => write!(formatter, "environment: {name}"),
            Self::File { path, line } => write!(formatter, "file: {}:{line}", path.display()),
            Self::Default => formatter.write_str("default"),
        }
    }
}

impl Source {
    /// Names the place where the option was set, for the start of a message.
    fn names(&self, option: &str) -> String {
        match self {
            Self::Variable(name) => name.clone(),
            Self::File { path, line } => format!("{}:{line}: {option}", path.display()),
            Self::Flag | Self::Default => format!("--{option}"),
        }
    }
}

/// Makes a command ignore environment variables, since [`Sources`] reads them.
pub fn without_variables(command: Command) -> Command {
    command.mut_args(|option| option.env(Resettable::Reset))
}

impl Sources {
    /// Collects the flags that were parsed by a command [`without_variables`], and the variables of
    /// `environment`.
    pub fn new(
        matches: &ArgMatches,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Arc<Self> {
        let mut environment: BTreeMap<OsString, OsString> = environment
            .filter(|(name, value)| {
                // Container settings leave a variable out by setting it to an empty value.
                name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) && !value.is_empty()
            })
            .collect();
        let (mut flags, mut variables) = (Layer::new(), Layer::new());
        for option in options().get_arguments() {
            let (id, name) = (option.get_id().as_str(), name_of(option));
            if matches.value_source(id) == Some(ValueSource::CommandLine) {
                let values = matches.get_raw(id).into_iter().flatten().map(OsStr::to_owned);
                flags.insert(name.into(), Given { values: values.collect(), source: Source::Flag });
            }
            let variable = option.get_env().expect("each option has a variable");
            if let Some(value) = environment.remove(variable) {
                let source = Source::Variable(variable.to_string_lossy().into_owned());
                variables.insert(name.into(), Given { values: vec![value], source });
            }
        }
        let unknown = environment.into_keys().map(|name| name.to_string_lossy().into_owned());
        let is_ours = |name: &String| !OF_KUBERNETES.iter().any(|other| name.starts_with(other));
        let unknown_variables = unknown.filter(is_ours).collect();
        Arc::new(Self { flags, variables, unknown_variables })
    }

    /// Reads the file, if there is one, and determines the value of every option.
    pub fn read(self: &Arc<Self>) -> Result<Configuration, Mistakes> {
        let command = options();
        let mut mistakes = Vec::new();
        let names = || command.get_arguments().map(name_of);
        for variable in &self.unknown_variables {
            let name = variable.trim_start_matches(PREFIX).to_lowercase().replace('_', "-");
            if let Some(name) = nearest(&name, names()) {
                let meant = name.to_uppercase().replace('-', "_");
                mistakes.push(format!("{variable} sets nothing: write {PREFIX}{meant}"));
            }
        }
        let in_file = self.file(&command, &mut mistakes);
        let mut chosen: BTreeMap<&str, &Given> = BTreeMap::new();
        // Later layers override earlier ones, so flags come last.
        for layer in [&in_file, &self.variables, &self.flags] {
            chosen.extend(layer.iter().map(|(name, given)| (&**name, given)));
        }
        let mut words = Vec::new();
        for option in command.get_arguments() {
            // All values in the file must be valid; a variable is checked only unless a flag
            // overrides it.
            let of_file = in_file.get(name_of(option));
            let Some(&given) = chosen.get(name_of(option)) else { continue };
            for given in of_file.into_iter().filter(|it| !std::ptr::eq(*it, given)).chain([given]) {
                let wrong = given.values.iter().filter_map(|value| mistake(option, value, given));
                mistakes.extend(wrong);
            }
            words.extend(given.values.iter().map(|value| word(option, value)));
        }
        if !mistakes.is_empty() {
            return Err(Mistakes(mistakes));
        }
        let unexpected = |error: clap::Error| Mistakes(vec![error.to_string()]);
        let matches = without_variables(command.clone()).try_get_matches_from(words);
        let matches = matches.map_err(unexpected)?;
        let arguments = ServeArgs::from_arg_matches(&matches).map_err(unexpected)?;
        let setting = |option: &Arg| {
            let values = matches.get_raw(option.get_id().as_str()).into_iter().flatten();
            Setting {
                name: name_of(option).into(),
                values: values.map(|value| value.to_string_lossy().into_owned()).collect(),
                is_list: is_list(option),
                source: chosen.get(name_of(option)).map_or(Source::Default, |it| it.source.clone()),
            }
        };
        let configuration = Configuration {
            settings: command.get_arguments().map(setting).collect(),
            unknown_variables: self.unknown_variables.clone(),
            sources: self.clone(),
            arguments,
        };
        match configuration.arguments.check() {
            Ok(()) => Ok(configuration),
            Err(error) => Err(Mistakes(vec![configuration.located(&error.to_string())])),
        }
    }

    /// Reads the values of the file, if one is configured. Adds its errors to `mistakes`.
    fn file(&self, command: &Command, mistakes: &mut Vec<String>) -> Layer {
        let given = self.flags.get("config").or_else(|| self.variables.get("config"));
        let Some(path) = given.and_then(|given| given.values.last()).map(PathBuf::from) else {
            return Layer::new();
        };
        let entries = match file::read(&path) {
            Ok(entries) => entries,
            Err(error) => {
                let path = path.display();
                mistakes.push(match error {
                    FileError::Syntax { line, text } => format!("{path}:{line}: {text}"),
                    error => format!("{path}: {error}"),
                });
                return Layer::new();
            }
        };
        let mut layer = Layer::new();
        for entry in entries {
            let option = command.get_arguments().find(|option| name_of(option) == entry.name);
            let values = match (option, entry.value) {
                (_, Value::Table(names)) => Err(in_table(command, &entry.name, &names)),
                (None, _) => Err(unknown(command, &entry.name)),
                (Some(_), _) if entry.name == "config" => {
                    Err("a file cannot name another one: remove config".to_owned())
                }
                (Some(_), Value::One(value)) => Ok(vec![value]),
                (Some(option), Value::List(values)) if is_list(option) => Ok(values),
                (Some(_), Value::List(_)) => {
                    Err(format!("{} takes one value: remove the brackets", entry.name))
                }
                (Some(_), Value::Other(what)) => {
                    Err(format!("{} is {what}: write it in quotes, as for the flag", entry.name))
                }
            };
            match values {
                Ok(values) => {
                    let source = Source::File { path: path.clone(), line: entry.line };
                    let values = values.into_iter().map(OsString::from).collect();
                    layer.insert(entry.name, Given { values, source });
                }
                Err(text) => mistakes.push(format!("{}:{}: {text}", path.display(), entry.line)),
            }
        }
        layer
    }
}

impl Configuration {
    /// Returns the configuration from these flags alone, without the environment.
    pub fn from_flags<F: Into<OsString> + Clone>(
        flags: impl IntoIterator<Item = F>,
    ) -> Result<Self, Mistakes> {
        let matches = without_variables(options()).try_get_matches_from(flags);
        let matches = matches.map_err(|error| Mistakes(vec![error.to_string()]))?;
        Sources::new(&matches, std::iter::empty()).read()
    }

    /// Reads the sources again, including the file.
    pub fn again(&self) -> Result<Self, Mistakes> {
        self.sources.read()
    }

    /// Appends the source of each option that the text names, unless it is a flag or the default.
    fn located(&self, text: &str) -> String {
        let mut located = text.to_owned();
        for Setting { name, source, .. } in &self.settings {
            let mut words = text.split(|char: char| !char.is_alphanumeric() && char != '-');
            let is_named = words.any(|word| word.strip_prefix("--") == Some(name));
            if is_named && !matches!(source, Source::Flag | Source::Default) {
                let _ = write!(located, " ({})", source.names(name));
            }
        }
        located
    }
}

/// Formats a file that [`Sources`] can read, with the source of each value in a comment.
impl fmt::Display for Configuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "# The configuration of `paperbourse serve`, for --config.")?;
        // A configuration file cannot name another one.
        for setting in self.settings.iter().filter(|setting| setting.name != "config") {
            let Setting { name, values, is_list, source } = setting;
            match &values[..] {
                [] => writeln!(formatter, "# {name} is not set")?,
                [value] if !is_list => writeln!(formatter, "{name} = {}  # {source}", toml(value))?,
                values => {
                    let values: Vec<_> = values.iter().map(|value| toml(value)).collect();
                    writeln!(formatter, "{name} = [{}]  # {source}", values.join(", "))?;
                }
            }
        }
        Ok(())
    }
}

/// The options of `serve`.
fn options() -> Command {
    let command = Command::new("serve").no_binary_name(true).disable_help_flag(true);
    ServeArgs::augment_args(command)
}

fn name_of(option: &Arg) -> &str {
    option.get_long().expect("every option is a flag")
}

fn is_list(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}

/// Returns the option with this value as one command-line argument.
fn word(option: &Arg, value: &OsStr) -> OsString {
    let mut word = OsString::from(format!("--{}=", name_of(option)));
    word.push(value);
    word
}

/// Checks a value with the option's parser, and returns the message if it is invalid. A value from
/// the command line is always valid, since clap has checked it.
fn mistake(option: &Arg, value: &OsStr, given: &Given) -> Option<String> {
    let alone = Command::new("option").no_binary_name(true).disable_help_flag(true);
    let alone = without_variables(alone.arg(option));
    let error = alone.try_get_matches_from([word(option, value)]).err()?;
    let mut shown: String = value.to_string_lossy().chars().take(SHOWN_MAX).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    Some(format!("{} is `{shown}`: {}", given.source.names(name_of(option)), reason(&error)))
}

/// Returns clap's reason for rejecting a value, without the flag name that clap's own message
/// contains.
fn reason(error: &clap::Error) -> String {
    let valid = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(valid)) => valid.as_slice(),
        _ => &[],
    };
    match (error.kind(), std::error::Error::source(error)) {
        (_, Some(source)) => source.to_string(),
        (ErrorKind::InvalidValue, None) if !valid.is_empty() => {
            let (last, others) = valid.split_last().expect("it is not empty");
            format!("use {} or {last}", others.join(", "))
        }
        (ErrorKind::InvalidValue, None) => "a value is needed".to_owned(),
        (ErrorKind::InvalidUtf8, None) => "not UTF-8 text".to_owned(),
        (_, None) => error.to_string(),
    }
}

fn unknown(command: &Command, name: &str) -> String {
    match nearest(&name.replace('_', "-"), command.get_arguments().map(name_of)) {
        Some(meant) => format!("{name} is not an option: write {meant}"),
        None => format!("{name} is not an option: `paperbourse serve --help` lists them"),
    }
}

fn in_table(command: &Command, table: &str, names: &[String]) -> String {
    let options: Vec<&str> = command.get_arguments().map(name_of).collect();
    let full = names.iter().flat_map(|name| [format!("{table}-{name}"), name.clone()]);
    let example = full.map(|name| name.replace('_', "-")).find(|it| options.contains(&&**it));
    let example = example.map_or_else(String::new, |name| format!(", as {name} = …"));
    format!("{table} is a table, but options stand at the top level: write them there{example}")
}

/// Returns the known name that is most similar to this one, if it is similar enough.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likely = known.map(|known| (strsim::jaro(name, known), known));
    let likely = likely.filter(|(likeness, _)| *likeness >= LIKENESS_MIN);
    likely.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, known)| known)
}

/// Formats a value as TOML, on one line.
fn toml(value: &str) -> String {
    let is_number = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    if is_number {
        return value.to_owned();
    }
    let mut quoted = String::from("\"");
    for char in value.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            char if char.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(char));
            }
            char => quoted.push(char),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests;
