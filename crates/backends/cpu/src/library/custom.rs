//! Ops of the user's own: their kernels are safe functions over slices, [`onestep_ir::ops::CpuKernel`]. A chunk is as many
//! parts as move about as much memory as the chunk of a copying kernel, so that the pool has something to share.

use crate::error::CpuError;
use crate::kernel::{CHUNK_BYTES, Memory, Work};
use onestep_ir::ops::{CpuKernel, Custom as Op, MOST};
use onestep_ir::{DType, OpRule, Shape, Type};
use onestep_passes::schedule::{BufferId, LibraryKernel, Schedule};

struct Custom {
    name: &'static str,
    kernel: CpuKernel,
    /// Parts of a chunk.
    group: usize,
    /// The buffer of each operand, the byte at which it begins, and its bytes.
    operands: Vec<(BufferId, usize, usize)>,
    /// The buffer of each result, and the bytes of a part.
    results: Vec<(BufferId, usize)>,
}

/// Compiles the op, whose operands are dense views of these dtypes. Operands and results are checked.
pub(super) fn compile(
    op: &Op,
    kernel: &LibraryKernel,
    schedule: &Schedule,
    dtypes: &[DType],
) -> Result<Box<dyn Work>, CpuError> {
    let name = op.name();
    let ty = |dtype: DType, shape: &[usize]| Type::new(dtype, Shape::fixed(shape));
    let operands: Vec<Type> =
        kernel.operands.iter().zip(dtypes).map(|(view, &dtype)| ty(dtype, &view.shape)).collect();
    let results: Vec<Type> =
        kernel.results.iter().map(|v| ty(schedule.buffer(v.buffer).dtype, &v.shape)).collect();
    let run = op.cpu_kernel(&operands);
    let run = run.ok_or_else(|| CpuError::NoKernel { op: name, why: "the op gives none".into() })?;
    run.check(&operands, &results)
        .map_err(|mistake| CpuError::Custom { op: name, why: mistake.to_string() })?;
    let parts = run.parts();
    let bytes = |ty: &Type| ty.numel() * ty.dtype.size();
    let moved: usize = operands.iter().chain(&results).map(bytes).fold(0, usize::saturating_add);
    let begin = |(view, ty): (&onestep_passes::schedule::View, &Type)| {
        (view.buffer, view.offset * ty.dtype.size(), bytes(ty))
    };
    Ok(Box::new(Custom {
        name,
        group: parts.saturating_mul(CHUNK_BYTES).checked_div(moved).unwrap_or(parts).max(1),
        operands: kernel.operands.iter().zip(&operands).map(begin).collect(),
        results: kernel
            .results
            .iter()
            .zip(&results)
            .map(|(v, ty)| (v.buffer, bytes(ty) / parts.max(1)))
            .collect(),
        kernel: run,
    }))
}

impl Work for Custom {
    fn label(&self) -> String {
        format!("{} of {} part(s)", self.name, self.kernel.parts())
    }
    fn chunks(&self, _phase: usize) -> usize {
        self.kernel.parts().div_ceil(self.group)
    }
    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let first = chunk * self.group;
        let parts = first..(first + self.group).min(self.kernel.parts());
        let mut operands: [&[u8]; MOST] = [&[]; MOST];
        let mut results: [&mut [u8]; MOST] = Default::default();
        for (slice, &(buffer, at, bytes)) in operands.iter_mut().zip(&self.operands) {
            if bytes > 0 {
                // SAFETY: the operand was checked to lie in its buffer; nobody writes it meanwhile.
                *slice = unsafe { std::slice::from_raw_parts(memory.at::<u8>(buffer, at), bytes) };
            }
        }
        for (slice, &(buffer, bytes)) in results.iter_mut().zip(&self.results) {
            if bytes > 0 {
                let (at, bytes) = (parts.start * bytes, parts.len() * bytes);
                // SAFETY: the result has this many bytes for each part; the parts of a chunk are its own, and results
                // overlap nothing that the kernel reads or writes. Uninitialised storage holds plain numbers.
                *slice = unsafe { std::slice::from_raw_parts_mut(memory.at::<u8>(buffer, at), bytes) };
            }
        }
        self.kernel.run(parts, &operands[..self.operands.len()], &mut results[..self.results.len()]);
    }
}
