//! `scatter_add` and `scatter_add_along`: additions at places that indices name, in the order of the indices.
//!
//! Chunks own disjoint parts of the result, so that no two threads add to one element and the order is kept without
//! atomics: bands of columns (the axes behind the indexed one) where there are enough, else bands of the indexed axis, for
//! which each chunk looks at every index. An index outside the axis is passed over.

use super::indexed::{Slices, index};
use crate::error::CpuError;
use crate::kernel::{CHUNK_BYTES, Memory, Work};
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, View};
use std::marker::PhantomData;

/// Bands that each outer place is cut into at most.
const BANDS: usize = 16;
/// Columns of a band at least: a cache line of `f32`.
const FEWEST_COLUMNS: usize = 16;

/// A type that can be added up.
trait Sum: Copy + Send + Sync + 'static {
    fn plus(self, other: Self) -> Self;
}

macro_rules! sums {
    ($($t:ty: $plus:expr),+ $(,)?) => {
        $(impl Sum for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                let plus: fn($t, $t) -> $t = $plus;
                plus(self, other)
            }
        })+
    };
}

sums!(
    f32: |a, b| a + b, f64: |a, b| a + b,
    i64: i64::wrapping_add, i32: i32::wrapping_add, u32: u32::wrapping_add, u8: u8::wrapping_add,
);

/// Whether there is a kernel for the dtype.
pub(super) fn adds(dtype: DType) -> bool {
    !matches!(dtype, DType::Bool | DType::F16 | DType::BF16)
}

struct Scatter<T> {
    slices: Slices,
    along: bool,
    index: DType,
    base: View,
    /// Whether the base is one element broadcast.
    splat: bool,
    indices: View,
    updates: View,
    result: BufferId,
    /// Columns and places of the axis that a chunk owns.
    columns: usize,
    places: usize,
    element: PhantomData<T>,
}

/// Compiles either op.
pub(super) fn compile(
    slices: Slices,
    along: bool,
    dtype: DType,
    index: DType,
    views: [View; 3],
    result: BufferId,
) -> Result<Box<dyn Work>, CpuError> {
    fn make<T: Sum>(
        s: Slices,
        along: bool,
        index: DType,
        views: [View; 3],
        result: BufferId,
    ) -> Box<dyn Work> {
        let [base, indices, updates] = views;
        let (columns, places) = bands(s, size_of::<T>());
        Box::new(Scatter::<T> {
            slices: s,
            along,
            index,
            splat: !base.is_dense(),
            base,
            indices,
            updates,
            result,
            columns,
            places,
            element: PhantomData,
        })
    }
    match dtype {
        DType::F32 => Ok(make::<f32>(slices, along, index, views, result)),
        DType::F64 => Ok(make::<f64>(slices, along, index, views, result)),
        DType::I64 => Ok(make::<i64>(slices, along, index, views, result)),
        DType::I32 => Ok(make::<i32>(slices, along, index, views, result)),
        DType::U32 => Ok(make::<u32>(slices, along, index, views, result)),
        DType::U8 => Ok(make::<u8>(slices, along, index, views, result)),
        other => Err(CpuError::NoKernel { op: "scatter_add", why: format!("on {other}") }),
    }
}

/// Columns and places of a band, by sizes alone.
fn bands(s: Slices, size: usize) -> (usize, usize) {
    let bytes = s.outer.saturating_mul(s.axis + s.count).saturating_mul(s.inner).saturating_mul(size);
    let want = (bytes / CHUNK_BYTES).clamp(1, BANDS).div_ceil(s.outer.max(1));
    let columns =
        s.inner.div_ceil(want).max(FEWEST_COLUMNS).next_multiple_of(FEWEST_COLUMNS).min(s.inner).max(1);
    let left = want.div_ceil(s.inner.div_ceil(columns).max(1));
    (columns, s.axis.div_ceil(left).max(1))
}

impl<T: Sum> Work for Scatter<T> {
    fn label(&self) -> String {
        let Slices { outer, axis, inner, count } = self.slices;
        let name = if self.along { "scatter_add_along" } else { "scatter_add" };
        format!("{name} {count} to {outer}×{axis}×{inner}")
    }

    fn chunks(&self, _phase: usize) -> usize {
        let Slices { outer, axis, inner, .. } = self.slices;
        outer * axis.div_ceil(self.places) * inner.div_ceil(self.columns)
    }

    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let Slices { axis, inner, count, .. } = self.slices;
        let (wide, tall) = (inner.div_ceil(self.columns), axis.div_ceil(self.places));
        let (outer, band) = (chunk / (wide * tall), chunk % (wide * tall));
        let (column, first) = (band % wide * self.columns, band / wide * self.places);
        let columns = self.columns.min(inner - column);
        let places = self.places.min(axis - first);
        let base = memory.of::<T>(&self.base).cast_const();
        let indices = memory.at::<u8>(self.indices.buffer, self.indices.offset * self.index.size());
        let updates = memory.of::<T>(&self.updates).cast_const();
        let result = memory.at::<T>(self.result, 0);
        let in_place = !self.splat && std::ptr::eq(base, result);
        // SAFETY: every place below lies in the band of the result (or the same of the base) that this chunk owns, or is
        // an index or update that exists; the result overlaps no operand but, exactly, the base.
        unsafe {
            let row = |place: usize| result.add((outer * axis + place) * inner + column);
            if !in_place {
                for place in first..first + places {
                    let to = std::slice::from_raw_parts_mut(row(place), columns);
                    if self.splat {
                        to.fill(*base);
                    } else {
                        let from = base.add((outer * axis + place) * inner + column);
                        std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), columns);
                    }
                }
            }
            for c in 0..count {
                let from = updates.add((outer * count + c) * inner + column);
                if self.along {
                    for j in 0..columns {
                        let at = (outer * count + c) * inner + column + j;
                        if let Some(i) =
                            index(self.index, indices, at, axis).filter(|&i| i >= first && i < first + places)
                        {
                            let to = row(i).add(j);
                            *to = (*to).plus(*from.add(j));
                        }
                    }
                } else if let Some(i) =
                    index(self.index, indices, c, axis).filter(|&i| i >= first && i < first + places)
                {
                    let to = std::slice::from_raw_parts_mut(row(i), columns);
                    for (x, &u) in to.iter_mut().zip(std::slice::from_raw_parts(from, columns)) {
                        *x = x.plus(u);
                    }
                }
            }
        }
    }
}
