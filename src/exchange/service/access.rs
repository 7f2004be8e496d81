//! Identifies callers and limits how often they may call.

mod limits;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) use limits::AccessLimits;
use limits::require_drawn;

use super::rate_rule::RateRule;
use super::{Keys, Limits, Moment, RequestContext, Service, ServiceError};
use crate::auth::api_key::{KeyFlaw, KeyHash};
use crate::auth::identity::{TokenError, TokenFlaw, identity_digest};
use crate::auth::key_table::{Authenticated, KeyEntry, KeyError, KeyFacts};
use crate::auth::last_key::LastKey;
use crate::auth::policy::{Actor, PolicyError};
use crate::auth::presented::Presented;
use crate::auth::wallet::WalletError;
use crate::auth::ws_token::WsHolder;
use paperbourse_core::engine::State;
use paperbourse_core::engine::command::{Identity, Owner};
use paperbourse_core::engine::key::Permission;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::{AccountId, KeyId, Timestamp};
use paperbourse_core::limits::bucket::Draw;
use paperbourse_core::limits::tier::{Tier, TierTable};
use paperbourse_core::limits::window::{Decision, KeyLimiter};

/// Maximum number of limiters kept for access tokens, one for each identity and tier. When the map
/// is full, idle limiters are dropped; if none is idle, a new identity is rate limited.
const TOKEN_LIMITERS_MAX: usize = 100_000;

/// The sender of a request, as far as its credential identifies it.
#[derive(Clone)]
pub enum Caller {
    /// A caller without a credential.
    Anonymous,
    /// The holder of a key.
    Key(KeyCaller),
    /// The bearer of an access token.
    Token(TokenCaller),
}

/// The holder of a key.
#[derive(Clone)]
pub struct KeyCaller {
    pub(super) key: Authenticated,
    /// The decision about the request, if it was counted when the key was looked up.
    pub(super) decision: Option<Decision>,
}

/// The wallet that a request names. An account has one wallet, with the account's id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wallet {
    /// The caller's own wallet.
    Own,
    /// The wallet with this id; `None` stands for text that cannot be an id.
    WithId(Option<AccountId>),
}

/// The bearer of an access token.
#[derive(Clone)]
pub struct TokenCaller {
    /// The identity that the token names.
    pub identity: Identity,
    /// The highest tier that the bearer may give a key. This is the tier of the token, unless an
    /// operator has given the account another one. Requests are limited by the token's tier in
    /// either case.
    pub entitled_tier: Tier,
    /// The time from which the token is refused.
    pub(super) ends_at: Timestamp,
    /// The bearer's account, if there is one. Filled in by [`Service::find_account`].
    account: Option<AccountId>,
    limiter: Arc<KeyLimiter>,
}

/// The authenticated opener of a socket.
#[derive(Clone)]
pub struct SocketCaller {
    /// The account that the socket belongs to.
    pub account: AccountId,
    /// The tier that caps the account's sockets.
    pub tier: Tier,
    credential: SocketCredential,
}

/// The credential that keeps a socket open.
#[derive(Clone)]
enum SocketCredential {
    Key(Arc<KeyEntry>),
    AccessToken {
        /// The time from which the access token is refused.
        ends_at: Timestamp,
        /// The key table, which records whether the account was erased.
        keys: Arc<Keys>,
    },
}

impl SocketCaller {
    pub(super) fn by_key(key: Arc<KeyEntry>) -> Result<Self, ServiceError> {
        key.facts().actor().require(Permission::Read).map_err(Denied::from)?;
        let facts = key.facts();
        let (account, tier) = (facts.account_id, facts.tier);
        Ok(Self { account, tier, credential: SocketCredential::Key(key) })
    }

    /// Whether the credential is still valid. Open sockets check this periodically.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        match &self.credential {
            SocketCredential::Key(key) => key.check(now).is_ok(),
            SocketCredential::AccessToken { ends_at, keys } => {
                now < *ends_at && !keys.is_erased(self.account)
            }
        }
    }
}

/// The reason why a caller is denied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Denied {
    /// The operation requires a credential.
    #[error("a credential is required: send X-API-Key, or Authorization: Bearer with a key")]
    MissingCredential,
    /// The API key is unknown, revoked or expired.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The text sent as an API key cannot be one.
    #[error("not an API key: {0}")]
    NotAKey(KeyFlaw),
    /// The access token does not prove an identity.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The credentials of a wallet do not prove that it calls.
    #[error(transparent)]
    Wallet(#[from] WalletError),
    /// The token in the socket's URL is invalid or expired.
    #[error("the socket token is not valid")]
    SocketToken,
    /// The operation accepts only API keys.
    #[error("an access token is not accepted here; use an API key, which POST /v1/keys makes")]
    TokenNotAccepted,
    /// The key was rotated, so it may not create, rotate or rename keys.
    #[error("the API key was rotated: use the one that took its place")]
    Rotated,
    /// The credential lacks a permission, or may not grant what was requested.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The caller exceeded a rate limit.
    #[error("rate limit exceeded")]
    TooOften {
        /// The exceeded limit.
        rule: RateRule,
        /// Time until a request is certain to pass, in nanoseconds.
        wait_ns: u64,
        /// Number of requests that the tier allows, if the limit belongs to a tier.
        allowed: Option<u32>,
    },
}

/// The state of a caller's rate limits, as reported in the answer.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// The tier that sets the limits.
    pub tier: Tier,
    /// Whether the request was admitted, and the allowance that is left.
    pub decision: Decision,
    /// The key that the caller authenticated with; `None` for an access token.
    pub key_id: Option<KeyId>,
}

/// The rate-limited things that an operation creates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Makes {
    /// Whether the operation opens an account if the bearer of an access token has none.
    pub account: bool,
    /// Whether the operation creates a key, possibly by rotation.
    pub key: bool,
}

impl KeyCaller {
    /// Returns the facts about the key.
    pub fn facts(&self) -> KeyFacts {
        self.key.facts
    }
}

impl Caller {
    /// Returns the owner of the account that this caller's writes act on.
    pub(super) fn owner(&self) -> Result<Owner, Denied> {
        match self {
            Self::Anonymous => Err(Denied::MissingCredential),
            Self::Key(key) => Ok(Owner::Account(key.facts().account_id)),
            Self::Token(token) => Ok(Owner::Identity(token.identity.clone())),
        }
    }

    /// Returns the caller's account. Fails if the bearer of an access token has none yet.
    pub fn account(&self) -> Result<AccountId, ServiceError> {
        match self {
            Self::Anonymous => Err(Denied::MissingCredential.into()),
            Self::Key(key) => Ok(key.facts().account_id),
            Self::Token(token) => token.account.ok_or_else(|| Rejection::AccountNotFound.into()),
        }
    }

    /// Returns the caller's rights, or `None` for an anonymous caller.
    pub fn actor(&self) -> Option<Actor> {
        match self {
            Self::Anonymous => None,
            Self::Key(key) => Some(key.facts().actor()),
            Self::Token(token) => Some(Actor::Token { entitled_tier: token.entitled_tier }),
        }
    }

    /// Returns the tier that sets the caller's caps.
    pub fn tier(&self) -> Tier {
        self.actor().map_or(Tier::Free, Actor::tier)
    }

    /// Returns the key that the caller authenticated with, if any.
    pub fn key_id(&self) -> Option<KeyId> {
        match self {
            Self::Key(key) => Some(key.facts().key_id),
            Self::Anonymous | Self::Token(_) => None,
        }
    }

    /// Refuses a key without `admin` that tries to manage a key other than itself.
    pub(super) fn require_control_of(&self, key: Option<KeyId>) -> Result<(), Denied> {
        match self.key_id() {
            Some(own) if Some(own) != key => self.require(Permission::Admin),
            _ => Ok(()),
        }
    }

    /// Refuses to show any wallet but the caller's own.
    pub fn require_own(&self, wallet: Wallet) -> Result<(), ServiceError> {
        match wallet {
            Wallet::Own => Ok(()),
            Wallet::WithId(id) if id == Some(self.account()?) => Ok(()),
            Wallet::WithId(_) => Err(ServiceError::WalletNotFound),
        }
    }

    /// Refuses a caller without this permission.
    pub fn require(&self, needed: Permission) -> Result<(), Denied> {
        let actor = self.actor().ok_or(Denied::MissingCredential)?;
        Ok(actor.require(needed)?)
    }
}

impl Service {
    /// Identifies the caller. A wrong credential is refused even where none is needed, and an
    /// address that sends too many wrong ones is rate limited. Valid credentials are exempt from
    /// this limit.
    ///
    /// This waits only to fetch newer keys of a token's issuer, when the known ones cannot verify
    /// the token. A request with an API key never waits.
    pub async fn identify(
        &self,
        presented: &Presented<'_>,
        address: IpAddr,
        moment: Moment,
    ) -> Result<Caller, Denied> {
        self.identify_for(presented, &LastKey::default(), false, address, moment).await
    }

    /// Identifies the caller like [`Self::identify`], on a connection with this `last_key`. If the
    /// request `counts` against the limits of a key, it is decided in the same lookup that finds
    /// the key, and [`Self::admit`] returns that decision.
    pub async fn identify_for(
        &self,
        presented: &Presented<'_>,
        last_key: &LastKey,
        counts: bool,
        address: IpAddr,
        moment: Moment,
    ) -> Result<Caller, Denied> {
        let caller = match presented {
            Presented::Nothing => return Ok(Caller::Anonymous),
            Presented::Key(text) => {
                let found = self.identify_key(text, last_key, counts, moment);
                found.map_err(|denied| match KeyFlaw::of(text) {
                    Some(flaw) if denied == Denied::Key(KeyError::Unknown) => Denied::NotAKey(flaw),
                    _ => denied,
                })
            }
            Presented::Token(token) => self.identify_token(token, moment).await,
            Presented::Unreadable => Err(TokenError::Invalid(TokenFlaw::Scheme).into()),
        };
        caller.map_err(|denied| self.count_failure(denied, address, moment))
    }

    fn identify_key(
        &self,
        text: &[u8],
        last_key: &LastKey,
        counts: bool,
        moment: Moment,
    ) -> Result<Caller, Denied> {
        let (key, decision) = if counts {
            let hash = last_key.hash_of(text).ok_or(KeyError::Unknown)?;
            let (key, decision) = self.keys.admit(hash, moment.now, moment.monotonic_ns)?;
            (key, Some(decision))
        } else {
            (self.keys.authenticate(text, moment.now)?, None)
        };
        Ok(Caller::Key(KeyCaller { key, decision }))
    }

    /// Refuses a credential that was revoked or has expired since it was authenticated.
    pub fn require_valid(&self, caller: &Caller, now: Timestamp) -> Result<(), Denied> {
        match caller {
            Caller::Key(key) => Ok(self.keys.check(&key.key.hash, now)?),
            Caller::Token(TokenCaller { ends_at, .. }) if now >= *ends_at => {
                Err(TokenError::Expired { expired_at: *ends_at }.into())
            }
            Caller::Anonymous | Caller::Token(_) => Ok(()),
        }
    }

    /// Refuses a caller whose account was erased after the request found it. The caller's next
    /// request finds no account, or opens another one.
    pub fn require_unerased(&self, caller: &Caller) -> Result<(), ServiceError> {
        if self.keys.is_erased(caller.account()?) {
            return Err(Rejection::AccountNotFound.into());
        }
        Ok(())
    }

    /// Refuses a rotated key: until it expires it may not create, rotate or rename keys.
    pub fn require_unrotated(&self, caller: &Caller) -> Result<(), Denied> {
        let Caller::Key(key) = caller else { return Ok(()) };
        let entry = self.keys.get(&key.key.hash).ok_or(KeyError::Revoked)?;
        match entry.expires_at() {
            Some(_) => Err(Denied::Rotated),
            None => Ok(()),
        }
    }

    /// Counts a wrong credential against the address. Returns `denied`, or [`Denied::TooOften`]
    /// once the address has exhausted its bucket.
    pub(super) fn count_failure(&self, denied: Denied, address: IpAddr, moment: Moment) -> Denied {
        // An unresponsive issuer is not the caller's fault.
        if matches!(denied, Denied::Token(TokenError::Unavailable { .. })) {
            return denied;
        }
        match self.access.failed(address, moment) {
            Some(Draw { is_admitted: false, wait_ns, .. }) => {
                Denied::TooOften { rule: RateRule::Failures, wait_ns, allowed: None }
            }
            _ => denied,
        }
    }

    async fn identify_token(&self, token: &str, moment: Moment) -> Result<Caller, Denied> {
        let verified = match self.issuer.verify(token, moment.now) {
            // Boxed, so that the futures of other requests reserve no space for it.
            Err(error) if error.may_pass_with_newer_keys() => {
                Box::pin(self.issuer.verify_with_newer_keys(token, moment.now)).await?
            }
            verified => verified?,
        };
        let entitled_tier = verified.entitled_tier.unwrap_or_else(|| self.default_tier());
        let ends_at = verified.refused_from();
        let identity = Identity {
            digest: identity_digest(&verified.issuer, &verified.subject),
            issuer: verified.issuer.into(),
            subject: verified.subject.into(),
        };
        let limiter = self.token_limiter(&identity, entitled_tier, moment)?;
        let account = None;
        Ok(Caller::Token(TokenCaller { identity, entitled_tier, ends_at, account, limiter }))
    }

    /// Looks up the account of an access token's bearer. If an operator has given the account a
    /// tier, it replaces the token's. Must be called before any use case.
    pub async fn find_account(
        &self,
        caller: &mut TokenCaller,
        context: RequestContext<'_>,
    ) -> Result<(), ServiceError> {
        let digest = caller.identity.digest;
        let find = move |state: &State| state.observe_owner(&digest);
        let found = self.shards.observe(caller.identity.shard(), context.waiters, find).await?;
        if let Some((account, tier)) = found {
            caller.account = Some(account);
            caller.entitled_tier = tier.unwrap_or(caller.entitled_tier);
        }
        Ok(())
    }

    /// Identifies the opener of a socket by the token in the URL, or by a credential if there is no
    /// token. The credential must be a key with permission to read. A socket token was requested
    /// with such a key or with an access token. Each call counts against the account's limit; a
    /// failure counts against the address instead.
    pub async fn identify_socket(
        &self,
        token: Option<&str>,
        presented: &Presented<'_>,
        context: RequestContext<'_>,
    ) -> Result<SocketCaller, ServiceError> {
        let count_failure = |denied| self.count_failure(denied, context.address, context.moment);
        let caller = match token {
            Some(token) => self.find_socket_caller(token, context).await,
            None => match self.identify(presented, context.address, context.moment).await? {
                Caller::Key(key) => {
                    let entry = self.keys.get(&key.key.hash);
                    SocketCaller::by_key(entry.ok_or(Denied::Key(KeyError::Revoked))?)
                }
                Caller::Anonymous | Caller::Token(_) => Err(Denied::MissingCredential.into()),
            },
        };
        let caller = caller.map_err(|error| match error {
            ServiceError::Denied(denied) => count_failure(denied).into(),
            other => other,
        })?;
        self.access.admit_socket(caller.account, context.moment)?;
        Ok(caller)
    }

    /// Returns the holder of this socket token, if the credential behind it is still valid.
    async fn find_socket_caller(
        &self,
        token: &str,
        context: RequestContext<'_>,
    ) -> Result<SocketCaller, ServiceError> {
        let grant = self.ws_tokens.verify(token, context.moment.now);
        let grant = grant.map_err(|_| Denied::SocketToken)?;
        let key_id = match grant.holder {
            WsHolder::Key(key_id) => key_id,
            WsHolder::AccessToken { ends_at } => {
                let credential = SocketCredential::AccessToken { ends_at, keys: self.keys.clone() };
                let (account, tier) = (grant.account_id, grant.tier);
                let caller = SocketCaller { account, tier, credential };
                let is_valid = caller.is_valid(context.moment.now);
                return if is_valid { Ok(caller) } else { Err(Denied::SocketToken.into()) };
            }
        };
        let hash = self
            .shards
            .observe(key_id.shard(), context.waiters, move |state| state.observe_key_hash(key_id))
            .await?;
        let key = hash.and_then(|hash| self.keys.get(&KeyHash::from_bytes(hash)));
        let key = key.ok_or(Denied::SocketToken)?;
        key.check(context.moment.now).map_err(Denied::from)?;
        SocketCaller::by_key(key)
    }

    /// Returns the limiter of an identity at a tier, which all tokens of that identity and tier
    /// share.
    fn token_limiter(
        &self,
        identity: &Identity,
        tier: Tier,
        moment: Moment,
    ) -> Result<Arc<KeyLimiter>, Denied> {
        let limiters = self.access.tokens.pin();
        let holder = (identity.digest, tier);
        if let Some(limiter) = limiters.get(&holder) {
            return Ok(limiter.clone());
        }
        if limiters.len() >= TOKEN_LIMITERS_MAX {
            limiters.retain(|_, limiter| !limiter.is_idle(moment.monotonic_ns));
        }
        if limiters.len() >= TOKEN_LIMITERS_MAX {
            let rule = RateRule::Identities;
            return Err(Denied::TooOften { rule, wait_ns: 1_000_000_000, allowed: None });
        }
        let limiter = Arc::new(KeyLimiter::new(&self.tiers.get(tier)));
        let limiter = limiters.get_or_insert(holder, limiter).clone();
        // The limits may have changed before the limiter was in the map to be updated.
        limiter.set_limits(&self.tiers.get(tier));
        Ok(limiter)
    }

    /// Counts a request against the caller's limits, unless [`Service::identify_for`] has done so.
    /// Returns the [`Admission`] whether or not the request passes. An anonymous caller is limited
    /// by address, and has no [`Admission`].
    pub fn admit(
        &self,
        caller: &Caller,
        address: IpAddr,
        moment: Moment,
    ) -> (Result<(), Denied>, Option<Admission>) {
        let now_ns = moment.monotonic_ns;
        let (tier, decision) = match caller {
            Caller::Key(key) => {
                let decision = key.decision.or_else(|| self.keys.decide(&key.key.hash, now_ns));
                let Some(decision) = decision else { return (Err(KeyError::Revoked.into()), None) };
                (key.facts().tier, decision)
            }
            Caller::Token(token) => (token.entitled_tier, token.limiter.decide(now_ns)),
            Caller::Anonymous => {
                let draw = self.access.public(address, moment);
                return (require_drawn(draw, RateRule::Address), None);
            }
        };
        let admission = Some(Admission { tier, decision, key_id: caller.key_id() });
        if decision.is_admitted {
            (Ok(()), admission)
        } else {
            let is_minute_full = decision.per_minute.remaining == 0;
            let (rule, window) = if is_minute_full {
                (RateRule::Minute(tier), decision.per_minute)
            } else {
                (RateRule::Second(tier), decision.per_second)
            };
            let (wait_ns, allowed) = (decision.wait_ns, Some(window.limit));
            (Err(Denied::TooOften { rule, wait_ns, allowed }), admission)
        }
    }

    /// Frees the memory of limiters whose windows are empty. Visits every key, so it should be
    /// called about once a minute, off the request path.
    pub fn release_limiters(&self) {
        let now_ns = self.moment().monotonic_ns;
        self.keys.release_windows(now_ns);
        self.access.tokens.pin().values().for_each(|limiter| limiter.release(now_ns));
    }

    /// Returns the memory of the access tokens' windows, in bytes.
    pub(super) fn token_window_bytes(&self) -> usize {
        let tokens = self.access.tokens.pin();
        let bytes = |limiter: &Arc<KeyLimiter>| size_of::<KeyLimiter>() + limiter.owned_bytes();
        tokens.values().map(bytes).sum()
    }

    /// Applies these limits from now on, without forgetting past requests. Visits every key, so it
    /// should be called off the request path.
    pub fn set_limits(&self, limits: Limits) {
        self.tiers.replace(limits.tiers);
        self.default_tier.store(limits.default_tier as u8, Ordering::Relaxed);
        self.keys.for_each(|key| limit_by_tier(key, &self.tiers));
        let tokens = self.access.tokens.pin();
        tokens.iter().for_each(|((_, tier), limiter)| limiter.set_limits(&self.tiers.get(*tier)));
        let now_ns = self.moment().monotonic_ns;
        self.access.set_rules(limits.address_rules, limits.account_rates, now_ns);
    }

    /// Returns the tier of an access token that names none.
    pub(super) fn default_tier(&self) -> Tier {
        Tier::ALL[usize::from(self.default_tier.load(Ordering::Relaxed))]
    }

    /// Counts the account or key that a request is about to create: an account against the address,
    /// a key against the account.
    pub fn admit_making(
        &self,
        caller: &Caller,
        makes: Makes,
        context: RequestContext<'_>,
    ) -> Result<(), Denied> {
        match caller.account() {
            Ok(account) if makes.key => self.access.admit_key(account, context.moment),
            Err(_) if makes.account => self.access.admit_account(context.address, context.moment),
            _ => Ok(()),
        }
    }

    /// Counts a key that has already been created.
    pub(super) fn count_key(&self, account: AccountId, moment: Moment) {
        self.access.keys_made.draw(account, moment.monotonic_ns);
    }
}

/// Applies the limits of a key's tier to the key. The tier may change during the call.
pub(super) fn limit_by_tier(key: &KeyEntry, tiers: &TierTable) {
    loop {
        let tier = key.facts().tier;
        key.set_limits(&tiers.get(tier));
        if key.facts().tier == tier {
            return;
        }
    }
}
