//! The operator's options: their flags, formats and defaults.
//!
//! Every option of `serve` can be set by a flag, an environment variable or a key in a TOML file,
//! all with the same name. This module reads and checks options; it starts nothing.

pub mod bytes;
pub mod cluster;
pub mod contradiction;
mod file;
pub mod identity;
pub mod logs;
pub mod record;
pub mod sources;
pub mod traces;
pub mod venue;

use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use self::bytes::bytes;
use self::cluster::ClusterServeArgs;
use self::identity::IdentityArgs;
use self::logs::LogArgs;
use self::traces::TraceArgs;
use self::venue::VenueArgs;
use crate::engine::{
    AUTHOR_COMMENTS_MAX_DEFAULT, KEPT_ORDERS_MAX_DEFAULT, OPEN_ORDERS_MAX_DEFAULT,
};
use crate::http::app::STREAMS_PER_ADDRESS_MAX;
use crate::http::cors::CorsOrigin;
use crate::http::forwarded::TrustedProxy;
use crate::limits::bucket::{AccountRates, AddressRules, BucketRule, Rate};
use crate::limits::tier::{Tier, TierSetting, Tiers};
use crate::money::{Rounding, Usd};
use crate::service::Limits;
use crate::snapshot::SnapshotConfig;
use crate::telemetry::Sample;
use crate::trouble::Plan;

/// Maximum starting balance: a billion dollars, which keeps every sum in a ledger far from
/// overflow.
pub const STARTING_BALANCE_MAX: Usd = Usd::from_micros(1_000_000_000_000_000);

/// Maximum number of worker threads.
const WORKERS_MAX: usize = 1024;

/// Allowed sizes of a journal segment, in bytes. The longest record fits into the smallest segment.
const SEGMENT_BYTES: RangeInclusive<u64> = (1 << 20)..=(1 << 30);

/// Default number of journal bytes between snapshots. Startup reads at most about twice as much.
const SNAPSHOT_BYTES_DEFAULT: &str = "256M";

/// Default size limit of the journal archive.
const ARCHIVE_BYTES_DEFAULT: &str = "10G";

/// Default limit of open connections on the public listener.
const CONNECTIONS_MAX_DEFAULT: usize = 10_000;

/// Headings of the option groups in the help. Groups that have their own module define their
/// heading there.
const NETWORK: &str = "Network";
const IDENTITY: &str = "Identity";
const TRADING: &str = "Trading";
const DISK: &str = "Disk";
const LIMITS: &str = "Limits";
const LOGS: &str = "Logs";

/// The options of `paperbourse serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// TOML configuration file, with options named after the flags: `listen = "127.0.0.1:8080"`.
    /// Flags and environment variables take precedence
    #[arg(long, env = "PAPERBOURSE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Address to listen on. Port 0 picks a free port; the log shows which
    #[arg(help_heading = NETWORK)]
    #[arg(long, env = "PAPERBOURSE_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDR",
          value_parser = address)]
    pub listen: SocketAddr,

    /// Proxy, or network of proxies, whose `X-Forwarded-For` header is trusted, such as `10.0.0.5`
    /// or `fd00::/8`; repeatable
    #[arg(help_heading = NETWORK)]
    #[arg(
        long = "trusted-proxy",
        env = "PAPERBOURSE_TRUSTED_PROXY",
        value_delimiter = ',',
        value_name = "CIDR"
    )]
    pub trusted_proxies: Vec<TrustedProxy>,

    /// Address to serve /metrics on; off by default
    #[arg(help_heading = NETWORK)]
    #[arg(long, env = "PAPERBOURSE_ADMIN_LISTEN", value_name = "ADDR", value_parser = address)]
    pub admin_listen: Option<SocketAddr>,

    /// Whether to serve the console, a page to watch markets and trade
    #[arg(help_heading = NETWORK, hide_short_help = true)]
    #[arg(
        long,
        env = "PAPERBOURSE_CONSOLE",
        default_value = "on",
        value_name = "on|off",
        hide_possible_values = true
    )]
    pub console: Switch,

    /// Whether requests that bots repeat are answered in a lane of their own, without the general
    /// HTTP library's dispatch; the answers are the same. A node of a cluster has no lane
    #[arg(help_heading = NETWORK, hide_short_help = true)]
    #[arg(
        long,
        env = "PAPERBOURSE_LANE",
        default_value = "on",
        value_name = "on|off",
        hide_possible_values = true
    )]
    pub lane: Switch,

    /// Whether to answer requests of Polymarket's order book API (CLOB), so that its clients can
    /// use this server by changing their host
    #[arg(help_heading = NETWORK, hide_short_help = true)]
    #[arg(
        long,
        env = "PAPERBOURSE_CLOB",
        default_value = "off",
        value_name = "on|off",
        hide_possible_values = true
    )]
    pub clob: Switch,

    /// Whether to refuse orders that Polymarket refuses but that could be filled here: amounts with
    /// too many decimals, orders of version 1, and types of wallets that it no longer accepts
    #[arg(help_heading = NETWORK, hide_short_help = true)]
    #[arg(
        long,
        env = "PAPERBOURSE_CLOB_STRICT",
        default_value = "off",
        value_name = "on|off",
        hide_possible_values = true
    )]
    pub clob_strict: Switch,

    /// When to tell Polymarket's clients the transaction hashes of a matched order: `when-asked`,
    /// as Polymarket does, or `at-once` in the answer to the order, which saves a request
    #[arg(help_heading = NETWORK, hide_short_help = true)]
    #[arg(
        long,
        env = "PAPERBOURSE_CLOB_HASHES",
        default_value = "when-asked",
        value_name = "when-asked|at-once",
        hide_possible_values = true
    )]
    pub clob_hashes: ClobHashes,

    /// Trouble that Polymarket's clients meet on purpose, such as `seed=7,lost=2%,lag=30%:2s-50s`;
    /// see the guide
    #[arg(help_heading = NETWORK, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_CLOB_TROUBLE", value_name = "PLAN")]
    pub clob_trouble: Option<Plan>,

    /// Where identities come from.
    #[command(flatten)]
    pub identity: IdentityArgs,

    /// Folder of the embedded issuer's key, and of the master key of wallets [default: the data
    /// folder; with `memory`, throw-away keys]
    #[arg(help_heading = IDENTITY, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_ISSUER_DATA", value_name = "DIR")]
    pub issuer_data: Option<PathBuf>,

    /// Where prices come from.
    #[command(flatten)]
    pub venue: VenueArgs,

    /// Number of threads that serve requests [default: one per core]
    #[arg(help_heading = NETWORK, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_WORKERS", value_name = "N", value_parser = worker_count)]
    pub workers: Option<NonZeroUsize>,

    /// Play money of a new account, in dollars
    #[arg(help_heading = TRADING)]
    #[arg(long, env = "PAPERBOURSE_STARTING_BALANCE", default_value = "1000", value_name = "USD",
          value_parser = starting_balance, allow_hyphen_values = true)]
    pub starting_balance: Usd,

    /// How many finished orders to keep per account, with their names and comments; older ones are
    /// forgotten
    #[arg(help_heading = TRADING, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_KEEP_ORDERS", default_value_t = KEPT_ORDERS_MAX_DEFAULT,
          value_name = "N", value_parser = whole_number(1..=u32::MAX))]
    pub keep_orders: u32,

    /// How many comments one author may have, on whatever orders; older ones can be deleted
    #[arg(help_heading = TRADING, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_AUTHOR_COMMENTS",
          default_value_t = AUTHOR_COMMENTS_MAX_DEFAULT, value_name = "N",
          value_parser = whole_number(1..=u32::MAX))]
    pub author_comments: u32,

    /// How many orders of an account may be open at once
    #[arg(help_heading = TRADING, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_OPEN_ORDERS", default_value_t = OPEN_ORDERS_MAX_DEFAULT,
          value_name = "N", value_parser = whole_number(0..=u32::MAX))]
    pub open_orders: u32,

    /// Data folder, or `memory` to keep nothing
    #[arg(help_heading = DISK)]
    #[arg(long, env = "PAPERBOURSE_DATA", default_value = "./data", value_name = "DIR|memory")]
    pub data: DataPlace,

    /// How a write reaches the disk before it is answered: `always` bypasses the page cache where
    /// the file system allows it, `fdatasync` never does, and `never` does not wait for the disk
    /// (for benchmarks)
    #[arg(help_heading = DISK, hide_short_help = true)]
    #[arg(
        long,
        env = "PAPERBOURSE_JOURNAL_SYNC",
        default_value = "always",
        value_name = "always|fdatasync|never"
    )]
    pub journal_sync: JournalSync,

    /// Size of a journal segment
    #[arg(help_heading = DISK, hide_short_help = true)]
    #[arg(
        long,
        env = "PAPERBOURSE_JOURNAL_SEGMENT_BYTES",
        default_value = "64M",
        value_parser = segment_bytes,
        hide = true
    )]
    pub journal_segment_bytes: u64,

    /// Memory limit of the process, such as `2G`; above it, requests that would need more are
    /// refused [default: 80 % of the memory of the machine, or of the container or unit if that has
    /// less]
    #[arg(help_heading = LIMITS)]
    #[arg(long, env = "PAPERBOURSE_MEMORY_LIMIT", value_name = "BYTES",
          value_parser = bytes(1..=u64::MAX))]
    pub memory_limit: Option<u64>,

    /// Take a snapshot after this many journal bytes
    #[arg(help_heading = DISK, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_SNAPSHOT_BYTES", default_value = SNAPSHOT_BYTES_DEFAULT,
          value_name = "BYTES", value_parser = bytes(0..=u64::MAX))]
    pub snapshot_bytes: u64,

    /// Take a snapshot after this many seconds, if a journal segment was filled meanwhile
    #[arg(help_heading = DISK, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_SNAPSHOT_INTERVAL", default_value_t = 3600,
          value_name = "SECONDS", value_parser = whole_number(1..=u32::MAX))]
    pub snapshot_interval: u32,

    /// CPU share of a snapshot, in percent of one core
    #[arg(help_heading = DISK, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_SNAPSHOT_CPU", default_value_t = 10, value_name = "PERCENT",
          value_parser = whole_number(1..=100_u32))]
    pub snapshot_cpu: u32,

    /// How many bytes of journal to keep in the archive once a snapshot covers them. Whatever is
    /// needed to fall back to the previous snapshot is kept in any case
    #[arg(help_heading = DISK, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_ARCHIVE_BYTES", default_value = ARCHIVE_BYTES_DEFAULT,
          value_name = "BYTES", value_parser = bytes(0..=u64::MAX))]
    pub archive_bytes: u64,

    /// Limits of a tier, as `NAME=PER_SECOND/PER_MINUTE/SOCKETS/BATCH[/MARKETS]`; a rate may be
    /// `unlimited`, and the markets of a price socket `all`. Repeatable, once per tier
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long = "tier", env = "PAPERBOURSE_TIER", value_delimiter = ',', value_name = "LIMITS")]
    pub tiers: Vec<TierSetting>,

    /// Highest tier of an access token that names none
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_DEFAULT_TIER", default_value = "free", value_name = "TIER",
          value_parser = tier)]
    pub default_tier: Tier,

    /// Whether to rate-limit callers without a valid key by network address
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(
        long,
        env = "PAPERBOURSE_ADDRESS_LIMITS",
        default_value = "on",
        value_name = "on|off",
        hide_possible_values = true
    )]
    pub address_limits: Switch,

    /// Rate of requests without a credential, per address
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_PUBLIC_RATE", default_value = "10/20",
          value_name = "PER_SECOND/BURST", value_parser = BucketRule::per_second_from_text)]
    pub public_rate: BucketRule,

    /// Rate of new accounts, per address
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_BOOTSTRAP_RATE", default_value = "1/5",
          value_name = "PER_MINUTE/BURST", value_parser = BucketRule::per_minute_from_text)]
    pub bootstrap_rate: BucketRule,

    /// Rate of wrong credentials, per address, that are answered with the reason; past it the
    /// answer is 429. Valid credentials are never affected
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_FAILURE_RATE", default_value = "10/50",
          value_name = "PER_SECOND/BURST", value_parser = BucketRule::per_second_from_text)]
    pub failure_rate: BucketRule,

    /// Rate of keys made or rotated, per account
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_KEY_RATE", default_value = "10/10",
          value_name = "PER_MINUTE/BURST|unlimited", value_parser = Rate::per_minute_from_text)]
    pub key_rate: Rate,

    /// Rate of sockets opened, per account
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_SOCKET_RATE", default_value = "5/100",
          value_name = "PER_SECOND/BURST|unlimited", value_parser = Rate::per_second_from_text)]
    pub socket_rate: Rate,

    /// Maximum number of open connections, capped by the limit of open files. When all are taken, a
    /// new connection replaces the idlest one without a valid credential, or gets 503 if there is
    /// none
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_CONNECTIONS_MAX", default_value_t = CONNECTIONS_MAX_DEFAULT,
          value_name = "N", value_parser = whole_number(1..=usize::MAX))]
    pub connections_max: usize,

    /// Maximum number of open connections per address (per /64 for IPv6), trusted proxies excepted
    /// [default: half of all]
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_CONNECTIONS_PER_ADDRESS", value_name = "N",
          value_parser = whole_number(1..=usize::MAX))]
    pub connections_per_address: Option<usize>,

    /// Maximum number of open price streams per address (per /64 for IPv6), and of market sockets
    /// with `--clob on`
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_STREAMS_PER_ADDRESS", default_value_t = STREAMS_PER_ADDRESS_MAX,
          value_name = "N", value_parser = whole_number(1..=u32::MAX))]
    pub streams_per_address: u32,

    /// Origin of web pages that may call from a browser, such as `https://bots.example.org`, or `*`
    /// for all; repeatable
    #[arg(help_heading = NETWORK, hide_short_help = true)]
    #[arg(
        long = "cors-origin",
        env = "PAPERBOURSE_CORS_ORIGIN",
        value_delimiter = ',',
        value_name = "ORIGIN"
    )]
    pub cors_origins: Vec<CorsOrigin>,

    /// What is logged.
    #[command(flatten)]
    pub logs: LogArgs,

    /// Log a line for each request (`all`), for about one in N (`1/N`), or for none (`off`)
    #[arg(help_heading = LOGS, hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_ACCESS_LOG", default_value = "off", value_name = "off|all|1/N")]
    pub access_log: Sample,

    /// What is traced.
    #[command(flatten)]
    pub traces: TraceArgs,

    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterServeArgs,
}

impl ServeArgs {
    /// Returns the folder with the keys of the embedded issuer and of wallets; `None` if they are
    /// temporary.
    pub fn key_folder(&self) -> Option<&Path> {
        match (&self.issuer_data, &self.data) {
            (Some(folder), _) | (None, DataPlace::Folder(folder)) => Some(folder),
            (None, DataPlace::Memory) => None,
        }
    }

    /// Whether connections have a lane. A node of a cluster has none: it may pass any request on,
    /// and answers of other nodes come as streams.
    pub fn has_lane(&self) -> bool {
        self.lane == Switch::On && self.cluster.cluster.is_none()
    }

    /// Returns the snapshot schedule and the size limit of the journal archive.
    pub fn snapshot_config(&self) -> SnapshotConfig {
        SnapshotConfig {
            journal_bytes: self.snapshot_bytes,
            interval: Duration::from_secs(self.snapshot_interval.into()),
            cpu_percent: self.snapshot_cpu,
            archive_bytes: self.archive_bytes,
        }
    }

    /// Returns the connection limit per address; by default half of `connections_max`, rounded up.
    pub fn connections_per_address(&self, connections_max: usize) -> usize {
        self.connections_per_address.unwrap_or_else(|| connections_max.div_ceil(2))
    }

    /// Whether other machines can reach metrics at this address.
    pub fn is_admin_exposed_at(address: SocketAddr) -> bool {
        !address.ip().to_canonical().is_loopback()
    }

    /// Whether other machines can reach a server at this address without a known proxy in front of
    /// it.
    pub fn is_exposed_at(&self, address: SocketAddr) -> bool {
        !address.ip().to_canonical().is_loopback() && self.trusted_proxies.is_empty()
    }

    /// Returns the limits per address for callers without a valid key, or `None` if they are off.
    pub fn address_rules(&self) -> Option<AddressRules> {
        (self.address_limits == Switch::On).then_some(AddressRules {
            public: self.public_rate,
            bootstrap: self.bootstrap_rate,
            failures: self.failure_rate,
        })
    }

    /// Returns the limits per account on creating keys and opening sockets.
    pub const fn account_rates(&self) -> AccountRates {
        AccountRates { keys: self.key_rate, sockets: self.socket_rate }
    }

    /// Returns the limits that can change while the server runs.
    pub fn limits(&self) -> Limits {
        Limits {
            tiers: self.tier_table(),
            default_tier: self.default_tier,
            address_rules: self.address_rules(),
            account_rates: self.account_rates(),
        }
    }

    /// Returns the table of tiers with the operator's changes.
    pub fn tier_table(&self) -> Tiers {
        let mut tiers = Tiers::default();
        for &setting in &self.tiers {
            tiers.set(setting);
        }
        tiers
    }
}

/// The options of `paperbourse token`.
#[derive(Args, Clone, Debug)]
pub struct TokenArgs {
    /// Whose token it is: any name; each name has an account of its own
    #[arg(long, value_name = "NAME")]
    pub subject: String,

    /// Highest tier that the token's keys may have [default: the server's --default-tier]
    #[arg(long, value_name = "TIER", value_parser = tier)]
    pub tier: Option<Tier>,

    /// Lifetime of the token, in seconds
    #[arg(long, default_value_t = 3600, value_name = "SECONDS",
          value_parser = whole_number(1..=u32::MAX))]
    pub expires: u32,

    /// Data folder of the server, or its --issuer-data if it has one
    #[arg(long, env = "PAPERBOURSE_DATA", default_value = "./data", value_name = "DIR",
          value_parser = issuer_folder)]
    pub data: PathBuf,
}

/// The place where persistent data is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataPlace {
    /// In memory only: for tests and benchmarks.
    Memory,
    /// In this folder.
    Folder(PathBuf),
}

impl FromStr for DataPlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Err("not a folder: use its path, or `memory`"),
            "memory" => Ok(Self::Memory),
            path => Ok(Self::Folder(path.into())),
        }
    }
}

/// Durability of a write at the time it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum JournalSync {
    /// A write is answered once it is on disk, by the fastest method that the file system supports.
    Always,
    /// A write is answered once `fdatasync` has put it on disk.
    Fdatasync,
    /// A crash of the machine loses whatever the kernel has not written yet.
    Never,
}

/// When clients of the venue are told the hashes of transactions.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum ClobHashes {
    /// When they ask for the trades of an order.
    WhenAsked,
    /// In the answer to the order.
    AtOnce,
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "not an address: use IP:PORT, for example 127.0.0.1:8080")
}

/// Returns a parser for whole numbers within `bounds`, written in plain digits.
pub(crate) fn whole_number<N>(
    bounds: RangeInclusive<N>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| {
            let (least, most) = (bounds.start(), bounds.end().to_string());
            if most == u64::MAX.to_string() {
                format!("not a whole number of at least {least}")
            } else {
                format!("not a whole number from {least} to {most}")
            }
        })
    }
}

fn worker_count(text: &str) -> Result<NonZeroUsize, String> {
    let count = whole_number(1..=WORKERS_MAX)(text)?;
    Ok(NonZeroUsize::new(count).expect("a count of at least 1"))
}

fn segment_bytes(text: &str) -> Result<u64, String> {
    let is_possible = |bytes: &u64| SEGMENT_BYTES.contains(bytes) && bytes.is_multiple_of(4096);
    bytes(0..=u64::MAX)(text).ok().filter(is_possible).ok_or_else(|| {
        let (least, most) = (*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        let (least, most) = (bytes::display(least), bytes::display(most));
        format!("not a multiple of 4K from {least} to {most}")
    })
}

/// Parses the data folder of a running server. Rejects `memory`, since a server without a data
/// folder has no operators' socket.
pub fn server_folder(text: &str) -> Result<PathBuf, &'static str> {
    match DataPlace::from_str(text)? {
        DataPlace::Folder(folder) => Ok(folder),
        DataPlace::Memory => Err("a server with --data memory serves no operators"),
    }
}

/// Parses the folder of the issuer's key. Rejects `memory`, since a server without a data folder
/// has no key file that another process could read.
fn issuer_folder(text: &str) -> Result<PathBuf, &'static str> {
    match DataPlace::from_str(text)? {
        DataPlace::Folder(folder) => Ok(folder),
        DataPlace::Memory => Err("a server with --data memory stores no key: start it on a \
                                  terminal, which is shown a token, or with --issuer-data DIR and \
                                  create tokens with --data DIR"),
    }
}

fn tier(text: &str) -> Result<Tier, &'static str> {
    Tier::parse(text).ok_or("not a tier: use free, pro or enterprise")
}

fn starting_balance(text: &str) -> Result<Usd, String> {
    let balance = Usd::from_text(text, Rounding::Exact).map_err(|error| error.to_string())?;
    if balance < Usd::ZERO || balance > STARTING_BALANCE_MAX {
        return Err(format!("not between 0 and {STARTING_BALANCE_MAX} dollars"));
    }
    Ok(balance)
}

#[cfg(test)]
pub(crate) mod tests;
