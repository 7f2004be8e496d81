//! Granting keys to wallets.

use crate::engine::account::Account;
use crate::engine::command::{GrantWalletKey, WalletKeyText};
use crate::engine::decide::{Command, Given, IDS_EXHAUSTED, Verdict};
use crate::engine::key::stored::KeyRow;
use crate::engine::key::{Key, KeyGrant, WalletGrant, generation_of};
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::engine::state::view::Observed;
use crate::ids::{AccountId, KeyId, Lsn};

impl<F: Fn(u32) -> WalletKeyText> Command for GrantWalletKey<F> {
    type Subject = KeyId;
    type Answer = Key;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<KeyId>, Rejection> {
        let actor = state.actor(&self.owner)?;
        let known = actor.known();
        if let Some(key) = known.and_then(|account| state.key_of_wallet(account, &self.wallet)) {
            return Ok(Verdict::Already(key.id));
        }
        state.created(actor, None, given, |key| {
            let WalletKeyText { hash, prefix } =
                (self.derive)(generation_of(key).ok_or(IDS_EXHAUSTED)?);
            Ok(KeyGrant {
                hash,
                prefix,
                name: Some(self.name.clone()),
                tier: known.and_then(Account::tier).unwrap_or(self.tier),
                permissions: self.permissions,
                expires_at: None,
                wallet: Some(self.wallet),
            })
        })
    }

    fn answer(state: &State, key: KeyId, _: bool) -> Key {
        state.key(key).expect("a key that was just found or created")
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.owner_lsn(&self.owner)
    }
}

impl State {
    /// Looks up the account of the identity with this digest, and its key for this wallet and
    /// nonce, unless that key was revoked or rotated.
    pub fn observe_wallet(
        &self,
        digest: &[u8; 32],
        wallet: &WalletGrant,
    ) -> Observed<Option<(AccountId, Option<Key>)>> {
        let Observed { value, lsn } = self.observe_identity(digest);
        let key =
            |account: &Account| self.key_of_wallet(account, wallet).map(|row| self.unpacked(row));
        let found = |id| (id, self.account(id).and_then(key));
        Observed { value: value.map(found), lsn }
    }

    /// Returns the key for this wallet and nonce that was neither revoked nor rotated. There is at
    /// most one.
    pub(in crate::engine) fn key_of_wallet(
        &self,
        account: &Account,
        wallet: &WalletGrant,
    ) -> Option<&KeyRow> {
        self.keys_of(account).find(|key| key.wallet() == Some(wallet) && !key.has_end())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use proptest::prelude::*;

    use super::*;
    use crate::engine::Rules;
    use crate::engine::admin::acts::OperatorCommand;
    use crate::engine::admin::standing::{Act, Operator};
    use crate::engine::command::{Identity, Owner, RevokeKey, RotateKey};
    use crate::engine::event::Events;
    use crate::engine::key::{ENDED_KEYS_PER_ACCOUNT_MAX, Permissions};
    use crate::ids::{ShardId, Timestamp};
    use crate::limits::tier::Tier;

    const ADDRESS: [u8; 20] = [0xab; 20];

    /// A shard with the account of a wallet, and a naive model of its keys.
    struct World {
        state: State,
        events: Vec<Events>,
        /// The key and generation for each nonce that has a key.
        keys: BTreeMap<u64, (KeyId, u32)>,
        /// All credentials that there have ever been.
        granted: HashSet<(u64, u32)>,
    }

    impl World {
        fn new() -> Self {
            let state = State::new(ShardId::of_digest(0));
            Self { state, events: Vec::new(), keys: BTreeMap::new(), granted: HashSet::new() }
        }

        /// Decides and applies a command. Returns its answer, and whether it changed anything.
        fn run<C: Command>(&mut self, command: &C) -> Result<(C::Answer, bool), Rejection> {
            let now = Timestamp::from_seconds(9);
            Ok(match self.state.decide(command, None, now, &Rules::default())? {
                Verdict::Happens(events, subject) => {
                    self.state.apply(&events, Lsn::START);
                    self.events.push(events);
                    (C::answer(&self.state, subject, true), true)
                }
                Verdict::Already(subject) => (C::answer(&self.state, subject, false), false),
            })
        }

        fn account(&self) -> Option<AccountId> {
            self.state.observe_identity(&identity().digest).value
        }

        /// Asks for the key of a nonce, and compares the answer with the model.
        fn grant(&mut self, nonce: u64) {
            let answer = self.run(&grant(nonce));
            match self.keys.get(&nonce) {
                Some(&(id, generation)) => {
                    let (key, is_new) = answer.unwrap();
                    assert_eq!((key.id, key.generation(), is_new), (id, generation, false));
                }
                None if self.keys.len() == Rules::default().active_keys_max as usize => {
                    assert!(matches!(answer, Err(Rejection::KeyLimitExceeded { .. })));
                }
                None => {
                    let (key, is_new) = answer.unwrap();
                    assert!(is_new);
                    assert_eq!(key.grant.wallet, Some(WalletGrant { address: ADDRESS, nonce }));
                    assert_eq!(key.grant.hash, derive(key.generation()).hash);
                    assert!(self.granted.insert((nonce, key.generation())), "credentials return");
                    self.keys.insert(nonce, (key.id, key.generation()));
                }
            }
            let wallet = WalletGrant { address: ADDRESS, nonce };
            let found = self.state.observe_wallet(&identity().digest, &wallet).value;
            let found = found.and_then(|(_, key)| key).map(|key| (key.id, key.generation()));
            assert_eq!(found, self.keys.get(&nonce).copied());
        }

        fn delete(&mut self, nonce: u64) {
            let Some((key, _)) = self.keys.remove(&nonce) else { return };
            let account = self.account().unwrap();
            self.run(&RevokeKey { account, key, descendants: false }).unwrap();
        }

        /// Rotates a key by the server's own operation, and revokes the key that replaces it.
        fn rotate(&mut self, nonce: u64, overlap_seconds: u32) {
            let Some(&(key, _)) = self.keys.get(&nonce) else { return };
            let account = self.account().unwrap();
            let (hash, prefix) = ([1; 32], "ps_live_01234567".into());
            let command =
                RotateKey { account, key, caller_key: None, overlap_seconds, hash, prefix };
            match self.run(&command) {
                Ok((new, _)) => {
                    assert_eq!(new.grant.wallet, None);
                    self.keys.remove(&nonce);
                    self.run(&RevokeKey { account, key: new.id, descendants: false }).unwrap();
                }
                Err(rejection) => {
                    assert!(matches!(rejection, Rejection::OverlapLimitExceeded { .. }));
                }
            }
        }

        fn erase(&mut self) {
            let Some(account) = self.account() else { return };
            let by = Operator { uid: 0, user: None };
            let command = OperatorCommand { account, act: Act::Erase, by, reason: "".into() };
            while self.run(&command).unwrap().0.has_more {}
            self.keys.clear();
        }

        /// Folds all events into a new state, which must be the same.
        fn restart(&mut self) {
            let mut again = State::new(ShardId::of_digest(0));
            self.events.iter().for_each(|events| again.apply(events, Lsn::START));
            assert!(again == self.state);
            assert_eq!(again.hash(), self.state.hash());
            self.state = again;
        }
    }

    fn identity() -> Identity {
        Identity { digest: [0; 32], issuer: "wallet".into(), subject: "0xab".into() }
    }

    fn derive(generation: u32) -> WalletKeyText {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&generation.to_le_bytes());
        WalletKeyText { hash, prefix: "01234567".into() }
    }

    fn grant(nonce: u64) -> GrantWalletKey<fn(u32) -> WalletKeyText> {
        GrantWalletKey {
            owner: Owner::Identity(identity()),
            wallet: WalletGrant { address: ADDRESS, nonce },
            name: format!("0xab, nonce {nonce}").into(),
            tier: Tier::Pro,
            permissions: Permissions::DEFAULT,
            derive,
        }
    }

    /// An account forgets its oldest ended keys, and their credentials do not return for it.
    #[test]
    fn deleted_credentials_never_return() {
        let mut world = World::new();
        for nonce in [0, 0, 1, 2] {
            for _ in 0..=ENDED_KEYS_PER_ACCOUNT_MAX {
                world.grant(nonce);
                world.delete(nonce);
            }
        }
        let kept = world.state.keys().filter(|key| key.grant.wallet.unwrap().nonce == 0);
        assert_eq!(kept.count(), 0, "all are forgotten");
        world.grant(0);
        world.erase();
        world.grant(0);
        world.restart();
    }

    #[test]
    fn an_operators_tier_wins() {
        let mut world = World::new();
        world.grant(0);
        let account = world.account().unwrap();
        let by = Operator { uid: 0, user: None };
        let act = Act::Tier(Tier::Free);
        world.run(&OperatorCommand { account, act, by, reason: "".into() }).unwrap();
        world.grant(1);
        assert!(world.state.keys().all(|key| key.grant.tier == Tier::Free));
    }

    /// A record that grants a second key for a nonce contradicts the state.
    #[test]
    #[should_panic(expected = "is of a wallet that has one for its nonce")]
    fn a_second_key_for_a_nonce_is_a_contradiction() {
        let mut world = World::new();
        world.grant(0);
        let mut second = world.state.keys().next().unwrap();
        second.id = KeyId::new(second.id.shard(), 2).unwrap();
        let Key { id: key, account, grant, created_by, created_at: at, .. } = second;
        let event = crate::engine::event::Event::KeyCreated { key, account, grant, created_by, at };
        world.state.apply(&[event], Lsn::START);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Grant(u64),
        Delete(u64),
        Rotate(u64, u32),
        Erase,
        Restart,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let nonce = || prop_oneof![0..7_u64, Just(u64::MAX)];
        let overlap_seconds = prop_oneof![Just(0), Just(600)];
        let step = prop_oneof![
            8 => nonce().prop_map(Step::Grant),
            4 => nonce().prop_map(Step::Delete),
            1 => (nonce(), overlap_seconds).prop_map(|(nonce, over)| Step::Rotate(nonce, over)),
            1 => Just(Step::Erase),
            1 => Just(Step::Restart),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn keys_of_wallets_match_a_naive_model(steps in steps()) {
            let mut world = World::new();
            for step in steps {
                match step {
                    Step::Grant(nonce) => world.grant(nonce),
                    Step::Delete(nonce) => world.delete(nonce),
                    Step::Rotate(nonce, overlap_seconds) => world.rotate(nonce, overlap_seconds),
                    Step::Erase => world.erase(),
                    Step::Restart => world.restart(),
                }
            }
            world.restart();
        }
    }
}
