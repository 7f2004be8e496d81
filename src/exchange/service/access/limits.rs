//! Rate limits of callers without a key: per address, per account and per access token.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::RandomState;

use crate::service::{Denied, Moment, RateRule};
use paperbourse_core::ids::AccountId;
use paperbourse_core::limits::bucket::{
    AccountRates, AccountTable, AddressRules, AddressTable, Draw,
};
use paperbourse_core::limits::tier::Tier;
use paperbourse_core::limits::window::KeyLimiter;

/// All rate limits except those of keys.
pub(in crate::service) struct AccessLimits {
    are_addresses_limited: AtomicBool,
    addresses: AddressLimits,
    pub(super) keys_made: AccountTable,
    sockets_opened: AccountTable,
    /// Limiters of access tokens, by identity and tier. An identity with tokens of several tiers
    /// has one limiter for each tier.
    pub(super) tokens: papaya::HashMap<([u8; 32], Tier), Arc<KeyLimiter>, RandomState>,
}

struct AddressLimits {
    public: AddressTable,
    bootstrap: AddressTable,
    failures: AddressTable,
}

impl AccessLimits {
    pub(in crate::service) fn new(
        address_rules: Option<AddressRules>,
        account_rates: AccountRates,
    ) -> Self {
        let table = |rule| AddressTable::new(rule, std::hash::RandomState::new());
        let rules = address_rules.unwrap_or_default();
        let addresses = AddressLimits {
            public: table(rules.public),
            bootstrap: table(rules.bootstrap),
            failures: table(rules.failures),
        };
        Self {
            are_addresses_limited: AtomicBool::new(address_rules.is_some()),
            addresses,
            keys_made: AccountTable::new(account_rates.keys, std::hash::RandomState::new()),
            sockets_opened: AccountTable::new(account_rates.sockets, std::hash::RandomState::new()),
            tokens: papaya::HashMap::with_hasher(RandomState::default()),
        }
    }
}

impl AccessLimits {
    /// Applies these rules from now on. Tokens drawn so far stay drawn.
    pub(super) fn set_rules(&self, rules: Option<AddressRules>, rates: AccountRates, now_ns: u64) {
        if let Some(AddressRules { public, bootstrap, failures }) = rules {
            self.addresses.public.set_rule(public, now_ns);
            self.addresses.bootstrap.set_rule(bootstrap, now_ns);
            self.addresses.failures.set_rule(failures, now_ns);
        }
        self.are_addresses_limited.store(rules.is_some(), Ordering::Relaxed);
        self.keys_made.set_rate(rates.keys, now_ns);
        self.sockets_opened.set_rate(rates.sockets, now_ns);
    }

    /// Returns the limits of addresses, or `None` if addresses are not limited.
    fn addresses(&self) -> Option<&AddressLimits> {
        self.are_addresses_limited.load(Ordering::Relaxed).then_some(&self.addresses)
    }

    /// Counts a key that an account is about to get.
    pub(in crate::service) fn admit_key(
        &self,
        account: AccountId,
        moment: Moment,
    ) -> Result<(), Denied> {
        require_drawn(self.keys_made.draw(account, moment.monotonic_ns), RateRule::Keys)
    }

    /// Counts an account that a caller at this address is about to open.
    pub(in crate::service) fn admit_account(
        &self,
        address: IpAddr,
        moment: Moment,
    ) -> Result<(), Denied> {
        require_drawn(self.bootstrap(address, moment), RateRule::Accounts)
    }

    /// Counts a socket that an account is about to open.
    pub(in crate::service) fn admit_socket(
        &self,
        account: AccountId,
        moment: Moment,
    ) -> Result<(), Denied> {
        require_drawn(self.sockets_opened.draw(account, moment.monotonic_ns), RateRule::Sockets)
    }

    pub(super) fn public(&self, address: IpAddr, moment: Moment) -> Option<Draw> {
        Some(self.addresses()?.public.draw(address, moment.monotonic_ns))
    }

    fn bootstrap(&self, address: IpAddr, moment: Moment) -> Option<Draw> {
        Some(self.addresses()?.bootstrap.draw(address, moment.monotonic_ns))
    }

    pub(super) fn failed(&self, address: IpAddr, moment: Moment) -> Option<Draw> {
        Some(self.addresses()?.failures.draw(address, moment.monotonic_ns))
    }
}

/// Fails if a bucket was drawn from and had no token.
pub(super) fn require_drawn(draw: Option<Draw>, rule: RateRule) -> Result<(), Denied> {
    match draw {
        Some(Draw { is_admitted: false, wait_ns, .. }) => {
            Err(Denied::TooOften { rule, wait_ns, allowed: None })
        }
        _ => Ok(()),
    }
}
