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
    i64: i64::wrapping_add, i32: i32::wrapping_add, i8: i8::wrapping_add,
    u32: u32::wrapping_add, u8: u8::wrapping_add,
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
    bands: Bands,
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
        Box::new(Scatter::<T> {
            slices: s,
            along,
            index,
            splat: !base.is_dense(),
            base,
            indices,
            updates,
            result,
            bands: Bands::new(s, size_of::<T>()),
            element: PhantomData,
        })
    }
    match dtype {
        DType::F32 => Ok(make::<f32>(slices, along, index, views, result)),
        DType::F64 => Ok(make::<f64>(slices, along, index, views, result)),
        DType::I64 => Ok(make::<i64>(slices, along, index, views, result)),
        DType::I32 => Ok(make::<i32>(slices, along, index, views, result)),
        DType::U32 => Ok(make::<u32>(slices, along, index, views, result)),
        DType::I8 => Ok(make::<i8>(slices, along, index, views, result)),
        DType::U8 => Ok(make::<u8>(slices, along, index, views, result)),
        other => Err(CpuError::NoKernel { op: "scatter_add", why: format!("on {other}") }),
    }
}

/// What a chunk owns: columns and places of the axis, of some outer places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bands {
    columns: usize,
    places: usize,
    outers: usize,
}

impl Bands {
    /// By sizes alone. Outer places are put together only if none of them is cut.
    fn new(s: Slices, size: usize) -> Bands {
        let each = (s.axis + s.count).saturating_mul(s.inner).saturating_mul(size).max(1);
        let want = (s.outer.saturating_mul(each) / CHUNK_BYTES).clamp(1, BANDS).div_ceil(s.outer.max(1));
        let columns = s.inner.div_ceil(want).max(FEWEST_COLUMNS).next_multiple_of(FEWEST_COLUMNS);
        let columns = columns.min(s.inner).max(1);
        let left = want.div_ceil(s.inner.div_ceil(columns).max(1));
        let places = s.axis.div_ceil(left).max(1);
        let outers = if want == 1 { (CHUNK_BYTES / each).max(1) } else { 1 };
        Bands { columns, places, outers }
    }
}

impl<T: Sum> Scatter<T> {
    /// Computes the columns from `column` and the places from `first` on, at one outer place.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`]; the band is in the result, and belongs to this chunk.
    unsafe fn band(&self, outer: usize, column: usize, first: usize, memory: Memory<'_>) {
        let Slices { axis, inner, count, .. } = self.slices;
        let columns = self.bands.columns.min(inner - column);
        let places = first..axis.min(first + self.bands.places);
        let base = memory.of::<T>(&self.base).cast_const();
        let indices = memory.at::<u8>(self.indices.buffer, self.indices.offset * self.index.size());
        let updates = memory.of::<T>(&self.updates).cast_const();
        let result = memory.at::<T>(self.result, 0);
        let in_place = !self.splat && std::ptr::eq(base, result);
        // SAFETY: every place below lies in the band of the result (or the same of the base), or is an index or update
        // that exists; the result overlaps no operand but, exactly, the base.
        unsafe {
            let row = |place: usize| result.add((outer * axis + place) * inner + column);
            if !in_place {
                // Whole rows are adjacent.
                let (runs, length) =
                    if columns == inner { (1, columns * places.len()) } else { (places.len(), columns) };
                for run in 0..runs {
                    let to = std::slice::from_raw_parts_mut(row(first + run), length);
                    if self.splat {
                        to.fill(*base);
                    } else {
                        let from = base.add((outer * axis + first + run) * inner + column);
                        std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), length);
                    }
                }
            }
            let place = |at: usize| index(self.index, indices, at, axis).filter(|i| places.contains(i));
            for c in 0..count {
                let from = (outer * count + c) * inner + column;
                let updates = std::slice::from_raw_parts(updates.add(from), columns);
                if self.along {
                    for (j, &u) in updates.iter().enumerate() {
                        if let Some(i) = place(from + j) {
                            let to = row(i).add(j);
                            *to = (*to).plus(u);
                        }
                    }
                } else if let Some(i) = place(c) {
                    let to = std::slice::from_raw_parts_mut(row(i), columns);
                    for (x, &u) in to.iter_mut().zip(updates) {
                        *x = x.plus(u);
                    }
                }
            }
        }
    }
}

impl<T: Sum> Work for Scatter<T> {
    fn label(&self) -> String {
        let Slices { outer, axis, inner, count } = self.slices;
        let name = if self.along { "scatter_add_along" } else { "scatter_add" };
        format!("{name} {count} to {outer}×{axis}×{inner}")
    }

    fn chunks(&self, _phase: usize) -> usize {
        let Slices { outer, axis, inner, .. } = self.slices;
        let Bands { columns, places, outers } = self.bands;
        outer.div_ceil(outers) * axis.div_ceil(places) * inner.div_ceil(columns)
    }

    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let Slices { outer, axis, inner, .. } = self.slices;
        let Bands { columns, places, outers } = self.bands;
        let (wide, tall) = (inner.div_ceil(columns), axis.div_ceil(places));
        let (group, band) = (chunk / (wide * tall), chunk % (wide * tall));
        for o in group * outers..outer.min((group + 1) * outers) {
            // SAFETY: the contract is the same; chunks have disjoint bands.
            unsafe { self.band(o, band % wide * columns, band / wide * places, memory) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_columns_then_places_then_groups_of_small_outer_places() {
        let bands = |outer, axis, inner, count| {
            let b = Bands::new(Slices { outer, axis, inner, count }, 4);
            (b.columns, b.places, b.outers)
        };
        assert_eq!(bands(1, 65, 128, 1024), (16, 33, 1));
        assert_eq!(bands(1, 100_000, 1, 50_000), (1, 6250, 1));
        assert_eq!(bands(1024, 65, 1, 1), (1, 65, 124));
        assert_eq!(bands(0, 5, 0, 3), (1, 5, 32768));
    }
}
