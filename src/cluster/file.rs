//! The file that describes a cluster: its name, its brokers, and how to log in to them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use hyper::Uri;
use serde::Deserialize;

/// The interval between pings to a broker. Three pings without an answer end the connection, and
/// the node connects to another broker. Without pings, a broker whose machine vanished would go
/// unnoticed, since it does not close the connection.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The timeout for connecting to a broker.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// Number of logs if the file does not set `logs`.
const LOGS_DEFAULT: u16 = 1;

/// How long blocks are kept if the file does not set `keep_minutes`, in minutes: a day.
const KEEP_MINUTES_DEFAULT: u32 = 24 * 60;

/// The maximum number of logs, one for each shard.
const LOGS_MAX: u16 = 64;

/// The maximum size of the file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The maximum length of a cluster's name, in bytes.
const NAME_BYTES_MAX: usize = 32;

/// The contents of the file. Paths are relative to its folder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// The name of the cluster, and the prefix of its streams' names.
    pub name: String,
    /// The addresses of the brokers, such as `nats://10.0.0.1:4222` or `tls://nats-1.example:4222`.
    pub brokers: Vec<String>,
    /// The monitoring addresses of all brokers, such as `http://10.0.0.1:8222`.
    pub monitoring: Vec<String>,
    /// Number of logs in the cluster, from 1 to 64. Fixed once the cluster exists.
    #[serde(default = "logs_default")]
    pub logs: u16,
    /// How long the brokers keep blocks that nodes already have on disk, in minutes. A node that
    /// was away for longer needs a new copy of another node's data.
    #[serde(default = "keep_minutes_default")]
    pub keep_minutes: u32,
    /// The user to log in as.
    pub user: Option<String>,
    /// The file that holds the user's password.
    pub password_file: Option<PathBuf>,
    /// A PEM file with the certificate authorities to trust for brokers; `None` for the system's.
    pub ca_file: Option<PathBuf>,
}

const fn logs_default() -> u16 {
    LOGS_DEFAULT
}

const fn keep_minutes_default() -> u32 {
    KEEP_MINUTES_DEFAULT
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file, or the password file, cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The file is not valid TOML, or a name or a type in it is wrong.
    #[error("{}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The error, with its line number.
        reason: String,
    },
    /// Values in the file are invalid.
    #[error("{}: {}", path.display(), mistakes.join("; "))]
    Values {
        /// The file.
        path: PathBuf,
        /// Every mistake found.
        mistakes: Vec<String>,
    },
}

impl ClusterFile {
    /// Reads and validates the file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = read(path)?;
        let mut file = Self::parse(&text)
            .map_err(|reason| FileError::Syntax { path: path.to_owned(), reason })?;
        let mistakes = file.mistakes();
        if !mistakes.is_empty() {
            return Err(FileError::Values { path: path.to_owned(), mistakes });
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        for named in [&mut file.password_file, &mut file.ca_file].into_iter().flatten() {
            *named = folder.join(&named);
        }
        Ok(file)
    }

    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count();
            format!("line {line}: {}", error.message().replace('\n', ", "))
        })
    }

    fn mistakes(&self) -> Vec<String> {
        let mut found = Vec::new();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if self.name.is_empty()
            || self.name.len() > NAME_BYTES_MAX
            || !self.name.bytes().all(is_allowed)
        {
            found.push(format!("name is not 1 to {NAME_BYTES_MAX} letters, digits or hyphens"));
        }
        if !(1..=LOGS_MAX).contains(&self.logs) {
            found.push(format!("logs = {} is not from 1 to {LOGS_MAX}", self.logs));
        }
        if self.brokers.is_empty() {
            found.push("brokers names no address".to_owned());
        }
        let is_secret = |address: &&String| address.contains('@');
        for address in self.brokers.iter().filter(|address| !is_secret(address)) {
            let is_nats = address.starts_with("nats://") || address.starts_with("tls://");
            if !is_nats || ServerAddr::from_str(address).is_err() {
                found.push(format!(
                    "brokers: \"{address}\" is not an address like nats://HOST:4222 or \
                     tls://HOST:4222"
                ));
            }
        }
        // An address that contains a password must not be quoted in an error.
        if self.brokers.iter().any(|address| is_secret(&address)) {
            found.push("brokers: user and password belong in user and password_file".into());
        }
        if self.is_encrypted() && !self.brokers.iter().all(|address| is_tls(address)) {
            found.push(
                "brokers: write tls:// for all or for none: the password would go to one of them \
                 in plain text"
                    .into(),
            );
        }
        if self.monitoring.len() < self.brokers.len() {
            found.push(format!(
                "monitoring has {} addresses for {} brokers: each broker is asked whether it is \
                 safe",
                self.monitoring.len(),
                self.brokers.len()
            ));
        }
        if self.monitoring.iter().any(|address| is_secret(&address)) {
            found.push("monitoring: an address has no user and no password".into());
        }
        for address in self.monitoring.iter().filter(|address| !is_secret(address)) {
            let uri = address.parse::<Uri>().ok();
            let scheme = uri.as_ref().and_then(|uri| uri.scheme_str());
            if !matches!(scheme, Some("http" | "https")) {
                found.push(format!(
                    "monitoring: \"{address}\" is not an address like http://HOST:8222"
                ));
            }
        }
        if self.user.is_some() != self.password_file.is_some() {
            found.push("user and password_file belong together".to_owned());
        }
        found
    }

    /// Whether connections to brokers are encrypted.
    fn is_encrypted(&self) -> bool {
        self.brokers.iter().any(|address| is_tls(address))
    }

    /// Returns the connection options. Reads the password file.
    pub(super) fn options(&self) -> Result<ConnectOptions, FileError> {
        // Anyone on the network could forge what a broker sends before the TLS handshake. So
        // neither the need for TLS nor the list of other brokers is taken from it.
        let mut options = ConnectOptions::new()
            .name("paperbourse")
            .ping_interval(PING_INTERVAL)
            .connection_timeout(CONNECT_TIME_MAX)
            .require_tls(self.is_encrypted())
            .ignore_discovered_servers();
        if let (Some(user), Some(path)) = (&self.user, &self.password_file) {
            let password = read(path)?.trim_end_matches(['\r', '\n']).to_owned();
            options = options.user_and_password(user.clone(), password);
        }
        if let Some(path) = &self.ca_file {
            // Read here because the client's own error would not name the file.
            read(path)?;
            options = options.add_root_certificates(path.clone());
        }
        Ok(options)
    }

    /// Creates a cluster file with these brokers and the defaults for everything else.
    pub fn new(name: &str, brokers: Vec<String>, monitoring: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            brokers,
            monitoring,
            logs: LOGS_DEFAULT,
            keep_minutes: KEEP_MINUTES_DEFAULT,
            user: None,
            password_file: None,
            ca_file: None,
        }
    }

    /// Returns the name of the first log's stream.
    pub fn first_stream(&self) -> String {
        self.streams().next().expect("a cluster has a log")
    }

    /// Returns the names of the streams, one for each log.
    pub fn streams(&self) -> impl Iterator<Item = String> {
        (0..self.logs).map(|number| format!("{}-{number}", self.name))
    }
}

fn is_tls(address: &str) -> bool {
    address.starts_with("tls://")
}

fn read(path: &Path) -> Result<String, FileError> {
    let read = || {
        let mut text = String::new();
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            let reason = format!("it is longer than {FILE_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
        }
        Ok(text)
    };
    read().map_err(|source| FileError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const WHOLE: &str = r#"
name = "bourse"
brokers = ["tls://10.0.0.1:4222", "tls://nats-2.example"]
monitoring = ["http://10.0.0.1:8222", "https://nats-2.example:8222/base"]
logs = 4
user = "bourse"
password_file = "password"
ca_file = "ca.pem"
"#;

    fn read_text(text: &str) -> Result<ClusterFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        fs::write(&path, text).unwrap();
        fs::write(folder.path().join("password"), "secret\n").unwrap();
        fs::write(folder.path().join("ca.pem"), "").unwrap();
        fs::write(folder.path().join("long"), vec![b'a'; 1 << 21]).unwrap();
        let file = ClusterFile::read(&path).map_err(|error| error.to_string())?;
        file.options().map_err(|error| error.to_string())?;
        Ok(file)
    }

    #[test]
    fn a_file_is_read_and_its_paths_are_relative_to_its_folder() {
        let file = read_text(WHOLE).unwrap();
        assert!(file.password_file.as_ref().unwrap().is_absolute());
        assert!(file.ca_file.as_ref().unwrap().is_absolute());
        let streams: Vec<String> = file.streams().collect();
        assert_eq!(streams, ["bourse-0", "bourse-1", "bourse-2", "bourse-3"]);
        let shortest = "name = 'a'\nbrokers = ['nats://a:1']\nmonitoring = ['http://a:2']";
        assert_eq!(read_text(shortest).unwrap().logs, 1);
    }

    #[test]
    fn every_mistake_is_named() {
        for (from, to, expected) in [
            ("name = \"bourse\"", "name = \"a.b\"", "name is not 1 to 32 letters"),
            ("name = \"bourse\"", "", "line 1: missing field `name`"),
            ("logs = 4", "logs = 65", "logs = 65 is not from 1 to 64"),
            ("logs = 4", "logs = 0", "logs = 0 is not from 1 to 64"),
            ("logs = 4", "logs = \"four\"", "line 5: invalid type"),
            ("logs = 4", "shards = 4", "line 5: unknown field `shards`"),
            ("logs = 4", "logs = ", "line 5"),
            ("tls://nats-2.example", "http://a", "\"http://a\" is not an address like nats://"),
            ("tls://nats-2.example", "nats://nats-2.example", "tls:// for all or for none"),
            ("tls://nats-2.example", "tls://u:s3cret@a", "user and password belong in user"),
            ("tls://nats-2.example", "u:s3cret@10.0.0.1:4222", "user and password belong in user"),
            ("tls://nats-2.example", "tls://u:s3cret/w@h", "user and password belong in user"),
            ("http://10.0.0.1:8222", "http://u:s3cret@h:8222", "monitoring: an address has no"),
            ("http://10.0.0.1:8222", "u:s3cret@h:8222", "monitoring: an address has no"),
            ("http://10.0.0.1:8222", "10.0.0.1:8222", "is not an address like http://HOST:8222"),
            ("\"http://10.0.0.1:8222\", ", "", "monitoring has 1 addresses for 2 brokers"),
            ("user = \"bourse\"", "", "user and password_file belong together"),
            ("\"password\"", "\"missing\"", "missing: No such file"),
            ("\"password\"", "\"long\"", "long: it is longer than 1048576 bytes"),
            ("\"ca.pem\"", "\"missing.pem\"", "missing.pem: No such file"),
        ] {
            assert!(WHOLE.contains(from), "{from}");
            let error = read_text(&WHOLE.replace(from, to)).unwrap_err();
            assert!(error.contains(expected), "{to}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        let text = "name = ''\nbrokers = []\nmonitoring = ['x']\nlogs = 99";
        let error = read_text(text).unwrap_err();
        assert_eq!(error.matches("; ").count(), 3, "all at once: {error}");
    }
}
