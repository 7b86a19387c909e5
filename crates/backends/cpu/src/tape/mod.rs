//! Loop kernels as block tapes. This first version evaluates each point by the reference.

use crate::error::CpuError;
use onestep_ir::DType;
use onestep_passes::schedule::reference::{self, Memory, Number};
use onestep_passes::schedule::{BufferId, LoopKernel};
use std::collections::BTreeMap;
use std::ops::Range;

/// A compiled loop kernel.
pub struct LoopTape {
    kernel: LoopKernel,
    dtypes: BTreeMap<BufferId, DType>,
    points_per_chunk: usize,
}

impl LoopTape {
    /// Compiles a kernel over buffers of the given dtypes.
    pub fn new(kernel: &LoopKernel, dtype_of: &dyn Fn(BufferId) -> DType) -> Result<LoopTape, CpuError> {
        let used = kernel.reads().into_iter().chain(kernel.writes());
        let dtypes = used.map(|b| (b, dtype_of(b))).collect();
        Ok(LoopTape {
            kernel: kernel.clone(),
            dtypes,
            points_per_chunk: (4096 / kernel.row_len().max(1)).max(1),
        })
    }

    /// 1, or 2 when a long reduction is split over chunks: partial results, then their combination.
    pub fn phases(&self) -> usize {
        1
    }

    /// Number of chunks of a phase, fixed by the shapes alone.
    pub fn chunks(&self, _phase: usize) -> usize {
        self.kernel.rows().div_ceil(self.points_per_chunk)
    }

    /// Bytes of scratch that each thread provides.
    pub fn scratch_bytes(&self) -> usize {
        0
    }

    /// Bytes that the chunks of both phases share.
    pub fn shared_bytes(&self) -> usize {
        0
    }

    /// Runs one chunk of a phase.
    ///
    /// # Safety
    ///
    /// `buffers` holds, by index, the storage of every buffer that the kernel names, aligned for its dtype; `scratch`
    /// and `shared` have the sizes above; no other thread uses the scratch or writes what this chunk accesses.
    pub unsafe fn run_chunk(
        &self,
        _phase: usize,
        chunk: usize,
        buffers: &[*mut u8],
        _scratch: *mut u8,
        _shared: *mut u8,
    ) {
        let start = chunk * self.points_per_chunk;
        let end = (start + self.points_per_chunk).min(self.kernel.rows());
        reference::run_rows(&self.kernel, start..end, &mut Raw { tape: self, buffers });
    }

    /// Runs a range of rows; only for kernels of one phase. A row is a point of the parallel axes, or, for a kernel
    /// without reduced axes, an index of the leading axis.
    ///
    /// # Safety
    ///
    /// As [`LoopTape::run_chunk`].
    pub unsafe fn run_rows(&self, rows: Range<usize>, buffers: &[*mut u8], _scratch: *mut u8) {
        let k = &self.kernel;
        let unit = if k.parallel == k.extents.len() { k.extents.iter().skip(1).product() } else { 1 };
        reference::run_rows(k, rows.start * unit..rows.end * unit, &mut Raw { tape: self, buffers });
    }
}

struct Raw<'a> {
    tape: &'a LoopTape,
    buffers: &'a [*mut u8],
}

impl Memory for Raw<'_> {
    fn load(&self, buffer: BufferId, place: i64) -> Number {
        let dtype = self.tape.dtypes[&buffer];
        let mut bits = 0u64;
        // SAFETY: the caller of `run_chunk` gives storage that holds every element the kernel accesses.
        unsafe {
            let from = self.buffers[buffer.index()].offset(place as isize * dtype.size() as isize);
            std::ptr::copy_nonoverlapping(from, (&raw mut bits).cast(), dtype.size());
        }
        reference::decode(dtype, bits)
    }
    fn store(&mut self, buffer: BufferId, place: i64, value: Number) {
        let dtype = self.tape.dtypes[&buffer];
        let bits = match dtype {
            DType::F64 => value.real().to_bits(),
            DType::F32 => (value.real() as f32).to_bits() as u64,
            DType::F16 => half::f16::from_f64(value.real()).to_bits() as u64,
            DType::BF16 => half::bf16::from_f64(value.real()).to_bits() as u64,
            _ => value.int() as u64,
        };
        // SAFETY: as in `load`.
        unsafe {
            let to = self.buffers[buffer.index()].offset(place as isize * dtype.size() as isize);
            std::ptr::copy_nonoverlapping((&raw const bits).cast(), to, dtype.size());
        }
    }
}
