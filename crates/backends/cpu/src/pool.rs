//! A fork-join pool for kernels of microseconds: workers that stay hot, chunks claimed one by one, no allocation.
//!
//! [`Pool::run`] publishes a job (a closure and a number of chunks) and works on it like everyone else. **The whole
//! protocol hangs on one counter**, `unclaimed`: whoever lowers it from `n` to `n - 1` owns chunk `total - n`. The job's
//! slot is read only *after* a successful claim, and the caller leaves only when every claimed chunk is reported
//! done, so the slot a claimant reads is always that of a job still running. A worker that wakes late finds the counter
//! at 0 and touches nothing; hence the caller waits for chunks in progress, never for workers.
//!
//! An idle worker spins for [`SPIN`], so that kernels one after the other find it awake, then sleeps on a condition
//! variable. While a [`Session`] lives it does not sleep: a step of many kernels holds one.
//!
//! Which thread takes which chunk is left to chance. What a chunk is must not depend on the number of threads; then
//! results do not either.

use std::cell::{Cell, UnsafeCell};
use std::hint::spin_loop;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long an idle worker, or a caller whose last chunks run elsewhere, spins before it yields or sleeps.
pub const SPIN: Duration = Duration::from_micros(50);

/// What a run executes: `body(thread_index, chunk)`.
type Body<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// A fixed set of threads that run the chunks of one kernel at a time.
///
/// ```
/// use onestep_cpu::pool::Pool;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let pool = Pool::new(2)?;
/// let sum = AtomicUsize::new(0);
/// let step = pool.session(); // workers stay awake from kernel to kernel
/// pool.run(10, &|_thread, chunk| {
///     sum.fetch_add(chunk, Ordering::Relaxed);
/// });
/// pool.run(1, &|_, _| assert_eq!(sum.load(Ordering::Relaxed), 45)); // the first run is complete
/// drop(step);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held by the thread whose job is in the slot.
    running: Mutex<()>,
}

/// Keeps a pool's workers awake while it lives. See [`Pool::session`].
#[must_use = "the workers may sleep again as soon as the session is dropped"]
pub struct Session<'pool> {
    pool: &'pool Pool,
}

struct Shared {
    /// Chunks of the current job that nobody has claimed.
    unclaimed: Line<AtomicUsize>,
    /// Chunks of the current job that nobody has reported done.
    unfinished: Line<AtomicUsize>,
    /// The current job. Written by the holder of `Pool::running` while both counters are 0, read after a claim.
    job: Line<UnsafeCell<Job>>,
    /// The first panic of the current job.
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
    panicked: AtomicBool,
    /// Live sessions.
    sessions: AtomicUsize,
    shutdown: AtomicBool,
    /// Workers asleep, or about to be.
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    /// Whether the caller sleeps, or is about to.
    caller_waits: AtomicBool,
    done: Mutex<()>,
    all_done: Condvar,
}

#[derive(Clone, Copy)]
struct Job {
    body: *const Body<'static>,
    chunks: usize,
}

/// A value with cache lines of its own (two: processors fetch them in pairs).
#[repr(align(128))]
struct Line<T>(T);

// SAFETY: `job` is the only field that is not `Send + Sync` by itself. It is written only by the thread that holds
// `Pool::running`, before the store to `unclaimed` that opens the job; it is read only by threads that lowered
// `unclaimed` since that store (so the write happens before the read), and they report to `unfinished` afterwards,
// which the writer awaits before it leaves (so the read happens before the next write). The pointer inside refers to
// a closure that is `Sync`, as `Body` demands.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it is tied to a thread.
unsafe impl Send for Shared {}

thread_local! {
    /// The pool whose chunk this thread is executing, if any, and this thread's index there.
    static INSIDE: Cell<Option<(*const Shared, usize)>> = const { Cell::new(None) };
}

impl Pool {
    /// A pool of `threads` threads, the caller's included: `threads - 1` workers are started. 0 counts as 1.
    ///
    /// More threads than processors make everything slower: workers spin.
    pub fn new(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared::new());
        let mut pool = Self { shared, workers: Vec::new(), running: Mutex::new(()) };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let name = format!("onestep-{index}");
            // If this fails, dropping `pool` ends the workers already started.
            pool.workers.push(thread::Builder::new().name(name).spawn(move || shared.work(index))?);
        }
        Ok(pool)
    }

    /// A pool of the caller's thread alone, which cannot fail to start.
    pub fn serial() -> Self {
        Self { shared: Arc::new(Shared::new()), workers: Vec::new(), running: Mutex::new(()) }
    }

    /// The number of threads that take part in a run, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(thread_index, chunk)` exactly once for each `chunk < chunks`, on any thread and in any order, and
    /// returns when all calls have.
    ///
    /// `thread_index < threads()` differs between the threads that work on one run, so it may select a scratch buffer
    /// of that run. With one thread or at most one chunk, and inside a chunk of any pool, the chunks run
    /// here, in order, without synchronisation. Several threads may call `run` on one pool; they take turns.
    ///
    /// # Panics
    ///
    /// If a chunk panics, the others still run, and then the first panic continues here. (Chunks that run here in
    /// order stop at the first.)
    pub fn run(&self, chunks: usize, body: &Body<'_>) {
        let inside = INSIDE.get();
        if self.workers.is_empty() || chunks <= 1 || inside.is_some() {
            // In a chunk of this very pool, the thread keeps its index: its siblings may be in the same place.
            let index = match inside {
                Some((shared, index)) if shared == Arc::as_ptr(&self.shared) => index,
                _ => 0,
            };
            for chunk in 0..chunks {
                body(index, chunk);
            }
            return;
        }

        let shared = &*self.shared;
        let turn = lock(&self.running);
        let body: *const Body<'_> = body;
        // SAFETY: only the lifetime of the trait object changes. The pointer is used by threads that have claimed a
        // chunk and not yet reported it (`Shared::take_part`), and this function does not return, nor unwind, before
        // `wait_until_done` has seen every chunk reported; so no use outlives the borrow `body`. What lies between
        // cannot unwind: `take_part` catches the chunks' panics.
        let body = unsafe { std::mem::transmute::<*const Body<'_>, *const Body<'static>>(body) };
        // SAFETY: exclusive, as the argument at `Sync for Shared` says: `running` is held, and the run before left
        // only after all its chunks were reported, so both counters are 0 and nobody can be past a claim.
        unsafe { *shared.job.0.get() = Job { body, chunks } };
        shared.unfinished.0.store(chunks, Relaxed);
        // Opens the job. SeqCst, not just Release: see `Shared::sleep`.
        shared.unclaimed.0.store(chunks, SeqCst);
        if shared.sleepers.load(SeqCst) > 0 {
            shared.wake(chunks - 1);
        }
        shared.take_part(0);
        shared.wait_until_done();

        let payload = if shared.panicked.swap(false, Relaxed) { lock(&shared.panic).take() } else { None };
        drop(turn);
        if let Some(payload) = payload {
            panic::resume_unwind(payload);
        }
    }

    /// Wakes the workers and keeps them awake, spinning between runs, until the guard is dropped. Sessions may nest.
    ///
    /// A session costs processor time while it lives: hold it for a step, not for a program. Past [`SPIN`] without
    /// work the workers offer their processor to other threads between looks.
    pub fn session(&self) -> Session<'_> {
        self.shared.sessions.fetch_add(1, SeqCst);
        if self.shared.sleepers.load(SeqCst) > 0 {
            self.shared.wake(usize::MAX);
        }
        Session { pool: self }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, SeqCst);
        self.shared.wake(usize::MAX);
        for worker in self.workers.drain(..) {
            // A worker cannot panic: the chunks' panics are caught. Were it to, there is nobody to tell.
            let _ = worker.join();
        }
    }
}

impl Session<'_> {
    /// [`Pool::run`] on this session's pool.
    pub fn run(&self, chunks: usize, body: &Body<'_>) {
        self.pool.run(chunks, body);
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.pool.shared.sessions.fetch_sub(1, Relaxed);
    }
}

impl Shared {
    fn new() -> Self {
        fn nothing(_: usize, _: usize) {}
        let body: &'static Body<'static> = &nothing;
        Self {
            unclaimed: Line(AtomicUsize::new(0)),
            unfinished: Line(AtomicUsize::new(0)),
            job: Line(UnsafeCell::new(Job { body, chunks: 0 })),
            panic: Mutex::new(None),
            panicked: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
            shutdown: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            caller_waits: AtomicBool::new(false),
            done: Mutex::new(()),
            all_done: Condvar::new(),
        }
    }

    /// A worker's life.
    fn work(&self, index: usize) {
        while self.wait_for_work() {
            self.take_part(index);
        }
    }

    /// Returns true when there may be chunks to claim, false when the pool is being dropped.
    fn wait_for_work(&self) -> bool {
        let called = || self.unclaimed.0.load(Relaxed) != 0 || self.shutdown.load(Relaxed);
        while !spin_until(called) {
            while self.sessions.load(Relaxed) > 0 && !look(called) {
                thread::yield_now();
            }
            if !called() {
                self.sleep();
            }
        }
        !self.shutdown.load(Relaxed)
    }

    /// Sleeps until woken, unless there is a reason not to.
    ///
    /// No wake-up is lost: the waker makes the reason true, then looks at `sleepers`; the sleeper raises `sleepers`,
    /// then looks for a reason. All four are SeqCst, so at least one sees the other. A waker that sees the sleeper takes
    /// the lock to notify, hence after the sleeper has released it by waiting.
    fn sleep(&self) {
        let guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, SeqCst);
        let reason = self.unclaimed.0.load(SeqCst) != 0
            || self.sessions.load(SeqCst) != 0
            || self.shutdown.load(SeqCst);
        if !reason {
            // However it ends, the caller spins for a while before it comes here again.
            drop(self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner));
        }
        self.sleepers.fetch_sub(1, Relaxed);
    }

    /// Wakes up to `count` workers.
    fn wake(&self, count: usize) {
        let _guard = lock(&self.sleep);
        if count >= self.sleepers.load(Relaxed) {
            self.wake.notify_all();
        } else {
            for _ in 0..count {
                self.wake.notify_one();
            }
        }
    }

    /// Claims one chunk of the current job: how many were unclaimed, this one included; or `None`.
    ///
    /// Success makes the job's slot readable: Acquire pairs with the store in `run`, directly or through other
    /// claims, which as read-modify-writes continue its release sequence.
    fn claim(&self) -> Option<usize> {
        let mut left = self.unclaimed.0.load(Relaxed);
        while left != 0 {
            match self.unclaimed.0.compare_exchange_weak(left, left - 1, Acquire, Relaxed) {
                Ok(_) => return Some(left),
                Err(now) => left = now,
            }
        }
        None
    }

    /// Claims and executes chunks until none is left unclaimed, then reports them. Does not unwind.
    fn take_part(&self, index: usize) {
        let Some(mut left) = self.claim() else { return };
        // SAFETY: a chunk is claimed and not reported, so the job is open and its slot is not written (see
        // `Sync for Shared`).
        let Job { body, chunks } = unsafe { *self.job.0.get() };
        // SAFETY: `run` keeps the closure borrowed until all chunks are reported; ours are reported below, after the
        // last use. Until then no other job can open, so the later claims are of this job too.
        let body = unsafe { &*body };

        INSIDE.set(Some((self, index)));
        let mut finished = 0;
        loop {
            let chunk = chunks - left;
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| body(index, chunk))) {
                self.keep_panic(payload);
            }
            finished += 1;
            match self.claim() {
                Some(next) => left = next,
                None => break,
            }
        }
        INSIDE.set(None);

        // Release, so that what the chunks wrote is seen by the caller; SeqCst for the sake of `wait_until_done`.
        // After this line the job may be over: only `self` is touched, which an `Arc` or the pool's borrow keeps.
        let before = self.unfinished.0.fetch_sub(finished, SeqCst);
        if before == finished && self.caller_waits.load(SeqCst) {
            let _guard = lock(&self.done);
            self.all_done.notify_all();
        }
    }

    /// Returns when every chunk is reported: after spinning, by sleeping. The flag and the counter are SeqCst for the
    /// reason given at `sleep`.
    fn wait_until_done(&self) {
        if spin_until(|| self.unfinished.0.load(Acquire) == 0) {
            return;
        }
        let mut guard = lock(&self.done);
        self.caller_waits.store(true, SeqCst);
        while self.unfinished.0.load(SeqCst) != 0 {
            guard = self.all_done.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_waits.store(false, Relaxed);
    }

    #[cold]
    fn keep_panic(&self, payload: Box<dyn std::any::Any + Send>) {
        let mut first = lock(&self.panic);
        if first.is_none() {
            *first = Some(payload);
            self.panicked.store(true, Relaxed);
            return;
        }
        drop(first);
        // Nothing may unwind from here, and a payload's destructor is free to panic: then what it throws is leaked.
        if let Err(again) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
    }
}

/// Spins until `ready` or for [`SPIN`]; returns whether it was ready.
fn spin_until(ready: impl Fn() -> bool + Copy) -> bool {
    let mut start = None;
    while !look(ready) {
        if start.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return false;
        }
    }
    true
}

/// Looks for about a microsecond: long enough that reading the clock, or yielding, between looks costs little.
fn look(ready: impl Fn() -> bool) -> bool {
    for _ in 0..64 {
        if ready() {
            return true;
        }
        spin_loop();
    }
    false
}

/// Locks. A poisoned lock is as good as another: whatever runs under one catches the chunks' panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
