//! Keys of wallets against a naive model, across restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tempfile::TempDir;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(u8, u64),
    Delete(u8, u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let of = || (0..3_u8, prop_oneof![0..6_u64, Just(u64::MAX)]);
    let step = prop_oneof![
        8 => of().prop_map(|(wallet, nonce)| Step::Create(wallet, nonce)),
        4 => of().prop_map(|(wallet, nonce)| Step::Delete(wallet, nonce)),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Compares a service with a map from wallet and nonce to credentials.
fn compare(data: &Path, steps: &[Step]) {
    let mut world = World::open(data);
    let mut model: BTreeMap<(u8, u64), Credentials> = BTreeMap::new();
    let mut deleted: Vec<(u8, Credentials)> = Vec::new();
    let mut ever: BTreeSet<[String; 3]> = BTreeSet::new();
    for &step in steps {
        match step {
            Step::Create(number, nonce) => {
                let created = world.block_on(world.create(&auth(number, nonce)));
                let count = model.keys().filter(|(wallet, _)| *wallet == number).count();
                match (model.get(&(number, nonce)), created) {
                    (Some(known), created) => assert_eq!(texts(known), texts(&created.unwrap())),
                    (None, Ok(created)) => {
                        assert!(count < 5, "one more than is allowed");
                        assert!(ever.insert(texts(&created)), "credentials return");
                        model.insert((number, nonce), created);
                    }
                    (None, Err(_)) => assert_eq!(count, 5),
                }
            }
            Step::Delete(number, nonce) => {
                let Some(credentials) = model.remove(&(number, nonce)) else { continue };
                let caller = world.call(wallet(number), &credentials).unwrap();
                world.block_on(world.service.delete_api_key(&caller, world.context())).unwrap();
                deleted.push((number, credentials));
            }
            Step::Restart => {
                drop(world);
                world = World::open(data);
            }
        }
    }
    for (&(number, nonce), credentials) in &model {
        let found = world.block_on(world.find(&auth(number, nonce))).unwrap();
        assert_eq!(texts(&found), texts(credentials));
        let caller = world.call(wallet(number), credentials).unwrap();
        let listed = world.block_on(world.service.api_keys(&caller, world.context())).unwrap();
        let expected = model.iter().filter(|((wallet, _), _)| *wallet == number);
        let expected: BTreeSet<_> = expected.map(|(_, it)| it.api_key()).collect();
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected);
    }
    for (number, credentials) in &deleted {
        let refused = world.call(wallet(*number), credentials).map(|_| ());
        assert_eq!(refused, Err(KeyError::Revoked.into()));
    }
}

#[test]
fn keys_match_a_naive_model_across_restarts() {
    let mut runner =
        TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let compared = runner.run(&steps(), |steps| {
        let data = TempDir::new().unwrap();
        compare(data.path(), &steps);
        Ok(())
    });
    compared.unwrap();
}
