//! The convolution itself: panels of patches, each multiplied by the group's weight while it is in cache.

use super::super::gemm::{Gemm, Isa, Mat, Scalar, scratch_elements};
use super::{CHUNKS, Geometry, patches};
use crate::kernel::{Memory, Work};
use onestep_passes::schedule::{BufferId, View};
use std::marker::PhantomData;

/// Columns of a panel: what the product reads in place.
const PANEL: usize = 32;

pub(super) struct Forward<T> {
    geometry: Geometry,
    isa: Isa,
    x: View,
    w: View,
    out: BufferId,
    /// Panels of a chunk.
    panels: usize,
    element: PhantomData<T>,
}

impl<T: Scalar> Forward<T> {
    pub fn new(geometry: Geometry, isa: Isa, [x, w]: [View; 2], out: BufferId, _: T) -> Forward<T> {
        let images = (geometry.batch * geometry.groups).max(1);
        let all = geometry.places().div_ceil(PANEL).max(1);
        let panels = all.div_ceil(CHUNKS.div_ceil(images)).max(1);
        Forward { geometry, isa, x, w, out, panels, element: PhantomData }
    }

    /// Chunks of an image's group.
    fn parts(&self) -> usize {
        self.geometry.places().div_ceil(PANEL * self.panels)
    }
}

impl<T: Scalar> Work for Forward<T> {
    fn label(&self) -> String {
        self.geometry.label("convolution")
    }

    fn chunks(&self, _phase: usize) -> usize {
        self.geometry.batch * self.geometry.groups * self.parts()
    }

    fn scratch_bytes(&self) -> usize {
        let depth = self.geometry.depth();
        (depth * PANEL + scratch_elements(self.geometry.outputs, depth)) * size_of::<T>()
    }

    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let g = &self.geometry;
        let (image, part) = (chunk / self.parts(), chunk % self.parts());
        let (n, group) = (image / g.groups, image % g.groups);
        let (depth, places) = (g.depth(), g.places());
        let panel = memory.scratch.cast::<T>();
        let scratch = panel.wrapping_add(depth * PANEL);
        let x = memory.of::<T>(&self.x).wrapping_add(g.input_at(n, group)).cast_const();
        let w = memory.of::<T>(&self.w).wrapping_add(g.weight_at(group)).cast_const();
        let out = memory.at::<T>(self.out, g.out_at(n, group));
        let first = part * self.panels * PANEL;
        for p in (first..places.min(first + self.panels * PANEL)).step_by(PANEL) {
            let columns = PANEL.min(places - p);
            let gemm = Gemm { isa: self.isa, m: g.outputs, n: columns, k: depth, add: false };
            // SAFETY: the operands are dense and have the geometry's sizes (checked when compiled); the scratch is laid
            // out as `scratch_bytes` counts it; this chunk alone writes these columns of the result.
            unsafe {
                patches::gather(g, x, g.channels, p..p + columns, panel, PANEL);
                let weight = Mat { ptr: w, rs: depth, cs: 1 };
                let right = Mat { ptr: panel.cast_const(), rs: PANEL, cs: 1 };
                gemm.run(weight, right, out.add(p), places, scratch);
            }
        }
    }
}
