//! The pool's contract: each chunk once, whatever the shape, the threads, the timing, the panics.

use onestep_cpu::pool::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Fewer rounds under an interpreter, where a round costs a thousand times more.
const fn rounds(native: usize, interpreted: usize) -> usize {
    if cfg!(miri) { interpreted } else { native }
}

fn counters(n: usize) -> Vec<AtomicUsize> {
    (0..n).map(|_| AtomicUsize::new(0)).collect()
}

#[test]
fn each_chunk_once_in_every_shape() {
    for threads in [0, 1, 2, 3, rounds(8, 4)] {
        let pool = Pool::new(threads).unwrap();
        assert_eq!(pool.threads(), threads.max(1));
        for chunks in [0, 1, 2, 3, 7, 64, rounds(5000, 70)] {
            let seen = counters(chunks);
            pool.run(chunks, &|thread, chunk| {
                assert!(thread < pool.threads());
                seen[chunk].fetch_add(1, Relaxed);
            });
            assert!(seen.iter().all(|n| n.load(Relaxed) == 1), "{threads} threads, {chunks} chunks");
        }
    }
}

/// Plain (not atomic) writes by the workers are visible to the caller, and to the next run's threads.
#[test]
fn runs_are_ordered() {
    struct Cells(Vec<std::cell::UnsafeCell<u64>>);
    // SAFETY: `at` is called for one index by one thread at a time: each chunk is one index, and runs are ordered.
    unsafe impl Sync for Cells {}
    impl Cells {
        fn at(&self, i: usize) -> *mut u64 {
            self.0[i].get()
        }
    }
    let pool = Pool::new(3).unwrap();
    let session = pool.session();
    let n = 17;
    let cells = Cells((0..n).map(|_| 0.into()).collect());
    let rounds = rounds(2000, 20);
    for round in 0..rounds {
        session.run(n, &|_, chunk| {
            // Another index each round, so that the cell was last written by a different chunk.
            // SAFETY: chunks of a run have distinct indices, and the runs before are complete.
            unsafe { *cells.at((chunk + round) % n) += chunk as u64 };
        });
    }
    // SAFETY: no run is in progress.
    let total: u64 = (0..n).map(|i| unsafe { *cells.at(i) }).sum();
    assert_eq!(total, (rounds * n * (n - 1) / 2) as u64);
}

#[test]
fn many_tiny_runs() {
    for (threads, in_session) in [(2, false), (2, true), (4, false), (4, true)] {
        let pool = Pool::new(threads).unwrap();
        let session = in_session.then(|| pool.session());
        let rounds = rounds(100_000, 50);
        let total = AtomicUsize::new(0);
        for round in 0..rounds {
            pool.run(round % 5, &|_, chunk| {
                total.fetch_add(chunk + 1, Relaxed);
            });
        }
        drop(session);
        assert_eq!(total.load(Relaxed), rounds / 5 * (1 + 3 + 6 + 10));
    }
}

/// Pauses longer than the spin, so that workers fall asleep and must be woken.
#[test]
fn runs_with_pauses() {
    let pool = Pool::new(3).unwrap();
    for round in 0..rounds(200, 5) {
        std::thread::sleep(Duration::from_micros(20 * (round as u64 % 10)));
        let seen = counters(6);
        pool.run(6, &|_, chunk| {
            std::thread::sleep(Duration::from_micros(30));
            seen[chunk].fetch_add(1, Relaxed);
        });
        assert!(seen.iter().all(|n| n.load(Relaxed) == 1));
    }
}

/// The caller sleeps while a worker finishes a long chunk.
#[test]
fn waits_for_a_chunk_in_progress() {
    let pool = Pool::new(2).unwrap();
    for _ in 0..rounds(20, 2) {
        let _session = pool.session();
        let (worker_in, finished) = (AtomicBool::new(false), AtomicBool::new(false));
        pool.run(2, &|thread, _| {
            if thread == 0 {
                while !worker_in.load(Relaxed) {
                    std::thread::yield_now();
                }
            } else {
                worker_in.store(true, Relaxed);
                std::thread::sleep(Duration::from_millis(2));
                finished.store(true, Relaxed);
            }
        });
        assert!(finished.load(Relaxed));
    }
}

#[test]
fn indices_differ_within_a_run() {
    let pool = Pool::new(4).unwrap();
    let busy: Vec<_> = (0..4).map(|_| AtomicBool::new(false)).collect();
    for _ in 0..rounds(2000, 10) {
        pool.run(16, &|thread, _| {
            assert!(!busy[thread].swap(true, Relaxed));
            std::hint::spin_loop();
            busy[thread].store(false, Relaxed);
        });
    }
}

#[test]
fn a_panic_reaches_the_caller() {
    // Hundreds of expected reports would hide the unexpected one.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload_as_str().is_some_and(|message| message.starts_with("chunk ")) {
            report(info);
        }
    }));
    for threads in [1, 2, 4] {
        let pool = Pool::new(threads).unwrap();
        for round in 0..rounds(200, 5) {
            let seen = counters(20);
            let error = catch_unwind(AssertUnwindSafe(|| {
                pool.run(20, &|_, chunk| {
                    seen[chunk].fetch_add(1, Relaxed);
                    if chunk % 7 == round % 7 {
                        panic!("chunk {chunk}");
                    }
                });
            }))
            .unwrap_err();
            assert!(error.downcast_ref::<String>().unwrap().starts_with("chunk "));
            if threads > 1 {
                assert!(seen.iter().all(|n| n.load(Relaxed) == 1));
            }
            // The pool is none the worse for it.
            let sum = AtomicUsize::new(0);
            pool.run(9, &|_, chunk| {
                sum.fetch_add(chunk, Relaxed);
            });
            assert_eq!(sum.load(Relaxed), 36);
        }
    }
}

#[test]
fn two_callers_take_turns() {
    let pool = Pool::new(3).unwrap();
    let total = AtomicU64::new(0);
    let rounds = rounds(5000, 10);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let session = pool.session();
                for _ in 0..rounds {
                    let mine = AtomicU64::new(0);
                    session.run(8, &|_, chunk| {
                        mine.fetch_add(chunk as u64, Relaxed);
                    });
                    assert_eq!(mine.load(Relaxed), 28);
                    total.fetch_add(mine.load(Relaxed), Relaxed);
                }
            });
        }
    });
    assert_eq!(total.load(Relaxed), 2 * rounds as u64 * 28);
}

#[test]
fn a_run_inside_a_chunk_is_serial() {
    let (pool, other) = (Pool::new(3).unwrap(), Pool::new(2).unwrap());
    for _ in 0..rounds(200, 3) {
        let total = AtomicUsize::new(0);
        pool.run(6, &|outer, _| {
            pool.run(4, &|inner, chunk| {
                assert_eq!(inner, outer);
                total.fetch_add(chunk, Relaxed);
            });
            other.run(4, &|inner, chunk| {
                assert_eq!(inner, 0);
                total.fetch_add(chunk, Relaxed);
            });
        });
        assert_eq!(total.load(Relaxed), 6 * 2 * 6);
    }
}

#[test]
fn drop_joins_the_workers() {
    for round in 0..rounds(300, 6) {
        let pool = Pool::new(3).unwrap();
        if round % 3 > 0 {
            pool.run(5, &|_, _| ());
        }
        if round % 3 == 2 {
            std::thread::sleep(Duration::from_micros(120));
        }
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // A worker's name is visible in /proc while it lives. Other tests' pools live too, so ask for a rare index.
        let alive = || {
            std::fs::read_dir("/proc/self/task").unwrap().flatten().any(|task| {
                std::fs::read_to_string(task.path().join("comm"))
                    .is_ok_and(|name| name.trim() == "onestep-12")
            })
        };
        let pool = Pool::new(13).unwrap();
        while !alive() {
            std::thread::yield_now();
        }
        drop(pool);
        assert!(!alive());
    }
}
