//! The fields of each kind of event, in the order in which they are stored.

use std::sync::Arc;

use super::RecordError;
use super::kind;
use super::order_state::end_reason_code;
use paperbourse_core::engine::command::Identity;
use paperbourse_core::engine::event::{AccountReset, Event};
use paperbourse_core::engine::key::{KEY_PREFIX_BYTES_MAX, KeyGrant, Permissions, WalletGrant};
use paperbourse_core::engine::state::hash::StateHash;
use paperbourse_core::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, Timestamp};
use paperbourse_core::limits::tier::Tier;
use paperbourse_core::money::Usd;

/// Appends fields to a buffer.
pub(crate) struct Fields<'a>(pub(crate) &'a mut Vec<u8>);

impl Fields<'_> {
    /// Writes the body of an event and returns its kind.
    pub(crate) fn event(&mut self, event: &Event) -> u16 {
        match event {
            Event::AccountOpened { account, identity, granted, at } => {
                self.u64(account.get());
                self.0.extend_from_slice(&identity.digest);
                self.i64(granted.micros());
                self.i64(at.nanos());
                self.text(&identity.issuer);
                self.text(&identity.subject);
                kind::ACCOUNT_OPENED
            }
            Event::KeyCreated { key, account, grant, created_by, at } => {
                self.u64(key.get());
                self.u64(account.get());
                self.u64(created_by.map_or(0, KeyId::get));
                self.i64(at.nanos());
                self.grant(grant)
            }
            Event::KeyRevoked { key, at } => {
                self.u64(key.get());
                self.i64(at.nanos());
                kind::KEY_REVOKED
            }
            Event::KeyRenamed { key, name } => {
                self.u64(key.get());
                self.optional_text(name.as_deref());
                kind::KEY_RENAMED
            }
            Event::KeyExpirySet { key, expires_at } => {
                self.u64(key.get());
                self.i64(expires_at.nanos());
                kind::KEY_EXPIRY_SET
            }
            Event::KeyForgotten { key } => self.only(key.get(), kind::KEY_FORGOTTEN),
            Event::MarketIntroduced { index, condition_id, outcomes } => {
                self.u32(index.0);
                self.length(outcomes.len());
                self.text(condition_id);
                for (label, token_id) in outcomes {
                    self.text(label);
                    self.text(token_id);
                }
                kind::MARKET_INTRODUCED
            }
            Event::OrderFilled(filled) => {
                self.order_filled(filled);
                kind::ORDER_FILLED
            }
            Event::OrderPlaced(placed) => {
                self.order_placed(placed);
                kind::ORDER_PLACED
            }
            Event::OrderDelayed(delayed) => {
                self.order_delayed(delayed);
                kind::ORDER_DELAYED
            }
            Event::DelayedOrderDropped { order } => {
                self.only(order.get(), kind::DELAYED_ORDER_DROPPED)
            }
            Event::OrderAdmitted { order } => self.only(order.get(), kind::ORDER_ADMITTED),
            Event::RestingFilled(filled) => self.resting_filled(filled),
            Event::FillUndone(undone) => self.fill_undone(undone),
            Event::OrderEnded { order, reason, at } => {
                self.u64(order.get());
                self.u8(end_reason_code(*reason));
                self.i64(at.nanos());
                kind::ORDER_ENDED
            }
            Event::AccountReset(reset) => {
                self.account_reset(reset);
                kind::ACCOUNT_RESET
            }
            Event::OperatorActed(acted) => {
                self.operator_acted(acted);
                kind::OPERATOR_ACTED
            }
            Event::HeartbeatSet { account, interval_ms } => {
                self.u64(account.get());
                self.u32(interval_ms.unwrap_or(0));
                kind::HEARTBEAT_SET
            }
            Event::FillLogBegun { account } => self.only(account.get(), kind::FILL_LOG_BEGUN),
            Event::OrderForgotten { order } => self.only(order.get(), kind::ORDER_FORGOTTEN),
            Event::CommentAdded { comment, order, author, content, at } => {
                self.u64(comment.get());
                self.u64(order.get());
                self.u64(author.get());
                self.i64(at.nanos());
                self.text(content);
                kind::COMMENT_ADDED
            }
            Event::CommentDeleted { comment } => self.only(comment.get(), kind::COMMENT_DELETED),
            Event::StateChecked { hash } => self.only(hash.get(), kind::STATE_CHECKED),
            Event::SettlementDecided { decision, at } => self.settlement_decided(decision, *at),
            Event::PositionsSettled(settled) => self.positions_settled(settled),
            Event::MarketSettled { market, payouts, at } => {
                self.market_settled(*market, payouts, *at)
            }
        }
    }

    /// Writes the body of an event that has a single number, and returns its kind.
    fn only(&mut self, number: u64, kind: u16) -> u16 {
        self.u64(number);
        kind
    }

    fn account_reset(&mut self, reset: &AccountReset) {
        let AccountReset { account, position_count, cost, granted, balance, at } = reset;
        self.u64(account.get());
        self.u32(*position_count);
        self.i64(cost.micros());
        self.i64(granted.micros());
        self.i64(balance.micros());
        self.i64(at.nanos());
    }

    /// Writes the rest of the body of a created key, and returns its kind.
    fn grant(&mut self, grant: &KeyGrant) -> u16 {
        self.optional_time(grant.expires_at);
        self.0.extend_from_slice(&grant.hash);
        self.u8(tier_code(grant.tier));
        self.u8(grant.permissions.bits());
        self.text(&grant.prefix);
        self.optional_text(grant.name.as_deref());
        let Some(WalletGrant { address, nonce }) = grant.wallet else { return kind::KEY_CREATED };
        self.0.extend_from_slice(&address);
        self.u64(nonce);
        kind::WALLET_KEY_CREATED
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn length(&mut self, length: usize) {
        self.u32(u32::try_from(length).expect("a record is below 256 KiB"));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn optional_text(&mut self, text: Option<&str>) {
        self.u8(u8::from(text.is_some()));
        self.text(text.unwrap_or(""));
    }

    pub(crate) fn optional_time(&mut self, time: Option<Timestamp>) {
        self.u8(u8::from(time.is_some()));
        self.i64(time.map_or(0, Timestamp::nanos));
    }
}

pub(super) const fn tier_code(tier: Tier) -> u8 {
    match tier {
        Tier::Free => 0,
        Tier::Pro => 1,
        Tier::Enterprise => 2,
    }
}

pub(super) const fn tier_of(code: u8) -> Option<Tier> {
    match code {
        0 => Some(Tier::Free),
        1 => Some(Tier::Pro),
        2 => Some(Tier::Enterprise),
        _ => None,
    }
}

/// A byte array of a length known at compile time, so that reading a field at a constant offset
/// cannot fail.
#[derive(Clone, Copy)]
pub(super) struct Chunk<'a, const N: usize>(pub(super) &'a [u8; N]);

impl<const N: usize> Chunk<'_, N> {
    #[inline]
    pub(super) fn array<const M: usize>(self, at: usize) -> [u8; M] {
        *self.0[at..].first_chunk().expect("a field that lies within")
    }

    #[inline]
    pub(super) fn u8(self, at: usize) -> u8 {
        self.0[at]
    }

    #[inline]
    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    #[inline]
    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    #[inline]
    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }
}

/// Reads fields and tracks the offset for errors.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// Offset of `bytes` within the record.
    base: usize,
    at: usize,
}

pub(super) type Read<T> = Result<T, RecordError>;

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, base: 0, at: 0 }
    }

    #[inline]
    pub(crate) const fn offset(&self) -> usize {
        self.base + self.at
    }

    /// Reads the body of an event. `None` for an unknown kind.
    pub(crate) fn event(&mut self, kind: u16) -> Read<Option<Event>> {
        Ok(Some(match kind {
            kind::ACCOUNT_OPENED => {
                let account = self.id("account", AccountId::from_raw)?;
                let digest = self.array("identity digest")?;
                let granted = Usd::from_micros(self.i64("granted amount")?);
                let at = self.timestamp("time")?;
                let issuer = self.text("issuer")?.into();
                let subject = self.text("subject")?.into();
                let identity = Identity { digest, issuer, subject };
                Event::AccountOpened { account, identity, granted, at }
            }
            kind::KEY_CREATED => self.key_created(false)?,
            kind::WALLET_KEY_CREATED => self.key_created(true)?,
            kind::KEY_REVOKED => Event::KeyRevoked {
                key: self.id("key", KeyId::from_raw)?,
                at: self.timestamp("time")?,
            },
            kind::MARKET_INTRODUCED => {
                let index = MarketIndex(self.u32("market index")?);
                let count = self.u32("outcome count")?;
                let condition_id = self.shared_text("condition id")?;
                let mut outcomes = Vec::new();
                for _ in 0..count {
                    let label = self.shared_text("outcome label")?;
                    outcomes.push((label, self.shared_text("token id")?));
                }
                Event::MarketIntroduced { index, condition_id, outcomes }
            }
            kind::ORDER_FILLED => Event::OrderFilled(self.order_filled()?),
            kind::ORDER_PLACED => Event::OrderPlaced(self.order_placed()?),
            kind::ORDER_DELAYED => Event::OrderDelayed(self.order_delayed()?),
            kind::DELAYED_ORDER_DROPPED => {
                Event::DelayedOrderDropped { order: self.id("order", OrderId::from_raw)? }
            }
            kind::ORDER_ADMITTED => {
                Event::OrderAdmitted { order: self.id("order", OrderId::from_raw)? }
            }
            kind::RESTING_FILLED => Event::RestingFilled(self.resting_filled()?),
            kind::RESTING_FILLED_OF_LEVELS => {
                Event::RestingFilled(self.resting_filled_of_levels()?)
            }
            kind::FILL_UNDONE => Event::FillUndone(self.fill_undone()?),
            kind::ORDER_ENDED => Event::OrderEnded {
                order: self.id("order", OrderId::from_raw)?,
                reason: self.end_reason()?,
                at: self.timestamp("time")?,
            },
            kind::ACCOUNT_RESET => Event::AccountReset(self.account_reset()?),
            kind::OPERATOR_ACTED => Event::OperatorActed(self.operator_acted()?),
            kind::HEARTBEAT_SET => Event::HeartbeatSet {
                account: self.id("account", AccountId::from_raw)?,
                interval_ms: Some(self.u32("heartbeat interval")?).filter(|&it| it != 0),
            },
            kind::FILL_LOG_BEGUN => {
                Event::FillLogBegun { account: self.id("account", AccountId::from_raw)? }
            }
            kind::COMMENT_ADDED => Event::CommentAdded {
                comment: self.id("comment", CommentId::from_raw)?,
                order: self.id("order", OrderId::from_raw)?,
                author: self.id("author", AccountId::from_raw)?,
                at: self.timestamp("time")?,
                content: self.text("content")?.into(),
            },
            kind::COMMENT_DELETED => {
                Event::CommentDeleted { comment: self.id("comment", CommentId::from_raw)? }
            }
            kind::STATE_CHECKED => {
                Event::StateChecked { hash: StateHash::from_u64(self.u64("state hash")?) }
            }
            kind::ORDER_FORGOTTEN => {
                Event::OrderForgotten { order: self.id("order", OrderId::from_raw)? }
            }
            kind::KEY_FORGOTTEN => Event::KeyForgotten { key: self.id("key", KeyId::from_raw)? },
            kind::KEY_RENAMED => Event::KeyRenamed {
                key: self.id("key", KeyId::from_raw)?,
                name: self.optional_text("key name")?,
            },
            kind::KEY_EXPIRY_SET => Event::KeyExpirySet {
                key: self.id("key", KeyId::from_raw)?,
                expires_at: self.timestamp("expiry")?,
            },
            kind::SETTLEMENT_DECIDED => self.settlement_decided()?,
            kind::POSITIONS_SETTLED => self.positions_settled()?,
            kind::MARKET_SETTLED => self.market_settled()?,
            _ => return Ok(None),
        }))
    }

    fn key_created(&mut self, is_of_wallet: bool) -> Read<Event> {
        let key = self.id("key", KeyId::from_raw)?;
        let account = self.id("account", AccountId::from_raw)?;
        let created_by = self.valid("creating key", |reader| {
            Ok(match reader.u64("creating key")? {
                0 => Some(None),
                id => KeyId::from_raw(id).map(Some),
            })
        })?;
        let at = self.timestamp("time")?;
        let expires_at = self.optional_time("expiry")?;
        let hash = self.array("key hash")?;
        let tier = self.tier()?;
        let permissions = self
            .valid("permissions", |reader| Ok(Permissions::from_bits(reader.u8("permissions")?)))?;
        let prefix = self.valid("key prefix", |reader| {
            let text = reader.text("key prefix")?;
            Ok((text.len() <= KEY_PREFIX_BYTES_MAX).then(|| text.into()))
        })?;
        let name = self.optional_text("key name")?;
        let wallet = if is_of_wallet {
            let address = self.array("address of the wallet")?;
            Some(WalletGrant { address, nonce: self.u64("nonce of the wallet")? })
        } else {
            None
        };
        let grant = KeyGrant { hash, prefix, name, tier, permissions, expires_at, wallet };
        Ok(Event::KeyCreated { key, account, grant, created_by, at })
    }

    pub(super) fn tier(&mut self) -> Read<Tier> {
        self.valid("tier", |reader| Ok(tier_of(reader.u8("tier")?)))
    }

    fn account_reset(&mut self) -> Read<AccountReset> {
        Ok(AccountReset {
            account: self.id("account", AccountId::from_raw)?,
            position_count: self.u32("count of positions")?,
            cost: Usd::from_micros(self.i64("cost of the positions")?),
            granted: Usd::from_micros(self.i64("play money granted")?),
            balance: Usd::from_micros(self.i64("balance")?),
            at: self.timestamp("time of the decision")?,
        })
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Returns a reader of the next `count` bytes.
    pub(crate) fn part(&mut self, count: usize, field: &'static str) -> Read<Reader<'a>> {
        let base = self.offset();
        Ok(Reader { bytes: self.take(count, field)?, base, at: 0 })
    }

    /// Reads the next `N` bytes.
    #[inline]
    pub(super) fn chunk<const N: usize>(&mut self, field: &'static str) -> Read<Chunk<'a, N>> {
        let (offset, rest) = (self.offset(), &self.bytes[self.at..]);
        let bytes = rest.first_chunk::<N>().ok_or(RecordError::Short { offset, field })?;
        self.at += N;
        Ok(Chunk(bytes))
    }

    /// Reads a value that may be invalid. Fails at the value's offset if `read` returns `None`.
    #[inline]
    pub(crate) fn valid<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Read<Option<T>>,
    ) -> Read<T> {
        let offset = self.offset();
        read(self)?.ok_or(RecordError::Invalid { offset, field })
    }

    #[inline]
    pub(crate) fn zeros(&mut self, count: usize, field: &'static str) -> Read<()> {
        self.valid(field, |reader| {
            let zeros = reader.take(count, field)?;
            Ok(zeros.iter().all(|&byte| byte == 0).then_some(()))
        })
    }

    #[inline]
    pub(crate) fn end(&self, field: &'static str) -> Read<()> {
        if self.at == self.bytes.len() {
            Ok(())
        } else {
            Err(RecordError::Invalid { offset: self.offset(), field })
        }
    }

    #[inline]
    pub(super) fn take(&mut self, count: usize, field: &'static str) -> Read<&'a [u8]> {
        let offset = self.offset();
        let rest = &self.bytes[self.at..];
        let (taken, _) =
            rest.split_at_checked(count).ok_or(RecordError::Short { offset, field })?;
        self.at += count;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Read<[u8; N]> {
        let bytes = self.take(N, field)?;
        Ok(*bytes.first_chunk().expect("as many bytes as were asked for"))
    }

    #[inline]
    pub(crate) fn id<T>(&mut self, field: &'static str, of: fn(u64) -> Option<T>) -> Read<T> {
        self.valid(field, |reader| Ok(of(reader.u64(field)?)))
    }

    #[inline]
    pub(crate) fn flag(&mut self, field: &'static str) -> Read<bool> {
        self.valid(field, |reader| {
            Ok(match reader.u8(field)? {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            })
        })
    }

    #[inline]
    pub(crate) fn u8(&mut self, field: &'static str) -> Read<u8> {
        Ok(self.array::<1>(field)?[0])
    }

    #[inline]
    pub(crate) fn u16(&mut self, field: &'static str) -> Read<u16> {
        self.array(field).map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self, field: &'static str) -> Read<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self, field: &'static str) -> Read<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    #[inline]
    pub(crate) fn i64(&mut self, field: &'static str) -> Read<i64> {
        self.array(field).map(i64::from_le_bytes)
    }

    #[inline]
    pub(crate) fn timestamp(&mut self, field: &'static str) -> Read<Timestamp> {
        self.i64(field).map(Timestamp::from_nanos)
    }

    /// Reads an optional time. An absent time is stored as zero, so that it has only one encoding.
    pub(crate) fn optional_time(&mut self, field: &'static str) -> Read<Option<Timestamp>> {
        self.valid(field, |reader| {
            let is_some = reader.flag(field)?;
            let time = reader.timestamp(field)?;
            Ok(if is_some { Some(Some(time)) } else { (time == Timestamp::EPOCH).then_some(None) })
        })
    }

    pub(crate) fn text(&mut self, field: &'static str) -> Read<&'a str> {
        self.valid(field, |reader| {
            let count = reader.u32(field)? as usize;
            Ok(std::str::from_utf8(reader.take(count, field)?).ok())
        })
    }

    pub(crate) fn shared_text(&mut self, field: &'static str) -> Read<Arc<str>> {
        self.text(field).map(Arc::from)
    }

    pub(crate) fn optional_text(&mut self, field: &'static str) -> Read<Option<Box<str>>> {
        self.valid(field, |reader| {
            let is_some = reader.flag(field)?;
            let text = reader.text(field)?;
            Ok(if is_some { Some(Some(text.into())) } else { text.is_empty().then_some(None) })
        })
    }
}
