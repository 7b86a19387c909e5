//! `gather` and `gather_along`: reads at places that indices name. An index outside the axis gives NaN (0 for integers),
//! never another place's data.

use super::indexed::{Slices, absent, fill, index};
use crate::kernel::{CHUNK_BYTES, Memory, Work};
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, View};

/// Either op: the result as rows, each a copy of one row of the data.
pub(super) struct Gather {
    slices: Slices,
    along: bool,
    size: usize,
    absent: u64,
    index: DType,
    data: View,
    indices: View,
    result: BufferId,
}

impl Gather {
    /// `gather`: an index selects a row of `inner` elements.
    pub fn rows(
        s: Slices,
        data_dtype: DType,
        index: DType,
        data: View,
        indices: View,
        to: BufferId,
    ) -> Gather {
        Gather::new(s, false, data_dtype, index, data, indices, to)
    }

    /// `gather_along`: an index selects one element.
    pub fn along(
        s: Slices,
        data_dtype: DType,
        index: DType,
        data: View,
        indices: View,
        to: BufferId,
    ) -> Gather {
        Gather::new(s, true, data_dtype, index, data, indices, to)
    }

    fn new(
        s: Slices,
        along: bool,
        dtype: DType,
        index: DType,
        data: View,
        indices: View,
        to: BufferId,
    ) -> Gather {
        let (size, absent) = (dtype.size(), absent(dtype));
        Gather { slices: s, along, size, absent, index, data, indices, result: to }
    }

    /// Elements that one index selects.
    fn run_length(&self) -> usize {
        if self.along { 1 } else { self.slices.inner }
    }

    fn runs(&self) -> usize {
        self.slices.selected() / self.run_length().max(1)
    }

    fn runs_per_chunk(&self) -> usize {
        (CHUNK_BYTES / (self.run_length() * self.size).max(1)).max(1)
    }

    /// Copies runs of `T`s.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`]; `T` has the data's size.
    unsafe fn copy<T: Copy>(&self, runs: std::ops::Range<usize>, memory: Memory<'_>) {
        let Slices { axis, inner, count, .. } = self.slices;
        let data = memory.of::<T>(&self.data).cast_const();
        let indices = memory.at::<u8>(self.indices.buffer, self.indices.offset * self.index.size());
        let result = memory.at::<T>(self.result, 0);
        let length = self.run_length();
        for run in runs {
            // The index's place, and where in the data its axis begins.
            let (at, outer, behind) = match self.along {
                true => (run, run / (count * inner), run % inner),
                false => (run % count, run / count, 0),
            };
            // SAFETY: `at` is below the number of indices; the source run lies in the data as its index is below
            // `axis`, the target in the result, of which each chunk writes its own runs.
            unsafe {
                let to = result.add(run * length);
                match index(self.index, indices, at, axis) {
                    Some(i) => {
                        let from = data.add((outer * axis + i) * inner + behind);
                        std::ptr::copy_nonoverlapping(from, to, length);
                    }
                    None => fill(to.cast(), self.size, length, self.absent),
                }
            }
        }
    }
}

impl Work for Gather {
    fn label(&self) -> String {
        let Slices { outer, axis, inner, count } = self.slices;
        let name = if self.along { "gather_along" } else { "gather" };
        format!("{name} {count} of {outer}×{axis}×{inner}")
    }
    fn chunks(&self, _phase: usize) -> usize {
        if self.slices.selected() == 0 { 0 } else { self.runs().div_ceil(self.runs_per_chunk()) }
    }
    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let first = chunk * self.runs_per_chunk();
        let runs = first..(first + self.runs_per_chunk()).min(self.runs());
        // SAFETY: the contract is the same, and the types have the dtype's size.
        unsafe {
            match self.size {
                8 => self.copy::<u64>(runs, memory),
                4 => self.copy::<u32>(runs, memory),
                2 => self.copy::<u16>(runs, memory),
                _ => self.copy::<u8>(runs, memory),
            }
        }
    }
}
