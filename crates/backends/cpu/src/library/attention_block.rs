//! What attention and its gradient share: operands by head, and blocks of queries with the keys that they see.
//!
//! A block is computed on a span of keys that begins at a multiple of [`LANES`], and sums over keys are cut at multiples of
//! [`DEPTH`] among all keys. What a query does not see contributes an exact 0 there, so its bits do not depend on where
//! the span begins or ends.

use super::gemm::{DEPTH, Gemm, Isa, Mat, Scalar};
use super::softmax::{Block, LANES, Mask};
use crate::error::CpuError;
use crate::kernel::Memory;
use onestep_ir::DType;
use onestep_ir::ops::{Attention as Op, AttentionLayout, AttentionOperands, Band};
use onestep_passes::schedule::{BufferId, View};
use std::ops::Range;

/// Most queries of a block; where each sees another part of the keys fewer, as a block computes part of its own square in
/// vain. And the number of scores that should stay in the second-level cache.
pub(super) const MOST_QUERIES: usize = 64;
const BANDED_QUERIES: usize = 32;
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
    pub fn of(view: &View, layout: AttentionLayout) -> HeadTensor {
        let s = &view.strides;
        let strides = layout.arrange([s[0], s[1], s[2], s[3]]);
        HeadTensor { buffer: view.buffer, offset: view.offset, strides }
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
    /// Along the batch and along the heads.
    repeated: [bool; 2],
    allow: bool,
}

/// Sizes and inputs that attention and its gradient share.
#[derive(Clone, Debug)]
pub(super) struct Heads {
    op: Op,
    pub batch: usize,
    pub heads: usize,
    /// Query heads for each head of keys and values.
    pub group: usize,
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
    /// Where the number of keys of each sequence is.
    lengths: Option<View>,
    pub isa: Isa,
}

/// The keys that a block of queries is computed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    band: Band,
    /// The first key.
    pub from: usize,
    /// How many.
    pub columns: usize,
}

impl Span {
    /// The parts in which sums over these keys are taken, by column; each but the first is added to those before it.
    pub fn parts(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let first = self.columns.min(DEPTH - self.from % DEPTH);
        // A product cuts what begins at a multiple of its depth by itself.
        let first = if self.from.is_multiple_of(DEPTH) { self.columns } else { first };
        let parts = if first < self.columns { 2 } else { 1 };
        [0..first, first..self.columns].into_iter().take(parts)
    }
}

impl Heads {
    /// Those of a kernel with these operands, and its last `N` operands.
    pub fn new<'a, const N: usize>(
        op: &Op,
        isa: Isa,
        operands: &'a [View],
        dtypes: &[DType],
    ) -> Result<(Heads, [&'a View; N]), CpuError> {
        let all: Vec<(&View, DType)> = operands.iter().zip(dtypes.iter().copied()).collect();
        let (operands, more) = op
            .operands::<_, N>(&all)
            .map_err(|m| CpuError::Operand { what: "the number of operands", why: m.to_string() })?;
        let AttentionOperands { q: (q, _), k: (k, _), v: (v, _), mask, lengths } = operands;
        let split = |x: &View| op.layout.arrange([x.shape[0], x.shape[1], x.shape[2], x.shape[3]]);
        let ([batch, heads, queries, size], [_, kv_heads, keys, _]) = (split(q), split(k));
        let tensor = |x: &View| HeadTensor::of(x, op.layout);
        let mask = mask.map(|(view, dtype)| {
            let mut tensor = HeadTensor::of(view, AttentionLayout::Bhtd);
            let repeated = [view.shape[0] == 1, view.shape[1] == 1];
            for (stride, _) in tensor.strides.iter_mut().zip(repeated).filter(|(_, repeated)| *repeated) {
                *stride = 0;
            }
            MaskTensor { tensor, repeated, allow: dtype == DType::Bool }
        });
        let heads = Heads {
            op: *op,
            batch,
            heads,
            group: (heads / kv_heads.max(1)).max(1),
            queries,
            keys,
            size,
            value_size: split(v)[3],
            q: tensor(q),
            k: tensor(k),
            v: tensor(v),
            mask,
            lengths: lengths.map(|(view, _)| view.clone()),
            isa,
        };
        Ok((heads, more.map(|(view, _)| view)))
    }

    /// Queries of a block, when a query needs `scores` numbers for each key.
    pub fn block(&self, scores: usize) -> usize {
        let banded = self.op.causal || self.op.window.is_some();
        let most = if banded { BANDED_QUERIES } else { MOST_QUERIES };
        let fits = SCORES / (self.columns(most) * scores).max(1);
        fits.clamp(16, most).min(self.queries.max(1)).next_multiple_of(8)
    }

    /// The most keys of the span of a block of queries: the distance of its rows of scores.
    pub fn columns(&self, block: usize) -> usize {
        let Some([left, right]) = self.op.window else { return self.keys };
        let right = if self.op.causal { 0 } else { right };
        // Down to a multiple of the lanes, and one key for the query's own place.
        let most = [left as usize, right as usize, block, LANES].into_iter().fold(0, usize::saturating_add);
        self.keys.min(most)
    }

    /// The keys that `rows` queries from `at[2]` on see. A length out of range is taken to the nearest: the flag of bad
    /// indices is raised elsewhere.
    pub fn span(&self, memory: Memory<'_>, at: [usize; 3], rows: usize) -> Span {
        let keys = self.lengths.as_ref().map_or(self.keys, |view| {
            // SAFETY: the view has an element for each sequence of the batch, and lies in its buffer.
            let length = unsafe { *memory.of::<i32>(view).wrapping_add(at[0] * view.strides[0]) };
            usize::try_from(length).unwrap_or(0).min(self.keys)
        });
        let band = self.op.band(self.queries, keys);
        let (start, end) = (band.keys(at[2]).start, band.keys(at[2] + rows - 1).end);
        let from = start / LANES * LANES;
        Span { band, from, columns: if start < end { end - from } else { 0 } }
    }

    /// The place of key `j` for the query head at `at`.
    pub fn key_head(&self, at: [usize; 3], j: usize) -> [usize; 3] {
        [at[0], at[1] / self.group, j]
    }

    pub fn gemm(&self, m: usize, n: usize, k: usize, add: bool) -> Gemm {
        Gemm { isa: self.isa, m, n, k, add }
    }

    /// The scores of `rows` queries from `at[2]` on over a span, as the softmax takes them.
    pub fn scores<T: Scalar>(
        &self,
        memory: Memory<'_>,
        at: [usize; 3],
        rows: usize,
        span: Span,
        scores: *mut T,
        stride: usize,
    ) -> Block<T> {
        let (mask, mask_strides) = match &self.mask {
            None => (Mask::None, (0, 0)),
            Some(m) => {
                let [sb, sh, st, sd] = m.tensor.strides;
                let place = at[0] * sb + at[1] * sh + at[2] * st + span.from * sd;
                let mask = match m.allow {
                    true => Mask::Allow(m.tensor.ptr::<u8>(memory, place).cast_const()),
                    false => Mask::Add(m.tensor.ptr::<T>(memory, place).cast_const()),
                };
                (mask, (st, sd))
            }
        };
        Block {
            scores,
            stride,
            rows,
            columns: span.columns,
            scale: T::from_f64(self.op.scale.get()),
            softcap: self.op.softcap.map(|cap| T::from_f64(cap.get())),
            band: span.band,
            first: [at[2], span.from],
            mask,
            mask_strides,
        }
    }

    /// Batch and heads of the mask.
    pub fn mask_sizes(&self) -> [usize; 2] {
        let [b, h] = self.mask.map_or([true; 2], |m| m.repeated);
        [if b { 1 } else { self.batch }, if h { 1 } else { self.heads }]
    }

    pub fn label(&self, name: &str) -> String {
        let Heads { op, batch, heads, group, queries, keys, size, .. } = self;
        let mut label = format!("{name} {batch}×{heads} heads, {queries}×{keys}×{size}");
        if *group > 1 {
            label += &format!(", {group} to a key head");
        }
        if op.causal {
            label += " causal";
        }
        if let Some([left, right]) = op.window {
            label += &format!(" window {left}+{right}");
        }
        for (given, what) in
            [(op.softcap.is_some(), " capped"), (op.lengths, " ragged"), (self.mask.is_some(), " masked")]
        {
            label += if given { what } else { "" };
        }
        label
    }
}
