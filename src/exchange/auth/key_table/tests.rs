use std::sync::atomic::AtomicUsize;

use super::*;
use crate::auth::api_key::RawKey;
use paperbourse_core::limits::tier::Tiers;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

fn raw(number: u32) -> RawKey {
    let mut secret = [0; 32];
    secret[..4].copy_from_slice(&number.to_le_bytes());
    RawKey::from_secret(secret)
}

fn facts(number: u32) -> KeyFacts {
    KeyFacts {
        key_id: KeyId::from_raw(64 + u64::from(number)).unwrap(),
        account_id: AccountId::from_raw(64).unwrap(),
        tier: Tier::Pro,
        permissions: Permissions::DEFAULT,
    }
}

fn entry(number: u32) -> KeyEntry {
    KeyEntry::new(facts(number), Tiers::default().get(Tier::Pro))
}

fn table(numbers: std::ops::Range<u32>) -> KeyTable {
    let table = KeyTable::new(KEYS_MAX);
    for number in numbers {
        table.insert(raw(number).hash(), entry(number), None).unwrap();
    }
    table
}

fn authenticate(table: &KeyTable, number: u32, now: Timestamp) -> Result<Arc<KeyEntry>, KeyError> {
    let found = table.authenticate(raw(number).expose().as_bytes(), now)?;
    let entry = table.get(&found.hash).ok_or(KeyError::Unknown)?;
    assert_eq!(found.facts, entry.facts());
    Ok(entry)
}

/// How many requests a key may still send in this second.
fn remaining(table: &KeyTable, number: u32, now_ns: u64) -> u32 {
    let keys = table.keys.pin();
    let held = keys.get(&raw(number).hash()).unwrap();
    held.windows.peek(held.entry.limits.get(), now_ns).per_second.remaining
}

#[test]
fn each_key_finds_its_entry() {
    let table = table(0..300);
    for number in 0..300 {
        let entry = authenticate(&table, number, NOW).unwrap();
        assert_eq!(entry.facts(), facts(number));
    }
    assert_eq!(authenticate(&table, 300, NOW).unwrap_err(), KeyError::Unknown);
    assert_eq!(table.authenticate(b"", NOW).err(), Some(KeyError::Unknown));
    assert_eq!(table.authenticate(b"ps_live_zz", NOW).err(), Some(KeyError::Unknown));
    assert_eq!(table.key_count(), 300);
    let mut ids = Vec::new();
    table.for_each(|entry| ids.push(entry.facts().key_id.get()));
    ids.sort_unstable();
    assert_eq!(ids, (64..364).collect::<Vec<_>>());
}

#[test]
fn a_revoked_key_stays_revoked() {
    let table = table(0..2);
    let open_socket = authenticate(&table, 0, NOW).unwrap();
    assert_eq!(table.revoke(&raw(0).hash()).unwrap().facts(), facts(0));
    assert_eq!(authenticate(&table, 0, NOW).unwrap_err(), KeyError::Revoked);
    assert_eq!(open_socket.check(NOW), Err(KeyError::Revoked));
    assert!(authenticate(&table, 1, NOW).is_ok());
    assert!(table.revoke(&raw(2).hash()).is_none());

    let again = table.insert(raw(0).hash(), entry(0), None);
    assert_eq!(again.unwrap_err(), DuplicateKey);
    assert_eq!(authenticate(&table, 0, NOW).unwrap_err(), KeyError::Revoked);
}

#[test]
fn a_key_expires_at_its_end() {
    let table = table(0..1);
    let end_of_time = Timestamp::from_nanos(i64::MAX);
    let open_socket = authenticate(&table, 0, end_of_time).unwrap();
    assert!(open_socket.expires_at().is_none() && open_socket.is_lasting());
    assert!(table.set_expiry(&raw(1).hash(), NOW).is_none());
    table.set_expiry(&raw(0).hash(), NOW).unwrap();
    assert!(open_socket.expires_at() == Some(NOW) && !open_socket.is_lasting());
    let before = Timestamp::from_nanos(NOW.nanos() - 1);
    let expired = KeyError::Expired { expires_at: NOW };
    // The clock passed in decides, even when it was set back.
    for (now, expected) in
        [(before, Ok(())), (NOW, Err(expired)), (before, Ok(())), (end_of_time, Err(expired))]
    {
        assert_eq!(authenticate(&table, 0, now).map(|_| ()), expected);
        assert_eq!(open_socket.check(now), expected);
    }
    table.revoke(&raw(0).hash()).unwrap();
    assert_eq!(authenticate(&table, 0, NOW).unwrap_err(), KeyError::Revoked);
    table.set_expiry(&raw(0).hash(), end_of_time).unwrap();
    assert_eq!(authenticate(&table, 0, NOW).unwrap_err(), KeyError::Revoked);
}

#[test]
fn a_removed_key_is_refused() {
    let table = table(0..1);
    let hash = raw(0).hash();
    assert_eq!(table.check(&hash, NOW), Ok(()));
    assert!(table.decide(&hash, 0).unwrap().is_admitted);
    table.remove(&hash);
    assert_eq!(table.check(&hash, NOW), Err(KeyError::Revoked));
    assert_eq!(table.decide(&hash, 0), None);
}

/// Whether they were shared before the first request, between requests, or after a release.
#[test]
fn successors_share_the_windows_of_their_line() {
    let table = table(0..2);
    let decide = |number, now_ns| table.decide(&raw(number).hash(), now_ns).unwrap();
    let mut sent = 0;
    for number in 10..14 {
        let old = if number == 10 { 0 } else { number - 1 };
        table.insert(raw(number).hash(), entry(number), Some(&raw(old).hash())).unwrap();
        for other in [number, 0, old] {
            assert!(decide(other, 1_000).is_admitted);
            sent += 1;
            assert_eq!(remaining(&table, number, 1_000), 20 - sent);
            assert_eq!(remaining(&table, 0, 1_000), 20 - sent);
        }
    }
    assert_eq!(remaining(&table, 1, 1_000), 20);
    for number in [0, 10, 11, 12] {
        table.remove(&raw(number).hash());
    }
    assert_eq!(remaining(&table, 13, 1_000), 20 - sent);

    let later_ns = 100_000_000_000;
    table.release_windows(later_ns);
    table.insert(raw(14).hash(), entry(14), Some(&raw(13).hash())).unwrap();
    assert!(decide(14, later_ns).is_admitted && decide(13, later_ns).is_admitted);
    assert_eq!([13, 14].map(|number| remaining(&table, number, later_ns)), [18, 18]);

    // A key that is not there has no windows to share.
    table.insert(raw(15).hash(), entry(15), Some(&raw(0).hash())).unwrap();
    assert_eq!(remaining(&table, 15, later_ns), 20);
}

/// Two threads send with two keys of a line, one of which is made meanwhile, and a third one
/// releases memory: together they get what one window has.
#[test]
fn two_keys_of_a_line_never_get_more_than_one_window_has() {
    const SECONDS: u64 = 600;
    let table = table(0..1);
    let table = &table;
    let send = |number: u32| {
        (0..SECONDS * 40).filter(move |step| {
            let now_ns = step / 40 * 1_000_000_000;
            let decision = table.decide(&raw(number).hash(), now_ns);
            decision.is_some_and(|decision| decision.is_admitted)
        })
    };
    let admitted = std::thread::scope(|scope| {
        let first = scope.spawn(|| send(0).count());
        let second = scope.spawn(|| {
            table.insert(raw(1).hash(), entry(1), Some(&raw(0).hash())).unwrap();
            send(1).count()
        });
        scope.spawn(|| (0..200).for_each(|step| table.release_windows(step * 3_000_000_000)));
        first.join().unwrap() + second.join().unwrap()
    });
    // No second admits more than 20. The clock of one thread may be behind the other's, whose
    // stamps then count.
    assert!(admitted <= 20 * usize::try_from(SECONDS).unwrap(), "{admitted}");
    assert!(admitted >= 20, "{admitted}");
}

#[test]
fn the_last_use_is_recorded_to_within_a_second() {
    let table = table(0..1);
    let entry = table.get(&raw(0).hash()).unwrap();
    assert_eq!(entry.last_used(), None);
    for (millis, expected) in
        [(0, 0), (999, 0), (1000, 0), (1001, 1001), (2000, 1001), (9000, 9000), (-5000, -5000)]
    {
        let at = |millis| Timestamp::from_millis(NOW.millis() + millis);
        authenticate(&table, 0, at(millis)).unwrap();
        assert_eq!(entry.last_used(), Some(at(expected)), "{millis}");
    }
    table.revoke(&raw(0).hash());
    authenticate(&table, 0, Timestamp::from_nanos(i64::MAX)).unwrap_err();
    assert_eq!(entry.last_used(), Some(Timestamp::from_millis(NOW.millis() - 5000)));
}

#[test]
fn there_is_room_up_to_the_limit() {
    let table = KeyTable::new(2);
    for (number, had_room) in [(0, true), (1, true), (2, false)] {
        assert_eq!(table.has_room(), had_room);
        table.insert(raw(number).hash(), entry(number), None).unwrap();
    }
    assert!(!table.has_room());
}

#[test]
fn a_removed_key_makes_room_and_stays_revoked_for_its_holders() {
    let table = KeyTable::new(1);
    table.insert(raw(0).hash(), entry(0), None).unwrap();
    let open_socket = table.revoke(&raw(0).hash()).unwrap();
    assert!(!table.has_room());
    table.remove(&raw(0).hash());
    let found = table.authenticate(raw(0).expose().as_bytes(), NOW);
    assert_eq!(found.err(), Some(KeyError::Unknown));
    assert!(table.has_room());
    assert_eq!(open_socket.check(NOW), Err(KeyError::Revoked));
}

#[test]
fn a_revocation_takes_effect_at_once_on_every_thread() {
    const KEYS: u32 = 2000;
    let table = table(0..KEYS);
    // All keys below this one are revoked.
    let revoked = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let known = u32::try_from(revoked.load(Ordering::Acquire)).unwrap();
                    if let Some(newest) = known.checked_sub(1) {
                        let found = authenticate(&table, newest, NOW).map(|_| ());
                        assert_eq!(found, Err(KeyError::Revoked));
                    }
                    if known == KEYS {
                        break;
                    }
                }
            });
        }
        // Growing the table makes lookups meet entries that are being moved.
        for number in 0..KEYS {
            let added = number + KEYS;
            table.insert(raw(added).hash(), entry(added), None).unwrap();
            table.revoke(&raw(number).hash()).unwrap();
            revoked.fetch_add(1, Ordering::Release);
        }
    });
    for number in 0..2 * KEYS {
        assert_eq!(authenticate(&table, number, NOW).is_err(), number < KEYS, "{number}");
    }
}
