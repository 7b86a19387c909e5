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
use std::ops::Range;

struct MaxPool<T> {
    planes: usize,
    input: [usize; 3],
    kernel: [usize; 3],
    out: [usize; 3],
    stride: [usize; 3],
    low: [usize; 3],
    dilation: [usize; 3],
    /// Along the last axis, the first element of each window that exists.
    first: Vec<usize>,
    /// Along the last axis, for each element of the kernel: the windows in which it exists, and what the first of them
    /// reads.
    met: Vec<(Range<usize>, usize)>,
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

/// A type of element.
trait Element: Copy + PartialOrd + Send + Sync + 'static {
    /// `a` or else `b`, by their bits.
    fn choose(first: bool, a: Self, b: Self) -> Self;
}

macro_rules! element {
    ($t:ident, $bits:ident) => {
        impl Element for $t {
            #[inline(always)]
            fn choose(first: bool, a: $t, b: $t) -> $t {
                let mask = $bits::from(first).wrapping_neg();
                $t::from_bits((a.to_bits() & mask) | (b.to_bits() & !mask))
            }
        }
    };
}

element!(f32, u32);
element!(f64, u64);

/// Whether `x` takes the place of `best`, which stands before it. Only a NaN differs from itself.
#[inline(always)]
#[allow(clippy::eq_op)]
fn beats<T: Element>(x: T, best: T) -> bool {
    (x > best) | ((x != x) & (best == best))
}

impl<T: Element> MaxPool<T> {
    fn new(op: &Op, x: View, [values, places]: [BufferId; 2]) -> MaxPool<T> {
        let lead = x.shape.len() - op.kernel.len();
        let three = |sizes: &[usize], missing: usize| {
            let mut all = [missing; 3];
            all[3 - sizes.len()..].copy_from_slice(sizes);
            all
        };
        let out = op.window.out_sizes(&x.shape[lead..], &op.kernel).unwrap_or_default();
        let (axis, n) = (op.kernel.len() - 1, x.shape.last().copied().unwrap_or(1));
        let last = out.last().copied().unwrap_or(0);
        let first = (0..last).map(|o| op.first(axis, o, n).unwrap_or(0)).collect();
        let met = |k: usize| {
            let (stride, low) = (op.window.stride[axis], op.window.low[axis]);
            let shift = k * op.window.dilation[axis];
            let first = low.saturating_sub(shift).div_ceil(stride).min(last);
            let end = (n + low).saturating_sub(shift).div_ceil(stride).clamp(first, last);
            (first..end, (first * stride + shift).saturating_sub(low))
        };
        let met = (0..op.kernel[axis]).map(met).filter(|(windows, _)| !windows.is_empty()).collect();
        MaxPool {
            first,
            met,
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

    /// The elements of the windows at `o` along an axis that exist.
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
            let mut first = true;
            for z in self.elements(0, row / oh) {
                for y in self.elements(1, row % oh) {
                    let base = (z * height + y) * width;
                    if first {
                        // Every window begins with its first element that exists.
                        for ((value, place), &at) in values.iter_mut().zip(&mut *places).zip(&self.first) {
                            (*value, *place) = (x[base + at], (base + at) as i32);
                        }
                        first = false;
                    }
                    let x = &x[base..][..width];
                    for (windows, from) in &self.met {
                        let (values, places) = (&mut values[windows.clone()], &mut places[windows.clone()]);
                        self.compare(&x[*from..], (base + from) as i32, values, places);
                    }
                }
            }
        }
    }

    /// Compares an element of each window of a row with the best so far: every `stride`-th of `x`, which are at `at` and
    /// so on.
    #[inline(always)]
    fn compare(&self, x: &[T], at: i32, values: &mut [T], places: &mut [i32]) {
        let stride = self.stride[2];
        match stride {
            1 => step::<T, 1>(x, at, values, places),
            2 => step::<T, 2>(x, at, values, places),
            3 => step::<T, 3>(x, at, values, places),
            _ => {
                for (i, (best, place)) in values.iter_mut().zip(places).enumerate() {
                    if beats(x[i * stride], *best) {
                        (*best, *place) = (x[i * stride], at + (i * stride) as i32);
                    }
                }
            }
        }
    }
}

/// Elements that are compared side by side.
const LANES: usize = 4;

/// Compares the windows `i .. i + L` with every `S`-th element.
#[inline(always)]
fn block<T: Element, const S: usize, const L: usize>(
    x: &[T],
    at: i32,
    values: &mut [T],
    places: &mut [i32],
    i: usize,
) {
    let x = &x[i * S..][..(L - 1) * S + 1];
    let (values, places) = (&mut values[i..][..L], &mut places[i..][..L]);
    for j in 0..L {
        let wins = beats(x[j * S], values[j]);
        let mask = i32::from(wins).wrapping_neg();
        values[j] = T::choose(wins, x[j * S], values[j]);
        places[j] = ((at + ((i + j) * S) as i32) & mask) | (places[j] & !mask);
    }
}

/// Compares every `S`-th element, without branches: they would be mispredicted for every other one. The last block may
/// overlap the one before it, as comparing an element twice changes nothing. A function of its own, so that its operands
/// are known not to overlap.
#[inline(never)]
fn step<T: Element, const S: usize>(x: &[T], at: i32, values: &mut [T], places: &mut [i32]) {
    let n = values.len();
    if n < LANES {
        (0..n).for_each(|i| block::<T, S, 1>(x, at, values, places, i));
        return;
    }
    for i in (0..=n - LANES).step_by(LANES) {
        block::<T, S, LANES>(x, at, values, places, i);
    }
    if !n.is_multiple_of(LANES) {
        block::<T, S, LANES>(x, at, values, places, n - LANES);
    }
}

impl<T: Element> Work for MaxPool<T> {
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
