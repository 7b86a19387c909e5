//! A schedule compiled for the CPU: every kernel once, then a run is a list of dispatches to the pool.

use crate::error::CpuError;
use crate::kernel::{Memory, Work};
use crate::library::{self, gemm::Isa, matmul};
use crate::pool::{Pool, Session};
use crate::scan::Scan;
use crate::tape::LoopTape;
use onestep_passes::schedule::{Kernel, Schedule};
use std::time::Instant;

/// Scratch areas begin at multiples of this, so that threads do not share cache lines.
const ALIGN: usize = 128;

/// A compiled schedule. Where its buffers lie is the caller's to say, at each run.
pub struct CpuProgram {
    steps: Vec<Step>,
    buffers: usize,
    shared_bytes: usize,
    thread_bytes: usize,
}

/// A kernel of the schedule.
enum Step {
    Dispatch(Dispatch),
    Scan(Box<Scan>),
}

/// Parts that do not depend on each other, in one dispatch for each phase.
struct Dispatch {
    name: String,
    parts: Vec<Part>,
    /// Chunks of all parts together, for each phase.
    chunks: Vec<usize>,
}

struct Part {
    work: Box<dyn Work>,
    /// For each phase, the chunks of the parts before this one.
    first: Vec<usize>,
    /// Where its area begins in the shared scratch.
    shared: usize,
}

impl CpuProgram {
    /// Compiles every kernel of a schedule.
    pub fn new(schedule: &Schedule) -> Result<CpuProgram, CpuError> {
        CpuProgram::with_isa(schedule, Isa::detect())
    }

    /// The same with a chosen instruction set for matrix products, an available one; the bits are the same for all.
    pub fn with_isa(schedule: &Schedule, isa: Isa) -> Result<CpuProgram, CpuError> {
        let isa = if Isa::available().contains(&isa) { isa } else { Isa::detect() };
        let mut program =
            CpuProgram { steps: vec![], buffers: schedule.buffers.len(), shared_bytes: 0, thread_bytes: 0 };
        for (number, kernel) in schedule.kernels.iter().enumerate() {
            let (step, shared, thread) = Step::new(kernel, schedule, isa)
                .map_err(|e| CpuError::Kernel { kernel: number, source: Box::new(e) })?;
            program.shared_bytes = program.shared_bytes.max(shared.next_multiple_of(ALIGN));
            program.thread_bytes = program.thread_bytes.max(thread.next_multiple_of(ALIGN));
            program.steps.push(step);
        }
        Ok(program)
    }

    /// Bytes of scratch for all threads together, and for each.
    pub(crate) fn scratch(&self) -> (usize, usize) {
        (self.shared_bytes, self.thread_bytes)
    }

    /// Bytes of scratch that a run by a pool of `threads` needs.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        self.shared_bytes + threads.max(1) * self.thread_bytes
    }

    /// The kernels' names in order, for reports: op and sizes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|s| match s {
            Step::Dispatch(d) => d.name.as_str(),
            Step::Scan(s) => s.name(),
        })
    }

    /// Runs every kernel in order. Allocates nothing.
    ///
    /// # Safety
    ///
    /// `buffers` holds, for each buffer of the schedule, storage of its size, aligned for its dtype, which nobody else
    /// accesses meanwhile; buffers share storage only as a plan of the schedule allows. `scratch` has
    /// [`CpuProgram::scratch_bytes`] for the pool's threads, at a multiple of 64.
    ///
    /// # Panics
    ///
    /// If there are fewer buffers than the schedule has.
    pub unsafe fn run(&self, pool: &Pool, buffers: &[*mut u8], scratch: *mut u8) {
        // SAFETY: the contract is the same.
        unsafe { self.run_observed(pool, buffers, scratch, &mut |_| {}) }
    }

    /// Runs every kernel in order and adds the nanoseconds of each to `nanoseconds`, in the order of
    /// [`CpuProgram::names`].
    ///
    /// # Safety
    ///
    /// As for [`CpuProgram::run`].
    ///
    /// # Panics
    ///
    /// If there are fewer buffers or places for times than the schedule has buffers and kernels.
    pub unsafe fn run_timed(
        &self,
        pool: &Pool,
        buffers: &[*mut u8],
        scratch: *mut u8,
        nanoseconds: &mut [u64],
    ) {
        let mut last = Instant::now();
        let mut observe = |kernel: usize| {
            let now = Instant::now();
            nanoseconds[kernel] += (now - last).as_nanos() as u64;
            last = now;
        };
        // SAFETY: the contract is the same.
        unsafe { self.run_observed(pool, buffers, scratch, &mut observe) }
    }

    /// Runs every kernel in order; `done` is told the number of each when it is complete.
    ///
    /// # Safety
    ///
    /// As for [`CpuProgram::run`].
    unsafe fn run_observed(
        &self,
        pool: &Pool,
        buffers: &[*mut u8],
        scratch: *mut u8,
        done: &mut dyn FnMut(usize),
    ) {
        assert!(buffers.len() >= self.buffers, "a run needs storage for every buffer of its schedule");
        let threads = scratch.wrapping_add(self.shared_bytes);
        let scratch = Scratch { shared: scratch, threads, stride: self.thread_bytes };
        // SAFETY: the contract is the same; the scratch is divided as `scratch_bytes` says.
        unsafe { self.run_steps(&pool.session(), buffers, scratch, done) }
    }

    /// Runs every kernel in order.
    ///
    /// # Safety
    ///
    /// As for [`CpuProgram::run`], where the scratch has the bytes of [`CpuProgram::scratch`] in its two parts.
    pub(crate) unsafe fn run_steps(
        &self,
        session: &Session<'_>,
        buffers: &[*mut u8],
        scratch: Scratch,
        done: &mut dyn FnMut(usize),
    ) {
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                // SAFETY: the contract is the same.
                Step::Dispatch(dispatch) => unsafe { dispatch.run(session, buffers, scratch) },
                // SAFETY: the contract is the same.
                Step::Scan(scan) => unsafe { scan.run(session, buffers, scratch) },
            }
            done(number);
        }
    }
}

/// Where kernels keep what they need meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Scratch {
    /// For all threads together.
    pub shared: *mut u8,
    /// The first thread's own; the next one's is `stride` bytes further.
    pub threads: *mut u8,
    pub stride: usize,
}

/// The parts of a kernel, compiled.
fn works(kernel: &Kernel, schedule: &Schedule, isa: Isa) -> Result<Vec<Box<dyn Work>>, CpuError> {
    Ok(match kernel {
        Kernel::Loops(parts) => {
            let tape = |p| LoopTape::new(p, &|b| schedule.buffer(b).dtype);
            let tapes = parts.iter().map(|p| Ok(Box::new(tape(p)?) as Box<dyn Work>));
            tapes.collect::<Result<_, CpuError>>()?
        }
        Kernel::Matmul(m) => vec![matmul::compile(m, schedule, isa)?],
        Kernel::Library(l) => vec![library::compile(l, schedule, isa)?],
        // Not a dispatch: `Step::new` takes it.
        Kernel::Scan(_) => vec![],
    })
}

impl Step {
    /// A step and the bytes of scratch that it needs, for all threads together and for each.
    fn new(kernel: &Kernel, schedule: &Schedule, isa: Isa) -> Result<(Step, usize, usize), CpuError> {
        if let Kernel::Scan(s) = kernel {
            let scan = Scan::new(s, schedule, isa)?;
            let (shared, thread) = scan.scratch();
            return Ok((Step::Scan(Box::new(scan)), shared, thread));
        }
        let (dispatch, shared) = Dispatch::new(kernel, works(kernel, schedule, isa)?);
        let thread = dispatch.parts.iter().map(|p| p.work.scratch_bytes()).max().unwrap_or(0);
        Ok((Step::Dispatch(dispatch), shared, thread))
    }
}

impl Dispatch {
    /// A dispatch and the bytes of shared scratch that it needs.
    fn new(kernel: &Kernel, works: Vec<Box<dyn Work>>) -> (Dispatch, usize) {
        let phases = works.iter().map(|w| w.phases()).max().unwrap_or(0);
        let mut chunks = vec![0; phases];
        let mut parts = vec![];
        let mut shared = 0;
        for work in works {
            let first = chunks.clone();
            for (phase, total) in chunks.iter_mut().enumerate().take(work.phases()) {
                *total += work.chunks(phase);
            }
            let bytes = work.shared_bytes().next_multiple_of(ALIGN);
            parts.push(Part { work, first, shared });
            shared += bytes;
        }
        (Dispatch { name: name(kernel, &parts), parts, chunks }, shared)
    }

    /// Runs every phase.
    ///
    /// # Safety
    ///
    /// As for [`CpuProgram::run_steps`].
    unsafe fn run(&self, session: &Session<'_>, buffers: &[*mut u8], scratch: Scratch) {
        for (phase, &chunks) in self.chunks.iter().enumerate() {
            let place = Shared { buffers, scratch };
            session.run(chunks, &|thread, chunk| {
                let (part, first) = self.part(phase, chunk);
                let Shared { buffers, scratch } = place.get();
                let memory = Memory {
                    buffers,
                    scratch: scratch.threads.wrapping_add(thread * scratch.stride),
                    shared: scratch.shared.wrapping_add(part.shared),
                };
                // SAFETY: the storage is the caller's, by its contract; the scratch areas are disjoint and as large as
                // the parts asked for; chunks of a phase are independent by the schedule's (parts) and the kernel's
                // (chunks) construction, and phases and kernels run one after the other.
                unsafe { part.work.run_chunk(phase, chunk - first, memory) };
            });
        }
    }

    /// The part that owns a chunk, and its first chunk.
    #[inline(always)]
    fn part(&self, phase: usize, chunk: usize) -> (&Part, usize) {
        // The last part that begins at or before the chunk; parts without chunks begin where the next one does.
        let after = match self.parts.len() {
            1 => 1,
            _ => self.parts.partition_point(|p| p.first[phase] <= chunk),
        };
        let part = &self.parts[after - 1];
        (part, part.first[phase])
    }
}

/// The name of a kernel in reports.
fn name(kernel: &Kernel, parts: &[Part]) -> String {
    match (kernel, parts) {
        (Kernel::Loops(loops), _) => match &loops[..] {
            [one] => {
                let (p, r) = one.extents.split_at(one.parallel);
                let reduced = if r.is_empty() { String::new() } else { format!(" reduce {r:?}") };
                format!("loop {p:?}{reduced}, {} expressions", one.body.len())
            }
            many => format!("{} loops", many.len()),
        },
        (_, [only]) => only.work.label(),
        _ => String::new(),
    }
}

/// What the chunks of a dispatch share.
#[derive(Clone, Copy)]
struct Shared<'a> {
    buffers: &'a [*mut u8],
    scratch: Scratch,
}

// SAFETY: the pointers are used as `CpuProgram::run` allows: the storage belongs to the run, not to a thread, and chunks
// access disjoint or unchanging parts of it.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// All of it: a closure that names this method captures the whole, not the fields.
    fn get(&self) -> Shared<'a> {
        *self
    }
}
