//! The venue options: the source of prices, and the settings for following a live venue.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use hyper::Uri;

use super::whole_number;
use crate::market::catalogue::TAKER_DELAY_MS_MAX;
use crate::money::{Rounding, Usd};
use crate::venue::feed::Feed;
use crate::venue::follow::timing::Timing;
use crate::venue::live::{LiveVenue, LiveVenueConfig};
use crate::venue::polymarket::filter::{MARKETS_WANTED_MAX, MarketFilter};
use crate::venue::polymarket::live::{Live, LiveConfig};
use crate::venue::simulated::DEFAULT_SEED;
use crate::venue::speed::Speed;
use crate::venue::tls::{self, Roots, TlsError};

/// Default number of markets to follow.
const MARKETS_DEFAULT: usize = 200;

/// Minimum of `--venue-fresh`, in seconds. The server requests a quiet book after half of that
/// time, and the venue takes a few seconds to answer.
const FRESH_SECONDS_MIN: u32 = 10;

const GAMMA: &str = "https://gamma-api.polymarket.com";
const CLOB: &str = "https://clob.polymarket.com";
const DATA: &str = "https://data-api.polymarket.com";
const SOCKET: &str = "wss://ws-subscriptions-clob.polymarket.com/ws/market";

/// The venue options of `paperbourse serve`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Venue")]
pub struct VenueArgs {
    /// Source of prices: `simulated`, `simulated:SEED`, `recorded:DIR` or `polymarket`
    #[arg(long, env = "PAPERBOURSE_VENUE", default_value = "simulated", value_name = "VENUE")]
    pub venue: VenueChoice,

    /// How fast the venue's time passes: 1 is real time, 10 is ten times as fast; `max` plays a
    /// whole recording before the server is ready [default: 1 for a simulated venue, `max` for a
    /// recorded one]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_SPEED", value_name = "X|max")]
    pub venue_speed: Option<Speed>,

    /// Delay marketable orders as the venue does; a number of milliseconds is the delay in markets
    /// where the venue announces one without its length
    #[arg(hide_short_help = true)]
    #[arg(
        long,
        env = "PAPERBOURSE_VENUE_DELAY",
        default_value = "on",
        value_name = "on|off|MS",
        value_parser = venue_delay
    )]
    pub venue_delay: VenueDelay,

    /// Number of `polymarket` markets to follow, most traded of the day first; a market stays
    /// followed until it closes [default: 200]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_MARKETS", value_name = "N",
          value_parser = whole_number(1..=MARKETS_WANTED_MAX))]
    pub venue_markets: Option<usize>,

    /// Follow only markets with this Gamma tag id; repeatable
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_TAG", value_delimiter = ',', value_name = "ID")]
    pub venue_tag: Vec<String>,

    /// Follow only the market with this slug; repeatable
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_SLUG", value_delimiter = ',', value_name = "SLUG")]
    pub venue_slug: Vec<String>,

    /// Follow only the market with this condition id; repeatable
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_CONDITION", value_delimiter = ',', value_name = "ID")]
    pub venue_condition: Vec<String>,

    /// Follow only markets of the series with this Gamma id, soonest end first; meant for families
    /// of short markets; repeatable
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_SERIES", value_delimiter = ',', value_name = "ID")]
    pub venue_series: Vec<String>,

    /// Follow only markets with at least this many dollars traded in the last 24 hours
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_VOLUME", value_name = "USD", value_parser = dollars)]
    pub venue_volume: Option<Usd>,

    /// How many seconds a `polymarket` book stays live after the venue last confirmed it; nothing
    /// fills on an older one [default: 120]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_FRESH", value_name = "SECONDS",
          value_parser = whole_number(FRESH_SECONDS_MIN..=u32::MAX))]
    pub venue_fresh: Option<u32>,

    /// The addresses of Polymarket's services.
    #[command(flatten)]
    pub addresses: AddressArgs,
}

/// The addresses of Polymarket's services, and which certificates to trust.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Venue")]
pub struct AddressArgs {
    /// Base URL of the Gamma API [default: Polymarket's own]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_GAMMA", value_name = "URL", value_parser = web_address)]
    pub venue_gamma: Option<Uri>,

    /// Base URL of the CLOB API [default: Polymarket's own]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_CLOB", value_name = "URL", value_parser = web_address)]
    pub venue_clob: Option<Uri>,

    /// Base URL of the data API [default: Polymarket's own]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_DATA", value_name = "URL", value_parser = web_address)]
    pub venue_data: Option<Uri>,

    /// URL of the market socket [default: Polymarket's own]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_SOCKET", value_name = "URL",
          value_parser = socket_address)]
    pub venue_socket: Option<Uri>,

    /// PEM file with the only certificate authorities to trust when following `polymarket`
    /// [default: the system's]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_VENUE_CA", value_name = "FILE")]
    pub venue_ca: Option<PathBuf>,
}

/// The delay of marketable orders before they are matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VenueDelay {
    /// The venue's delay.
    On,
    /// The venue's delay, or this many milliseconds in markets where the venue announces a delay
    /// without its length.
    UnstatedMs(u32),
    /// No delay.
    Off,
}

/// The venue, as chosen on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VenueChoice {
    /// Generated markets; the same seed always produces the same prices.
    Simulated {
        /// The seed, which determines every price.
        seed: u64,
    },
    /// The recording in this folder.
    Recorded(PathBuf),
    /// Polymarket, live.
    Polymarket,
}

/// An error for text that is not a venue.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "not a venue: use `simulated`, `simulated:SEED` with a whole number, `recorded:DIR` or \
     `polymarket`"
)]
pub struct VenueChoiceError;

impl FromStr for VenueChoice {
    type Err = VenueChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "simulated" => Ok(Self::Simulated { seed: DEFAULT_SEED }),
            None if text == "polymarket" => Ok(Self::Polymarket),
            Some(("simulated", seed)) => {
                Ok(Self::Simulated { seed: seed.parse().map_err(|_| VenueChoiceError)? })
            }
            Some(("recorded", folder)) if !folder.is_empty() => Ok(Self::Recorded(folder.into())),
            _ => Err(VenueChoiceError),
        }
    }
}

/// Formats the venue as on the command line.
impl fmt::Display for VenueChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simulated { seed } => write!(formatter, "simulated:{seed}"),
            Self::Recorded(folder) => write!(formatter, "recorded:{}", folder.display()),
            Self::Polymarket => formatter.write_str("polymarket"),
        }
    }
}

/// A venue with all its settings.
#[derive(Debug)]
pub enum VenueConfig {
    /// Generated markets.
    Simulated {
        /// The seed, which determines every price.
        seed: u64,
        /// The speed of the venue's time.
        speed: Speed,
    },
    /// A recording.
    Recorded {
        /// The folder of the recording.
        folder: PathBuf,
        /// The speed of the venue's time.
        speed: Speed,
    },
    /// A live venue.
    Live(Box<dyn LiveVenueConfig>),
}

/// The settings for following Polymarket.
#[derive(Clone, Debug)]
pub struct PolymarketConfig {
    /// The addresses of Gamma, the CLOB service, the data API and the market socket.
    pub addresses: [Uri; 4],
    /// File of the certificate authorities to trust; `None` for the system's.
    pub authorities: Option<PathBuf>,
    /// The filter that selects the markets to follow.
    pub filter: MarketFilter,
    /// Intervals and timeouts.
    pub timing: Timing,
}

impl LiveVenueConfig for PolymarketConfig {
    fn addresses(&self) -> Vec<(&'static str, Uri)> {
        let flags = ["--venue-gamma", "--venue-clob", "--venue-data", "--venue-socket"];
        flags.into_iter().zip(self.addresses.clone()).collect()
    }

    fn authorities(&self) -> Option<&Path> {
        self.authorities.as_deref()
    }

    fn open(self: Box<Self>, feed: Feed) -> Result<Box<dyn LiveVenue>, TlsError> {
        let roots = self.authorities.as_deref().map_or(Roots::System, Roots::File);
        let tls = tls::client_config(roots)?;
        let config = LiveConfig::new(self.addresses, tls, self.filter, self.timing);
        Ok(Box::new(Live::new(config, feed)))
    }
}

/// An error for a flag that has no effect on the venue.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("--venue {venue} takes no {flag}: it would have no effect")]
pub struct UselessFlag {
    /// The venue, as given to `--venue`.
    pub venue: VenueChoice,
    /// The flag that has no effect, including the leading dashes.
    pub flag: &'static str,
}

impl VenueArgs {
    /// Returns the configured venue. Fails if a flag has no effect on it.
    pub fn config(&self) -> Result<VenueConfig, UselessFlag> {
        let is_live = self.venue == VenueChoice::Polymarket;
        let useless = [
            ("--venue-speed", is_live && self.venue_speed.is_some()),
            ("--venue-markets", !is_live && self.venue_markets.is_some()),
            ("--venue-tag", !is_live && !self.venue_tag.is_empty()),
            ("--venue-slug", !is_live && !self.venue_slug.is_empty()),
            ("--venue-condition", !is_live && !self.venue_condition.is_empty()),
            ("--venue-series", !is_live && !self.venue_series.is_empty()),
            ("--venue-volume", !is_live && self.venue_volume.is_some()),
            ("--venue-fresh", !is_live && self.venue_fresh.is_some()),
            ("--venue-gamma", !is_live && self.addresses.venue_gamma.is_some()),
            ("--venue-clob", !is_live && self.addresses.venue_clob.is_some()),
            ("--venue-data", !is_live && self.addresses.venue_data.is_some()),
            ("--venue-socket", !is_live && self.addresses.venue_socket.is_some()),
            ("--venue-ca", !is_live && self.addresses.venue_ca.is_some()),
        ];
        if let Some((flag, _)) = useless.into_iter().find(|(_, is_useless)| *is_useless) {
            return Err(UselessFlag { venue: self.venue.clone(), flag });
        }
        Ok(match &self.venue {
            VenueChoice::Simulated { seed } => VenueConfig::Simulated {
                seed: *seed,
                speed: self.venue_speed.unwrap_or(Speed::REAL_TIME),
            },
            VenueChoice::Recorded(folder) => VenueConfig::Recorded {
                folder: folder.clone(),
                speed: self.venue_speed.unwrap_or(Speed::Max),
            },
            VenueChoice::Polymarket => VenueConfig::Live(Box::new(self.polymarket())),
        })
    }

    fn polymarket(&self) -> PolymarketConfig {
        let filter = MarketFilter {
            count_max: self.venue_markets.unwrap_or(MARKETS_DEFAULT),
            tags: self.venue_tag.clone(),
            slugs: self.venue_slug.clone(),
            condition_ids: self.venue_condition.clone(),
            series: self.venue_series.clone(),
            volume_24h_min: self.venue_volume,
        };
        let mut timing = Timing::VENUE;
        if let Some(seconds) = self.venue_fresh {
            timing.verified_max = Duration::from_secs(seconds.into());
            timing.check_after = timing.verified_max / 2;
        }
        PolymarketConfig {
            addresses: self.addresses.addresses(),
            authorities: self.addresses.venue_ca.clone(),
            filter,
            timing,
        }
    }
}

fn venue_delay(text: &str) -> Result<VenueDelay, String> {
    let ms = text.parse().ok().filter(|ms| (1..=TAKER_DELAY_MS_MAX).contains(ms));
    match text {
        "on" => Ok(VenueDelay::On),
        "off" => Ok(VenueDelay::Off),
        _ => ms.map(VenueDelay::UnstatedMs).ok_or_else(|| {
            format!("expected `on`, `off`, or a delay of 1 to {TAKER_DELAY_MS_MAX} ms")
        }),
    }
}

impl AddressArgs {
    /// Returns the addresses of Gamma, the CLOB service, the data API and the market socket, in
    /// this order.
    pub fn addresses(&self) -> [Uri; 4] {
        let address =
            |given: &Option<Uri>, own| given.clone().unwrap_or_else(|| Uri::from_static(own));
        [
            address(&self.venue_gamma, GAMMA),
            address(&self.venue_clob, CLOB),
            address(&self.venue_data, DATA),
            address(&self.venue_socket, SOCKET),
        ]
    }
}

fn web_address(text: &str) -> Result<Uri, &'static str> {
    address_of(text, ["https", "http"]).ok_or("not an address: use https://HOST or http://HOST")
}

fn socket_address(text: &str) -> Result<Uri, &'static str> {
    address_of(text, ["wss", "ws"]).ok_or("not an address: use wss://HOST/PATH or ws://HOST/PATH")
}

fn address_of(text: &str, schemes: [&str; 2]) -> Option<Uri> {
    let address: Uri = text.parse().ok()?;
    let is_known = schemes.contains(&address.scheme_str()?) && address.host().is_some();
    is_known.then_some(address)
}

fn dollars(text: &str) -> Result<Usd, String> {
    let volume = Usd::from_text(text, Rounding::Exact).map_err(|error| error.to_string())?;
    if volume < Usd::ZERO { Err("not 0 or more dollars".to_owned()) } else { Ok(volume) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        venue: VenueArgs,
    }

    fn venue(line: &str) -> Result<VenueArgs, String> {
        let words = std::iter::once("test").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.venue)
    }

    fn config(line: &str) -> Result<VenueConfig, String> {
        venue(line)?.config().map_err(|error| error.to_string())
    }

    #[test]
    fn venues_are_parsed() {
        for (text, expected) in [
            ("simulated", Ok(VenueChoice::Simulated { seed: DEFAULT_SEED })),
            ("simulated:7", Ok(VenueChoice::Simulated { seed: 7 })),
            ("recorded:/a:b", Ok(VenueChoice::Recorded("/a:b".into()))),
            ("polymarket", Ok(VenueChoice::Polymarket)),
            ("recorded:", Err(VenueChoiceError)),
            ("simulated:x", Err(VenueChoiceError)),
            ("kalshi", Err(VenueChoiceError)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
            if let Ok(venue) = expected {
                assert_eq!(venue.to_string().parse(), Ok(venue));
            }
        }
    }

    #[test]
    fn flags_without_effect_are_refused() {
        for (line, expected) in [
            ("--venue-markets 5", "--venue simulated:1 takes no --venue-markets"),
            ("--venue recorded:x --venue-ca y", "--venue recorded:x takes no --venue-ca"),
            ("--venue polymarket --venue-speed 2", "--venue polymarket takes no --venue-speed"),
            ("--venue polymarket --venue-markets 0", "not a whole number from 1 to 5000"),
            ("--venue polymarket --venue-fresh 9", "not a whole number from 10 to"),
            ("--venue polymarket --venue-gamma ws://h", "use https://HOST or http://HOST"),
            ("--venue polymarket --venue-socket https://h", "use wss://HOST/PATH"),
            ("--venue polymarket --venue-volume -1", "not 0 or more dollars"),
        ] {
            let line = line.replace("-volume -1", "-volume=-1");
            let error = config(&line).unwrap_err();
            let seed = format!("simulated:{DEFAULT_SEED}");
            assert!(error.contains(&expected.replace("simulated:1", &seed)), "{line}: {error}");
        }
    }

    #[test]
    fn marketable_orders_are_delayed_unless_that_is_turned_off() {
        for (line, expected) in [
            ("", Ok(VenueDelay::On)),
            ("--venue-delay on", Ok(VenueDelay::On)),
            ("--venue-delay off", Ok(VenueDelay::Off)),
            ("--venue polymarket --venue-delay off", Ok(VenueDelay::Off)),
            ("--venue-delay 250", Ok(VenueDelay::UnstatedMs(250))),
            ("--venue-delay 10000", Ok(VenueDelay::UnstatedMs(10_000))),
            ("--venue-delay 10001", Err(())),
            ("--venue-delay 0", Err(())),
            ("--venue-delay soon", Err(())),
        ] {
            assert_eq!(venue(line).map(|it| it.venue_delay).map_err(drop), expected, "{line}");
        }
    }

    #[track_caller]
    fn polymarket(line: &str) -> PolymarketConfig {
        match config(line) {
            Ok(VenueConfig::Live(_)) => venue(line).unwrap().polymarket(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn addresses_default_to_polymarket() {
        let config = polymarket("--venue polymarket");
        let hosts = config.addresses.map(|address| address.host().unwrap().to_owned());
        assert!(hosts.iter().all(|host| host.ends_with(".polymarket.com")), "{hosts:?}");
        assert_eq!((config.filter.count_max, config.timing.verified_max.as_secs()), (200, 120));
        assert!(config.authorities.is_none());

        let config = polymarket(
            "--venue polymarket --venue-markets 3 --venue-tag 1,2 --venue-tag 3 \
             --venue-slug s --venue-condition 0xa --venue-volume 5.5 --venue-fresh 30 \
             --venue-series 7,8 \
             --venue-gamma http://127.0.0.1:1 --venue-socket ws://[::1]:2/ws",
        );
        assert_eq!(config.addresses[0], "http://127.0.0.1:1/");
        assert_eq!(config.addresses[3], "ws://[::1]:2/ws");
        assert_eq!(config.filter.tags, ["1", "2", "3"]);
        assert_eq!(config.filter.series, ["7", "8"]);
        assert_eq!((&*config.filter.slugs[0], &*config.filter.condition_ids[0]), ("s", "0xa"));
        assert_eq!(config.filter.volume_24h_min, Some(Usd::from_micros(5_500_000)));
        let Timing { verified_max, check_after, .. } = config.timing;
        assert_eq!((verified_max.as_secs(), check_after.as_secs()), (30, 15));
    }
}
