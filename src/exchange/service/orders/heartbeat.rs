//! Heartbeats of the caller's account.

use crate::service::heartbeat_chains::HeartbeatId;
use crate::service::{Caller, RequestContext, Service, ServiceError};
use paperbourse_core::engine::command::SetHeartbeat;
use paperbourse_core::ids::Timestamp;

/// What became of a heartbeat that names the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainedBeat {
    /// It was recorded. The next one has to name it by this id.
    Recorded(HeartbeatId),
    /// It named another one than this, the newest, and was not recorded.
    NotNewest(HeartbeatId),
}

impl Service {
    /// Records a heartbeat of the caller's account. Returns when its open orders will be cancelled
    /// unless another heartbeat arrives.
    pub async fn beat(
        &self,
        caller: &Caller,
        interval_ms: u32,
        context: RequestContext<'_>,
    ) -> Result<Timestamp, ServiceError> {
        let account = caller.account()?;
        let command = SetHeartbeat { account, interval_ms };
        Ok(self.shards.execute(account.shard(), command, context.waiters).await?)
    }

    /// Records a heartbeat like [`Self::beat`], unless it names another `previous` one than the
    /// newest. It may name none, and it may name any if no newest one is known: before the first,
    /// once the account counts as silent, and after a restart.
    pub async fn beat_after(
        &self,
        caller: &Caller,
        previous: Option<&str>,
        interval_ms: u32,
        context: RequestContext<'_>,
    ) -> Result<ChainedBeat, ServiceError> {
        let (account, now) = (caller.account()?, context.moment.now);
        let newest = self.heartbeat_chains.newest(account, now);
        if let (Some(newest), Some(previous)) = (newest, previous)
            && newest.to_string() != previous
        {
            return Ok(ChainedBeat::NotNewest(newest));
        }
        let next = HeartbeatId::generate().map_err(|_| ServiceError::NoRandomBytes)?;
        let silent_at = self.beat(caller, interval_ms, context).await?;
        let next = self.heartbeat_chains.advance(account, newest, (next, silent_at), now);
        Ok(ChainedBeat::Recorded(next))
    }
}
