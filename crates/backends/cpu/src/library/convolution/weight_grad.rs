//! The gradient of a convolution's weight. The blocks of places of all examples are dealt out to a fixed number of parts;
//! each part adds its blocks' products up in order, and a second phase adds the parts up in order.

use super::super::gemm::{Gemm, Isa, Mat, Scalar, scratch_elements};
use super::{CHUNKS, Geometry, patches};
use crate::kernel::{Memory, Work};
use onestep_passes::schedule::{BufferId, View};
use std::marker::PhantomData;

/// Elements of a block of patches: it stays in the second-level cache.
const BLOCK: usize = 40 * 1024;

/// Most elements of all parts' sums together.
const SUMS: usize = 2 << 20;

/// Elements of the weight that a chunk of the second phase adds up.
const ADDED: usize = 4096;

pub(super) struct WeightGrad<T> {
    geometry: Geometry,
    isa: Isa,
    x: View,
    dy: View,
    dw: BufferId,
    /// Channels of a chunk.
    channels: usize,
    /// Parts that the blocks are dealt out to.
    parts: usize,
    /// Places of a block.
    block: usize,
    element: PhantomData<T>,
}

impl<T: Scalar> WeightGrad<T> {
    pub fn new(g: Geometry, isa: Isa, [x, dy]: [View; 2], dw: BufferId, _: T) -> WeightGrad<T> {
        let weight = (g.groups * g.outputs * g.depth()).max(1);
        let fits = (SUMS / weight).clamp(1, CHUNKS.div_ceil(g.groups.max(1)));
        let parts = fits.min((g.batch * g.places().div_ceil(256)).max(1));
        let channels = g.channels.div_ceil(CHUNKS.div_ceil(parts * g.groups.max(1))).max(1);
        let block = g.block(channels * g.taps(), BLOCK);
        WeightGrad { geometry: g, isa, x, dy, dw, channels, parts, block, element: PhantomData }
    }

    /// Chunks of a group's part.
    fn cuts(&self) -> usize {
        self.geometry.channels.div_ceil(self.channels)
    }

    /// Elements of a group's weight.
    fn weight(&self) -> usize {
        self.geometry.outputs * self.geometry.depth()
    }

    /// The sums of a part, for a group: `[depth, outputs]`.
    fn sums(&self, memory: Memory<'_>, group: usize, part: usize) -> *mut T {
        memory.shared.cast::<T>().wrapping_add((group * self.parts + part) * self.weight())
    }

    /// Multiplies the blocks of a part, for some channels.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`].
    unsafe fn multiply(&self, chunk: usize, memory: Memory<'_>) {
        let g = &self.geometry;
        let (rest, first) = (chunk / self.cuts(), chunk % self.cuts() * self.channels);
        let (group, part) = (rest / self.parts, rest % self.parts);
        let channels = self.channels.min(g.channels - first);
        let (rows, places, pixels) = (channels * g.taps(), g.places(), g.pixels());
        let patch = memory.scratch.cast::<T>();
        let scratch = patch.wrapping_add(self.channels * g.taps() * self.block);
        let sums = self.sums(memory, group, part).wrapping_add(first * g.taps() * g.outputs);
        let (x, dy) = (memory.of::<T>(&self.x).cast_const(), memory.of::<T>(&self.dy).cast_const());
        let blocks = places.div_ceil(self.block);
        let all = g.batch * blocks;
        let mine = all * part / self.parts..all * (part + 1) / self.parts;
        // SAFETY: the operands are dense and have the geometry's sizes (checked when compiled); scratch and shared storage
        // are laid out as `scratch_bytes` and `shared_bytes` count them; this chunk alone writes these rows of its sums.
        unsafe {
            if mine.is_empty() {
                std::slice::from_raw_parts_mut(sums, rows * g.outputs).fill(T::ZERO);
            }
            for at in mine.clone() {
                let (n, p) = (at / blocks, at % blocks * self.block);
                let columns = self.block.min(places - p);
                let x = x.add(g.input_at(n, group) + first * pixels);
                patches::gather(g, x, channels, p..p + columns, patch, self.block);
                let add = at > mine.start;
                let gemm = Gemm { isa: self.isa, m: rows, n: g.outputs, k: columns, add };
                let left = Mat { ptr: patch.cast_const(), rs: self.block, cs: 1 };
                let right = Mat { ptr: dy.add(g.out_at(n, group) + p), rs: 1, cs: places };
                gemm.run(left, right, sums, g.outputs, scratch);
            }
        }
    }

    /// Adds up the parts of some rows of a group's weight, and turns them around.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`].
    unsafe fn add_up(&self, chunk: usize, memory: Memory<'_>) {
        let g = &self.geometry;
        let (group, first) = (chunk / self.additions(), chunk % self.additions() * self.rows());
        let dw = memory.at::<T>(self.dw, g.weight_at(group));
        for row in first..g.depth().min(first + self.rows()) {
            for o in 0..g.outputs {
                let at = |part| self.sums(memory, group, part).wrapping_add(row * g.outputs + o);
                // SAFETY: element `(row, o)` of each part's sums and of the weight exists; this chunk has these rows alone.
                unsafe {
                    let sum = (1..self.parts).fold(*at(0), |sum, part| sum + *at(part));
                    *dw.add(o * g.depth() + row) = sum;
                }
            }
        }
    }

    /// Rows of a chunk of the second phase.
    fn rows(&self) -> usize {
        (ADDED / self.geometry.outputs.max(1)).max(1)
    }

    /// Chunks of a group in the second phase.
    fn additions(&self) -> usize {
        self.geometry.depth().div_ceil(self.rows())
    }
}

impl<T: Scalar> Work for WeightGrad<T> {
    fn label(&self) -> String {
        self.geometry.label("convolution_weight_grad")
    }

    fn phases(&self) -> usize {
        2
    }

    fn chunks(&self, phase: usize) -> usize {
        let each = if phase == 0 { self.parts * self.cuts() } else { self.additions() };
        self.geometry.groups * each
    }

    fn scratch_bytes(&self) -> usize {
        let rows = self.channels * self.geometry.taps();
        (rows * self.block + scratch_elements(rows, self.block)) * size_of::<T>()
    }

    fn shared_bytes(&self) -> usize {
        self.geometry.groups * self.parts * self.weight() * size_of::<T>()
    }

    unsafe fn run_chunk(&self, phase: usize, chunk: usize, memory: Memory<'_>) {
        // SAFETY: the contract is the same.
        unsafe {
            match phase {
                0 => self.multiply(chunk, memory),
                _ => self.add_up(chunk, memory),
            }
        }
    }
}
