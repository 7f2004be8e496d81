//! The signers of contracts: whose proxy, safe or deposit wallet an address is.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use paperbourse_clob::signature::address::Address;
use paperbourse_clob::signature::wallets::Wallets;
use parking_lot::RwLock;

/// The contracts of all wallets that have an account, so there are four for each of these accounts.
/// An entry stays until the process ends, also if the account is erased: its signer then has none.
#[derive(Default)]
pub(in crate::service) struct WalletContracts(RwLock<Table>);

#[derive(Default)]
struct Table {
    signers: Vec<Address>,
    /// The place of the signer of each contract.
    of_contract: HashMap<Address, u32, RandomState>,
}

impl WalletContracts {
    /// Adds the contracts of a signer, unless they are known. Computing them takes some ten
    /// microseconds.
    pub(in crate::service) fn add(&self, signer: Address) {
        let Wallets { proxy, safe, deposit, deposit_without_beacon } = Wallets::of(signer);
        let mut table = self.0.write();
        let Table { signers, of_contract } = &mut *table;
        let place = u32::try_from(signers.len()).expect("there are fewer accounts");
        for contract in [proxy, safe, deposit, deposit_without_beacon] {
            of_contract.entry(contract).or_insert(place);
        }
        if of_contract[&proxy] == place {
            signers.push(signer);
        }
    }

    /// Returns the signer to whom a contract belongs; `None` if it is no contract of a wallet that
    /// has an account.
    pub(in crate::service) fn signer(&self, contract: Address) -> Option<Address> {
        let table = self.0.read();
        table.of_contract.get(&contract).map(|place| table.signers[*place as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(number: u32) -> Address {
        let mut bytes = [7; 20];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        Address::from_bytes(bytes)
    }

    #[test]
    fn each_contract_has_its_signer() {
        let contracts = WalletContracts::default();
        let all = (0..100).map(signer);
        for signer in all.clone().chain(all.clone()) {
            contracts.add(signer);
        }
        for signer in all {
            let Wallets { proxy, safe, deposit, deposit_without_beacon } = Wallets::of(signer);
            for contract in [proxy, safe, deposit, deposit_without_beacon] {
                assert_eq!(contracts.signer(contract), Some(signer));
            }
            assert_eq!(contracts.signer(signer), None, "a signer is no contract");
        }
        assert_eq!(contracts.0.read().signers.len(), 100);
    }

    #[test]
    fn a_wallet_takes_at_most_260_bytes() {
        // The worst that a growing table does is to be half as full as it may get.
        const SLOT_BYTES: usize = size_of::<(Address, u32)>() + 1;
        let contracts = WalletContracts::default();
        (0..1_000).map(signer).for_each(|signer| contracts.add(signer));
        let table = contracts.0.read();
        // Seven of eight slots may be in use.
        let slots = table.of_contract.capacity() / 7 * 8;
        let bytes = slots * SLOT_BYTES + table.signers.capacity() * size_of::<Address>();
        let each = bytes / table.signers.len();
        assert!((100..=260).contains(&each), "{each}");
    }
}
