//! Heap memory of collections: what they request from the allocator, spare capacity included,
//! before it rounds up. How full the nodes of trees are is an estimate.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The rows of a vector.
pub(in crate::engine) const fn vec_bytes<T>(vec: &Vec<T>) -> usize {
    vec.capacity() * size_of::<T>()
}

/// The rows of a queue.
pub(in crate::engine) fn queue_bytes<T>(queue: &VecDeque<T>) -> usize {
    queue.capacity() * size_of::<T>()
}

/// A text of this many bytes on the heap, rounded up as allocators do.
pub(in crate::engine) const fn text_bytes(length: usize) -> usize {
    length.next_multiple_of(8)
}

/// The nodes of a tree.
pub(in crate::engine) fn tree_bytes<K, V>(tree: &BTreeMap<K, V>) -> usize {
    nodes_bytes(tree.len(), size_of::<K>() + size_of::<V>())
}

/// The nodes of a set.
pub(in crate::engine) fn set_bytes<K>(set: &BTreeSet<K>) -> usize {
    nodes_bytes(set.len(), size_of::<K>())
}

/// Nodes hold up to 11 entries and are two thirds full on average; a tree has one at least. Inner
/// nodes also point to others, of which there is one for every seven entries or so.
const fn nodes_bytes(len: usize, entry_bytes: usize) -> usize {
    const NODE_ENTRIES: usize = 11;
    const NODE_HEAD_BYTES: usize = 16;
    if len == 0 {
        return 0;
    }
    let node_bytes = NODE_ENTRIES * entry_bytes + NODE_HEAD_BYTES;
    let filled = len * (entry_bytes + 4) * 3 / 2;
    if filled < node_bytes { node_bytes } else { filled }
}

/// The buckets of a hash table: at most seven in eight are used, and each has a byte of control.
///
/// This is a lower bound: a table does not count as capacity the buckets that removed entries have
/// left unusable, so after many removals it may seem half as large as it is.
pub(in crate::engine) fn map_bytes<K, V, S>(map: &HashMap<K, V, S>) -> usize {
    match map.capacity() {
        0 => 0,
        capacity => (capacity * 8 / 7).next_power_of_two() * (size_of::<(K, V)>() + 1),
    }
}
