//! `argmax` and `argmin` along an axis: the first NaN wins, else the first of the best.
//!
//! Adjacent elements are searched in two sweeps that vectorise: the best value, then its first place.

use super::indexed::Slices;
use crate::error::CpuError;
use crate::kernel::{CHUNK_BYTES, Memory, Work};
use onestep_ir::DType;
use onestep_ir::ops::ArgKind;
use onestep_passes::schedule::{BufferId, View};
use std::marker::PhantomData;

/// Elements that are compared side by side.
const LANES: usize = 16;

/// Whether there is a kernel for the dtype.
pub(super) fn compares(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::BF16)
}

struct ArgReduce<T> {
    slices: Slices,
    kind: ArgKind,
    data: View,
    result: BufferId,
    element: PhantomData<T>,
}

/// Compiles either op.
pub(super) fn compile(
    slices: Slices,
    kind: ArgKind,
    dtype: DType,
    data: View,
    result: BufferId,
) -> Result<Box<dyn Work>, CpuError> {
    fn make<T: Copy + PartialOrd + Send + Sync + 'static>(
        slices: Slices,
        kind: ArgKind,
        data: View,
        result: BufferId,
    ) -> Box<dyn Work> {
        Box::new(ArgReduce::<T> { slices, kind, data, result, element: PhantomData })
    }
    match dtype {
        DType::F32 => Ok(make::<f32>(slices, kind, data, result)),
        DType::F64 => Ok(make::<f64>(slices, kind, data, result)),
        DType::I64 => Ok(make::<i64>(slices, kind, data, result)),
        DType::I32 => Ok(make::<i32>(slices, kind, data, result)),
        DType::U32 => Ok(make::<u32>(slices, kind, data, result)),
        DType::I8 => Ok(make::<i8>(slices, kind, data, result)),
        DType::U8 | DType::Bool => Ok(make::<u8>(slices, kind, data, result)),
        other => Err(CpuError::NoKernel { op: kind.name(), why: format!("on {other}") }),
    }
}

/// Whether `x` takes the place of `best`, which stands before it. Only a NaN differs from itself.
#[inline(always)]
#[allow(clippy::eq_op)]
fn beats<T: Copy + PartialOrd>(kind: ArgKind, x: T, best: T) -> bool {
    let better = match kind {
        ArgKind::Max => x > best,
        ArgKind::Min => x < best,
    };
    better | ((x != x) & (best == best))
}

/// The place of the winner among adjacent elements, of which there is one at least.
fn first_of<T: Copy + PartialOrd>(kind: ArgKind, row: &[T]) -> usize {
    let mut best = [row[0]; LANES];
    let (blocks, rest) = row.as_chunks::<LANES>();
    for block in blocks {
        for (b, &x) in best.iter_mut().zip(block) {
            *b = if beats(kind, x, *b) { x } else { *b };
        }
    }
    let all = best.iter().chain(rest);
    let winner = all.fold(row[0], |b, &x| if beats(kind, x, b) { x } else { b });
    #[allow(clippy::eq_op)]
    let found = if winner == winner {
        row.iter().position(|&x| x == winner)
    } else {
        row.iter().position(|&x| x != x)
    };
    found.unwrap_or(0)
}

impl<T: Copy + PartialOrd + Send + Sync + 'static> ArgReduce<T> {
    /// Outer places of a chunk.
    fn group(&self) -> usize {
        (CHUNK_BYTES / (self.slices.axis * self.slices.inner * size_of::<T>()).max(1)).max(1)
    }
}

impl<T: Copy + PartialOrd + Send + Sync + 'static> Work for ArgReduce<T> {
    fn label(&self) -> String {
        let Slices { outer, axis, inner, .. } = self.slices;
        format!("{} {outer}×{axis}×{inner}", self.kind.name())
    }
    fn chunks(&self, _phase: usize) -> usize {
        self.slices.outer.div_ceil(self.group())
    }
    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let Slices { outer, axis, inner, .. } = self.slices;
        let data = memory.of::<T>(&self.data).cast_const();
        let result = memory.at::<i32>(self.result, 0);
        let first = chunk * self.group();
        for o in first..(first + self.group()).min(outer) {
            // SAFETY: outer place `o` of the data has `axis` × `inner` elements, and of the result `inner`.
            let (data, to) = unsafe {
                let data = std::slice::from_raw_parts(data.add(o * axis * inner), axis * inner);
                (data, std::slice::from_raw_parts_mut(result.add(o * inner), inner))
            };
            if inner == 1 {
                to[0] = first_of(self.kind, data) as i32;
                continue;
            }
            to.fill(0);
            for a in 1..axis {
                for i in 0..inner {
                    if beats(self.kind, data[a * inner + i], data[to[i] as usize * inner + i]) {
                        to[i] = a as i32;
                    }
                }
            }
        }
    }
}
