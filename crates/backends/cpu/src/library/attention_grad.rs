//! The gradient of attention, one head of keys at a time: the weights are computed again from the log-sum-exp, block by
//! block of queries, and the gradients of keys and values add up over the query heads and blocks in order.
//!
//! A head of keys belongs to one chunk, so nothing is shared and no sum depends on threads. The gradient of an additive mask
//! is a second phase, in which a chunk has a block of the mask's rows and adds up what is repeated; it computes the weights
//! once more, so that no gradient of all scores is ever kept.

use super::attention_block::{HeadTensor, Heads, Span};
use super::gemm::{Isa, Mat, Scalar, scratch_elements};
use super::softmax::{self, To};
use crate::error::CpuError;
use crate::kernel::{Memory, Work};
use onestep_ir::DType;
use onestep_ir::ops::{AttentionGrad as Op, AttentionLayout};
use onestep_passes::schedule::{LibraryKernel, View};
use std::marker::PhantomData;

struct AttentionGrad<T> {
    heads: Heads,
    out: HeadTensor,
    lse: View,
    dout: HeadTensor,
    dq: HeadTensor,
    dk: HeadTensor,
    dv: HeadTensor,
    /// The mask's gradient, and the mask's batch and heads.
    dmask: Option<(HeadTensor, [usize; 2])>,
    block: usize,
    element: PhantomData<T>,
}

/// Compiles a gradient.
pub(super) fn compile(
    op: &Op,
    isa: Isa,
    kernel: &LibraryKernel,
    dtypes: &[DType],
) -> Result<Box<dyn Work>, CpuError> {
    match dtypes[0] {
        DType::F64 => Ok(Box::new(AttentionGrad::<f64>::new(op, isa, kernel, dtypes)?)),
        _ => Ok(Box::new(AttentionGrad::<f32>::new(op, isa, kernel, dtypes)?)),
    }
}

/// A chunk's scratch: scores and their gradients, rows of `stride` for each query of a block; two numbers for each query; and
/// what the products need.
struct Area<'a, T> {
    scores: *mut T,
    grads: *mut T,
    stride: usize,
    lse: &'a mut [T],
    delta: &'a mut [T],
    gemm: *mut T,
}

impl<T: Scalar> Area<'_, T> {
    fn weights(&self) -> Mat<T> {
        Mat { ptr: self.scores.cast_const(), rs: self.stride, cs: 1 }
    }

    fn grads(&self) -> Mat<T> {
        Mat { ptr: self.grads.cast_const(), rs: self.stride, cs: 1 }
    }
}

impl<T: Scalar> AttentionGrad<T> {
    fn new(op: &Op, isa: Isa, kernel: &LibraryKernel, dtypes: &[DType]) -> Result<Self, CpuError> {
        let layout = op.forward.layout;
        let (heads, [out, lse, dout]) = Heads::new(&op.forward, isa, &kernel.operands, dtypes)?;
        let result = |i: usize| HeadTensor::of(&kernel.results[i], layout);
        let mask = heads.mask_sizes();
        let dmask = op.mask_grad.then(|| (HeadTensor::of(&kernel.results[3], AttentionLayout::Bhtd), mask));
        Ok(AttentionGrad {
            out: HeadTensor::of(out, layout),
            lse: lse.clone(),
            dout: HeadTensor::of(dout, layout),
            dq: result(0),
            dk: result(1),
            dv: result(2),
            dmask,
            block: heads.block(2),
            heads,
            element: PhantomData,
        })
    }

    /// The thread's scratch, as [`Work::scratch_bytes`] counts it.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`]; one area at a time.
    unsafe fn area<'a>(&self, memory: Memory<'a>) -> Area<'a, T> {
        let stride = self.heads.columns(self.block);
        let scores = memory.scratch.cast::<T>();
        let grads = scores.wrapping_add(self.block * stride);
        let numbers = grads.wrapping_add(self.block * stride);
        let gemm = numbers.wrapping_add(2 * self.block);
        // SAFETY: the scratch holds them, and bytes of 0 are numbers.
        let (lse, delta) = unsafe {
            numbers.write_bytes(0, 2 * self.block);
            std::slice::from_raw_parts_mut(numbers, 2 * self.block).split_at_mut(self.block)
        };
        Area { scores, grads, stride, lse, delta, gemm }
    }

    /// Fills the area with the weights of `rows` queries from `at[2]` on and the gradients that come from them, and gives the
    /// keys that they are of.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`], for queries that exist.
    unsafe fn weights(
        &self,
        memory: Memory<'_>,
        at: [usize; 3],
        rows: usize,
        to: To,
        area: &mut Area<'_, T>,
    ) -> Span {
        let h = &self.heads;
        let span = h.span(memory, at, rows);
        let there = h.key_head(at, span.from);
        let (k, v) = (h.k.mat::<T>(memory, there), h.v.mat::<T>(memory, there));
        let (q, dout) = (h.q.mat::<T>(memory, at), self.dout.mat::<T>(memory, at));
        // SAFETY: the caller's contract; the area has `block` rows of as many scores as the span has keys at most.
        unsafe {
            h.gemm(rows, span.columns, h.size, false).run(q, k.t(), area.scores, area.stride, area.gemm);
            let to_weights = h.gemm(rows, span.columns, h.value_size, false);
            to_weights.run(dout, v.t(), area.grads, area.stride, area.gemm);
            self.of_rows(memory, at, &mut area.lse[..rows], &mut area.delta[..rows]);
            let block = h.scores(memory, at, rows, span, area.scores, area.stride);
            softmax::backward(h.isa, block, area.grads, area.lse, area.delta, to);
        }
        span
    }

    /// The gradients of a head of keys, of its values, and of the queries that read them.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`].
    unsafe fn key_head(&self, [b, kv_head]: [usize; 2], memory: Memory<'_>) {
        let h = &self.heads;
        // SAFETY: the caller's contract.
        let mut area = unsafe { self.area(memory) };
        let rows_of = |x: &HeadTensor, t| x.mat::<T>(memory, [b, kv_head, t]);
        for t in 0..h.keys {
            let (dk, dv) = (rows_of(&self.dk, t), rows_of(&self.dv, t));
            // SAFETY: row `t` of both results exists, and this chunk alone writes it.
            unsafe {
                std::slice::from_raw_parts_mut(dk.ptr.cast_mut(), h.size).fill(T::ZERO);
                std::slice::from_raw_parts_mut(dv.ptr.cast_mut(), h.value_size).fill(T::ZERO);
            }
        }
        for head in kv_head * h.group..(kv_head + 1) * h.group {
            for first in (0..h.queries).step_by(self.block) {
                let at = [b, head, first];
                let rows = self.block.min(h.queries - first);
                // SAFETY: the caller's contract; the views lie in their buffers, and the block in the views; this chunk
                // alone writes these heads' parts of the results.
                unsafe {
                    let span = self.weights(memory, at, rows, To::Products, &mut area);
                    let (k, dk, dv) = (
                        h.k.mat::<T>(memory, h.key_head(at, span.from)),
                        rows_of(&self.dk, span.from),
                        rows_of(&self.dv, span.from),
                    );
                    let (q, dout) = (h.q.mat::<T>(memory, at), self.dout.mat::<T>(memory, at));
                    let (dq, ds) = (self.dq.mat::<T>(memory, at), area.grads());
                    for part in span.parts() {
                        let sum = h.gemm(rows, h.size, part.len(), part.start > 0);
                        let (ds, k) = (ds.at(0, part.start), k.at(part.start, 0));
                        sum.run(ds, k, dq.ptr.cast_mut(), dq.rs, area.gemm);
                    }
                    let sum = h.gemm(span.columns, h.size, rows, true);
                    sum.run(ds.t(), q, dk.ptr.cast_mut(), dk.rs, area.gemm);
                    let sum = h.gemm(span.columns, h.value_size, rows, true);
                    sum.run(area.weights().t(), dout, dv.ptr.cast_mut(), dv.rs, area.gemm);
                }
            }
        }
    }

    /// The gradient of a block of the mask's rows: of all sequences and heads that read them, in order.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`].
    unsafe fn mask_rows(&self, chunk: usize, memory: Memory<'_>) {
        let (h, Some((dmask, [batch, heads]))) = (&self.heads, &self.dmask) else { return };
        // SAFETY: the caller's contract.
        let mut area = unsafe { self.area(memory) };
        let blocks = h.queries.div_ceil(self.block);
        let (slice, first) = (chunk / blocks, chunk % blocks * self.block);
        let [b, head] = [slice / heads, slice % heads];
        let rows = self.block.min(h.queries - first);
        let to = dmask.mat::<T>(memory, [b, head, first]);
        let row = |r: usize| {
            // SAFETY: the block has a row `r` of `keys` elements, which this chunk alone writes; one at a time.
            unsafe { std::slice::from_raw_parts_mut(to.at(r, 0).ptr.cast_mut(), h.keys) }
        };
        (0..rows).for_each(|r| row(r).fill(T::ZERO));
        // A mask's only sequence or head is read by all.
        let readers = |i: usize, of: usize, all: usize| if of == 1 { 0..all } else { i..i + 1 };
        for b in readers(b, *batch, h.batch) {
            for head in readers(head, *heads, h.heads) {
                // SAFETY: the caller's contract, for queries that exist.
                let span = unsafe { self.weights(memory, [b, head, first], rows, To::Mask, &mut area) };
                for r in 0..rows {
                    // SAFETY: the area has `rows` rows of gradients, one for each key of the span.
                    let grads =
                        unsafe { std::slice::from_raw_parts(area.grads().at(r, 0).ptr, span.columns) };
                    for (to, &g) in row(r)[span.from..][..span.columns].iter_mut().zip(grads) {
                        *to = *to + g;
                    }
                }
            }
        }
    }

    /// Numbers for each query of a block: its log-sum-exp and its `Σ dout · out`.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`], for queries that exist.
    unsafe fn of_rows(&self, memory: Memory<'_>, at: [usize; 3], lse: &mut [T], delta: &mut [T]) {
        let out = self.out.mat::<T>(memory, at);
        let dout = self.dout.mat::<T>(memory, at);
        let s = &self.lse.strides;
        let first = memory.of::<T>(&self.lse).wrapping_add(at[0] * s[0] + at[1] * s[1] + at[2] * s[2]);
        for (r, (lse, delta)) in lse.iter_mut().zip(delta).enumerate() {
            // SAFETY: query `r` of the block has a log-sum-exp.
            *lse = unsafe { *first.add(r * s[2]) };
            let (a, b) = (dout.at(r, 0), out.at(r, 0));
            // SAFETY: row `r` of both has `value_size` elements, `cs` apart.
            *delta = unsafe {
                match (a.cs, b.cs) {
                    (1, 1) => dot(self.heads.value_size, |d| *a.ptr.add(d), |d| *b.ptr.add(d)),
                    _ => dot(self.heads.value_size, |d| *a.at(0, d).ptr, |d| *b.at(0, d).ptr),
                }
            };
        }
    }
}

/// `Σ a(d) · b(d)` in eight lanes by `d`, which are then added in order.
#[inline(always)]
fn dot<T: Scalar>(n: usize, a: impl Fn(usize) -> T, b: impl Fn(usize) -> T) -> T {
    let mut lanes = [T::ZERO; 8];
    let whole = n / 8 * 8;
    for d in (0..whole).step_by(8) {
        for i in 0..8 {
            lanes[i] = lanes[i] + a(d + i) * b(d + i);
        }
    }
    for d in whole..n {
        lanes[d - whole] = lanes[d - whole] + a(d) * b(d);
    }
    lanes.into_iter().fold(T::ZERO, |a, b| a + b)
}

impl<T: Scalar> Work for AttentionGrad<T> {
    fn label(&self) -> String {
        self.heads.label("attention_grad")
    }

    fn phases(&self) -> usize {
        1 + usize::from(self.dmask.is_some())
    }

    fn chunks(&self, phase: usize) -> usize {
        let h = &self.heads;
        match (phase, self.dmask) {
            (0, _) => h.batch * h.heads / h.group,
            (_, Some((_, [batch, heads]))) => batch * heads * h.queries.div_ceil(self.block),
            _ => 0,
        }
    }

    fn scratch_bytes(&self) -> usize {
        let Heads { size, value_size, .. } = self.heads;
        let columns = self.heads.columns(self.block);
        let blocks =
            [(self.block, size), (self.block, value_size), (self.block, columns), (columns, self.block)];
        let gemm = blocks.map(|(m, k)| scratch_elements(m, k)).into_iter().max().unwrap_or(0);
        (2 * self.block * columns + 2 * self.block + gemm) * size_of::<T>()
    }

    unsafe fn run_chunk(&self, phase: usize, chunk: usize, memory: Memory<'_>) {
        let kv_heads = self.heads.heads / self.heads.group;
        // SAFETY: the caller's contract; a phase's chunks write different parts of the results.
        unsafe {
            match phase {
                0 => self.key_head([chunk / kv_heads, chunk % kv_heads], memory),
                _ => self.mask_rows(chunk, memory),
            }
        }
    }
}
