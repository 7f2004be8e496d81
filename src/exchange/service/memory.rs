//! Test support: the parts of a service that keeps its data in memory.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use super::{Parts, key_observer, key_table};
use crate::auth::identity::IdentitySource;
use crate::auth::identity::embedded::EmbeddedIssuer;
use crate::auth::ws_token::WsTokens;
use crate::shard::Shards;
use paperbourse_core::clock::Clock;
use paperbourse_core::engine::Rules;
use paperbourse_core::limits::bucket::{AccountRates, Rate};
use paperbourse_core::limits::tier::{Tier, TierTable, Tiers};
use paperbourse_core::market::Markets;
use paperbourse_store::journal::{Journal, JournalConfig, MemoryJournal};
use paperbourse_store::snapshot::Recovered;

impl Parts {
    /// Returns the parts of a service without accounts, whose shards read the clock `wall`, and the
    /// service's journal. Only the tiers set limits.
    pub(super) fn in_memory(issuer: EmbeddedIssuer, wall: Arc<AtomicI64>) -> (Self, Arc<Journal>) {
        let journal: Arc<Journal> = Arc::new(MemoryJournal::new(&JournalConfig::default()).into());
        let (markets, tiers) = (Arc::new(Markets::new()), Tiers::default());
        let recovered = Recovered::default();
        let keys = Arc::new(key_table(recovered.states(), &tiers).unwrap());
        let tiers = Arc::new(TierTable::new(tiers));
        let shards = Shards::new(
            recovered,
            journal.clone(),
            markets.clone(),
            Rules::default(),
            Clock::Virtual(wall),
            Arc::default(),
            key_observer(keys.clone(), tiers.clone()),
        );
        let parts = Self {
            markets,
            shards: Arc::new(shards),
            keys,
            issuer: IdentitySource::Embedded(issuer),
            ws_tokens: WsTokens::generate().unwrap(),
            tiers,
            default_tier: Tier::Free,
            address_rules: None,
            account_rates: AccountRates { keys: Rate::Unlimited, sockets: Rate::Unlimited },
        };
        (parts, journal)
    }
}
