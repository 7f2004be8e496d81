//! Heap memory of collections, in bytes: the memory that they request from the allocator, including
//! spare capacity, before the allocator rounds up. The fill level of tree nodes is an estimate.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Returns the memory of a vector's elements.
pub(in crate::engine) const fn vec_bytes<T>(vec: &Vec<T>) -> usize {
    vec.capacity() * size_of::<T>()
}

/// Returns the memory of a queue's elements.
pub(in crate::engine) fn queue_bytes<T>(queue: &VecDeque<T>) -> usize {
    queue.capacity() * size_of::<T>()
}

/// Returns the memory of a text of this many bytes, rounded up as allocators do.
pub(in crate::engine) const fn text_bytes(length: usize) -> usize {
    length.next_multiple_of(8)
}

/// Returns the memory of a map's tree nodes.
pub(in crate::engine) fn tree_bytes<K, V>(tree: &BTreeMap<K, V>) -> usize {
    nodes_bytes(tree.len(), size_of::<K>() + size_of::<V>())
}

/// Returns the memory of a set's tree nodes.
pub(in crate::engine) fn set_bytes<K>(set: &BTreeSet<K>) -> usize {
    nodes_bytes(set.len(), size_of::<K>())
}

/// Estimates the memory of a tree's nodes. Nodes hold up to 11 entries and are two thirds full on
/// average. A tree that is not empty has at least one node. Inner nodes also have child pointers,
/// about one for every seven entries.
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

/// Returns the memory of a hash table's buckets. At most seven in eight are used, and each has a
/// control byte.
///
/// This is a lower bound. The capacity of a table excludes buckets that removed entries have left
/// unusable, so after many removals a table may appear half as large as it is.
pub(in crate::engine) fn map_bytes<K, V, S>(map: &HashMap<K, V, S>) -> usize {
    match map.capacity() {
        0 => 0,
        capacity => (capacity * 8 / 7).next_power_of_two() * (size_of::<(K, V)>() + 1),
    }
}
