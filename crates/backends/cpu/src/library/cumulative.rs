//! `cumsum`, `cumprod`, `cummax` and `cummin`: rows are scanned in the order of the axis, neighbouring ones side by side.
//!
//! Sums and products of f32 run in f64 and are rounded for each element, so that a long row loses nothing. The order is
//! that of the axis; rows alone are shared among threads.

use super::indexed::Slices;
use crate::error::CpuError;
use crate::kernel::{CHUNK_BYTES, Memory, Work};
use crate::math::{double, single};
use onestep_ir::DType;
use onestep_ir::ops::{Cumulative, ReduceKind};
use onestep_passes::schedule::{BufferId, View};
use std::marker::PhantomData;

/// Rows that are scanned side by side, at most.
const WIDTH: usize = 128;

/// Whether there is a kernel for the dtype.
pub(super) fn scans(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::BF16)
}

/// Where a scan goes, whatever its elements.
struct Rows {
    op: Cumulative,
    slices: Slices,
    data: View,
    result: BufferId,
}

/// A scan with totals of `A`, to which `combine` adds an element and which `narrow` rounds.
struct Scan<T, A, C, N> {
    rows: Rows,
    identity: A,
    combine: C,
    narrow: N,
    element: PhantomData<T>,
}

/// Compiles any of the ops.
pub(super) fn compile(
    op: &Cumulative,
    dtype: DType,
    data: View,
    result: BufferId,
) -> Result<Box<dyn Work>, CpuError> {
    fn make<T, A>(
        rows: Rows,
        identity: A,
        combine: impl Fn(A, T) -> A + Send + Sync + 'static,
        narrow: impl Fn(A) -> T + Send + Sync + 'static,
    ) -> Box<dyn Work>
    where
        T: Copy + Send + Sync + 'static,
        A: Copy + Send + Sync + 'static,
    {
        Box::new(Scan { rows, identity, combine, narrow, element: PhantomData })
    }
    macro_rules! integer {
        ($t:ty, $rows:expr) => {
            match op.kind {
                ReduceKind::Sum => make($rows, 0, |a: $t, x: $t| a.wrapping_add(x), |a| a),
                ReduceKind::Prod => make($rows, 1, |a: $t, x: $t| a.wrapping_mul(x), |a| a),
                ReduceKind::Max => make($rows, <$t>::MIN, |a: $t, x: $t| a.max(x), |a| a),
                ReduceKind::Min => make($rows, <$t>::MAX, |a: $t, x: $t| a.min(x), |a| a),
            }
        };
    }
    macro_rules! float {
        ($t:ty, $m:ident, $rows:expr) => {
            match op.kind {
                ReduceKind::Sum => make($rows, 0.0, |a: f64, x: $t| a + f64::from(x), |a| a as $t),
                ReduceKind::Prod => make($rows, 1.0, |a: f64, x: $t| a * f64::from(x), |a| a as $t),
                ReduceKind::Max => make($rows, <$t>::NEG_INFINITY, |a: $t, x: $t| $m::fmax_nan(a, x), |a| a),
                ReduceKind::Min => make($rows, <$t>::INFINITY, |a: $t, x: $t| $m::fmin_nan(a, x), |a| a),
            }
        };
    }
    let rows = Rows { op: *op, slices: Slices::new(&data.shape, op.axis, 1), data, result };
    Ok(match dtype {
        DType::F32 => float!(f32, single, rows),
        DType::F64 => float!(f64, double, rows),
        DType::I64 => integer!(i64, rows),
        DType::I32 => integer!(i32, rows),
        DType::U32 => integer!(u32, rows),
        DType::I8 => integer!(i8, rows),
        DType::U8 => integer!(u8, rows),
        DType::Bool => match op.kind {
            // Of a scan that leaves the element out, the first result is `true`, which is 1.
            ReduceKind::Min => make(rows, 1u8, |a: u8, x: u8| a.min(x), |a| a),
            _ => make(rows, 0u8, |a: u8, x: u8| a.max(x), |a| a),
        },
        other => return Err(CpuError::NoKernel { op: "cumulative", why: format!("on {other}") }),
    })
}

impl<T, A, C, N> Scan<T, A, C, N> {
    /// Blocks of side-by-side rows for each outer place.
    fn blocks(&self) -> usize {
        self.rows.slices.inner.div_ceil(WIDTH)
    }

    /// Blocks of a chunk.
    fn group(&self) -> usize {
        let Slices { axis, inner, .. } = self.rows.slices;
        (CHUNK_BYTES / (axis * inner.min(WIDTH) * size_of::<T>()).max(1)).max(1)
    }
}

impl<T, A, C, N> Work for Scan<T, A, C, N>
where
    T: Copy + Send + Sync + 'static,
    A: Copy + Send + Sync + 'static,
    C: Fn(A, T) -> A + Send + Sync,
    N: Fn(A) -> T + Send + Sync,
{
    fn label(&self) -> String {
        let Slices { outer, axis, inner, .. } = self.rows.slices;
        format!("{} {outer}×{axis}×{inner}", onestep_ir::OpRule::name(&self.rows.op))
    }
    fn chunks(&self, _phase: usize) -> usize {
        (self.rows.slices.outer * self.blocks()).div_ceil(self.group())
    }
    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let Rows { op, slices: Slices { outer, axis, inner, .. }, data, result } = &self.rows;
        let (data, result) = (memory.of::<T>(data).cast_const(), memory.at::<T>(*result, 0));
        let first = chunk * self.group();
        for block in first..(first + self.group()).min(outer * self.blocks()) {
            let (o, i) = (block / self.blocks(), block % self.blocks() * WIDTH);
            let width = WIDTH.min(inner - i);
            let mut totals = [self.identity; WIDTH];
            for step in 0..*axis {
                let a = if op.reverse { axis - 1 - step } else { step };
                let at = (o * axis + a) * inner + i;
                // SAFETY: place `a` of outer place `o` has `inner` elements, of which these are `width` from `i`.
                let (x, to) = unsafe {
                    (
                        std::slice::from_raw_parts(data.add(at), width),
                        std::slice::from_raw_parts_mut(result.add(at), width),
                    )
                };
                for ((total, &x), to) in totals.iter_mut().zip(x).zip(to) {
                    let next = (self.combine)(*total, x);
                    *to = (self.narrow)(if op.exclusive { *total } else { next });
                    *total = next;
                }
            }
        }
    }
}
