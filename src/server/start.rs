//! Starts the service: recovers the data, opens the identity source, opens the venue.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::clob;
use super::listener::Listeners;
use super::memory::{self, Limit};
#[cfg(feature = "cluster")]
use super::prepared::Followed;
use super::prepared::{Beforehand, KeysAndTiers, Prepared, keys_of};
use crate::auth::identity::IdentitySource;
use crate::auth::identity::embedded::EmbeddedIssuer;
use crate::auth::identity::oidc::OidcIssuer;
use crate::auth::identity::oidc::discovery::{self, IssuerUrl};
use crate::auth::identity::shared_secret::SharedSecret;
use crate::auth::ws_token::WsTokens;
use crate::candles::TradeCounter;
use crate::clock::Clock;
use crate::config::identity::IdentityConfig;
use crate::config::venue::VenueConfig;
use crate::config::venue::VenueDelay;
use crate::config::{DataPlace, JournalSync, ServeArgs};
use crate::disk::Disk;
use crate::engine::{Rules, State};
use crate::hours::HoursFile;
use crate::http::app::AppState;
use crate::ids::Timestamp;
use crate::journal::{
    CLUSTER_COPY_NAME, CLUSTER_NAME, DataDirectory, Journal, JournalConfig, MemoryJournal,
    OpenError, SyncMode,
};
use crate::market::Markets;
use crate::market::catalogue::Outcome;
use crate::service::matcher::Matcher;
use crate::service::settlement::{Decisions, Settler};
use crate::service::{Parts, Service, key_observer};
use crate::shard::{Room, Shards};
use crate::snapshot::{self, Folder, Opened, Recovered, SnapshotKeeper};
use crate::venue::Venue;
use crate::venue::client::Client;
use crate::venue::feed::{Feed, MismatchPolicy};
use crate::venue::live::{LiveVenue, LiveVenueConfig};
use crate::venue::recorded::{Recorded, TapePlayer};
use crate::venue::speed::Speed;
use crate::venue::tls::{self, Roots};

/// Timeout for each document fetched from an identity provider.
const PROVIDER_PATIENCE: Duration = Duration::from_secs(5);

/// Maximum time, in seconds, that records may be ahead of the clock before a warning is logged. The
/// clock may have been adjusted since they were written.
const RECORDS_AHEAD_SECONDS_MAX: i64 = 60;

/// Warning about a data folder in an older format.
pub(super) const NEWER_FORMAT: &str = "a start writes a newer data format than the folder holds, \
                                       and older versions refuse it from then on: the way back is \
                                       a backup made before, with `paperbourse backup DIR TARGET`";

/// Maximum time that the predecessor may take to exit after the hand-over.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(30);

/// Subject and lifetime of the token shown on a terminal if the issuer's key is temporary.
const FIRST_SUBJECT: &str = "newcomer";
const FIRST_TOKEN_SECONDS: u32 = 24 * 3_600;

/// Polling interval for the predecessor's exit. It adds to the pause that clients notice.
const RELEASE_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Error contexts that name the flag to correct if a venue cannot be opened.
pub(super) const SPEED_CONTEXT: &str = "--venue-speed";
const AUTHORITIES_CONTEXT: &str =
    "failed to load the trusted certificate authorities (--venue-ca sets them)";

pub(super) struct Started {
    pub(super) app: Arc<AppState>,
    pub(super) venue: Venue,
    /// The task that takes snapshots; `None` if data is kept in memory.
    pub(super) snapshots: Option<SnapshotKeeper>,
    /// The file of hourly prices; `None` if it cannot be written or data is kept in memory.
    pub(super) hours: Option<Arc<HoursFile>>,
    /// An access token for the user of a terminal; `None` unless the issuer's key is temporary.
    pub(super) first_token: Option<String>,
}

/// Starts everything behind the listeners, and logs the configuration. The listeners' addresses are
/// logged once the data folder is open. With `prepared` data, another server may still have to
/// release the folder.
pub(super) async fn start(
    arguments: &ServeArgs,
    prepared: Option<Prepared>,
    listeners: &Listeners,
) -> anyhow::Result<Started> {
    let venue = arguments.venue.config()?;
    let limits = arguments.limits();
    let (data, identity, live) = match prepared {
        Some(Prepared { data, keys, identity, live }) => (Some((data, keys)), Some(identity), live),
        None => (None, None, None),
    };
    let OpenedData { journal, recovered, folder, snapshots, keys } = open_data(arguments, data)?;
    if arguments.cluster.cluster.is_none() {
        listeners.announce(arguments);
    }
    warn_of_future(recovered.newest_time(), Timestamp::now());
    let issuer = identity.map_or_else(|| open_identity(arguments), Ok)?;
    let first_token = first_token(arguments, &issuer)?;
    let decisions = Decisions::of(recovered.states());
    let decided = decisions.made.values().map(|decision| {
        let payouts = decision.payouts.clone();
        (decision.condition_id.clone(), payouts)
    });
    let traded = recovered.states().flat_map(State::used_markets).map(|used| {
        let outcome = |(label, token_id): &(Arc<str>, Arc<str>)| Outcome {
            label: label.clone(),
            token_id: token_id.clone(),
        };
        (used.condition_id.clone(), used.outcomes.iter().map(outcome).collect())
    });
    let histories = folder.as_ref().and_then(HoursFile::records);
    let keeps_hours = histories.is_some();
    let markets = Markets::remembering(decided)
        .with_traded(traded)
        .with_histories(histories.unwrap_or_default());
    let markets = Arc::new(match arguments.venue.venue_delay {
        VenueDelay::On => markets,
        VenueDelay::UnstatedMs(ms) => markets.with_unstated_delay(ms),
        VenueDelay::Off => markets.without_delays(),
    });
    let venue = match live {
        Some(mut live) => {
            live.move_to(markets.clone());
            live.hold(decisions.awaited);
            Venue::Live(live)
        }
        None => open_venue(venue, &markets, decisions.awaited)?,
    };
    let market_count = markets.listing().markets().len();
    tracing::info!(venue = %arguments.venue.venue, markets = market_count, "opened the venue");

    let build = || keys_of(recovered.states(), limits.tiers);
    let (keys, tiers) = keys.map_or_else(build, Ok)?;
    let rules = Rules {
        starting_balance: arguments.starting_balance,
        kept_orders_max: arguments.keep_orders,
        open_orders_max: arguments.open_orders,
        author_comments_max: arguments.author_comments,
        ..Rules::default()
    };
    let room = watch_memory(arguments);
    let wallets = clob::wallets(arguments, recovered.states());
    let shards = Arc::new(Shards::new(
        recovered,
        journal.clone(),
        markets.clone(),
        rules,
        Clock::System,
        room,
        key_observer(keys.clone(), tiers.clone()),
    ));
    let settler = Settler::new(markets.clone(), shards.clone(), &journal, decisions.unpaid);
    tokio::spawn(settler.run());
    tokio::spawn(shards.clone().decide_delayed_orders(journal.register()));
    let counter = TradeCounter::subscribe(markets.clone(), shards.clone(), journal.clone()).await;
    tokio::spawn(counter.run());
    let hours = folder.as_ref().filter(|_| keeps_hours).map(|folder| {
        let hours = Arc::new(HoursFile::new(folder, markets.clone()));
        tokio::spawn(hours.clone().keep());
        hours
    });
    tokio::spawn(Matcher::new(markets.clone(), shards.clone(), Clock::System).run());
    let has_wallets = keys.any_wallet().is_some();
    let service = Service::new(Parts {
        markets,
        shards,
        keys,
        issuer,
        ws_tokens: WsTokens::generate().context("the operating system provides no randomness")?,
        tiers,
        default_tier: limits.default_tier,
        address_rules: limits.address_rules,
        account_rates: limits.account_rates,
    });
    let service = clob::let_wallets_call(service, arguments, has_wallets, wallets)?;
    let keep = |folder| SnapshotKeeper::start(folder, journal.clone(), arguments.snapshot_config());
    let snapshots = snapshots.or_else(|| folder.map(keep));
    let app = AppState {
        streams_per_address_max: AtomicU32::new(arguments.streams_per_address),
        clob: clob::orders(arguments),
        trouble: clob::trouble(arguments)?,
        ..AppState::new(service, journal, venue.status())
    };
    Ok(Started { app: Arc::new(app), venue, snapshots, hours, first_token })
}

/// Logs a warning if records are from the future: the clock was wrong when they were written, or is
/// wrong now.
fn warn_of_future(newest: Timestamp, now: Timestamp) {
    let ahead = newest.seconds().saturating_sub(now.seconds());
    if ahead > RECORDS_AHEAD_SECONDS_MAX {
        tracing::warn!(
            %newest,
            %now,
            "the journal has records from the future: check the system clock. They keep their \
             times; new records get the current time"
        );
    }
}

/// The data that a server starts with.
pub(super) struct OpenedData {
    pub(super) journal: Arc<Journal>,
    pub(super) recovered: Recovered,
    /// The folder for snapshots; `None` if data is kept in memory.
    pub(super) folder: Option<Folder>,
    /// The task that takes snapshots, if it is already running.
    snapshots: Option<SnapshotKeeper>,
    /// The keys and tiers that were built ahead and match the states; `None` if they must be built.
    keys: Option<KeysAndTiers>,
}

impl OpenedData {
    fn new(journal: Journal, recovered: Recovered, folder: Option<Folder>) -> Self {
        Self { journal: Arc::new(journal), recovered, folder, snapshots: None, keys: None }
    }
}

/// Returns the journal's segment size and sync mode.
fn journal_config(arguments: &ServeArgs) -> JournalConfig {
    let sync = match arguments.journal_sync {
        JournalSync::Always => SyncMode::Always,
        JournalSync::Fdatasync => SyncMode::Fdatasync,
        JournalSync::Never => SyncMode::Never,
    };
    JournalConfig {
        segment_bytes: arguments.journal_segment_bytes,
        sync,
        ..JournalConfig::default()
    }
}

/// Opens the journal and recovers the state, reusing the work done `beforehand` if possible.
pub(super) fn open_data(
    arguments: &ServeArgs,
    beforehand: Option<(Beforehand, KeysAndTiers)>,
) -> anyhow::Result<OpenedData> {
    let config = journal_config(arguments);
    let DataPlace::Folder(path) = &arguments.data else {
        tracing::info!("keeping data in memory only");
        let journal = MemoryJournal::new(&config).into();
        return Ok(OpenedData::new(journal, Recovered::default(), None));
    };
    let (opened, keys) = match beforehand {
        Some((Beforehand::Read(ahead), (keys, tiers))) => {
            await_release(path)?;
            let observe = key_observer(keys.clone(), tiers.clone());
            let threads = thread_count();
            let opened =
                snapshot::open_ahead(Disk::System, path, &config, ahead, &observe, threads);
            (opened, Some((keys, tiers)))
        }
        #[cfg(feature = "cluster")]
        Some((Beforehand::Followed(followed), keys)) => {
            let Followed { journal, recovered, folder, snapshots } = followed;
            let (folder, snapshots) = (Some(folder), Some(snapshots));
            return Ok(OpenedData { journal, recovered, folder, snapshots, keys: Some(keys) });
        }
        None => {
            warn_of_newer_format(path)?;
            (snapshot::open(Disk::System, path, &config, thread_count()), None)
        }
    };
    let Opened { journal, recovered, report, folder, has_resumed } =
        opened.with_context(|| format!("failed to open --data {}", path.display()))?;
    if arguments.cluster.cluster.is_none() {
        part_with_cluster(path)?;
    }
    let syncs_by = match (config.sync, journal.is_direct()) {
        (SyncMode::Never, _) => "nothing",
        (_, Some(true)) => "direct writes",
        _ => "fdatasync",
    };
    tracing::info!(path = %path.display(), syncs_by, "opened the data folder: {report}");
    if config.sync == SyncMode::Never {
        tracing::warn!("--journal-sync never: writes are answered before they are on disk");
    }
    // The keys fit only the states that were read ahead, which recovery drops if it cannot resume
    // from them.
    let keys = keys.filter(|_| has_resumed);
    Ok(OpenedData { keys, ..OpenedData::new(journal, recovered, Some(folder)) })
}

/// Refuses to serve a cluster node's folder standalone: no other node would have the records
/// written that way.
pub(super) fn require_alone(arguments: &ServeArgs) -> anyhow::Result<()> {
    let DataPlace::Folder(data) = &arguments.data else { return Ok(()) };
    let mark = data.join(CLUSTER_NAME);
    // If the folder cannot be read, opening it reports the error.
    if arguments.cluster.cluster.is_none() && Disk::System.exists(&mark).unwrap_or_default() {
        anyhow::bail!(
            "{} belongs to a node of a cluster: start with --cluster FILE and --node NAME. To go \
             on with its data on a single server, restore a backup of it into another folder",
            data.display()
        );
    }
    Ok(())
}

/// Removes the mark of a folder that was copied from a node, since it now diverges from the
/// cluster.
fn part_with_cluster(path: &Path) -> anyhow::Result<()> {
    let mark = path.join(CLUSTER_COPY_NAME);
    if Disk::System.exists(&mark)? {
        Disk::System.remove_file(&mark)?;
        Disk::System.sync_directory(path)?;
    }
    Ok(())
}

/// Warns, before anything is written, that only a backup leads back to an older version.
pub(super) fn warn_of_newer_format(path: &Path) -> anyhow::Result<()> {
    let raises = snapshot::raises_format(&Disk::System, path);
    if raises.with_context(|| format!("failed to open --data {}", path.display()))? {
        tracing::warn!(path = %path.display(), "{NEWER_FORMAT}");
    }
    Ok(())
}

pub(super) fn thread_count() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Waits until the predecessor has exited and thereby released its lock on the data folder.
fn await_release(path: &Path) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match DataDirectory::require_free(&Disk::System, path) {
            Err(OpenError::InUse { .. }) if began.elapsed() < RELEASE_TIME_MAX => {
                thread::sleep(RELEASE_CHECK_INTERVAL);
            }
            Err(OpenError::InUse { .. }) => anyhow::bail!(
                "the old server has not ended after 30 seconds: stop it, then start this one again"
            ),
            released => return Ok(released?),
        }
    }
}

/// Starts the memory watch, which refuses memory-consuming requests while the process is above its
/// limit.
fn watch_memory(arguments: &ServeArgs) -> Arc<Room> {
    let limit = memory::limit(arguments.memory_limit);
    let room = Arc::new(Room::limited(limit.as_ref().map(|limit| limit.bytes)));
    if let Some(Limit { bytes, source }) = limit {
        let limit_megabytes = memory::megabytes(bytes);
        tracing::info!(limit_megabytes, %source, "limiting memory");
        // Check once now, so that the limit holds from the first request on.
        memory::look(&room, bytes);
        tokio::spawn(memory::watch(room.clone(), bytes));
    } else {
        tracing::warn!("memory is not limited: this system does not report how much is used");
    }
    room
}

pub(super) fn open_identity(arguments: &ServeArgs) -> anyhow::Result<IdentitySource> {
    match arguments.identity.config()? {
        IdentityConfig::Embedded => Ok(IdentitySource::Embedded(open_issuer(arguments)?)),
        IdentityConfig::Oidc { url, audience, tier_claim, authorities } => {
            let client = provider_client(&url, authorities.as_deref())?;
            tracing::info!(%url, audience, "accepting tokens of an OIDC provider");
            let issuer = Arc::new(OidcIssuer::new(url.clone(), &audience, tier_claim));
            let provider = Arc::new((client, url));
            let fetch = move || {
                let provider = provider.clone();
                async move { discovery::fetch(&provider.0, &provider.1).await }
            };
            tokio::spawn({
                let issuer = issuer.clone();
                async move { issuer.keep_fresh(fetch).await }
            });
            Ok(IdentitySource::Oidc(issuer))
        }
        IdentityConfig::Hs256 { path, issuer, audience, tier_claim } => {
            let secret = SharedSecret::open(&path, &issuer, &audience, tier_claim)
                .with_context(|| format!("failed to open --identity hs256:{}", path.display()))?;
            tracing::info!(
                issuer,
                audience,
                secret = %path.display(),
                "accepting tokens signed with a shared secret"
            );
            Ok(IdentitySource::SharedSecret(secret))
        }
    }
}

/// Builds the client that fetches a provider's keys.
pub(super) fn provider_client(
    url: &IssuerUrl,
    authorities: Option<&Path>,
) -> anyhow::Result<Client> {
    let roots = match authorities {
        Some(path) => Roots::File(path),
        None if url.is_https() => Roots::System,
        None => Roots::Nobody,
    };
    let config = tls::client_config(roots)
        .context("failed to load the trusted certificate authorities (--identity-ca sets them)")?;
    Ok(Client::new(config, PROVIDER_PATIENCE, 0))
}

fn open_issuer(arguments: &ServeArgs) -> anyhow::Result<EmbeddedIssuer> {
    let Some(folder) = arguments.key_folder() else {
        tracing::info!(
            "accepting tokens of the embedded issuer, with a temporary key: only a terminal is \
             shown a token. To create tokens, start with --issuer-data DIR and use `paperbourse \
             token --subject NAME --data DIR`"
        );
        return Ok(EmbeddedIssuer::in_memory()?);
    };
    let issuer = EmbeddedIssuer::open(folder)
        .with_context(|| format!("failed to open the issuer's key in {}", folder.display()))?;
    tracing::info!(
        "accepting tokens of the embedded issuer; create one with `paperbourse token --subject \
         NAME --data {}`",
        folder.display()
    );
    Ok(issuer)
}

/// Creates an access token if the issuer's key is temporary, since `paperbourse token` cannot read
/// such a key.
fn first_token(arguments: &ServeArgs, issuer: &IdentitySource) -> anyhow::Result<Option<String>> {
    match issuer {
        IdentitySource::Embedded(issuer) if arguments.key_folder().is_none() => {
            let now = Timestamp::now();
            Ok(Some(issuer.mint(FIRST_SUBJECT, None, FIRST_TOKEN_SECONDS, now)?))
        }
        _ => Ok(None),
    }
}

pub(super) fn load_recording(folder: &Path) -> anyhow::Result<Recorded> {
    Recorded::open(folder).with_context(|| {
        format!("failed to load the recording of --venue recorded:{}", folder.display())
    })
}

pub(super) fn open_live(
    config: Box<dyn LiveVenueConfig>,
    markets: &Arc<Markets>,
) -> anyhow::Result<Box<dyn LiveVenue>> {
    let feed = Feed::new(markets.clone(), MismatchPolicy::Distrust);
    config.open(feed).context(AUTHORITIES_CONTEXT)
}

/// Opens the venue. Plays the part of a recording that must be played before requests are served.
/// Does not wait for a live venue: its markets appear once it responds.
///
/// The `awaited` markets, in which accounts hold shares, are followed regardless of filters.
fn open_venue(
    config: VenueConfig,
    markets: &Arc<Markets>,
    awaited: BTreeSet<Arc<str>>,
) -> anyhow::Result<Venue> {
    let feed = |policy| Feed::new(markets.clone(), policy);
    match config {
        VenueConfig::Simulated { seed, speed } => {
            let feed = feed(MismatchPolicy::Count);
            Venue::simulated(seed, Timestamp::now(), speed, feed).context(SPEED_CONTEXT)
        }
        VenueConfig::Recorded { folder, speed } => {
            let (recording, report) = match load_recording(&folder)? {
                Recorded::Files(recording, report) => (recording, report),
                Recorded::Tape(tape) => {
                    if speed == Speed::Max {
                        tracing::info!("playing the whole tape before serving");
                    }
                    // The tape was recorded with this policy.
                    let player = TapePlayer::start(tape, speed, feed(MismatchPolicy::Distrust));
                    if speed == Speed::Max {
                        tracing::info!("played the tape: {player}");
                    }
                    return Ok(Venue::Tape(Box::new(player)));
                }
            };
            report.log();
            let player = recording.play(speed, feed(MismatchPolicy::Count));
            tracing::info!("played the recording: {}", player.feed().counts());
            Ok(Venue::Recorded(player))
        }
        VenueConfig::Live(config) => {
            let mut live = open_live(config, markets)?;
            live.hold(awaited);
            Ok(Venue::Live(live))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::config::tests::serve;
    use crate::journal::segment_name;

    #[test]
    fn the_folder_of_a_node_is_not_served_alone() {
        let data = TempDir::new().unwrap();
        let arguments = |flags: &[&str]| {
            let path = data.path().to_str().unwrap();
            serve(&[&["--data", path], flags].concat()).unwrap()
        };
        require_alone(&arguments(&[])).unwrap();
        fs::write(data.path().join(CLUSTER_NAME), "").unwrap();
        let error = require_alone(&arguments(&[])).unwrap_err().to_string();
        assert!(error.contains("belongs to a node of a cluster"), "{error}");
        require_alone(&arguments(&["--cluster", "file", "--node", "a"])).unwrap();
    }

    #[test]
    fn keys_are_built_again_if_what_was_read_ahead_is_dropped() {
        for is_lost in [false, true] {
            let data = TempDir::new().unwrap();
            let path = data.path().to_str().unwrap();
            let flags = ["--data", path, "--journal-segment-bytes", "1048576"];
            let arguments = serve(&flags).unwrap();
            let start = |ahead| open_data(&arguments, ahead).unwrap();
            drop(start(None));
            let segment = data.path().join("journal").join(segment_name(1));
            let before = fs::read(&segment).unwrap();
            // Each start writes a block.
            drop(start(None));
            let ahead = snapshot::read_ahead(Disk::System, data.path(), NonZeroUsize::MIN).unwrap();
            let keys = keys_of(ahead.states(), arguments.limits().tiers).unwrap();
            if is_lost {
                fs::write(&segment, &before).unwrap();
            }
            let opened = start(Some((Beforehand::Read(ahead), keys)));
            assert_eq!(opened.keys.is_none(), is_lost);
            assert_eq!(opened.journal.epoch(), if is_lost { 2 } else { 3 });
        }
    }
}
