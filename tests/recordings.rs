//! The recorded venue on real recordings, where they are at hand, and on invented ones always.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use paperbourse::market::catalogue::{Fees, MarketStatus};
use paperbourse::market::{MarketSnapshot, Markets};
use paperbourse::venue::VenueChange;
use paperbourse::venue::feed::{BookHasher, Feed, FeedCounts, HashedBook, MismatchPolicy};
use paperbourse::venue::polymarket::wire::clob::{self, LastTradePrice};
use paperbourse::venue::recorded::{LoadReport, NotPlayable, Player, Recording, Speed};

/// Where the recordings are, or a loud word that they are not.
fn recordings() -> Option<PathBuf> {
    let path = std::env::var_os("PAPERBOURSE_RECORDINGS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/polymarket"),
        PathBuf::from,
    );
    if !path.is_dir() {
        eprintln!("SKIPPED: no recordings at {}; set PAPERBOURSE_RECORDINGS", path.display());
        return None;
    }
    Some(path)
}

fn play(directory: &Path) -> (Player, LoadReport) {
    let (recording, report) = Recording::load(directory).unwrap();
    let feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Count);
    (recording.play(Speed::Max, feed), report)
}

#[test]
fn debug_report() {
    let Some(directory) = recordings() else { return };
    let (player, report) = play(&directory);
    println!("{report}");
    for f in &report.not_playable {
        println!("{f}");
    }
    for f in &report.malformed {
        println!("{f}");
    }
    println!("{} {:?}", player.feed().counts(), player.feed().counts());
}
