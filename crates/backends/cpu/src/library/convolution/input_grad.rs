//! The gradient of a convolution's input: blocks of the patches' gradient, each added to where the patches came from. A
//! chunk owns some channels of one example, so that no two threads add to one element.

use super::super::gemm::{Gemm, Isa, Mat, Scalar, scratch_elements};
use super::{CHUNKS, Geometry, patches};
use crate::kernel::{Memory, Work};
use onestep_passes::schedule::{BufferId, View};
use std::marker::PhantomData;

/// Elements of a block of patches: it stays in the second-level cache.
const BLOCK: usize = 80 * 1024;

pub(super) struct InputGrad<T> {
    geometry: Geometry,
    isa: Isa,
    dy: View,
    w: View,
    dx: BufferId,
    /// Channels of a chunk.
    channels: usize,
    /// Places of a block.
    block: usize,
    element: PhantomData<T>,
}

impl<T: Scalar> InputGrad<T> {
    pub fn new(geometry: Geometry, isa: Isa, [dy, w]: [View; 2], dx: BufferId, _: T) -> InputGrad<T> {
        let images = (geometry.batch * geometry.groups).max(1);
        let channels = geometry.channels.div_ceil(CHUNKS.div_ceil(images)).max(1);
        let block = geometry.block(channels * geometry.taps(), BLOCK);
        InputGrad { geometry, isa, dy, w, dx, channels, block, element: PhantomData }
    }

    /// Chunks of an image's group.
    fn parts(&self) -> usize {
        self.geometry.channels.div_ceil(self.channels)
    }
}

impl<T: Scalar> Work for InputGrad<T> {
    fn label(&self) -> String {
        self.geometry.label("convolution_input_grad")
    }

    fn chunks(&self, _phase: usize) -> usize {
        self.geometry.batch * self.geometry.groups * self.parts()
    }

    fn scratch_bytes(&self) -> usize {
        let rows = self.channels * self.geometry.taps();
        (rows * self.block + scratch_elements(rows, self.geometry.outputs)) * size_of::<T>()
    }

    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let g = &self.geometry;
        let (image, part) = (chunk / self.parts(), chunk % self.parts());
        let (n, group) = (image / g.groups, image % g.groups);
        let first = part * self.channels;
        let channels = self.channels.min(g.channels - first);
        let (rows, places, pixels) = (channels * g.taps(), g.places(), g.pixels());
        let grads = memory.scratch.cast::<T>();
        let scratch = grads.wrapping_add(self.channels * g.taps() * self.block);
        let dy = memory.of::<T>(&self.dy).wrapping_add(g.out_at(n, group)).cast_const();
        let w = memory.of::<T>(&self.w).wrapping_add(g.weight_at(group) + first * g.taps()).cast_const();
        let dx = memory.at::<T>(self.dx, g.input_at(n, group) + first * pixels);
        // SAFETY: the operands are dense and have the geometry's sizes (checked when compiled); the scratch is laid out as
        // `scratch_bytes` counts it; this chunk alone writes these channels of the result.
        unsafe {
            std::slice::from_raw_parts_mut(dx, channels * pixels).fill(T::ZERO);
            for p in (0..places).step_by(self.block) {
                let columns = self.block.min(places - p);
                let gemm = Gemm { isa: self.isa, m: rows, n: columns, k: g.outputs, add: false };
                let left = Mat { ptr: w, rs: 1, cs: g.depth() };
                let right = Mat { ptr: dy.add(p), rs: places, cs: 1 };
                gemm.run(left, right, grads, self.block, scratch);
                patches::scatter(g, dx, channels, p..p + columns, grads.cast_const(), self.block);
            }
        }
    }
}
