//! `dynamic_slice` and `dynamic_update_slice`: a range along one axis, whose start is read from a buffer.
//!
//! A range that does not lie in the axis is never moved to fit: the slice is then NaN (0 for integers), and the update
//! leaves the tensor as it was.

use super::indexed::{Slices, absent, fill, index};
use crate::kernel::{CHUNK_BYTES, Memory, Work};
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, View};

/// `dynamic_slice`.
pub(super) struct Slice {
    slices: Slices,
    size: usize,
    absent: u64,
    index: DType,
    data: View,
    start: View,
    result: BufferId,
}

/// The first place of the range, if all of it lies in the axis.
///
/// # Safety
///
/// As for [`Work::run_chunk`].
unsafe fn begin(start: &View, dtype: DType, s: Slices, memory: Memory<'_>) -> Option<usize> {
    let at = memory.at::<u8>(start.buffer, start.offset * dtype.size());
    // SAFETY: the start is one element of its buffer.
    unsafe { index(dtype, at, 0, s.axis + 1 - s.count) }
}

impl Slice {
    pub fn new(
        slices: Slices,
        data_dtype: DType,
        index: DType,
        data: View,
        start: View,
        result: BufferId,
    ) -> Self {
        let (size, absent) = (data_dtype.size(), absent(data_dtype));
        Slice { slices, size, absent, index, data, start, result }
    }

    /// Outer places of a chunk.
    fn group(&self) -> usize {
        (CHUNK_BYTES / (self.slices.count * self.slices.inner * self.size).max(1)).max(1)
    }
}

impl Work for Slice {
    fn label(&self) -> String {
        let Slices { outer, axis, inner, count } = self.slices;
        format!("dynamic_slice {count} of {outer}×{axis}×{inner}")
    }
    fn chunks(&self, _phase: usize) -> usize {
        self.slices.outer.div_ceil(self.group())
    }
    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let Slices { outer, axis, inner, count } = self.slices;
        let run = count * inner;
        let data = memory.at::<u8>(self.data.buffer, self.data.offset * self.size);
        let result = memory.at::<u8>(self.result, 0);
        let first = chunk * self.group();
        // SAFETY: the start exists; the source range lies in the axis when there is a start, the target in the result.
        unsafe {
            let start = begin(&self.start, self.index, self.slices, memory);
            for o in first..(first + self.group()).min(outer) {
                let to = result.add(o * run * self.size);
                match start {
                    Some(start) => {
                        let from = data.add((o * axis + start) * inner * self.size);
                        std::ptr::copy_nonoverlapping(from, to, run * self.size);
                    }
                    None => fill(to, self.size, run, self.absent),
                }
            }
        }
    }
}

/// `dynamic_update_slice`.
pub(super) struct Update {
    slices: Slices,
    size: usize,
    index: DType,
    data: View,
    /// Whether the data is one element broadcast.
    splat: bool,
    update: View,
    start: View,
    result: BufferId,
}

impl Update {
    pub fn new(slices: Slices, data_dtype: DType, index: DType, views: [View; 3], result: BufferId) -> Self {
        let [data, update, start] = views;
        let (size, splat) = (data_dtype.size(), !data.is_dense());
        Update { slices, size, index, data, splat, update, start, result }
    }

    /// Outer places of a chunk.
    fn group(&self) -> usize {
        (CHUNK_BYTES / (self.slices.axis * self.slices.inner * self.size).max(1)).max(1)
    }
}

impl Work for Update {
    fn label(&self) -> String {
        let Slices { outer, axis, inner, count } = self.slices;
        format!("dynamic_update_slice {count} of {outer}×{axis}×{inner}")
    }
    fn chunks(&self, _phase: usize) -> usize {
        self.slices.outer.div_ceil(self.group())
    }
    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let Slices { outer, axis, inner, count } = self.slices;
        let (whole, run) = (axis * inner * self.size, count * inner * self.size);
        let data = memory.at::<u8>(self.data.buffer, self.data.offset * self.size);
        let update = memory.at::<u8>(self.update.buffer, self.update.offset * self.size);
        let result = memory.at::<u8>(self.result, 0);
        let in_place = !self.splat && std::ptr::eq(data, result);
        let first = chunk * self.group();
        // SAFETY: the start exists; all ranges lie in their tensors; the result overlaps no operand but, exactly, the
        // data.
        unsafe {
            let start = begin(&self.start, self.index, self.slices, memory);
            for o in first..(first + self.group()).min(outer) {
                let to = result.add(o * whole);
                if self.splat {
                    for at in (0..whole).step_by(self.size) {
                        std::ptr::copy_nonoverlapping(data, to.add(at), self.size);
                    }
                } else if !in_place {
                    std::ptr::copy_nonoverlapping(data.add(o * whole), to, whole);
                }
                if let Some(start) = start {
                    let from = update.add(o * run);
                    std::ptr::copy_nonoverlapping(from, to.add(start * inner * self.size), run);
                }
            }
        }
    }
}
