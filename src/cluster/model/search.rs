//! A breadth-first search of all states of a model.

use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::{Model, Promise, State, Step};

/// The result of a search.
pub(super) struct Found {
    /// Number of states reached.
    pub(super) states: usize,
    /// Number of states in which the owner of the greatest epoch may answer reads.
    pub(super) last_answers: usize,
    /// A broken promise, and the steps that lead to it; no shorter sequence breaks any promise. The
    /// search ends there.
    pub(super) broken: Option<(Promise, Vec<Step>)>,
}

/// The states reached so far, in the order of discovery.
#[derive(Default)]
struct Reached {
    states: Vec<State>,
    /// The index of each state's predecessor.
    before: Vec<u32>,
    /// The index of every state, hashed by the state itself.
    indices: HashTable<u32>,
    hasher: FixedState,
}

impl Reached {
    fn add(&mut self, state: State, before: u32) {
        let Self { states, indices, hasher, .. } = self;
        let hash = hasher.hash_one(&state);
        let is_same = |&index: &u32| states[index as usize] == state;
        let rehash = |&index: &u32| hasher.hash_one(&states[index as usize]);
        if let Entry::Vacant(vacant) = indices.entry(hash, is_same, rehash) {
            vacant.insert(u32::try_from(states.len()).expect("memory ends before that"));
            self.states.push(state);
            self.before.push(before);
        }
    }

    /// Returns the steps to the state with this index. Recomputes the steps, since only the states'
    /// predecessors are kept.
    fn steps_to(&self, model: &Model, mut index: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        while index > 0 {
            let before = self.before[index as usize];
            let is_taken = |(_, next): &(Step, State)| *next == self.states[index as usize];
            let step = model.steps(&self.states[before as usize]).into_iter().find(is_taken);
            steps.push(step.expect("a step led there").0);
            index = before;
        }
        steps.reverse();
        steps
    }
}

pub(super) fn search(model: &Model) -> Found {
    let mut reached = Reached::default();
    reached.add(State::default(), 0);
    let mut last_answers = 0;
    let mut broken = None;
    for index in 0.. {
        let Some(state) = reached.states.get(index as usize) else { break };
        if let Some(promise) = model.broken(state) {
            broken = Some((promise, reached.steps_to(model, index)));
            break;
        }
        last_answers += usize::from(model.last_owner_answers(state));
        for (_, next) in model.steps(state) {
            reached.add(next, index);
        }
    }
    Found { states: reached.states.len(), last_answers, broken }
}
