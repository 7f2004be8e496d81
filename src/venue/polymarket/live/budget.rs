//! The request budget of one service of the venue. It stays well below the service's own limit, and
//! pauses after the service answers that the rate was too high, that access is forbidden, or that
//! it is restarting or failing.

use std::time::Duration;

use hyper::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::ClientError;
use crate::follow::timing::Refusals;
use paperbourse_core::limits::bucket::{BucketRule, TokenBucket};

/// Maximum pause after a refusal.
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// The request budget of one service.
pub(super) struct Budget {
    began: Instant,
    refusals: Refusals,
    state: Mutex<State>,
}

struct State {
    bucket: TokenBucket,
    paused_until: Option<Instant>,
    /// Number of consecutive refusals.
    refusal_count: u32,
}

impl Budget {
    pub(super) fn new(rule: BucketRule, refusals: Refusals) -> Self {
        let state = State { bucket: TokenBucket::new(rule), paused_until: None, refusal_count: 0 };
        Self { began: Instant::now(), refusals, state: Mutex::new(state) }
    }

    /// Waits until another request may be sent, and counts that request.
    pub(super) async fn ready(&self) {
        while let Some(at) = self.draw(Instant::now()) {
            tokio::time::sleep_until(at).await;
        }
    }

    /// Counts a request, or returns the time at which to try again.
    fn draw(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        if let Some(until) = state.paused_until.filter(|&until| now < until) {
            return Some(until);
        }
        let elapsed = now.saturating_duration_since(self.began);
        let draw = state.bucket.draw(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
        (!draw.is_admitted).then(|| now + Duration::from_nanos(draw.wait_ns))
    }

    /// Records the outcome of a request. Returns the pause if the request was refused.
    pub(super) fn note<T>(&self, result: &Result<T, ClientError>) -> Option<Duration> {
        let mut state = self.state.lock();
        let Err(ClientError::Status { status, retry_after }) = result else {
            state.refusal_count = 0;
            return None;
        };
        let first_pause = match *status {
            StatusCode::TOO_MANY_REQUESTS => self.refusals.rate_limited,
            StatusCode::FORBIDDEN => self.refusals.forbidden,
            StatusCode::TOO_EARLY => self.refusals.restarting,
            status if status.is_server_error() => self.refusals.failing,
            _ => return None,
        };
        let backoff = first_pause.saturating_mul(1 << state.refusal_count.min(8));
        state.refusal_count = state.refusal_count.saturating_add(1);
        let pause = retry_after.unwrap_or(backoff).min(PAUSE_MAX);
        // Requests that were sent together may be refused one after the other. A short pause of the
        // second does not end a long one of the first.
        state.paused_until = state.paused_until.max(Some(Instant::now() + pause));
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::timing::Timing;

    fn budget(per_second: u32, burst: u32) -> Budget {
        let rule = BucketRule::per_second(per_second, burst).unwrap();
        Budget::new(rule, Timing::VENUE.refusals)
    }

    fn refused(status: u16, retry_after: Option<u64>) -> Result<(), ClientError> {
        Err(ClientError::Status {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: retry_after.map(Duration::from_secs),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_spread_out() {
        let budget = budget(2, 3);
        let began = Instant::now();
        for _ in 0..7 {
            budget.ready().await;
        }
        assert_eq!(began.elapsed().as_millis(), 2_000, "three at once, four at two a second");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pause_outlasts_a_shorter_one() {
        let budget = budget(1000, 1000);
        let began = Instant::now();
        budget.note(&refused(429, Some(60)));
        let pause = budget.note(&refused(502, Some(1)));
        assert_eq!(pause, Some(Duration::from_secs(1)), "that of the second answer alone");
        budget.ready().await;
        assert_eq!(began.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_pauses_requests() {
        for (answers, pause_seconds) in [
            (&[refused(429, None)][..], Some(10)),
            (&[refused(429, None), refused(429, None)], Some(20)),
            (&[refused(429, None), Ok(()), refused(429, None)], Some(10)),
            (&[refused(429, Some(7))], Some(7)),
            (&[refused(429, Some(1_000_000))], Some(300)),
            (&[refused(403, None)], Some(30)),
            (&[refused(425, None)], Some(5)),
            (&[refused(502, None)], Some(1)),
            (&[refused(404, None)], None),
            (&[Ok(())], None),
            (&[Err(ClientError::TooLong { bytes_max: 1 })], None),
        ] {
            let budget = budget(1000, 1000);
            let pause = answers.iter().map(|answer| budget.note(answer)).last().unwrap();
            assert_eq!(pause.map(|pause| pause.as_secs()), pause_seconds, "{answers:?}");
            let began = Instant::now();
            budget.ready().await;
            assert_eq!(began.elapsed().as_secs(), pause_seconds.unwrap_or(0), "{answers:?}");
        }
    }
}
