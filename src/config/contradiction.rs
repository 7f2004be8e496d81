//! Options that contradict each other.

use super::cluster::ClusterConfigError;
use super::identity::{IdentityChoice, IdentityConfigError};
use super::traces::TraceConfigError;
use super::venue::UselessFlag;
use super::{DataPlace, ServeArgs, Switch};
use crate::limits::tier::{Tier, TierSetting};

/// A contradiction between options.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContradictionError {
    /// An option of the identity source is missing, or has no effect.
    #[error(transparent)]
    Identity(#[from] IdentityConfigError),
    /// An option has no effect on the venue.
    #[error(transparent)]
    Venue(#[from] UselessFlag),
    /// `--issuer-data` is set, but the identity source has no key of its own.
    #[error(
        "--identity {source_name} takes no --issuer-data without --clob on: only the embedded \
         issuer and wallets have keys"
    )]
    UselessIssuerData {
        /// The identity source, as given to `--identity`.
        source_name: String,
    },
    /// The trace options cannot be used.
    #[error(transparent)]
    Traces(#[from] TraceConfigError),
    /// The cluster options cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterConfigError),
    /// Nodes of a cluster would derive other credentials for the same wallet.
    #[error(
        "--clob on in a cluster needs --issuer-data DIR, with a copy of wallets/master.key on \
         every node: all nodes have to derive the same credentials"
    )]
    NoSharedMasterKey,
    /// `--clob-trouble` is set, but the venue's interface is off.
    #[error("--clob-trouble has no effect without --clob on")]
    UselessTrouble,
    /// `--clob-trouble` is set on a node of a cluster.
    #[error("--clob-trouble cannot be used in a cluster: try bots on a server of their own")]
    TroubleInCluster,
    /// `--tier` sets the limits of one tier twice.
    #[error("--tier sets the limits of {0} twice: keep one of them")]
    TierTwice(Tier),
}

impl ServeArgs {
    /// Rejects options that contradict each other.
    pub fn check(&self) -> Result<(), ContradictionError> {
        self.identity.config()?;
        self.venue.config()?;
        self.traces.config()?;
        self.cluster.check(matches!(self.data, DataPlace::Folder(_)))?;
        let has_issuer = self.identity.identity == IdentityChoice::Embedded;
        if self.issuer_data.is_some() && !has_issuer && self.clob == Switch::Off {
            let source_name = self.identity.identity.to_string();
            return Err(ContradictionError::UselessIssuerData { source_name });
        }
        let is_node = self.cluster.cluster.is_some();
        if is_node && self.clob == Switch::On && self.issuer_data.is_none() {
            return Err(ContradictionError::NoSharedMasterKey);
        }
        if self.clob_trouble.is_some() {
            if self.clob == Switch::Off {
                return Err(ContradictionError::UselessTrouble);
            }
            if is_node {
                return Err(ContradictionError::TroubleInCluster);
            }
        }
        let mut given = Vec::new();
        for &TierSetting { tier, .. } in &self.tiers {
            if given.contains(&tier) {
                return Err(ContradictionError::TierTwice(tier));
            }
            given.push(tier);
        }
        Ok(())
    }
}
