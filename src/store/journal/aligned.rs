//! Page-aligned byte buffers, as required for writes that bypass the page cache.

use std::ops::{Deref, DerefMut};

use crate::disk::PAGE_BYTES;

/// Minimum capacity, in bytes; most blocks fit.
const CAPACITY_MIN: usize = 64 << 10;

/// A growable byte buffer that starts on a page boundary. Keeps its memory when truncated.
#[derive(Default)]
pub(super) struct AlignedBytes {
    /// Never grown in place, so that `start` stays correct: growing allocates a new vector.
    memory: Vec<u8>,
    /// Offset of the first page boundary in `memory`.
    start: usize,
    length: usize,
}

impl AlignedBytes {
    /// Appends bytes.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let from = self.length;
        self.grow(from + bytes.len());
        self[from..].copy_from_slice(bytes);
    }

    /// Appends zeros until the length is `length`.
    pub(super) fn pad_to(&mut self, length: usize) {
        let from = self.length;
        self.grow(length);
        self[from..].fill(0);
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    /// Shortens the buffer to `length`. Does nothing if the buffer is already that short.
    #[cfg(any(feature = "cluster", test))]
    pub(super) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Sets the length, which must not be less than the current one. The added bytes are
    /// unspecified.
    fn grow(&mut self, length: usize) {
        debug_assert!(length >= self.length);
        if length > self.memory.len().saturating_sub(PAGE_BYTES) {
            let capacity = length.next_power_of_two().max(CAPACITY_MIN);
            let memory = vec![0; capacity + PAGE_BYTES];
            let start = memory.as_ptr().align_offset(PAGE_BYTES);
            let mut larger = Self { memory, start, length: self.length };
            larger.copy_from_slice(self);
            *self = larger;
        }
        self.length = length;
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Extend(Vec<u8>),
        Pad(usize),
        Truncate(usize),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => prop::collection::vec(any::<u8>(), 0..40_000).prop_map(Step::Extend),
            2 => (0..20_000_usize).prop_map(Step::Pad),
            1 => (0..60_000_usize).prop_map(Step::Truncate),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn it_holds_what_a_vector_holds_at_a_page_boundary(
            steps in prop::collection::vec(step(), 0..30),
        ) {
            let mut bytes = AlignedBytes::default();
            let mut expected = Vec::new();
            for step in steps {
                match step {
                    Step::Extend(more) => {
                        bytes.extend(&more);
                        expected.extend_from_slice(&more);
                    }
                    Step::Pad(by) => {
                        expected.resize(expected.len() + by, 0);
                        bytes.pad_to(expected.len());
                    }
                    Step::Truncate(length) => {
                        bytes.truncate(length);
                        expected.truncate(length);
                    }
                    Step::Clear => {
                        bytes.clear();
                        expected.clear();
                    }
                }
                prop_assert!(*bytes == *expected);
                prop_assert!(bytes.is_empty() || bytes.as_ptr().align_offset(PAGE_BYTES) == 0);
            }
        }
    }
}
