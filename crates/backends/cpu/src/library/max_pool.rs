//! `max_pool`: the first of the largest elements of each window, or the first NaN, and its place.
//!
//! The window's elements are compared in order, each for a whole row of places, so that the loop over places vectorises
//! where rows are adjacent.

use crate::error::CpuError;
use crate::kernel::{CHUNK_BYTES, Memory, Work};
use onestep_ir::DType;
use onestep_ir::ops::MaxPool as Op;
use onestep_passes::schedule::{BufferId, View};
use std::marker::PhantomData;

struct MaxPool<T> {
    planes: usize,
    input: [usize; 3],
    kernel: [usize; 3],
    out: [usize; 3],
    stride: [usize; 3],
    low: [usize; 3],
    dilation: [usize; 3],
    x: View,
    values: BufferId,
    places: BufferId,
    element: PhantomData<T>,
}

/// Compiles the op.
pub(super) fn compile(
    op: &Op,
    dtype: DType,
    x: View,
    results: [BufferId; 2],
) -> Result<Box<dyn Work>, CpuError> {
    match dtype {
        DType::F64 => Ok(Box::new(MaxPool::<f64>::new(op, x, results))),
        _ => Ok(Box::new(MaxPool::<f32>::new(op, x, results))),
    }
}

/// Whether `x` takes the place of `best`, which stands before it. Only a NaN differs from itself.
#[inline(always)]
#[allow(clippy::eq_op)]
fn beats<T: Copy + PartialOrd>(x: T, best: T) -> bool {
    (x > best) | ((x != x) & (best == best))
}

impl<T: Copy + PartialOrd + Send + Sync + 'static> MaxPool<T> {
    fn new(op: &Op, x: View, [values, places]: [BufferId; 2]) -> MaxPool<T> {
        let lead = x.shape.len() - op.kernel.len();
        let three = |sizes: &[usize], missing: usize| {
            let mut all = [missing; 3];
            all[3 - sizes.len()..].copy_from_slice(sizes);
            all
        };
        let out = op.window.out_sizes(&x.shape[lead..], &op.kernel).unwrap_or_default();
        MaxPool {
            planes: x.shape[..lead].iter().product(),
            input: three(&x.shape[lead..], 1),
            kernel: three(&op.kernel, 1),
            out: three(&out, 1),
            stride: three(&op.window.stride, 1),
            low: three(&op.window.low, 0),
            dilation: three(&op.window.dilation, 1),
            x,
            values,
            places,
            element: PhantomData,
        }
    }

    /// Planes of a chunk.
    fn group(&self) -> usize {
        let plane: usize = self.input.iter().product();
        (CHUNK_BYTES / (plane * size_of::<T>()).max(1)).max(1)
    }

    /// The elements `k` of the windows at `o` along an axis that exist.
    fn elements(&self, axis: usize, o: usize) -> impl Iterator<Item = usize> + use<T> {
        let (start, low, n) = (o * self.stride[axis], self.low[axis], self.input[axis]);
        let dilation = self.dilation[axis];
        (0..self.kernel[axis]).filter_map(move |k| (start + k * dilation).checked_sub(low).filter(|&i| i < n))
    }

    /// Pools a plane.
    fn plane(&self, x: &[T], values: &mut [T], places: &mut [i32]) {
        let [_, height, width] = self.input;
        let [_, oh, ow] = self.out;
        for (row, (values, places)) in
            values.chunks_exact_mut(ow).zip(places.chunks_exact_mut(ow)).enumerate()
        {
            places.fill(-1);
            for z in self.elements(0, row / oh) {
                for y in self.elements(1, row % oh) {
                    let base = (z * height + y) * width;
                    self.row(&x[base..][..width], base as i32, values, places);
                }
            }
        }
    }

    /// Compares a row of the input with a row of places.
    #[inline(always)]
    fn row(&self, x: &[T], base: i32, values: &mut [T], places: &mut [i32]) {
        let (stride, low) = (self.stride[2], self.low[2]);
        for k in 0..self.kernel[2] {
            let shift = k * self.dilation[2];
            let first = low.saturating_sub(shift).div_ceil(stride).min(values.len());
            let end = (x.len() + low).saturating_sub(shift).div_ceil(stride).clamp(first, values.len());
            if first == end {
                continue;
            }
            let from = first * stride + shift - low;
            let (values, places) = (&mut values[first..end], &mut places[first..end]);
            for (i, (best, place)) in values.iter_mut().zip(places).enumerate() {
                let at = from + i * stride;
                let wins = (*place < 0) | beats(x[at], *best);
                *best = if wins { x[at] } else { *best };
                *place = if wins { base + at as i32 } else { *place };
            }
        }
    }
}

impl<T: Copy + PartialOrd + Send + Sync + 'static> Work for MaxPool<T> {
    fn label(&self) -> String {
        let [_, h, w] = self.input;
        let [_, kh, kw] = self.kernel;
        format!("max_pool {}×{h}×{w} by {kh}×{kw}", self.planes)
    }
    fn chunks(&self, _phase: usize) -> usize {
        self.planes.div_ceil(self.group())
    }
    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let (pixels, count) = (self.input.iter().product::<usize>(), self.out.iter().product::<usize>());
        let (x, values) = (memory.of::<T>(&self.x).cast_const(), memory.at::<T>(self.values, 0));
        let places = memory.at::<i32>(self.places, 0);
        let first = chunk * self.group();
        for plane in first..(first + self.group()).min(self.planes) {
            // SAFETY: plane `plane` of the operand has `pixels` elements and of both results `count`, and they overlap
            // nothing; uninitialised storage holds plain numbers.
            unsafe {
                let x = std::slice::from_raw_parts(x.add(plane * pixels), pixels);
                let values = std::slice::from_raw_parts_mut(values.add(plane * count), count);
                let places = std::slice::from_raw_parts_mut(places.add(plane * count), count);
                self.plane(x, values, places);
            }
        }
    }
}
