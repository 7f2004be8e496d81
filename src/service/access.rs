//! Who calls, and whether they may call again so soon.

use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::{Moment, RequestContext, Service, ServiceError};
use crate::auth::api_key::KeyHash;
use crate::auth::identity::{TokenError, TokenFlaw, identity_digest};
use crate::auth::key_table::{KeyEntry, KeyError};
use crate::auth::policy::{Actor, PolicyError};
use crate::auth::presented::Presented;
use crate::auth::ws_token::WsHolder;
use crate::engine::State;
use crate::engine::command::{Identity, Owner};
use crate::engine::key::Permission;
use crate::engine::rejection::Rejection;
use crate::ids::{AccountId, KeyId, Timestamp};
use crate::limits::bucket::{AccountRates, AccountTable, AddressRules, AddressTable, Draw};
use crate::limits::tier::Tier;
use crate::limits::window::{Decision, KeyLimiter};

/// Identities, each with a tier, whose tokens were used lately and have limiters. Past it the idle
/// ones are dropped; when none is idle, new ones wait.
const TOKEN_LIMITERS_MAX: usize = 100_000;

/// Who calls.
#[derive(Clone)]
pub enum Caller {
    /// Nobody that we know.
    Anonymous,
    /// The holder of a key.
    Key(Arc<KeyEntry<KeyLimiter>>),
    /// The bearer of an access token.
    Token(TokenCaller),
}

/// The bearer of an access token.
#[derive(Clone)]
pub struct TokenCaller {
    /// Whom the issuer vouches for.
    pub identity: Identity,
    /// The highest tier that they may ask for; their requests are limited at it.
    pub entitled_tier: Tier,
    /// From when on the token is refused.
    pub(super) ends_at: Timestamp,
    /// Their account, if they have one: once [`Service::find_account`] has looked.
    account: Option<AccountId>,
    limiter: Arc<KeyLimiter>,
}

/// Who opens a socket.
#[derive(Clone)]
pub struct SocketCaller {
    /// Whose socket it will be.
    pub account: AccountId,
    /// Whose tier caps the sockets of the account.
    pub tier: Tier,
    credential: SocketCredential,
}

/// What a socket lives by.
#[derive(Clone)]
enum SocketCredential {
    Key(Arc<KeyEntry<KeyLimiter>>),
    /// That the account and its tier still are who they were is known until then.
    AccessToken {
        ends_at: Timestamp,
    },
}

impl SocketCaller {
    fn by_key(key: Arc<KeyEntry<KeyLimiter>>) -> Result<Self, ServiceError> {
        key.actor().require(Permission::Read).map_err(Denied::from)?;
        let facts = key.facts();
        let (account, tier) = (facts.account_id, facts.tier);
        Ok(Self { account, tier, credential: SocketCredential::Key(key) })
    }

    /// Whether the credential still holds; an open socket asks now and then.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        match &self.credential {
            SocketCredential::Key(key) => key.check(now).is_ok(),
            SocketCredential::AccessToken { ends_at } => now < *ends_at,
        }
    }
}

/// Why somebody is turned away.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Denied {
    /// A credential is needed.
    #[error("a credential is required: send X-API-Key, or Authorization: Bearer with a key")]
    MissingCredential,
    /// The key is none of ours, or not any more.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The token does not say who this is.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token in a socket's address is none of ours, or is over.
    #[error("the socket token is not valid")]
    SocketToken,
    /// An access token is not accepted here.
    #[error("an access token is not accepted here; use an API key, which POST /v1/keys makes")]
    TokenNotAccepted,
    /// The key was rotated, and may do everything else.
    #[error("the API key was rotated: use the one that took its place")]
    Rotated,
    /// The credential may not do this, or not give what it was asked to give.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Too often.
    #[error("rate limit exceeded")]
    TooOften {
        /// Until one request is sure to pass, in nanoseconds.
        wait_ns: u64,
    },
}

/// A request that may go on, and what the answer tells of the caller's limits.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Whose limits.
    pub tier: Tier,
    /// What is left of them.
    pub decision: Decision,
}

/// What a request makes besides its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Makes {
    /// An account, for the bearer of an access token who has none.
    pub account: bool,
    /// A key, anew or by rotation.
    pub key: bool,
}

/// All limits but those of keys.
pub(super) struct AccessLimits {
    addresses: Option<AddressLimits>,
    keys_made: AccountTable,
    sockets_opened: AccountTable,
    /// By identity and tier: each limiter has the numbers of its tier, and an identity that brings
    /// tokens of several tiers has one for each.
    tokens: papaya::HashMap<([u8; 32], Tier), Arc<KeyLimiter>, RandomState>,
}

struct AddressLimits {
    public: AddressTable,
    bootstrap: AddressTable,
    failures: AddressTable,
}

impl AccessLimits {
    pub(super) fn new(address_rules: Option<AddressRules>, account_rates: AccountRates) -> Self {
        let table = |rule| AddressTable::new(rule, std::hash::RandomState::new());
        let addresses = address_rules.map(|rules| AddressLimits {
            public: table(rules.public),
            bootstrap: table(rules.bootstrap),
            failures: table(rules.failures),
        });
        Self {
            addresses,
            keys_made: AccountTable::new(account_rates.keys, std::hash::RandomState::new()),
            sockets_opened: AccountTable::new(account_rates.sockets, std::hash::RandomState::new()),
            tokens: papaya::HashMap::with_hasher(RandomState::default()),
        }
    }
}

impl Caller {
    /// Whose account a write of this caller acts on.
    pub(super) fn owner(&self) -> Result<Owner, Denied> {
        match self {
            Self::Anonymous => Err(Denied::MissingCredential),
            Self::Key(key) => Ok(Owner::Account(key.facts().account_id)),
            Self::Token(token) => Ok(Owner::Identity(token.identity.clone())),
        }
    }

    /// The account that the caller acts on; a token's may not be open yet.
    pub(super) fn account(&self) -> Result<AccountId, ServiceError> {
        match self {
            Self::Anonymous => Err(Denied::MissingCredential.into()),
            Self::Key(key) => Ok(key.facts().account_id),
            Self::Token(token) => token.account.ok_or_else(|| Rejection::AccountNotFound.into()),
        }
    }

    /// What the caller may do and give; nothing for nobody.
    pub fn actor(&self) -> Option<Actor> {
        match self {
            Self::Anonymous => None,
            Self::Key(key) => Some(key.actor()),
            Self::Token(token) => Some(Actor::Token { entitled_tier: token.entitled_tier }),
        }
    }

    /// The tier that the caller's caps come from.
    pub fn tier(&self) -> Tier {
        self.actor().map_or(Tier::Free, Actor::tier)
    }

    /// The key that the caller came with.
    pub fn key_id(&self) -> Option<KeyId> {
        match self {
            Self::Key(key) => Some(key.facts().key_id),
            Self::Anonymous | Self::Token(_) => None,
        }
    }

    /// Refuses a key that was rotated: until it ends it makes, rotates and renames no keys.
    pub fn require_unrotated(&self) -> Result<(), Denied> {
        match self {
            Self::Key(key) if key.expires_at().is_some() => Err(Denied::Rotated),
            Self::Anonymous | Self::Key(_) | Self::Token(_) => Ok(()),
        }
    }

    /// Refuses a caller that may not do this to a key: only `admin` and tokens to another one.
    pub(super) fn require_over(&self, key: Option<KeyId>) -> Result<(), Denied> {
        match self.key_id() {
            Some(own) if Some(own) != key => self.require(Permission::Admin),
            _ => Ok(()),
        }
    }

    /// Refuses a key that was revoked or has ended since it was looked at.
    pub fn require_valid(&self, now: Timestamp) -> Result<(), Denied> {
        match self {
            Self::Key(key) => Ok(key.check(now)?),
            Self::Anonymous | Self::Token(_) => Ok(()),
        }
    }

    /// Refuses a caller that may not do this.
    pub fn require(&self, needed: Permission) -> Result<(), Denied> {
        let actor = self.actor().ok_or(Denied::MissingCredential)?;
        Ok(actor.require(needed)?)
    }
}

impl Service {
    /// Finds out who calls. A wrong credential is refused even where none is needed, and more
    /// slowly the more of them an address sends; a valid one never waits for that.
    ///
    /// It waits only for the keys of a token's issuer, and only where the ones that are known do
    /// not tell; a request with an API key never does.
    pub async fn identify(
        &self,
        presented: &Presented<'_>,
        address: IpAddr,
        moment: Moment,
    ) -> Result<Caller, Denied> {
        let caller = match presented {
            Presented::Nothing => return Ok(Caller::Anonymous),
            Presented::Key(text) => {
                self.keys.authenticate(text, moment.now).map(Caller::Key).map_err(Denied::from)
            }
            Presented::Token(token) => self.identify_token(token, moment).await,
            Presented::Unreadable => Err(TokenError::Invalid(TokenFlaw::Malformed).into()),
        };
        caller.map_err(|denied| self.slowed(denied, address, moment))
    }

    /// The refusal of a wrong credential; past its bucket the address is told to wait instead.
    fn slowed(&self, denied: Denied, address: IpAddr, moment: Moment) -> Denied {
        // That an issuer does not answer says nothing about who asks.
        if matches!(denied, Denied::Token(TokenError::Unavailable { .. })) {
            return denied;
        }
        match self.access.failed(address, moment) {
            Some(Draw { is_admitted: false, wait_ns, .. }) => Denied::TooOften { wait_ns },
            _ => denied,
        }
    }

    async fn identify_token(&self, token: &str, moment: Moment) -> Result<Caller, Denied> {
        let verified = match self.issuer.verify(token, moment.now) {
            // Boxed, so that requests which never come here do not carry room for it.
            Err(error) if error.may_pass_with_newer_keys() => {
                Box::pin(self.issuer.verify_with_newer_keys(token, moment.now)).await?
            }
            verified => verified?,
        };
        let entitled_tier = verified.entitled_tier.unwrap_or(self.default_tier);
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

    /// Finds the account of an access token's bearer, where it is open. Every use case expects that
    /// this was done.
    pub async fn find_account(
        &self,
        caller: &mut TokenCaller,
        context: RequestContext<'_>,
    ) -> Result<(), ServiceError> {
        let digest = caller.identity.digest;
        let find = move |state: &State| state.observe_identity(&digest);
        caller.account =
            self.shards.observe(caller.identity.shard(), context.waiters, find).await?;
        Ok(())
    }

    /// Who opens a socket: by the token in the address, else by a credential as elsewhere. It has
    /// to be a key with permission to read, or a token that such a key or its account's owner
    /// minted. Each call counts: against the account, or against the address where it comes to
    /// nothing.
    pub async fn identify_socket(
        &self,
        token: Option<&str>,
        presented: &Presented<'_>,
        context: RequestContext<'_>,
    ) -> Result<SocketCaller, ServiceError> {
        let slowed = |denied| self.slowed(denied, context.address, context.moment);
        let caller = match token {
            Some(token) => self.find_socket_caller(token, context).await,
            None => match self.identify(presented, context.address, context.moment).await? {
                Caller::Key(key) => SocketCaller::by_key(key),
                Caller::Anonymous | Caller::Token(_) => Err(Denied::MissingCredential.into()),
            },
        };
        let caller = caller.map_err(|error| match error {
            ServiceError::Denied(denied) => slowed(denied).into(),
            other => other,
        })?;
        passed(self.access.sockets_opened.draw(caller.account, context.moment.monotonic_ns))?;
        Ok(caller)
    }

    /// Who has asked for this socket token, if that still may open a socket.
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
                let credential = SocketCredential::AccessToken { ends_at };
                return Ok(SocketCaller {
                    account: grant.account_id,
                    tier: grant.tier,
                    credential,
                });
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

    /// The limiter of an identity at a tier: one, whatever number of tokens it has.
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
            return Err(Denied::TooOften { wait_ns: 1_000_000_000 });
        }
        let limiter = Arc::new(KeyLimiter::new(self.tiers.get(tier)));
        Ok(limiters.get_or_insert(holder, limiter).clone())
    }

    /// Counts a request against the caller's limits, and tells what is left of them whether it
    /// passes or not. A caller that we do not know is limited by address, and told nothing.
    pub fn admit(
        &self,
        caller: &Caller,
        address: IpAddr,
        moment: Moment,
    ) -> (Result<(), Denied>, Option<Admission>) {
        let (tier, limiter) = match caller {
            Caller::Key(key) => (key.facts().tier, key.limiter()),
            Caller::Token(token) => (token.entitled_tier, &*token.limiter),
            Caller::Anonymous => return (passed(self.access.public(address, moment)), None),
        };
        let decision = limiter.decide(moment.monotonic_ns);
        let admission = Some(Admission { tier, decision });
        if decision.is_admitted {
            (Ok(()), admission)
        } else {
            (Err(Denied::TooOften { wait_ns: decision.wait_ns }), admission)
        }
    }

    /// Gives back the memory of all limiters that no request counts in any more. To be called every
    /// minute or so, where it holds up nobody: it looks at every key.
    pub fn release_limiters(&self) {
        let now_ns = self.moment().monotonic_ns;
        self.keys.for_each_limiter(|limiter| limiter.release(now_ns));
        self.access.tokens.pin().values().for_each(|limiter| limiter.release(now_ns));
    }

    /// Counts what a request is about to make: an account against those of its address, a key
    /// against those of its account.
    pub fn admit_making(
        &self,
        caller: &Caller,
        makes: Makes,
        context: RequestContext<'_>,
    ) -> Result<(), Denied> {
        match caller.account() {
            Ok(account) if makes.key => {
                passed(self.access.keys_made.draw(account, context.moment.monotonic_ns))
            }
            Err(_) if makes.account => {
                passed(self.access.bootstrap(context.address, context.moment))
            }
            _ => Ok(()),
        }
    }

    /// Counts a key that was made already.
    pub(super) fn count_key(&self, account: AccountId, moment: Moment) {
        self.access.keys_made.draw(account, moment.monotonic_ns);
    }
}

/// What a draw from a bucket says; without a bucket everything passes.
fn passed(draw: Option<Draw>) -> Result<(), Denied> {
    match draw {
        Some(Draw { is_admitted: false, wait_ns, .. }) => Err(Denied::TooOften { wait_ns }),
        _ => Ok(()),
    }
}

impl AccessLimits {
    fn public(&self, address: IpAddr, moment: Moment) -> Option<Draw> {
        Some(self.addresses.as_ref()?.public.draw(address, moment.monotonic_ns))
    }

    fn bootstrap(&self, address: IpAddr, moment: Moment) -> Option<Draw> {
        Some(self.addresses.as_ref()?.bootstrap.draw(address, moment.monotonic_ns))
    }

    fn failed(&self, address: IpAddr, moment: Moment) -> Option<Draw> {
        Some(self.addresses.as_ref()?.failures.draw(address, moment.monotonic_ns))
    }
}
