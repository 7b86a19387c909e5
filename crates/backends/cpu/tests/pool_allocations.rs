//! A run allocates nothing: counted by the global allocator of this test, on every thread.

use onestep_cpu::pool::Pool;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: the caller's promises about `layout` are the ones that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, hence from `System`, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_run_allocates_nothing() {
    let pool = Pool::new(3).unwrap();
    let sum = AtomicUsize::new(0);
    let step = |pause: u64| {
        let session = pool.session();
        for _ in 0..50 {
            session.run(8, &|_, chunk| {
                sum.fetch_add(chunk, SeqCst);
            });
        }
        drop(session);
        // Lets the workers fall asleep, so that waking them is counted too.
        std::thread::sleep(std::time::Duration::from_micros(pause));
    };
    // Whatever a thread sets up when it starts is not a run's doing.
    step(20_000);
    let before = ALLOCATIONS.load(SeqCst);
    for pause in 0..200 {
        step(pause);
    }
    assert_eq!(ALLOCATIONS.load(SeqCst) - before, 0);
    assert_eq!(sum.load(SeqCst), 201 * 50 * 28);
}
