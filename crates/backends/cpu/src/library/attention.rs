//! Attention: for each head and block of queries, scores, softmax and the weighted sum of values, in thread scratch.
//!
//! With a causal mask, keys behind the block's last query are not computed at all. Operands are strided views, so the
//! order of heads and positions costs nothing.

use super::gemm::{Gemm, Isa, Mat, Scalar, scratch_elements};
use super::softmax::{self, Block, Mask};
use crate::error::CpuError;
use crate::kernel::{Memory, Work};
use onestep_ir::ops::{Attention as Op, AttentionLayout};
use onestep_ir::{DType, row_major};
use onestep_passes::schedule::{BufferId, LibraryKernel, View};
use std::marker::PhantomData;

/// Most queries of a block; with a causal mask fewer, as a block computes half of its own square in vain. And the number
/// of scores that should stay in the second-level cache.
const QUERIES: usize = 64;
const CAUSAL_QUERIES: usize = 32;
const SCORES: usize = 32 * 1024;

/// A tensor of queries, keys, values or the like, whatever its layout.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadTensor {
    buffer: BufferId,
    offset: usize,
    /// Of batch, head, position, element.
    strides: [usize; 4],
}

impl HeadTensor {
    pub fn operand(view: &View, layout: AttentionLayout) -> HeadTensor {
        let s = &view.strides;
        let strides = layout.arrange([s[0], s[1], s[2], s[3]]);
        HeadTensor { buffer: view.buffer, offset: view.offset, strides }
    }

    /// A dense result with these sizes of batch, head, position, element.
    pub fn result(buffer: BufferId, sizes: [usize; 4], layout: AttentionLayout) -> HeadTensor {
        let s = row_major(&layout.arrange(sizes));
        HeadTensor { buffer, offset: 0, strides: layout.arrange([s[0], s[1], s[2], s[3]]) }
    }

    /// A head's positions from `t` on, as a matrix.
    #[inline(always)]
    pub fn mat<T>(&self, memory: Memory<'_>, [b, h, t]: [usize; 3]) -> Mat<T> {
        let [sb, sh, st, sd] = self.strides;
        Mat { ptr: self.ptr::<T>(memory, b * sb + h * sh + t * st).cast_const(), rs: st, cs: sd }
    }

    #[inline(always)]
    fn ptr<T>(&self, memory: Memory<'_>, place: usize) -> *mut T {
        memory.at(self.buffer, self.offset + place)
    }
}

/// The mask, if any.
#[derive(Clone, Copy, Debug)]
struct MaskTensor {
    tensor: HeadTensor,
    allow: bool,
}

/// Sizes and inputs that attention and its gradient share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub batch: usize,
    pub heads: usize,
    pub queries: usize,
    pub keys: usize,
    /// Head size of queries and keys.
    pub size: usize,
    /// Head size of values and output.
    pub value_size: usize,
    pub q: HeadTensor,
    pub k: HeadTensor,
    pub v: HeadTensor,
    mask: Option<MaskTensor>,
    pub causal: bool,
    pub scale: f64,
    pub isa: Isa,
}

impl Heads {
    pub fn new(op: &Op, isa: Isa, [q, k, v]: [&View; 3], mask: Option<(&View, DType)>) -> Heads {
        let split = |x: &View| op.layout.arrange([x.shape[0], x.shape[1], x.shape[2], x.shape[3]]);
        let ([batch, heads, queries, size], [_, _, keys, _]) = (split(q), split(k));
        let tensor = |x: &View| HeadTensor::operand(x, op.layout);
        let mask = mask.map(|(view, dtype)| {
            let mut tensor = HeadTensor::operand(view, AttentionLayout::Bhtd);
            for axis in 0..2 {
                if view.shape[axis] == 1 {
                    tensor.strides[axis] = 0;
                }
            }
            MaskTensor { tensor, allow: dtype == DType::Bool }
        });
        Heads {
            batch,
            heads,
            queries,
            keys,
            size,
            value_size: split(v)[3],
            q: tensor(q),
            k: tensor(k),
            v: tensor(v),
            mask,
            causal: op.causal,
            scale: op.scale.get(),
            isa,
        }
    }

    /// Queries of a block, when a query needs `scores` numbers for each key.
    pub fn block(&self, scores: usize) -> usize {
        let most = if self.causal { CAUSAL_QUERIES } else { QUERIES };
        let fits = SCORES / (self.keys * scores).max(1);
        fits.clamp(16, most).min(self.queries.max(1)).next_multiple_of(8)
    }

    /// How many keys a block of queries that ends before `end` sees.
    pub fn seen(&self, end: usize) -> usize {
        if self.causal { self.keys.min(end) } else { self.keys }
    }

    /// The scores of `rows` queries from `at[2]` on, of which `columns` are computed, as the softmax takes them.
    pub fn scores<T: Scalar>(
        &self,
        memory: Memory<'_>,
        at: [usize; 3],
        (rows, columns): (usize, usize),
        scores: *mut T,
    ) -> Block<T> {
        let (mask, mask_strides) = match &self.mask {
            None => (Mask::None, (0, 0)),
            Some(m) => {
                let [sb, sh, st, sd] = m.tensor.strides;
                let place = at[0] * sb + at[1] * sh + at[2] * st;
                let mask = match m.allow {
                    true => Mask::Allow(m.tensor.ptr::<u8>(memory, place).cast_const()),
                    false => Mask::Add(m.tensor.ptr::<T>(memory, place).cast_const()),
                };
                (mask, (st, sd))
            }
        };
        let causal = self.causal.then_some(at[2]);
        let scale = T::from_f64(self.scale);
        Block { scores, stride: self.keys, rows, columns, scale, causal, mask, mask_strides }
    }

    pub fn label(&self, name: &str) -> String {
        let causal = if self.causal { " causal" } else { "" };
        let Heads { batch, heads, queries, keys, size, .. } = self;
        format!("{name} {batch}×{heads} heads, {queries}×{keys}×{size}{causal}")
    }
}

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
    dtype: DType,
    isa: Isa,
    kernel: &LibraryKernel,
    dtypes: &[DType],
) -> Result<Box<dyn Work>, CpuError> {
    let [q, k, v] = [0, 1, 2].map(|i| &kernel.operands[i]);
    let heads = Heads::new(op, isa, [q, k, v], kernel.operands.get(3).map(|m| (m, dtypes[3])));
    let sizes = [heads.batch, heads.heads, heads.queries, heads.value_size];
    let out = HeadTensor::result(kernel.results[0], sizes, op.layout);
    let (lse, block) = (kernel.results[1], heads.block(1));
    match dtype {
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
        let Heads { keys, size, .. } = self.heads;
        let gemm = scratch_elements(self.block, size).max(scratch_elements(self.block, keys));
        (self.block * keys + gemm) * size_of::<T>()
    }

    unsafe fn run_chunk(&self, _phase: usize, chunk: usize, memory: Memory<'_>) {
        let h = &self.heads;
        let blocks = h.queries.div_ceil(self.block);
        let (head, first) = (chunk / blocks, chunk % blocks * self.block);
        let at = [head / h.heads, head % h.heads, first];
        let whole = [at[0], at[1], 0];
        let rows = self.block.min(h.queries - first);
        let seen = h.seen(first + rows);
        let scores = memory.scratch.cast::<T>();
        let scratch = scores.wrapping_add(self.block * h.keys);
        let (q, k, v) = (h.q.mat(memory, at), h.k.mat::<T>(memory, whole), h.v.mat(memory, whole));
        let out = self.out.mat::<T>(memory, at);
        let lse = memory.at::<T>(self.lse, head * h.queries + first);
        let mut inverse = [T::ZERO; QUERIES];
        let gemm = Gemm { isa: h.isa, m: rows, n: seen, k: h.size, add: false };
        let weighted = Gemm { n: h.value_size, k: seen, ..gemm };
        // SAFETY: the views lie in their buffers and the block in the views; the scratch holds `block` × `keys` scores
        // and what the products need; this chunk alone writes these rows of the results.
        unsafe {
            gemm.run(q, k.t(), scores, h.keys, scratch);
            let block = h.scores(memory, at, (rows, seen), scores);
            softmax::forward(h.isa, block, &mut inverse[..rows], lse);
            let weights = Mat { ptr: scores.cast_const(), rs: h.keys, cs: 1 };
            let out_rows = out.ptr.cast_mut();
            weighted.run(weights, v, out_rows, out.rs, scratch);
            for (r, &factor) in inverse[..rows].iter().enumerate() {
                for x in std::slice::from_raw_parts_mut(out_rows.add(r * out.rs), h.value_size) {
                    *x = *x * factor;
                }
            }
        }
    }
}
