//! Where a socket or stream puts together what it writes next.
//!
//! The kernel or hyper has a copy of it a moment later, so the sockets and streams of a worker
//! share one buffer. A buffer of its own would grow with each batch, be copied several times, and
//! cost more than the frames.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use super::bounds::PRICES_BYTES_GOAL;
use super::subscriptions::TakenFrame;

/// A buffer that has grown beyond this is not kept.
const SPARE_BYTES_MAX: usize = 2 * PRICES_BYTES_GOAL;

thread_local! {
    static SPARE: Cell<Buffers> =
        const { Cell::new(Buffers { bytes: Vec::new(), frames: Vec::new() }) };
}

/// What is written next, empty at first. To be dropped before waiting for a peer.
pub(super) struct Batch(Buffers);

#[derive(Default)]
struct Buffers {
    bytes: Vec<u8>,
    /// The frames of prices that can be put back, in order, and where each begins.
    frames: Vec<(usize, TakenFrame)>,
}

impl Batch {
    /// An empty batch, in the buffers of this thread if they are free.
    pub(super) fn new() -> Self {
        Self(SPARE.take())
    }

    /// Moves these bytes into the batch, and frees their buffer.
    pub(super) fn take(&mut self, bytes: &mut Vec<u8>) {
        if !bytes.is_empty() {
            self.extend_from_slice(bytes);
            *bytes = Vec::new();
        }
    }

    /// What is added from here on, up to the next call, is this frame.
    pub(super) fn begin_frame(&mut self, frame: TakenFrame) {
        self.0.frames.push((self.0.bytes.len(), frame));
    }

    /// Whether a frame is left that could have been put back.
    pub(super) fn has_frames(&self) -> bool {
        !self.0.frames.is_empty()
    }

    /// Takes the last frame out of the batch again, if it begins after the first `taken_bytes`. One
    /// that begins right there stays.
    pub(super) fn put_back(&mut self, taken_bytes: usize) -> Option<TakenFrame> {
        let (begin, frame) = self.0.frames.pop_if(|(begin, _)| *begin > taken_bytes)?;
        self.0.bytes.truncate(begin);
        Some(frame)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let (mut own, spare) = (std::mem::take(&mut self.0), SPARE.take());
        own.bytes.clear();
        own.frames.clear();
        let kept_bytes = spare.bytes.capacity()..=SPARE_BYTES_MAX;
        SPARE.set(if kept_bytes.contains(&own.bytes.capacity()) { own } else { spare });
    }
}

impl Deref for Batch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0.bytes
    }
}

impl DerefMut for Batch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_a_thread_take_turns_with_one_buffer() {
        let place = |batch: &Batch| (batch.as_ptr(), batch.capacity());
        let mut first = Batch::new();
        first.extend_from_slice(&[1; 1_000]);
        let (first_place, mut second) = (place(&first), Batch::new());
        assert_eq!(second.capacity(), 0);
        drop(first);
        let third = Batch::new();
        assert_eq!((place(&third), third.len()), (first_place, 0));
        let mut replies = vec![2; SPARE_BYTES_MAX + 1];
        second.take(&mut replies);
        assert_eq!((second.len(), replies.capacity()), (SPARE_BYTES_MAX + 1, 0));
        drop(third);
        // Too large to be kept.
        drop(second);
        assert_eq!(place(&Batch::new()), first_place);
    }
}
