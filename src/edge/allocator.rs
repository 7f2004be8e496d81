//! The memory of the process: mimalloc, and a count of what is in use.
//!
//! What the system says of a process includes memory that was freed and that the allocator keeps
//! for later, which may be several times what is in use. So the limit of memory needs a count of
//! its own.

#![expect(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait, and mimalloc is written in C")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use mimalloc::MiMalloc;

/// How many counters the threads share. Those that serve requests are a few, so that each has one
/// of its own; a shared one is exact too, but slower.
const COUNTERS: usize = 64;

/// The counter of a thread that has not allocated yet.
const NONE: usize = usize::MAX;

static IN_USE: [Counter; COUNTERS] = [const { Counter(AtomicI64::new(0)) }; COUNTERS];

static NEXT_COUNTER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static COUNTER: Cell<usize> = const { Cell::new(NONE) };
}

/// Bytes allocated less bytes freed, by some of the threads: less than 0 where they free what
/// others have allocated. On cache lines of its own, since each is written at every allocation.
#[repr(align(128))]
struct Counter(AtomicI64);

/// The allocator of the server.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: every call is passed to mimalloc unchanged.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(bytes(layout.size()));
        // SAFETY: as the caller promised.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(bytes(layout.size()));
        // SAFETY: as the caller promised.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        count(bytes(new_bytes) - bytes(layout.size()));
        // SAFETY: as the caller promised.
        unsafe { MiMalloc.realloc(pointer, layout, new_bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-bytes(layout.size()));
        // SAFETY: as the caller promised.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }
}

/// An allocation that fails ends the process, so it need not be taken back.
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

/// The memory in use: what was allocated and not freed, in bytes. `None` if the process has another
/// allocator, as in tests. It may be off by what threads allocate and free during the call.
pub fn in_use_bytes() -> Option<u64> {
    let is_used = NEXT_COUNTER.load(Ordering::Relaxed) > 0;
    let sum: i64 = IN_USE.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum();
    is_used.then_some(sum.max(0).cast_unsigned())
}

/// Returns memory to the system that was freed a second ago or longer. mimalloc does that itself
/// only when some thread needs new memory, so an idle process would keep all that it ever used.
pub fn return_freed() {
    // SAFETY: it may be called at any time, by any thread.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

/// Returns all memory to the system that was freed, except for what other threads keep in parts of
/// pages. The next allocations are slower.
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
        // SAFETY: blocks of the allocator, with the layouts that they were made with.
        let blocks = unsafe {
            let grown = Allocator.realloc(Allocator.alloc(layout(100)), layout(100), 5_000);
            [(grown, 5_000), (Allocator.alloc_zeroed(layout(3_000)), 3_000)]
        };
        assert_eq!(in_use() - before, 8_000);
        let blocks = blocks.map(|(block, bytes)| (block.expose_provenance(), bytes));
        let other = std::thread::spawn(move || {
            for (block, bytes) in blocks {
                let block = std::ptr::with_exposed_provenance_mut(block);
                // SAFETY: as above; there is no other reference to it.
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
