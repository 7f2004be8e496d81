//! The names in all directories: the visible ones, the durable ones, and the changes in between.

use std::collections::{BTreeMap, BTreeSet};

use super::random::Random;

/// A file or directory, independent of its names.
pub(super) type Inode = u64;

/// A name in a directory.
pub(super) type Key = (Inode, String);

/// A name removed, a name added, or both: a rename is atomic.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) taken: Option<Key>,
    pub(super) given: Option<(Key, Inode)>,
}

impl Change {
    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.taken.iter().chain(self.given.iter().map(|(key, _)| key))
    }

    fn apply(&self, names: &mut BTreeMap<Key, Inode>) {
        if let Some(key) = &self.taken {
            names.remove(key);
        }
        if let Some((key, inode)) = &self.given {
            names.insert(key.clone(), *inode);
        }
    }
}

#[derive(Default, Debug)]
pub(super) struct Names {
    cached: BTreeMap<Key, Inode>,
    durable: BTreeMap<Key, Inode>,
    pending: Vec<Change>,
}

impl Names {
    pub(super) fn get(&self, key: &Key) -> Option<Inode> {
        self.cached.get(key).copied()
    }

    pub(super) fn of(&self, directory: Inode) -> impl Iterator<Item = (&str, Inode)> {
        let range = (directory, String::new())..(directory + 1, String::new());
        self.cached.range(range).map(|((_, name), &inode)| (name.as_str(), inode))
    }

    pub(super) fn inodes(&self) -> impl Iterator<Item = Inode> {
        self.cached.values().copied()
    }

    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.pending.push(change);
    }

    /// Makes the changes of a directory durable. Syncing either of two directories makes a rename
    /// between them durable.
    pub(super) fn sync(&mut self, directory: Inode) {
        self.settle(|change| change.keys().any(|key| key.0 == directory));
    }

    /// Makes some of the pending changes durable. The others may follow later.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        let density = random.below(5);
        self.settle(|_| random.below(4) < density);
    }

    /// Simulates a power failure: only the changes that reach the disk survive.
    pub(super) fn lose(&mut self, random: &mut Random) {
        self.fail_sync(random);
        self.pending.clear();
        self.cached.clone_from(&self.durable);
    }

    /// Makes the chosen changes durable, and with each of them the earlier changes of the same
    /// name. Otherwise a file that always had one name could end up with two names or with none.
    fn settle(&mut self, mut is_chosen: impl FnMut(&Change) -> bool) {
        let mut needed = BTreeSet::new();
        let mut chosen = vec![false; self.pending.len()];
        for (index, change) in self.pending.iter().enumerate().rev() {
            if is_chosen(change) || change.keys().any(|key| needed.contains(key)) {
                chosen[index] = true;
                needed.extend(change.keys().cloned());
            }
        }
        let mut chosen = chosen.into_iter();
        let durable = &mut self.durable;
        self.pending.retain(|change| {
            let is_chosen = chosen.next().expect("one for each change");
            if is_chosen {
                change.apply(durable);
            }
            !is_chosen
        });
    }
}
