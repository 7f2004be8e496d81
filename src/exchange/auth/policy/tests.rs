use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const TIERS: [Tier; 3] = [Tier::Free, Tier::Pro, Tier::Enterprise];

fn names(permissions: Permissions) -> Vec<&'static str> {
    permissions.iter().map(Permission::as_str).collect()
}

fn set(listed: &str) -> Permissions {
    Permissions::of(listed.split_whitespace().map(|name| Permission::from_name(name).unwrap()))
        .unwrap()
}

#[test]
fn every_byte_is_a_permission_set_or_refused() {
    for bits in 0..=u8::MAX {
        let stored = Permissions::from_bits(bits);
        assert_eq!(stored.is_some(), (1..=7).contains(&bits), "{bits}");
        if let Some(permissions) = stored {
            assert_eq!(permissions.bits(), bits);
            assert_eq!(Permissions::of(permissions.iter()), stored);
        }
    }
}

#[test]
fn subsets_are_those_of_the_names() {
    let sets: Vec<_> = (1..=7).filter_map(Permissions::from_bits).collect();
    for &left in &sets {
        for &right in &sets {
            let [inner, outer] = [left, right].map(|set| BTreeSet::from_iter(names(set)));
            assert_eq!(left.is_subset_of(right), inner.is_subset(&outer), "{left:?} {right:?}");
        }
    }
}

#[test]
fn callers_create_keys_within_their_rights() {
    use Tier::{Enterprise, Free, Pro};
    let key = |permissions, tier| Actor::Key { permissions: set(permissions), tier };
    let token = |entitled_tier| Actor::Token { entitled_tier };
    let lacks = |missing| Err(PolicyError::InsufficientPermission { missing });
    let above = |asked, highest| Err(PolicyError::TierNotAuthorized { asked, highest });
    for (actor, permissions, tier, expected) in [
        (key("read trade", Pro), "read trade", Pro, Ok(())),
        (key("read trade", Pro), "read", Free, Ok(())),
        (key("read", Pro), "read trade", Pro, lacks(Permission::Trade)),
        (key("trade", Pro), "read trade", Pro, lacks(Permission::Read)),
        (key("read trade", Pro), "admin", Pro, lacks(Permission::Admin)),
        (key("read", Pro), "read", Enterprise, above(Enterprise, Pro)),
        (key("read", Free), "trade", Enterprise, lacks(Permission::Trade)),
        (key("admin", Free), "read trade admin", Free, Ok(())),
        (key("admin", Free), "read", Pro, above(Pro, Free)),
        (key("read trade admin", Enterprise), "admin", Enterprise, Ok(())),
        (token(Free), "read trade admin", Free, Ok(())),
        (token(Free), "read", Pro, above(Pro, Free)),
        (token(Enterprise), "admin", Pro, Ok(())),
    ] {
        let found = actor.may_create(set(permissions), tier);
        assert_eq!(found, expected, "{actor:?} creates {permissions} {tier:?}");
    }
}

#[test]
fn admin_alone_cannot_trade() {
    let actor = Actor::Key { permissions: set("admin"), tier: Tier::Free };
    assert_eq!(actor.require(Permission::Admin), Ok(()));
    let missing = Permission::Trade;
    assert_eq!(actor.require(missing), Err(PolicyError::InsufficientPermission { missing }));
}

/// Everything a caller can ever reach, by the rule: with `admin` every permission, otherwise its
/// own.
fn reach(root: Actor) -> BTreeSet<&'static str> {
    let own = BTreeSet::from_iter(names(root.permissions()));
    if own.contains("admin") { ["read", "trade", "admin"].into() } else { own }
}

fn permissions() -> impl Strategy<Value = Permissions> {
    (1_u8..=7).prop_map(|bits| Permissions::from_bits(bits).unwrap())
}

fn tier() -> impl Strategy<Value = Tier> {
    proptest::sample::select(&TIERS[..])
}

fn actor() -> impl Strategy<Value = Actor> {
    prop_oneof![
        (permissions(), tier()).prop_map(|(permissions, tier)| Actor::Key { permissions, tier }),
        tier().prop_map(|entitled_tier| Actor::Token { entitled_tier }),
    ]
}

proptest! {
    /// Grows a tree: each request picks one of the existing actors as creator, by index.
    #[test]
    fn no_chain_of_creations_escalates(
        root in actor(),
        requests in proptest::collection::vec(
            (any::<proptest::sample::Index>(), permissions(), tier()),
            1..60,
        ),
    ) {
        let highest = TIERS.iter().position(|tier| *tier == root.tier());
        let mut tree = vec![root];
        for (creator, permissions, tier) in requests {
            let creator = *creator.get(&tree);
            if creator.may_create(permissions, tier).is_ok() {
                tree.push(Actor::Key { permissions, tier });
            }
        }
        for actor in tree {
            let held = BTreeSet::from_iter(names(actor.permissions()));
            prop_assert!(held.is_subset(&reach(root)), "{actor:?} of {root:?}");
            prop_assert!(TIERS.iter().position(|tier| *tier == actor.tier()) <= highest);
        }
    }

    /// Refusals are never wrong, either: everything the rule allows is granted.
    #[test]
    fn everything_within_reach_is_granted(
        creator in actor(),
        permissions in permissions(),
        tier in tier(),
    ) {
        let asked = BTreeSet::from_iter(names(permissions));
        let is_allowed = asked.is_subset(&reach(creator)) && tier <= creator.tier();
        prop_assert_eq!(creator.may_create(permissions, tier).is_ok(), is_allowed);
    }
}
