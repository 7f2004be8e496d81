//! Tokens of an OIDC provider, verified with the keys that it publishes.
//!
//! Requests read the newest good keys through one pointer, without locking or waiting. A single
//! task replaces them, on a schedule and when a token names an unknown key. If the provider fails,
//! the last good keys stay in use. Only a request whose token names an unknown key may wait for
//! that task, and only briefly.

pub mod discovery;
pub mod key_set;
mod refresh;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jsonwebtoken::Validation;

use self::discovery::{FetchError, IssuerUrl};
use self::key_set::{KeySet, SignatureAlgorithm};
use self::refresh::Refresh;
use super::tier_claim::TierClaim;
use super::{TokenError, TokenFlaw, VerifiedIdentity, token};
use paperbourse_core::ids::Timestamp;

/// Maximum time that a request waits for keys that may be on their way.
pub const WAIT_MAX: Duration = Duration::from_secs(2);

/// An OIDC provider and its known keys.
pub struct OidcIssuer {
    url: IssuerUrl,
    /// The checks for each algorithm, in the order of [`SignatureAlgorithm::ALL`].
    validations: [Validation; SignatureAlgorithm::ALL.len()],
    tier_claim: Option<TierClaim>,
    /// The last good keys; `None` before the first fetch succeeds.
    keys: ArcSwapOption<KeySet>,
    refresh: Refresh,
}

impl OidcIssuer {
    /// Creates an issuer at this address, without keys.
    pub fn new(url: IssuerUrl, audience: &str, tier_claim: Option<TierClaim>) -> Self {
        let validations = SignatureAlgorithm::ALL
            .map(|algorithm| token::validation(algorithm.of_library(), url.as_str(), audience));
        let keys = ArcSwapOption::empty();
        Self { url, validations, tier_claim, keys, refresh: Refresh::new() }
    }

    /// Verifies a token at the time `now`, with the keys known so far.
    pub fn verify(&self, text: &str, now: Timestamp) -> Result<VerifiedIdentity, TokenError> {
        let header = token::read_header(text)?;
        let keys = self.keys.load();
        let Some(keys) = &*keys else {
            return Err(self.unavailable());
        };
        let Some(public) = keys.find(header.kid.as_deref()) else {
            return Err(TokenFlaw::UnknownKey.into());
        };
        let validation = &self.validations[public.algorithm as usize];
        token::verify(text, &public.key, validation, self.tier_claim.as_ref(), now)
    }

    /// Verifies like [`Self::verify`]. If newer keys could change the outcome, waits at most
    /// [`WAIT_MAX`] for a fetch. Triggers the fetch itself if none is running and none was
    /// triggered recently.
    ///
    /// One fetch serves any number of concurrent requests.
    pub async fn verify_with_newer_keys(
        &self,
        text: &str,
        now: Timestamp,
    ) -> Result<VerifiedIdentity, TokenError> {
        let seen = self.refresh.seen();
        // Keys may have arrived before `seen` was taken, so check once more before waiting.
        let verified = self.verify(text, now);
        if !verified.as_ref().is_err_and(TokenError::may_pass_with_newer_keys) {
            return verified;
        }
        self.refresh.wait(seen, WAIT_MAX).await;
        match self.verify(text, now) {
            // The provider did not respond, so it may or may not know this key.
            Err(TokenError::Invalid(TokenFlaw::UnknownKey)) if self.refresh.is_undecided() => {
                Err(self.unavailable())
            }
            verified => verified,
        }
    }

    /// Waits until there are keys, which [`Self::keep_fresh`] fetches.
    pub async fn ready(&self) {
        loop {
            let seen = self.refresh.seen();
            if self.keys.load().is_some() {
                return;
            }
            seen.ended().await;
        }
    }

    /// Keeps the keys fresh by calling `fetch`, for as long as this future is polled.
    pub async fn keep_fresh<F>(&self, fetch: impl Fn() -> F)
    where
        F: Future<Output = Result<KeySet, FetchError>>,
    {
        loop {
            self.refresh.begin();
            let fetched = fetch().await;
            self.refresh.end(self.replace(fetched));
            self.refresh.pause().await;
        }
    }

    /// Installs fetched keys; returns whether the fetch succeeded.
    fn replace(&self, fetched: Result<KeySet, FetchError>) -> bool {
        match fetched {
            Ok(keys) => {
                let keys = Arc::new(keys);
                let before = self.keys.swap(Some(keys.clone()));
                let is_new = before.is_none_or(|before| !keys.has_names_of(&before));
                if is_new || self.refresh.has_failed() {
                    tracing::info!(
                        url = %self.url,
                        keys = keys.key_count(),
                        unusable = keys.passed_over(),
                        "fetched the keys of the OIDC provider"
                    );
                }
                true
            }
            Err(error) => {
                let consequence = if self.keys.load().is_some() {
                    "the known keys stay in use"
                } else {
                    "access tokens get 503 until it works; API keys are not affected"
                };
                tracing::warn!(
                    url = %self.url,
                    %error,
                    "failed to fetch the keys of the OIDC provider: {consequence}"
                );
                false
            }
        }
    }

    fn unavailable(&self) -> TokenError {
        TokenError::Unavailable { retry_after_seconds: self.refresh.seconds_until_next() }
    }
}

impl fmt::Debug for OidcIssuer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OidcIssuer").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
