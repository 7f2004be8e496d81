//! No sequence of creating, rotating, renaming and revoking keys gives a caller more than they were
//! granted: random key trees and operations, checked against an oracle that only remembers grants.
//!
//! Policy and engine run together as in the service: the policy decides what a caller may grant,
//! the engine what is possible.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use paperbourse::auth::policy::Actor;
use paperbourse::engine::account::Account;
use paperbourse::engine::command::{CreateKey, Owner, RenameKey, RevokeKey, RotateKey};
use paperbourse::engine::key::{
    Key, KeyGrant, OVERLAPPING_KEYS_PER_ACCOUNT_MAX, Permission, Permissions,
};
use paperbourse::engine::rejection::Rejection;
use paperbourse::engine::{Command, State, Verdict};
use paperbourse::ids::{AccountId, KeyId, Timestamp};
use paperbourse::limits::tier::Tier;

use crate::world::World;

const TIERS: [Tier; 3] = [Tier::Free, Tier::Pro, Tier::Enterprise];
const SUBJECTS: [&str; 2] = ["A1", "A2"];

/// Who performs an operation.
#[derive(Clone, Copy, Debug)]
enum By {
    /// The holder of the active key with this index, modulo the number of active keys.
    Key(usize),
    /// The owner of an account, at this tier.
    Token(usize, usize),
}

#[derive(Clone, Debug)]
enum Operation {
    Create { permissions: Permissions, tier: usize },
    Rename { key: Index },
    Rotate { key: Index, overlap_seconds: u32 },
    Revoke { key: Index, descendants: bool },
    Pass { seconds: i64 },
}

fn steps() -> impl Strategy<Value = Vec<(By, Operation)>> {
    let by = prop_oneof![
        6 => (0..14_usize).prop_map(By::Key),
        1 => (0..SUBJECTS.len(), 0..TIERS.len())
            .prop_map(|(account, tier)| By::Token(account, tier)),
    ];
    let permissions = (1_u8..=7).prop_map(|bits| Permissions::from_bits(bits).expect("a set"));
    let key = || any::<Index>();
    let overlap = prop_oneof![1 => Just(0_u32), 3 => 1..60_u32];
    let operation = prop_oneof![
        8 => (permissions, 0..TIERS.len())
            .prop_map(|(permissions, tier)| Operation::Create { permissions, tier }),
        2 => key().prop_map(|key| Operation::Rename { key }),
        6 => (key(), overlap)
            .prop_map(|(key, overlap_seconds)| Operation::Rotate { key, overlap_seconds }),
        2 => (key(), any::<bool>())
            .prop_map(|(key, descendants)| Operation::Revoke { key, descendants }),
        2 => (1_i64..40).prop_map(|seconds| Operation::Pass { seconds }),
    ];
    let opening =
        (0..SUBJECTS.len(), 0..TIERS.len(), 1_u8..=7).prop_map(|(account, tier, bits)| {
            let permissions = Permissions::from_bits(bits).expect("a set");
            (By::Token(account, tier), Operation::Create { permissions, tier })
        });
    (prop::collection::vec(opening, 1..4), prop::collection::vec((by, operation), 1..60))
        .prop_map(|(opening, rest)| opening.into_iter().chain(rest).collect())
}

/// What a caller may grant: any permission with `admin`, otherwise their own; never a higher tier.
#[derive(Clone, PartialEq, Debug)]
struct Reach {
    permissions: BTreeSet<&'static str>,
    tier: usize,
}

impl Reach {
    fn of(permissions: Permissions, tier: Tier) -> Self {
        let mut names: BTreeSet<_> = permissions.iter().map(Permission::as_str).collect();
        if names.contains("admin") {
            names = ["read", "trade", "admin"].into();
        }
        let tier = TIERS.iter().position(|known| *known == tier).expect("a tier");
        Self { permissions: names, tier }
    }

    fn covers(&self, other: &Self) -> bool {
        other.permissions.is_subset(&self.permissions) && other.tier <= self.tier
    }
}

/// What the oracle knows about a key from the answers alone.
struct KnownKey {
    account: usize,
    /// What the token bearer who created the first key of the chain could grant.
    root: Reach,
    maker: Option<usize>,
    is_revoked: bool,
    ends_at: Option<i64>,
}

struct Run {
    world: World,
    keys: Vec<KnownKey>,
    reached: BTreeMap<&'static str, usize>,
}

impl Run {
    fn new() -> Self {
        let mut world = World::new();
        world.now = Timestamp::EPOCH;
        Self { world, keys: Vec::new(), reached: BTreeMap::new() }
    }

    fn now(&self) -> i64 {
        self.world.now.seconds()
    }

    fn is_active(&self, key: usize) -> bool {
        let known = &self.keys[key];
        !known.is_revoked && known.ends_at.is_none_or(|end| self.now() < end)
    }

    fn id(&self, key: usize) -> KeyId {
        KeyId::new(self.world.state.shard(), key as u64 + 1).expect("a small counter")
    }

    fn account(&self, account: usize) -> Option<AccountId> {
        let digest = World::identity(SUBJECTS[account]).digest;
        self.world.state.account_of(&digest).map(Account::id)
    }

    fn grant_of(&self, key: usize) -> KeyGrant {
        self.world.state.key(self.id(key)).expect("few keys have ended").grant
    }

    fn note(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    /// Performs the operation if the caller may, and compares all keys with what the rule allows.
    fn step(&mut self, by: By, operation: &Operation) {
        if let Operation::Pass { seconds } = operation {
            self.world.now = Timestamp::from_seconds(self.now() + seconds);
            return self.check();
        }
        let before: Vec<Key> = self.world.state.keys().collect();
        let (account, actor, with) = match by {
            By::Key(number) => {
                // An inactive key is refused before anything else.
                let active: Vec<_> =
                    (0..self.keys.len()).filter(|&key| self.is_active(key)).collect();
                let Some(&key) = active.get(number % active.len().max(1)) else { return };
                let grant = self.grant_of(key);
                let actor = Actor::Key { permissions: grant.permissions, tier: grant.tier };
                (self.keys[key].account, actor, Some(key))
            }
            By::Token(account, tier) => {
                (account, Actor::Token { entitled_tier: TIERS[tier] }, None)
            }
        };
        self.perform(account, actor, with, operation);
        self.check_own_account(account, &before);
        self.check();
    }

    fn perform(
        &mut self,
        account: usize,
        actor: Actor,
        with: Option<usize>,
        operation: &Operation,
    ) {
        let caller_key = with.map(|with| self.id(with));
        let is_over = |key: usize| {
            with.is_none_or(|own| own == key) || actor.permissions().allows(Permission::Admin)
        };
        let reach = || match with {
            Some(with) => self.keys[with].root.clone(),
            None => Reach::of(Permissions::ALL, actor.tier()),
        };
        match *operation {
            Operation::Create { permissions, tier } => {
                if actor.may_create(permissions, TIERS[tier]).is_err() {
                    return self.note("not given");
                }
                let root = reach();
                let owner = match (with, self.account(account)) {
                    (Some(_), Some(id)) => Owner::Account(id),
                    _ => Owner::Identity(World::identity(SUBJECTS[account])),
                };
                let grant = KeyGrant {
                    hash: [3; 32],
                    prefix: "ps_live_01234567".into(),
                    name: None,
                    tier: TIERS[tier],
                    permissions,
                    expires_at: None,
                    wallet: None,
                };
                let create =
                    CreateKey { owner, is_bootstrap: false, created_by: caller_key, grant };
                if self.happens(&create, "made") {
                    self.record(account, root, with);
                }
            }
            Operation::Rename { key } => {
                let key = self.chosen(key);
                let Some(id) = self.account(account).filter(|_| is_over(key)) else { return };
                let (key, name) = (self.id(key), Some("another".into()));
                let rename = RenameKey { account: id, key, name, caller_key };
                self.happens(&rename, "renamed");
            }
            Operation::Rotate { key, overlap_seconds } => {
                let key = self.chosen(key);
                let Some(id) = self.account(account).filter(|_| is_over(key)) else { return };
                let Some(old) = self.world.state.key(self.id(key)) else { return };
                if old.account == id
                    && actor.may_create(old.grant.permissions, old.grant.tier).is_err()
                {
                    return self.note("not rotated for another");
                }
                let root = reach();
                let rotate = RotateKey {
                    account: id,
                    key: self.id(key),
                    caller_key,
                    overlap_seconds,
                    hash: [4; 32],
                    prefix: "ps_live_89abcdef".into(),
                };
                if self.happens(&rotate, "rotated") {
                    let now = self.now();
                    let known = &mut self.keys[key];
                    known.is_revoked = overlap_seconds == 0;
                    known.ends_at = (overlap_seconds > 0).then(|| now + i64::from(overlap_seconds));
                    // The caller learns the new raw key, so it must be within their reach too.
                    self.record(account, root, Some(key));
                }
            }
            Operation::Revoke { key, descendants } => {
                let key = self.chosen(key);
                let Some(id) = self.account(account).filter(|_| is_over(key)) else { return };
                let command = RevokeKey { account: id, key: self.id(key), descendants };
                if self.happens(&command, "revoked") {
                    let ended: Vec<usize> = (0..self.keys.len())
                        .filter(|&other| other == key || (descendants && self.descends(other, key)))
                        .filter(|&other| self.is_active(other))
                        .collect();
                    for other in ended {
                        self.keys[other].is_revoked = true;
                    }
                }
            }
            Operation::Pass { .. } => unreachable!("handled in `step`"),
        }
    }

    /// Any key ever created, or one that never existed.
    fn chosen(&self, key: Index) -> usize {
        key.index(self.keys.len() + 1)
    }

    fn happens<C>(&mut self, command: &C, what: &'static str) -> bool
    where
        C: Command<Subject: PartialEq + Debug>,
    {
        let verdict = self.world.run(command);
        match &verdict {
            Ok(Verdict::Happens(..)) => self.note(what),
            Err(Rejection::MakerRotated) => self.note("on its way out"),
            Err(Rejection::KeyLimitExceeded { .. }) => self.note("no room"),
            _ => {}
        }
        matches!(verdict, Ok(Verdict::Happens(..)))
    }

    fn record(&mut self, account: usize, root: Reach, maker: Option<usize>) {
        self.keys.push(KnownKey { account, root, maker, is_revoked: false, ends_at: None });
    }

    fn descends(&self, key: usize, ancestor: usize) -> bool {
        let maker = self.keys[key].maker;
        maker.is_some_and(|maker| maker == ancestor || self.descends(maker, ancestor))
    }

    /// The operation changed no key of another account.
    fn check_own_account(&self, account: usize, before: &[Key]) {
        let own = self.account(account);
        for key in before.iter().filter(|key| Some(key.account) != own) {
            assert_eq!(self.world.state.key(key.id).as_ref(), Some(key), "another account's key");
        }
    }

    fn check(&self) {
        let state: &State = &self.world.state;
        assert_eq!(state.keys().count(), self.keys.len(), "the engine has other keys");
        for (number, key) in state.keys().enumerate() {
            let known = &self.keys[number];
            let reach = Reach::of(key.grant.permissions, key.grant.tier);
            assert!(known.root.covers(&reach), "{key:?} is beyond {:?}", known.root);
            if let Some(maker) = known.maker {
                let maker = self.grant_of(maker);
                assert!(Reach::of(maker.permissions, maker.tier).covers(&reach), "{key:?}");
            }
            assert_eq!(key.is_active(self.world.now), self.is_active(number), "{key:?}");
            assert_eq!(Some(key.account), self.account(known.account));
        }
        for account in 0..SUBJECTS.len() {
            let active = || {
                let own = (0..self.keys.len()).filter(|&key| self.keys[key].account == account);
                own.filter(|&key| self.is_active(key))
            };
            let overlapping = active().filter(|&key| self.keys[key].ends_at.is_some()).count();
            assert!(active().count() - overlapping <= 5, "too many active keys");
            assert!(overlapping <= OVERLAPPING_KEYS_PER_ACCOUNT_MAX);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_operations_escalates(steps in steps()) {
        let mut run = Run::new();
        for (by, operation) in &steps {
            run.step(*by, operation);
        }
    }
}

/// Guards the property test: its cases must reach every outcome.
#[test]
fn the_random_operations_reach_every_outcome() {
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeMap::<_, usize>::new();
    for _ in 0..60 {
        let mut run = Run::new();
        let steps = steps().new_tree(&mut runner).expect("nothing is filtered").current();
        for (by, operation) in &steps {
            run.step(*by, operation);
        }
        for (what, count) in run.reached {
            *reached.entry(what).or_default() += count;
        }
    }
    println!("{reached:?}");
    for what in [
        "made",
        "no room",
        "not given",
        "not rotated for another",
        "on its way out",
        "renamed",
        "revoked",
        "rotated",
    ] {
        assert!(reached.get(what).is_some_and(|count| *count >= 5), "{what}: {reached:?}");
    }
}
