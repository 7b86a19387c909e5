//! Attention: for each head and block of queries, scores, softmax and the weighted sum of values, in thread scratch.
//!
//! Keys that no query of the block sees, behind its last one, outside the window or beyond the length, are not computed
//! at all. Operands are strided views, so the order of heads and positions costs nothing.

use super::attention_block::{HeadTensor, Heads, MOST_QUERIES};
use super::gemm::{Isa, Mat, Scalar, scratch_elements};
use super::softmax;
use crate::error::CpuError;
use crate::kernel::{Memory, Work};
use onestep_ir::DType;
use onestep_ir::ops::Attention as Op;
use onestep_passes::schedule::{BufferId, LibraryKernel};
use std::marker::PhantomData;

struct Attention<T> {
    heads: Heads,
    out: HeadTensor,
    lse: BufferId,
    block: usize,
    element: PhantomData<T>,
}

/// Compiles an attention.
pub(super) fn compile(
    op: &Op,
    isa: Isa,
    kernel: &LibraryKernel,
    dtypes: &[DType],
) -> Result<Box<dyn Work>, CpuError> {
    let (heads, []) = Heads::new(op, isa, &kernel.operands, dtypes)?;
    let out = HeadTensor::of(&kernel.results[0], op.layout);
    let (lse, block) = (kernel.results[1].buffer, heads.block(1));
    match dtypes[0] {
        DType::F64 => Ok(Box::new(Attention::<f64> { heads, out, lse, block, element: PhantomData })),
        _ => Ok(Box::new(Attention::<f32> { heads, out, lse, block, element: PhantomData })),
    }
}

impl<T: Scalar> Work for Attention<T> {
    fn label(&self) -> String {
        self.heads.label("attention")
    }

    fn chunks(&self, _phase: usize) -> usize {
        self.heads.batch * self.heads.heads * self.heads.queries.div_ceil(self.block)
    }

    fn scratch_bytes(&self) -> usize {
        let columns = self.heads.columns(self.block);
        let gemm = scratch_elements(self.block, self.heads.size).max(scratch_elements(self.block, columns));
        (self.block * columns + gemm) * size_of::<T>()
    }

    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let h = &self.heads;
        let blocks = h.queries.div_ceil(self.block);
        let (head, first) = (chunk / blocks, chunk % blocks * self.block);
        let at = [head / h.heads, head % h.heads, first];
        let rows = self.block.min(h.queries - first);
        let stride = h.columns(self.block);
        let scores = memory.scratch.cast::<T>();
        let scratch = scores.wrapping_add(self.block * stride);
        let span = h.span(memory, at, rows);
        let there = h.key_head(at, span.from);
        let (q, k, v) = (h.q.mat(memory, at), h.k.mat::<T>(memory, there), h.v.mat(memory, there));
        let out = self.out.mat::<T>(memory, at);
        let lse = memory.at::<T>(self.lse, head * h.queries + first);
        let mut inverse = [T::ZERO; MOST_QUERIES];
        // SAFETY: the views lie in their buffers and the block in the views; the scratch holds `block` rows of `stride`
        // scores and what the products need; this chunk alone writes these rows of the results.
        unsafe {
            h.gemm(rows, span.columns, h.size, false).run(q, k.t(), scores, stride, scratch);
            let block = h.scores(memory, at, rows, span, scores, stride);
            softmax::forward(h.isa, block, &mut inverse[..rows], lse);
            let weights = Mat { ptr: scores.cast_const(), rs: stride, cs: 1 };
            let out_rows = out.ptr.cast_mut();
            for part in span.parts() {
                let sum = h.gemm(rows, h.value_size, part.len(), part.start > 0);
                sum.run(weights.at(0, part.start), v.at(part.start, 0), out_rows, out.rs, scratch);
            }
            for (r, &factor) in inverse[..rows].iter().enumerate() {
                for x in std::slice::from_raw_parts_mut(out_rows.add(r * out.rs), h.value_size) {
                    *x = *x * factor;
                }
            }
        }
    }
}
