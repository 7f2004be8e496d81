//! Pending changes of a decision, kept apart from the state.

use smallvec::SmallVec;

/// The values that a decision would set, by key. There are few, so lookups search them linearly,
/// newest first.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::engine) struct Overlay<K, V> {
    values: SmallVec<[(K, V); 4]>,
}

impl<K, V> Default for Overlay<K, V> {
    fn default() -> Self {
        Self { values: SmallVec::new() }
    }
}

impl<K: PartialEq, V> Overlay<K, V> {
    pub(in crate::engine) fn get(&self, key: &K) -> Option<&V> {
        self.values.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    pub(in crate::engine) fn set(&mut self, key: K, value: V) {
        match self.values.iter_mut().rev().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.values.push((key, value)),
        }
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.values.iter()
    }
}
