//! The server's allocator, with a count of all requests.

#![expect(unsafe_code, reason = "an allocator that counts is an unsafe trait around a safe one")]

use std::alloc::{GlobalAlloc, Layout};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::ops::Sub;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use paperbourse::allocator::Allocator;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);
static FREED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Maximum number of callers recorded for each allocation.
const CALLERS_MAX: usize = 8;

static IS_TRACED: AtomicBool = AtomicBool::new(false);
static SITES: Mutex<Vec<Site>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread is recording an allocation, which itself allocates.
    static IS_NOTING: Cell<bool> = const { Cell::new(false) };
}

/// The server's allocator, with counts of the requests of all threads.
pub(crate) struct Counting;

/// The requests since the process began, or between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocated {
    /// Number of allocations. A block that grows in place counts like one that moves.
    pub(crate) allocations: usize,
    pub(crate) bytes: usize,
}

/// One allocation and its callers.
pub(crate) struct Site {
    pub(crate) bytes: usize,
    /// The functions above the allocator, innermost first, each with its source location.
    pub(crate) callers: Vec<String>,
}

// SAFETY: every call is passed to the server's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promised.
        unsafe { Allocator.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promised.
        unsafe { Allocator.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        note(new_bytes);
        FREED_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { Allocator.realloc(pointer, layout, new_bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        FREED_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { Allocator.dealloc(pointer, layout) }
    }
}

fn note(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    ALLOCATED_BYTES.fetch_add(bytes, Ordering::Relaxed);
    if IS_TRACED.load(Ordering::Relaxed) && !IS_NOTING.replace(true) {
        let trace = Backtrace::force_capture().to_string();
        let site = Site { bytes, callers: callers(&trace) };
        SITES.lock().expect("no thread panics while it holds the lock").push(site);
        IS_NOTING.set(false);
    }
}

/// Returns the requests since the process began.
pub(crate) fn allocated() -> Allocated {
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    Allocated { allocations, bytes: ALLOCATED_BYTES.load(Ordering::Relaxed) }
}

/// Returns the number of allocated bytes that are not freed.
pub(crate) fn live_bytes() -> usize {
    ALLOCATED_BYTES.load(Ordering::Relaxed) - FREED_BYTES.load(Ordering::Relaxed)
}

/// Returns all allocations that any thread makes during this call.
pub(crate) fn sites(done: impl FnOnce()) -> Vec<Site> {
    IS_TRACED.store(true, Ordering::Relaxed);
    done();
    IS_TRACED.store(false, Ordering::Relaxed);
    std::mem::take(&mut SITES.lock().expect("no thread panics while it holds the lock"))
}

/// Parses a backtrace. It has a line `N: function` for each frame, usually followed by a line `at
/// file:line:column`. Type parameters are left out, since they would fill the screen.
fn callers(trace: &str) -> Vec<String> {
    const OWN: [&str; 4] =
        ["/library/std/", "/library/alloc/", "/library/core/", "/counts/allocator.rs:"];
    let mut callers = Vec::new();
    let mut lines = trace.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let place = lines.next_if(|next| next.starts_with("at ")).unwrap_or_default();
        let Some((_, function)) = line.split_once(": ") else { continue };
        if place.is_empty() || OWN.iter().any(|part| place.contains(part)) {
            continue;
        }
        let function = function.split('<').next().unwrap_or_default();
        let parts: Vec<_> = place.trim_start_matches("at ").split("/src/").collect();
        let package = parts[0].rsplit('/').next().unwrap_or_default();
        callers.push(format!("{function} ({package}/{})", parts[1..].join("/src/")));
        if callers.len() == CALLERS_MAX {
            break;
        }
    }
    callers
}

impl Sub for Allocated {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            allocations: self.allocations - earlier.allocations,
            bytes: self.bytes - earlier.bytes,
        }
    }
}
