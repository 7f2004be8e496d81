//! Writes data with keys that were granted to wallets.

use super::*;
use paperbourse::engine::key::WalletGrant;

/// The kinds of events in the life of keys that were granted to wallets.
const KINDS: [&str; 8] = [
    "account opened",
    "key created",
    "key expiry set",
    "key forgotten",
    "key renamed",
    "key revoked",
    "market introduced",
    "state checked",
];

/// Grants keys to a wallet before and after a snapshot, and ends some of them.
pub(super) fn write_wallets(data: &Path) {
    let Opened { journal, recovered, folder, .. } = open(data);
    let mut state = recovered.into_shards().swap_remove(usize::from(SHARD)).state;
    let journal = Arc::new(journal);
    happen(&mut state, &journal, opening());
    for (number, nonce) in (5..).zip([0, 7, u64::MAX]) {
        happen(&mut state, &journal, vec![granted(number, nonce)]);
    }
    let key = |number| KeyId::new(shard(), number).unwrap();
    let revoked = |number| Event::KeyRevoked { key: key(number), at: at(2) };
    happen(&mut state, &journal, vec![revoked(5)]);
    happen(&mut state, &journal, vec![granted(8, 0)]);
    let mut count = 0;
    while journal.segment() == Some(1) {
        count += 1;
        let name = Some(format!("{} {count}", "desk".repeat(20)).into());
        happen(&mut state, &journal, vec![Event::KeyRenamed { key: key(6), name }]);
    }
    take_snapshot(&folder, &journal);
    let expiry = Event::KeyExpirySet { key: key(6), expires_at: at(86_400) };
    happen(&mut state, &journal, vec![expiry]);
    happen(&mut state, &journal, vec![granted(9, 7)]);
    let last = vec![granted(10, 8), revoked(7), Event::KeyForgotten { key: key(5) }];
    happen(&mut state, &journal, last);
}

/// The key with this number, granted to a wallet.
fn granted(number: u64, nonce: u64) -> Event {
    let hash = [u8::try_from(number).unwrap(); 32];
    Event::KeyCreated {
        key: KeyId::new(shard(), number).unwrap(),
        account: account(),
        grant: KeyGrant {
            hash,
            prefix: format!("{number:08x}").into(),
            name: Some(format!("0xabab, nonce {nonce}").into()),
            tier: Tier::Free,
            permissions: Permissions::DEFAULT,
            expires_at: None,
            wallet: Some(WalletGrant { address: [0xab; 20], nonce }),
        },
        created_by: None,
        at: at(1),
    }
}

#[test]
fn keys_that_were_granted_to_wallets_are_read() {
    check_read("wallets", &KINDS, "wallets");
}

#[test]
fn keys_that_were_granted_to_wallets_written_today_read_the_same() {
    check_written("wallets", write_wallets, "wallets");
}
