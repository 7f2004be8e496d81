//! Heartbeats of the caller's account.

use crate::service::{Caller, RequestContext, Service, ServiceError};
use paperbourse_core::engine::command::Beat;
use paperbourse_core::ids::Timestamp;

impl Service {
    /// Notes that the caller's account is alive. Returns when its open orders will be cancelled
    /// unless it is heard again.
    pub async fn beat(
        &self,
        caller: &Caller,
        interval_ms: u32,
        context: RequestContext<'_>,
    ) -> Result<Timestamp, ServiceError> {
        let account = caller.account()?;
        let command = Beat { account, interval_ms };
        Ok(self.shards.execute(account.shard(), command, context.waiters).await?)
    }
}
