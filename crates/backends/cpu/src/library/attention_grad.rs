//! The gradient of attention, one head at a time: the weights are computed again from the log-sum-exp, block by block of
//! queries, and the gradients of keys and values add up over the blocks in order.
//!
//! A head belongs to one chunk, so nothing is shared and no sum depends on threads.

use super::attention::{HeadTensor, Heads};
use super::gemm::{Gemm, Isa, Mat, Scalar, scratch_elements};
use super::softmax;
use crate::error::CpuError;
use crate::kernel::{Memory, Work};
use onestep_ir::DType;
use onestep_ir::ops::Attention as Op;
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
    block: usize,
    element: PhantomData<T>,
}

/// Compiles a gradient.
pub(super) fn compile(
    op: &Op,
    dtype: DType,
    isa: Isa,
    kernel: &LibraryKernel,
    dtypes: &[DType],
) -> Result<Box<dyn Work>, CpuError> {
    match dtype {
        DType::F64 => Ok(Box::new(AttentionGrad::<f64>::new(op, isa, kernel, dtypes))),
        _ => Ok(Box::new(AttentionGrad::<f32>::new(op, isa, kernel, dtypes))),
    }
}

impl<T: Scalar> AttentionGrad<T> {
    fn new(op: &Op, isa: Isa, kernel: &LibraryKernel, dtypes: &[DType]) -> Self {
        let operands = &kernel.operands;
        let mask = (operands.len() == 7).then(|| (&operands[3], dtypes[3]));
        let [out, lse, dout] = [3, 2, 1].map(|i| &operands[operands.len() - i]);
        let heads = Heads::new(op, isa, [&operands[0], &operands[1], &operands[2]], mask);
        let Heads { batch, heads: h, queries, keys, size, value_size, .. } = heads;
        let result = |i: usize, t, d| HeadTensor::result(kernel.results[i], [batch, h, t, d], op.layout);
        AttentionGrad {
            out: HeadTensor::operand(out, op.layout),
            lse: lse.clone(),
            dout: HeadTensor::operand(dout, op.layout),
            dq: result(0, queries, size),
            dk: result(1, keys, size),
            dv: result(2, keys, value_size),
            block: heads.block(2),
            heads,
            element: PhantomData,
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

    fn chunks(&self, _phase: usize) -> usize {
        self.heads.batch * self.heads.heads
    }

    fn scratch_bytes(&self) -> usize {
        let Heads { keys, size, value_size, .. } = self.heads;
        let blocks = [(self.block, size), (self.block, value_size), (self.block, keys), (keys, self.block)];
        let gemm = blocks.map(|(m, k)| scratch_elements(m, k)).into_iter().max().unwrap_or(0);
        (2 * self.block * keys + 2 * self.block + gemm) * size_of::<T>()
    }

    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let h = &self.heads;
        let whole = [chunk / h.heads, chunk % h.heads, 0];
        let scores = memory.scratch.cast::<T>();
        let grads = scores.wrapping_add(self.block * h.keys);
        let numbers = grads.wrapping_add(self.block * h.keys);
        let scratch = numbers.wrapping_add(2 * self.block);
        let (k, v) = (h.k.mat::<T>(memory, whole), h.v.mat::<T>(memory, whole));
        let (dk, dv) = (self.dk.mat::<T>(memory, whole), self.dv.mat::<T>(memory, whole));
        let (dk_rows, dv_rows) = (dk.ptr.cast_mut(), dv.ptr.cast_mut());
        // SAFETY: the views lie in their buffers and the head in the views; the scratch is laid out as
        // `scratch_bytes` counts it; this chunk alone writes this head's part of the results.
        unsafe {
            for t in 0..h.keys {
                std::slice::from_raw_parts_mut(dk_rows.add(t * dk.rs), h.size).fill(T::ZERO);
                std::slice::from_raw_parts_mut(dv_rows.add(t * dv.rs), h.value_size).fill(T::ZERO);
            }
            numbers.write_bytes(0, 2 * self.block);
            let numbers = std::slice::from_raw_parts_mut(numbers, 2 * self.block);
            let (lse, delta) = numbers.split_at_mut(self.block);
            for first in (0..h.queries).step_by(self.block) {
                let at = [whole[0], whole[1], first];
                let rows = self.block.min(h.queries - first);
                let seen = h.seen(first + rows);
                let (q, dout) = (h.q.mat::<T>(memory, at), self.dout.mat::<T>(memory, at));
                let dq = self.dq.mat::<T>(memory, at);
                let gemm = |m, n, k, add| Gemm { isa: h.isa, m, n, k, add };
                gemm(rows, seen, h.size, false).run(q, k.t(), scores, h.keys, scratch);
                gemm(rows, seen, h.value_size, false).run(dout, v.t(), grads, h.keys, scratch);
                self.of_rows(memory, at, &mut lse[..rows], &mut delta[..rows]);
                let block = h.scores(memory, at, (rows, seen), scores);
                softmax::backward(h.isa, block, grads, lse, delta);
                let square = |ptr: *mut T| Mat { ptr: ptr.cast_const(), rs: h.keys, cs: 1 };
                let (weights, ds) = (square(scores), square(grads));
                gemm(rows, h.size, seen, false).run(ds, k, dq.ptr.cast_mut(), dq.rs, scratch);
                gemm(seen, h.size, rows, true).run(ds.t(), q, dk_rows, dk.rs, scratch);
                gemm(seen, h.value_size, rows, true).run(weights.t(), dout, dv_rows, dv.rs, scratch);
            }
        }
    }
}
