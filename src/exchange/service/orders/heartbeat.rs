//! Heartbeats of the caller's account.

use crate::service::{Caller, RequestContext, Service, ServiceError};
use paperbourse_core::engine::command::SetHeartbeat;
use paperbourse_core::ids::Timestamp;

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
}
