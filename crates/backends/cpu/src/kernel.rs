//! What every compiled kernel of this backend is: phases of chunks over raw storage.
//!
//! The chunks of a phase are independent; a phase begins when the one before it is complete. Both numbers are fixed by
//! shapes, so that the results do not depend on how many threads share the chunks.

use crate::error::CpuError;
use crate::tape::LoopTape;
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, Schedule, View};

/// The storage that a chunk works on.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    /// By [`BufferId`].
    pub buffers: &'a [*mut u8],
    /// The thread's own, [`Work::scratch_bytes`] at a multiple of 64.
    pub scratch: *mut u8,
    /// The kernel's own, [`Work::shared_bytes`] at a multiple of 64, kept from phase to phase.
    pub shared: *mut u8,
}

impl Memory<'_> {
    /// Where element `offset` of a buffer is.
    #[inline(always)]
    pub fn at<T>(&self, buffer: BufferId, offset: usize) -> *mut T {
        self.buffers[buffer.index()].cast::<T>().wrapping_add(offset)
    }
    /// Where a view's first element is.
    #[inline(always)]
    pub fn of<T>(&self, view: &View) -> *mut T {
        self.at(view.buffer, view.offset)
    }
}

/// A compiled kernel, or one of several in a dispatch.
pub(crate) trait Work: Send + Sync {
    /// A line for reports: op and sizes.
    fn label(&self) -> String;
    /// Number of phases.
    fn phases(&self) -> usize {
        1
    }
    /// Number of chunks of a phase.
    fn chunks(&self, phase: usize) -> usize;
    /// Bytes of scratch for each thread.
    fn scratch_bytes(&self) -> usize {
        0
    }
    /// Bytes of scratch for all together.
    fn shared_bytes(&self) -> usize {
        0
    }
    /// Runs a chunk.
    ///
    /// # Safety
    ///
    /// `memory` is as its fields say, each buffer has the size and dtype that the schedule gives it, aligned for the
    /// dtype; nobody else writes what this chunk reads or accesses what it writes.
    unsafe fn run_chunk(&self, phase: usize, chunk: usize, memory: Memory<'_>);
}

impl Work for LoopTape {
    fn label(&self) -> String {
        "loop".to_string()
    }
    fn phases(&self) -> usize {
        LoopTape::phases(self)
    }
    fn chunks(&self, phase: usize) -> usize {
        if phase < LoopTape::phases(self) { LoopTape::chunks(self, phase) } else { 0 }
    }
    fn scratch_bytes(&self) -> usize {
        LoopTape::scratch_bytes(self)
    }
    fn shared_bytes(&self) -> usize {
        LoopTape::shared_bytes(self)
    }
    unsafe fn run_chunk(&self, phase: usize, chunk: usize, memory: Memory<'_>) {
        // SAFETY: the contract is the same.
        unsafe { LoopTape::run_chunk(self, phase, chunk, memory.buffers, memory.scratch, memory.shared) }
    }
}

/// Refuses a view that leaves its buffer, so that what follows may rely on it.
pub(crate) fn check_view(schedule: &Schedule, view: &View, what: &'static str) -> Result<DType, CpuError> {
    let wrong = |why: &str| CpuError::Operand { what, why: format!("{why} ({view})") };
    let buffer =
        schedule.buffers.get(view.buffer.index()).ok_or_else(|| wrong("its buffer does not exist"))?;
    if view.shape.len() != view.strides.len() {
        return Err(wrong("it has not one stride for each axis"));
    }
    if !view.shape.contains(&0) {
        let last = view.shape.iter().zip(&view.strides).try_fold(view.offset, |sum, (&n, &stride)| {
            (n - 1).checked_mul(stride).and_then(|far| far.checked_add(sum))
        });
        if last.is_none_or(|last| last >= buffer.numel()) {
            return Err(wrong("it leaves its buffer"));
        }
    }
    Ok(buffer.dtype)
}

/// Refuses a result of another type than expected.
pub(crate) fn check_result(
    schedule: &Schedule,
    result: BufferId,
    dtype: DType,
    shape: &[usize],
) -> Result<(), CpuError> {
    let what = "the result";
    let buffer = schedule.buffers.get(result.index());
    let buffer = buffer.ok_or(CpuError::Operand { what, why: format!("{result} does not exist") })?;
    // Reshapes are free: only the number of elements counts.
    if buffer.dtype != dtype || buffer.numel() != shape.iter().product::<usize>() {
        let why =
            format!("{result} is {}{:?}, the kernel gives {dtype}{shape:?}", buffer.dtype, buffer.shape);
        return Err(CpuError::Operand { what, why });
    }
    Ok(())
}

/// Elements that a chunk of a copying kernel moves: long enough to repay its dispatch, short enough to share.
pub(crate) const CHUNK_BYTES: usize = 32 * 1024;
