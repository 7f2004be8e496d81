//! The set of a socket's markets that have an unseen frame. The feed marks slots and the socket
//! takes them, and neither ever waits for the other.
//!
//! A small set is one word. A large one is a tree of words: each bit of an upper word says that a
//! word below it may have bits. Setting the first bit of a word also sets that word's bit in the
//! word above. So the first bit of the whole set is recognised whatever the set's size, and only
//! that bit needs to wake the socket. The reader clears words from the top down, so a bit that is
//! set behind it marks the path to the top again. With one flag and a flat list of words instead,
//! sockets that may have all markets get 0.91 of the frames.

use std::sync::OnceLock;

use self::atomics::{AtomicU64, Ordering};

#[cfg(not(paperbourse_loom))]
use std::sync::atomic as atomics;

#[cfg(paperbourse_loom)]
use loom::sync::atomic as atomics;

/// Number of bits in a word.
const WORD: usize = u64::BITS as usize;

/// Number of slots in a block.
const BLOCK: usize = WORD * WORD;

/// The maximum number of slots of a set.
pub(super) const SLOTS_MAX: usize = WORD * BLOCK;

/// A concurrent set of slots, with one reader and any number of writers.
pub(super) struct DirtySet {
    /// The slots of a small set, or the blocks of a large one that may have bits.
    top: AtomicU64,
    /// The blocks of a large set; empty in a small one. A block is allocated once one of its slots
    /// is marked.
    blocks: Box<[OnceLock<Box<Block>>]>,
}

struct Block {
    /// The words of the block that may have bits.
    summary: AtomicU64,
    words: [AtomicU64; WORD],
}

/// The reader's position in a [`DirtySet`]: bits already cleared in upper words whose slots are
/// still to be taken.
#[derive(Default, Debug)]
pub(super) struct Cursor {
    top: u64,
    block: usize,
    summary: u64,
    word: usize,
    slots: u64,
}

impl DirtySet {
    /// Creates an empty set of this many slots, at most [`SLOTS_MAX`].
    pub(super) fn new(slot_count: usize) -> Self {
        assert!(slot_count <= SLOTS_MAX, "a set has at most {SLOTS_MAX} slots");
        let block_count = if slot_count <= WORD { 0 } else { slot_count.div_ceil(BLOCK) };
        let blocks = std::iter::repeat_with(OnceLock::new).take(block_count).collect();
        Self { top: AtomicU64::new(0), blocks }
    }

    /// Marks a slot. Returns whether to wake the reader, which may have found the set empty.
    pub(super) fn mark(&self, slot: usize) -> bool {
        let Some(block) = self.blocks.get(slot / BLOCK) else {
            return is_first(&self.top, slot);
        };
        let block = block.get_or_init(Box::default);
        // From the bottom up: a reader that takes an upper bit then finds the lower one.
        is_first(&block.words[slot % BLOCK / WORD], slot % WORD)
            && is_first(&block.summary, slot % BLOCK / WORD)
            && is_first(&self.top, slot / BLOCK)
    }

    /// Takes the next marked slot; `None` if the set is empty. Every marked slot is returned once
    /// before any is returned again.
    pub(super) fn next(&self, cursor: &mut Cursor) -> Option<usize> {
        loop {
            if let Some(slot) = pop(&mut cursor.slots) {
                return Some(cursor.block * BLOCK + cursor.word * WORD + slot);
            }
            // Taken from the top down, so that a slot marked meanwhile sets the upper bits again.
            if let Some(word) = pop(&mut cursor.summary) {
                cursor.word = word;
                cursor.slots = take(&self.block(cursor.block).words[word]);
            } else if let Some(block) = pop(&mut cursor.top) {
                cursor.block = block;
                cursor.summary = take(&self.block(block).summary);
            } else {
                let top = take(&self.top);
                if top == 0 {
                    return None;
                }
                *if self.blocks.is_empty() { &mut cursor.slots } else { &mut cursor.top } = top;
            }
        }
    }

    fn block(&self, block: usize) -> &Block {
        self.blocks[block].get().expect("a block was allocated before it was marked")
    }
}

impl Default for Block {
    fn default() -> Self {
        Self { summary: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// Sets a bit, and returns whether the word was empty. Writes made before this call are visible to
/// the reader that takes the bit.
fn is_first(word: &AtomicU64, bit: usize) -> bool {
    word.fetch_or(1 << bit, Ordering::AcqRel) == 0
}

fn take(word: &AtomicU64) -> u64 {
    word.swap(0, Ordering::AcqRel)
}

/// Removes and returns the lowest bit.
fn pop(bits: &mut u64) -> Option<usize> {
    let bit = (*bits != 0).then(|| bits.trailing_zeros() as usize)?;
    *bits &= *bits - 1;
    Some(bit)
}

#[cfg(all(test, not(paperbourse_loom)))]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use proptest::prelude::*;

    use super::*;

    fn taken(set: &DirtySet, cursor: &mut Cursor) -> Vec<usize> {
        std::iter::from_fn(|| set.next(cursor)).collect()
    }

    #[test]
    fn sets_of_every_size_have_all_their_slots() {
        for slot_count in [1, 50, WORD, WORD + 1, BLOCK, BLOCK + 1, 200_000, SLOTS_MAX] {
            let (set, mut cursor) = (DirtySet::new(slot_count), Cursor::default());
            assert_eq!(set.next(&mut cursor), None);
            let last = slot_count - 1;
            let slots = BTreeSet::from([0, last / 3, last / 2, last]);
            for &slot in &slots {
                set.mark(slot);
                assert!(!set.mark(slot), "slot {slot} of {slot_count} was marked already");
            }
            assert!(taken(&set, &mut cursor).iter().eq(&slots), "{slot_count} slots");
            assert!(set.mark(last), "nothing is left of {slot_count} slots");
        }
    }

    #[test]
    fn only_what_is_marked_takes_memory() {
        let set = DirtySet::new(SLOTS_MAX);
        set.mark(5 * BLOCK);
        assert_eq!(set.blocks.iter().filter(|block| block.get().is_some()).count(), 1);
    }

    proptest! {
        /// Compares against a set of the standard library, with reads that stop anywhere.
        #[test]
        fn a_reader_gets_what_is_marked(
            steps in prop::collection::vec(
                (prop::collection::vec(0..9_000_usize, 0..9), 0..9_usize),
                1..40,
            ),
        ) {
            let (set, mut cursor) = (DirtySet::new(9_000), Cursor::default());
            let mut expected = HashSet::new();
            // The reader sleeps once it has found the set empty, until a mark wakes it.
            let mut is_asleep = true;
            for (marked, reads) in steps {
                for slot in marked {
                    expected.insert(slot);
                    is_asleep &= !set.mark(slot);
                }
                prop_assert!(expected.is_empty() || !is_asleep);
                for _ in 0..reads {
                    if let Some(slot) = set.next(&mut cursor) {
                        expected.remove(&slot);
                    } else {
                        prop_assert!(expected.is_empty(), "{expected:?} were lost");
                        is_asleep = true;
                    }
                }
            }
        }

        /// A slot that is marked all the time does not starve the others.
        #[test]
        fn every_slot_gets_its_turn(slots in prop::collection::hash_set(0..9_000_usize, 2..20)) {
            let (set, mut cursor) = (DirtySet::new(9_000), Cursor::default());
            for &slot in &slots {
                set.mark(slot);
            }
            let mut seen = HashSet::new();
            for _ in 0..slots.len() {
                let slot = set.next(&mut cursor).expect("not all had their turn");
                prop_assert!(seen.insert(slot), "slot {slot} had two turns");
                set.mark(slot);
            }
        }
    }
}

#[cfg(all(test, paperbourse_loom))]
mod model {
    //! In every order of a feed's marks and a socket's reads, no mark is lost: once the socket
    //! sleeps, every marked slot has been taken, unless the feed wakes it.

    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    use super::*;

    /// Two threads mark these slots while the socket reads until the set is empty. It reads again
    /// if it was woken.
    fn check(slot_count: usize, first: &'static [usize], second: &'static [usize]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(move || {
            let set = Arc::new(DirtySet::new(slot_count));
            // Allocated beforehand, since the model does not cover the lock of an allocation.
            for block in &set.blocks {
                block.get_or_init(Box::default);
            }
            let is_woken = Arc::new(AtomicBool::new(false));
            let feeds = [first, second].map(|slots| {
                let (set, is_woken) = (set.clone(), is_woken.clone());
                thread::spawn(move || {
                    for &slot in slots {
                        if set.mark(slot) {
                            is_woken.store(true, Ordering::Release);
                        }
                    }
                })
            });
            let mut cursor = Cursor::default();
            let mut taken = Vec::new();
            taken.extend(std::iter::from_fn(|| set.next(&mut cursor)));
            feeds.map(|feed| feed.join().unwrap());
            if is_woken.load(Ordering::Acquire) {
                taken.extend(std::iter::from_fn(|| set.next(&mut cursor)));
            }
            for slot in first.iter().chain(second) {
                assert!(taken.contains(slot), "slot {slot} was lost: {taken:?}");
            }
        });
    }

    #[test]
    fn a_small_set_loses_nothing() {
        check(64, &[3, 5], &[3, 7]);
    }

    #[test]
    fn a_word_of_a_large_set_loses_nothing() {
        check(65, &[3], &[5]);
        check(65, &[3, 3], &[5]);
    }

    #[test]
    fn words_of_a_large_set_lose_nothing() {
        check(65, &[3], &[64]);
        check(BLOCK + 1, &[3], &[BLOCK]);
        check(BLOCK + 1, &[3, BLOCK], &[BLOCK]);
    }
}
