//! The options of `paperbourse record`: the venue, the output folder and the size limits.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::bytes::bytes;
use super::logs::LogArgs;
use super::venue::VenueArgs;
use super::whole_number;
use crate::venue::tape::TapeLimits;

/// Minimum of `--rotate-bytes`, which bounds the number of files.
const ROTATE_BYTES_MIN: u64 = 64 << 10;

/// Minimum of `--out-bytes-max`.
const OUT_BYTES_MIN: u64 = 64 << 10;

/// Default size at which a new file is started.
const ROTATE_BYTES_DEFAULT: &str = "64M";

/// Default age at which a new file is started, in seconds.
const ROTATE_SECONDS_DEFAULT: u32 = 3_600;

/// Default size limit of the whole tape.
const OUT_BYTES_DEFAULT: &str = "10G";

/// The options of `paperbourse record`.
#[derive(Args, Clone, Debug)]
pub struct RecordArgs {
    /// Folder for the tape, created if missing; a tape already there is continued
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// How many seconds to record [default: until SIGINT or SIGTERM]
    #[arg(long, value_name = "SECONDS", value_parser = whole_number(1..=u32::MAX))]
    pub duration: Option<u32>,

    /// Start a new file after this many bytes
    #[arg(long, value_name = "BYTES", default_value = ROTATE_BYTES_DEFAULT,
          value_parser = bytes(ROTATE_BYTES_MIN..=u64::MAX))]
    pub rotate_bytes: u64,

    /// Start a new file after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = ROTATE_SECONDS_DEFAULT,
          value_parser = whole_number(1..=u32::MAX))]
    pub rotate_seconds: u32,

    /// Stop when the whole tape reaches this many bytes, including what was there before
    #[arg(long, value_name = "BYTES", default_value = OUT_BYTES_DEFAULT,
          value_parser = bytes(OUT_BYTES_MIN..=u64::MAX))]
    pub out_bytes_max: u64,

    /// Which venue to record.
    #[command(flatten)]
    pub venue: VenueArgs,

    /// What is logged.
    #[command(flatten)]
    pub logs: LogArgs,
}

impl RecordArgs {
    /// Returns the size limits of the tape and its files.
    pub fn limits(&self) -> TapeLimits {
        TapeLimits {
            rotate_bytes: self.rotate_bytes,
            rotate_after: Duration::from_secs(self.rotate_seconds.into()),
            bytes_max: self.out_bytes_max,
            ..TapeLimits::default()
        }
    }
}
