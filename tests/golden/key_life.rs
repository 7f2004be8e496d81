//! Writes data with keys that are renamed and rotated.

use super::*;

/// Renames and rotates keys, before and after a snapshot.
pub(super) fn write_key_life(data: &Path) {
    let Opened { journal, recovered, folder, .. } = open(data);
    let mut state = recovered.into_shards().swap_remove(usize::from(SHARD)).state;
    let journal = Arc::new(journal);
    happen(&mut state, &journal, opening());
    let key = |number| KeyId::new(shard(), number).unwrap();
    for half in 0..2 {
        let mut count = 0;
        while count < 3 || journal.segment() == Some(1) {
            count += 1;
            let name = (count > 1).then(|| format!("{} {count}", "älter".repeat(15)).into());
            let renamed = Event::KeyRenamed { key: key(2 + half), name };
            happen(&mut state, &journal, vec![renamed]);
        }
        let rotated = key(1 + 2 * half);
        let expires_at = at(86_400);
        let successor = |number: u64, of: KeyId| Event::KeyCreated {
            key: key(number),
            account: account(),
            grant: KeyGrant {
                hash: [u8::try_from(number).unwrap(); 32],
                prefix: format!("ps_live_{number:08x}").into(),
                ..state.key(of).unwrap().grant
            },
            created_by: Some(of),
            at: at(200),
        };
        // One rotation with an overlap, and one without.
        let next = state.head().keys_ever + 1;
        let later =
            vec![Event::KeyExpirySet { key: rotated, expires_at }, successor(next, rotated)];
        let at_once = vec![
            Event::KeyRevoked { key: key(2 + 2 * half), at: at(201) },
            successor(next + 1, key(2 + 2 * half)),
        ];
        happen(&mut state, &journal, later);
        happen(&mut state, &journal, at_once);
        if half == 0 {
            take_snapshot(&folder, &journal);
        }
    }
}
