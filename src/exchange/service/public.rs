//! What anyone may read of a wallet's account, with the venue's interface on: its positions, fills
//! and settlements. As at the venue, whoever knows an address may see what it trades.

use std::collections::HashMap;

use paperbourse_clob::signature::address::Address;

use super::accounts::MarkedPosition;
use super::{RequestContext, Service, ServiceError};
use crate::auth::wallet::wallet_identity;
use paperbourse_core::engine::State;
use paperbourse_core::engine::fills::turnover::{PositionTokens, Turnover};
use paperbourse_core::engine::market::payout::SETTLEMENTS_PER_ACCOUNT_MAX;
use paperbourse_core::engine::state::view::{SettlementFilter, SettlementRow};
use paperbourse_core::ids::{AccountId, Timestamp};

/// A position with what was traded in its outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct TradedPosition {
    /// The position, marked to market.
    pub marked: MarkedPosition,
    /// The tokens of its outcome and of the opposite one.
    pub tokens: PositionTokens,
    /// The sums of the fills that are kept; `None` if none is.
    pub turnover: Option<Turnover>,
}

impl Service {
    /// Returns the account of a wallet: of the signer with this address, or of the signer whose
    /// proxy, safe or deposit wallet it is. `None` if no such wallet has an account.
    pub async fn account_of_wallet(
        &self,
        wallet: Address,
        context: RequestContext<'_>,
    ) -> Result<Option<AccountId>, ServiceError> {
        let identity = wallet_identity(self.contracts.signer(wallet).unwrap_or(wallet));
        let digest = identity.digest;
        let find = move |state: &State| state.observe_identity(&digest);
        Ok(self.shards.observe(identity.shard(), context.waiters, find).await?)
    }

    /// Returns all positions of an account with the sums of their fills, oldest first. Visits all
    /// fills that the account keeps, some thousand at a time.
    pub async fn traded_positions(
        &self,
        account: AccountId,
        context: RequestContext<'_>,
    ) -> Result<Vec<TradedPosition>, ServiceError> {
        let mut turnovers = HashMap::new();
        let mut reads = self.reads(account, context);
        let mut before = Some(u64::MAX);
        while let Some(end) = before {
            let page =
                reads.next(move |state, account| state.observe_turnover(account, end)).await?;
            before = page.next;
            for row in page.rows {
                let key = (row.market, row.outcome);
                turnovers
                    .entry(key)
                    .and_modify(|sums: &mut Turnover| sums.add(&row))
                    .or_insert(row);
            }
        }
        let mut tokens: Vec<PositionTokens> = Vec::new();
        loop {
            let offset = tokens.len();
            let mut page =
                reads.next(move |state, account| state.observe_tokens(account, offset)).await?;
            if page.is_empty() {
                break;
            }
            tokens.append(&mut page);
        }
        let statement = self.statement(account, context).await?;
        // A position that was opened since its tokens were read is left out.
        let rows = statement.positions.into_iter().zip(tokens);
        let positions = rows.map(|(row, tokens)| TradedPosition {
            turnover: turnovers.get(&(row.position.market, row.position.outcome)).copied(),
            marked: self.mark(row),
            tokens,
        });
        Ok(positions.collect())
    }

    /// Returns when an account was opened.
    pub async fn opened_at(
        &self,
        account: AccountId,
        context: RequestContext<'_>,
    ) -> Result<Timestamp, ServiceError> {
        let without_positions = |state: &State, id| state.observe_account(id, usize::MAX);
        Ok(self.reads(account, context).next(without_positions).await?.opened_at)
    }

    /// Returns all positions of an account, marked to market, oldest first.
    pub async fn positions_of(
        &self,
        account: AccountId,
        context: RequestContext<'_>,
    ) -> Result<Vec<MarkedPosition>, ServiceError> {
        let statement = self.statement(account, context).await?;
        Ok(statement.positions.into_iter().map(|row| self.mark(row)).collect())
    }

    /// Returns all settlements of an account that match the filter, newest payout first. An account
    /// keeps at most [`SETTLEMENTS_PER_ACCOUNT_MAX`].
    pub async fn payouts_of(
        &self,
        account: AccountId,
        filter: SettlementFilter,
        context: RequestContext<'_>,
    ) -> Result<Vec<SettlementRow>, ServiceError> {
        let most = SETTLEMENTS_PER_ACCOUNT_MAX;
        let mut rows = self.settlements_of(account, filter, None, most, context).await?.rows;
        rows.sort_by_key(|row| std::cmp::Reverse((row.settlement.at, row.number)));
        Ok(rows)
    }
}
