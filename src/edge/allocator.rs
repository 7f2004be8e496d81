//! The process's allocator: mimalloc, with a count of the bytes in use.
//!
//! The resident size that the system reports includes freed memory that the allocator retains,
//! which may be several times the memory in use. So the memory limit needs a separate count.

#![expect(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait, and mimalloc is written in C")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use mimalloc::MiMalloc;

/// Number of counters shared by the threads. Few threads serve requests, so each of these threads
/// has a counter to itself. Sharing a counter makes it slower but no less exact.
const COUNTERS: usize = 64;

/// The index of a thread that has not allocated yet.
const NONE: usize = usize::MAX;

static IN_USE: [Counter; COUNTERS] = [const { Counter(AtomicI64::new(0)) }; COUNTERS];

static NEXT_COUNTER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static COUNTER: Cell<usize> = const { Cell::new(NONE) };
}

/// Bytes allocated minus bytes freed by the threads that share this counter. Negative if they free
/// memory that other threads allocated. Aligned so that no two counters share cache lines, since
/// every allocation writes to a counter.
#[repr(align(128))]
struct Counter(AtomicI64);

/// The server's global allocator.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: every call is forwarded to mimalloc unchanged.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(bytes(layout.size()));
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(bytes(layout.size()));
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        count(bytes(new_bytes) - bytes(layout.size()));
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { MiMalloc.realloc(pointer, layout, new_bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-bytes(layout.size()));
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }
}

/// Adds to this thread's counter. Called before an allocation: if the allocation fails, the process
/// ends, so there is nothing to undo.
#[inline]
fn count(bytes: i64) {
    let mut counter = COUNTER.get();
    if counter == NONE {
        counter = NEXT_COUNTER.fetch_add(1, Ordering::Relaxed) % COUNTERS;
        COUNTER.set(counter);
    }
    IN_USE[counter].0.fetch_add(bytes, Ordering::Relaxed);
}

const fn bytes(size: usize) -> i64 {
    // A layout has at most `isize::MAX` bytes.
    size.cast_signed() as i64
}

/// Returns the bytes allocated and not freed. `None` if the process uses another allocator, as in
/// tests. The sum may miss bytes that other threads allocate or free during the call.
pub fn in_use_bytes() -> Option<u64> {
    let is_used = NEXT_COUNTER.load(Ordering::Relaxed) > 0;
    let sum: i64 = IN_USE.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum();
    is_used.then_some(sum.max(0).cast_unsigned())
}

/// Returns memory freed at least a second ago to the system. mimalloc itself does so only when a
/// thread needs new memory, so an idle process would keep everything it ever used.
pub fn return_freed() {
    // SAFETY: `mi_collect` may be called at any time, from any thread.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

/// Returns all freed memory to the system, except for what other threads retain in partly used
/// pages. Slows down the allocations that follow.
pub fn return_all_freed() {
    // SAFETY: as above.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_is_counted_on_whatever_thread_it_is_freed() {
        let layout = |bytes| Layout::from_size_align(bytes, 8).unwrap();
        let in_use = || in_use_bytes().unwrap_or(0);
        let before = in_use();
        // SAFETY: the blocks come from this allocator and are used with their own layouts.
        let blocks = unsafe {
            let grown = Allocator.realloc(Allocator.alloc(layout(100)), layout(100), 5_000);
            [(grown, 5_000), (Allocator.alloc_zeroed(layout(3_000)), 3_000)]
        };
        assert_eq!(in_use() - before, 8_000);
        let blocks = blocks.map(|(block, bytes)| (block.expose_provenance(), bytes));
        let other = std::thread::spawn(move || {
            for (block, bytes) in blocks {
                let block = std::ptr::with_exposed_provenance_mut(block);
                // SAFETY: as above, and nothing else refers to the block.
                unsafe { Allocator.dealloc(block, layout(bytes)) };
            }
        });
        other.join().unwrap();
        assert_eq!(in_use(), before);
        return_freed();
        return_all_freed();
        assert_eq!(in_use(), before);
    }
}
