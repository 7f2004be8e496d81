//! Tokens of an OIDC provider, verified under the keys that it publishes.
//!
//! Requests read the newest good keys through one pointer, without locking or waiting. One task
//! replaces them, on a schedule and when a token names an unknown key. If the provider fails, the
//! last good keys stay in use. Only a request whose token names an unknown key may wait for that
//! task, and only briefly.

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

/// How long a request waits for keys that may be on their way.
pub const WAIT_MAX: Duration = Duration::from_secs(2);

/// A provider, and its keys as far as they are known.
pub struct OidcIssuer {
    url: IssuerUrl,
    /// One per algorithm, in the order of [`SignatureAlgorithm::ALL`].
    validations: [Validation; SignatureAlgorithm::ALL.len()],
    tier_claim: Option<TierClaim>,
    /// The last good keys; `None` before the first fetch succeeds.
    keys: ArcSwapOption<KeySet>,
    refresh: Refresh,
}

impl OidcIssuer {
    /// An issuer at this address, without keys yet.
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

    /// Like [`Self::verify`], but if newer keys could change the outcome, requests them, unless
    /// that happened recently, and waits for them, at most [`WAIT_MAX`].
    ///
    /// One fetch serves any number of concurrent requests.
    pub async fn verify_with_newer_keys(
        &self,
        text: &str,
        now: Timestamp,
    ) -> Result<VerifiedIdentity, TokenError> {
        let seen = self.refresh.seen();
        // Keys may have arrived before that: look again before waiting.
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

    /// Resolves once there are keys, which [`Self::keep_fresh`] fetches.
    pub async fn ready(&self) {
        loop {
            let seen = self.refresh.seen();
            if self.keys.load().is_some() {
                return;
            }
            seen.ended().await;
        }
    }

    /// Keeps the keys fresh with what `fetch` returns, for as long as it is polled.
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
