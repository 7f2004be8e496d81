//! Waits for the markets and books of a live venue and for the keys of an identity provider, before
//! a running server is asked to hand over. That server keeps serving meanwhile.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::auth::identity::IdentitySource;
use crate::venue::follow::freshness::Freshness;
use crate::venue::follow::status::LiveStatus;
use crate::venue::live::LiveVenue;

/// Maximum time to wait for other services before the take-over proceeds anyway.
const READY_TIME_MAX: Duration = Duration::from_secs(10);

/// Interval at which the state of the books is checked.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Share of the followed books that must be live, in percent. A venue may have no book for some
/// tokens.
const LIVE_PERCENT_MIN: usize = 95;

/// Waits for the venue's books and the provider's keys, but no longer than [`READY_TIME_MAX`].
pub(super) async fn get_ready(live: &mut Option<Box<dyn LiveVenue>>, identity: &IdentitySource) {
    let status = live.as_ref().map(|live| live.status());
    let waited = async {
        let books = timeout(READY_TIME_MAX, until_live(status));
        let keys = timeout(READY_TIME_MAX, identity.ready());
        tokio::join!(books, keys)
    };
    let (books, keys) = following(live, waited).await;
    if books.is_err() {
        tracing::warn!(
            after_seconds = READY_TIME_MAX.as_secs(),
            "the venue has not sent its books in time: taking over all the same. Until it has, \
             its markets are not listed or take no orders"
        );
    }
    if keys.is_err() {
        tracing::warn!(
            after_seconds = READY_TIME_MAX.as_secs(),
            "the OIDC provider has not sent its keys in time: taking over all the same. Until it \
             has, access tokens get 503"
        );
    }
}

/// Runs `other` to completion while following the venue.
pub(super) async fn following<T>(
    live: &mut Option<Box<dyn LiveVenue>>,
    other: impl Future<Output = T>,
) -> T {
    let Some(live) = live else { return other.await };
    tokio::select! {
        () = live.run() => unreachable!("a live venue is followed for ever"),
        done = other => done,
    }
}

async fn until_live(status: Option<LiveStatus>) {
    let Some(status) = status else { return };
    while !are_live(&status) {
        sleep(LOOK_INTERVAL).await;
    }
}

fn are_live(status: &LiveStatus) -> bool {
    let snapshot = status.get();
    let counts = snapshot.tokens;
    let live_count = counts[Freshness::Live as usize];
    let followed_count = counts.iter().sum::<usize>() - counts[Freshness::Closed as usize];
    if followed_count == 0 {
        // Either no market passes the filter, or the venue has yet to answer.
        return snapshot.is_listed;
    }
    100 * live_count >= LIVE_PERCENT_MIN * followed_count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::venue::follow::status::LiveSnapshot;

    #[test]
    fn books_are_there_once_nearly_all_are_live_or_the_list_is_empty() {
        for (is_listed, tokens, expected) in [
            (false, [0, 0, 0, 0, 0], false),
            (true, [0, 0, 0, 0, 0], true),
            (true, [0, 0, 0, 0, 2], true),
            (true, [2, 0, 0, 0, 0], false),
            (true, [6, 94, 0, 0, 0], false),
            (true, [2, 95, 1, 2, 9], true),
            (false, [0, 2, 0, 0, 0], true),
        ] {
            let status = LiveStatus::default();
            status.set(LiveSnapshot { is_listed, tokens, ..LiveSnapshot::default() });
            assert_eq!(are_live(&status), expected, "{is_listed} {tokens:?}");
        }
    }
}
