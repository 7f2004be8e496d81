//! What the venue's interface needs to start: the key from which the credentials of wallets are
//! derived, how orders are taken, and trouble on demand.

use std::sync::Arc;

use anyhow::Context as _;

use crate::config::{ClobHashes, DataPlace, ServeArgs, Switch};
use crate::engine::State;
use crate::http::operations::clob::ClobOrders;
use crate::key_file::{self, KeyFile, MASTER_KEY_BYTES};
use crate::service::{KnownWallets, Service};
use crate::trouble::{MaybeTrouble, Record, Trouble};

/// Returns the wallets that have an account; none if the venue's interface is off.
pub(super) fn wallets<'s>(
    arguments: &ServeArgs,
    states: impl Iterator<Item = &'s State>,
) -> KnownWallets {
    if arguments.clob == Switch::On { KnownWallets::of(states) } else { KnownWallets::default() }
}

/// Lets wallets call if the venue's interface is on. `wallets` are those that have an account.
pub(super) fn let_wallets_call(
    service: Service,
    arguments: &ServeArgs,
    has_wallets: bool,
    wallets: KnownWallets,
) -> anyhow::Result<Service> {
    let Switch::On = arguments.clob else { return Ok(service) };
    let service = service.with_master_key(&open_master_key(arguments, has_wallets)?)?;
    Ok(service.with_wallets(wallets))
}

/// Opens the key from which the credentials of wallets are derived. Creates it unless wallets have
/// credentials, which were then derived from a key that is missing.
fn open_master_key(
    arguments: &ServeArgs,
    has_wallets: bool,
) -> anyhow::Result<[u8; MASTER_KEY_BYTES]> {
    let Some(folder) = arguments.key_folder() else {
        tracing::info!("deriving the credentials of wallets from a temporary key");
        return key_file::generate_master_key()
            .context("the operating system provides no randomness");
    };
    let path = KeyFile::Wallets.path(folder);
    if has_wallets && KeyFile::Wallets.load_existing(folder)?.is_none() {
        anyhow::bail!(
            "{} is missing, and wallets have credentials that were derived from it: restore it \
             from a backup, or from another node of the cluster",
            path.display()
        );
    }
    let key = key_file::load_or_create_master_key(folder)
        .with_context(|| format!("failed to open the master key {}", path.display()))?;
    tracing::info!(
        path = %path.display(),
        "deriving the credentials of wallets from the master key; back it up, since without it \
         they are lost"
    );
    Ok(key)
}

/// Returns how orders of the venue's interface are taken and answered.
pub(super) fn orders(arguments: &ServeArgs) -> ClobOrders {
    ClobOrders {
        is_strict: arguments.clob_strict == Switch::On,
        has_hashes: arguments.clob_hashes == ClobHashes::AtOnce,
    }
}

/// Returns the trouble that clients of the venue's interface are to meet, if any.
pub(super) fn trouble(arguments: &ServeArgs) -> anyhow::Result<MaybeTrouble> {
    let Some(plan) = &arguments.clob_trouble else { return Ok(None) };
    let record = match &arguments.data {
        DataPlace::Folder(folder) => Some(Record::open(folder).with_context(|| {
            format!("failed to open the record of trouble in {}", folder.display())
        })?),
        DataPlace::Memory => None,
    };
    tracing::warn!(%plan, "Polymarket's clients meet trouble on purpose (--clob-trouble)");
    Ok(Some(Arc::new(Trouble::new(plan.clone(), record))))
}
