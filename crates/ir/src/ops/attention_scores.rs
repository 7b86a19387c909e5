//! What the queries of an attention see, and their scores: as the references compute them, and by primitives.

use super::attention::{Attention, AttentionOperands};
use super::attention_options::{AttentionAlign, AttentionLayout};
use super::matmul::Matmul;
use crate::{DType, Dense, Dim, Mistake, Shape, Tensor};
use std::ops::Range;

/// The keys that a query may see by `causal`, `window` and its sequence's length: a band along the diagonal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// The place of query 0.
    place: i64,
    /// How far before and behind its place a query sees.
    left: i64,
    right: i64,
    keys: i64,
}

/// Farther than any key.
const FAR: i64 = i64::MAX / 4;

impl Band {
    /// The keys of query `i`; `start ≤ end ≤` the number of keys.
    #[inline]
    pub fn keys(&self, i: usize) -> Range<usize> {
        let place = self.place + i as i64;
        let within = |j: i64| j.clamp(0, self.keys) as usize;
        within(place - self.left)..within(place + self.right + 1)
    }
}

impl Attention {
    /// The band of `queries` over `keys` keys, the length where lengths are given.
    pub fn band(&self, queries: usize, keys: usize) -> Band {
        let place = match self.align {
            AttentionAlign::TopLeft => 0,
            AttentionAlign::BottomRight => keys as i64 - queries as i64,
        };
        let [left, right] = self.window.map_or([FAR; 2], |sides| sides.map(i64::from));
        Band { place, left, right: if self.causal { 0 } else { right }, keys: keys as i64 }
    }
}

/// The operands of an attention and its sizes, for its reference and that of its gradient.
pub(crate) struct Heads<'a> {
    op: &'a Attention,
    operands: AttentionOperands<&'a Dense>,
    pub batch: usize,
    pub heads: usize,
    /// Query heads for each key head.
    group: usize,
    pub queries: usize,
    pub keys: usize,
    /// Head size of queries and keys.
    pub size: usize,
    pub value_size: usize,
    bands: Vec<Band>,
}

/// A key that a query sees.
pub(crate) struct Seen {
    pub key: usize,
    pub score: f64,
    /// The score's slope along the product of query and key.
    pub slope: f64,
}

impl<'a> Heads<'a> {
    /// Checks the lengths.
    pub(crate) fn new(
        op: &'a Attention,
        operands: AttentionOperands<&'a Dense>,
    ) -> Result<Heads<'a>, Mistake> {
        let split = |x: &Dense| op.layout.arrange([x.shape[0], x.shape[1], x.shape[2], x.shape[3]]);
        let ([batch, heads, queries, size], [_, kv_heads, keys, _]) = (split(operands.q), split(operands.k));
        let [_, _, _, value_size] = split(operands.v);
        let length = |b: usize| {
            let Some(lengths) = operands.lengths else { return Ok(keys) };
            let length = lengths.ints()[b];
            usize::try_from(length).ok().filter(|&n| n <= keys).ok_or_else(|| {
                Mistake::new(
                    format!("length {length} (element {b} of the lengths) is outside 0..={keys}"),
                    "keep lengths within the keys",
                )
            })
        };
        let bands = (0..batch).map(|b| Ok(op.band(queries, length(b)?))).collect::<Result<_, Mistake>>()?;
        let group = heads / kv_heads.max(1);
        Ok(Heads { op, operands, batch, heads, group, queries, keys, size, value_size, bands })
    }

    /// Batch, head and position of every query, in order.
    pub(crate) fn all_queries(&self) -> impl Iterator<Item = [usize; 3]> + use<> {
        let (heads, queries) = (self.heads, self.queries);
        (0..self.batch * heads * queries)
            .map(move |n| [n / queries / heads, n / queries % heads, n % queries])
    }

    /// The place of the query at batch, head and position, in a tensor of head size `d`.
    pub(crate) fn query(&self, [b, h, i]: [usize; 3], d: usize) -> usize {
        match self.op.layout {
            AttentionLayout::Bhtd => ((b * self.heads + h) * self.queries + i) * d,
            AttentionLayout::Bthd => ((b * self.queries + i) * self.heads + h) * d,
        }
    }

    /// The place of the key at batch, query head and position, in a tensor of head size `d`.
    pub(crate) fn key(&self, [b, h, j]: [usize; 3], d: usize) -> usize {
        let (heads, h) = (self.heads / self.group.max(1), h / self.group.max(1));
        match self.op.layout {
            AttentionLayout::Bhtd => ((b * heads + h) * self.keys + j) * d,
            AttentionLayout::Bthd => ((b * self.keys + j) * heads + h) * d,
        }
    }

    /// The place in a mask for a query and key `j`.
    pub(crate) fn in_mask(&self, mask: &Dense, [b, h, i]: [usize; 3], j: usize) -> usize {
        let one_or = |at: usize, size: usize| if size == 1 { 0 } else { at };
        let head = one_or(b, mask.shape[0]) * mask.shape[1] + one_or(h, mask.shape[1]);
        (head * self.queries + i) * self.keys + j
    }

    /// The keys that a query sees; also those that a mask hides, at −inf.
    pub(crate) fn seen(&self, at: [usize; 3]) -> Vec<Seen> {
        let AttentionOperands { q, k, mask, .. } = self.operands;
        let round = |x: crate::Real| q.dtype.accumulator().round(x.get());
        let (scale, cap) = (round(self.op.scale), self.op.softcap.map(round));
        let query = &q.reals()[self.query(at, self.size)..][..self.size];
        let one = |j: usize| {
            let key = &k.reals()[self.key([at[0], at[1], j], self.size)..][..self.size];
            let score = query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() * scale;
            let (score, slope) = match cap {
                None => (score, scale),
                Some(cap) => {
                    let tanh = libm::tanh(score / cap);
                    (cap * tanh, (1.0 - tanh * tanh) * scale)
                }
            };
            let score = match mask {
                None => score,
                Some(mask) if mask.dtype != DType::Bool => score + mask.reals()[self.in_mask(mask, at, j)],
                Some(mask) if mask.ints()[self.in_mask(mask, at, j)] == 0 => f64::NEG_INFINITY,
                Some(_) => score,
            };
            Seen { key: j, score, slope }
        };
        self.bands[at[0]].keys(at[2]).map(one).collect()
    }
}

/// An attention by primitives, in the order of axes batch, heads, sequence, head size. The queries of a group of heads
/// that share keys are one long sequence in the products: nothing is copied, and what belongs to a key adds up.
pub(crate) struct Primitives<'g> {
    layout: AttentionLayout,
    pub q: Tensor<'g>,
    /// Keys and values: 0 beyond a length.
    pub k: Tensor<'g>,
    pub v: Tensor<'g>,
    /// `[batch, heads, queries, keys]`, in the accumulator's dtype; −inf where nothing is seen.
    pub scores: Tensor<'g>,
    /// The tangents of capped scores.
    pub tanh: Option<Tensor<'g>>,
    /// Heads of the queries and of the keys.
    heads: [Dim; 2],
    queries: Dim,
}

impl<'g> Primitives<'g> {
    /// `None` for operands that an attention does not take, or with sizes that must be known first.
    #[track_caller]
    pub(crate) fn new(op: &Attention, operands: AttentionOperands<Tensor<'g>>) -> Option<Primitives<'g>> {
        let swap = |x: Tensor<'g>| x.transpose(&op.layout.arrange([0, 1, 2, 3]));
        let AttentionOperands { q, k, v, mask, lengths } = operands;
        let [q, mut k, mut v] = [q, k, v].map(swap);
        let dims = |x: Tensor<'g>| <[Dim; 4]>::try_from(x.shape().0).ok();
        let ([batch, heads, queries, _], [_, kv_heads, keys, _]) = (dims(q)?, dims(k)?);
        let (g, acc) = (q.graph(), q.dtype().accumulator());
        let lengths = lengths.map(|n| n.reshape(Shape(vec![batch.clone(), 1.into(), 1.into(), 1.into()])));
        if let Some(lengths) = lengths {
            let column = Shape(vec![batch.clone(), 1.into(), keys.clone(), 1.into()]);
            let exists = g.iota(DType::I32, &column, 2).less(lengths);
            [k, v] = [k, v].map(|x| exists.select(x, 0.0));
        }
        let heads = [heads, kv_heads];
        let mut p =
            Primitives { layout: op.layout, q, k, v, scores: q, tanh: None, heads, queries: queries.clone() };
        let mut scores = p.unfold(p.product([false, true], acc, p.fold(q), k)) * op.scale.get();
        if let Some(cap) = op.softcap {
            let tanh = (scores / cap.get()).tanh();
            p.tanh = Some(tanh);
            scores = tanh * cap.get();
        }
        match mask {
            Some(mask) if mask.dtype() == DType::Bool => scores = mask.select(scores, f64::NEG_INFINITY),
            Some(mask) => scores = scores + mask.cast(acc),
            None => {}
        }
        let batch = if lengths.is_some() { batch } else { 1.into() };
        let square = Shape(vec![batch, 1.into(), queries, keys]);
        if let Some(seen) = seen(op, g.iota(DType::I32, &square, 3), lengths)? {
            scores = seen.select(scores, f64::NEG_INFINITY);
        }
        p.scores = scores;
        Some(p)
    }

    /// To the declared order of axes, or from it.
    #[track_caller]
    pub(crate) fn swap(&self, x: Tensor<'g>) -> Tensor<'g> {
        x.transpose(&self.layout.arrange([0, 1, 2, 3]))
    }

    /// A product of matrices, either transposed or not.
    #[track_caller]
    pub(crate) fn product(
        &self,
        [transpose_a, transpose_b]: [bool; 2],
        dtype: DType,
        a: Tensor<'g>,
        b: Tensor<'g>,
    ) -> Tensor<'g> {
        a.graph().emit1(Matmul { transpose_a, transpose_b, dtype }, &[a, b])
    }

    /// `[batch, heads, queries, …]` as `[batch, key heads, group · queries, …]`.
    #[track_caller]
    pub(crate) fn fold(&self, x: Tensor<'g>) -> Tensor<'g> {
        let [heads, kv_heads] = &self.heads;
        let rows = heads.divide(kv_heads).and_then(|group| group.times(&self.queries));
        match rows {
            Some(rows) if heads != kv_heads => self.with(x, kv_heads, &rows),
            _ => x,
        }
    }

    /// Back from [`Primitives::fold`].
    #[track_caller]
    pub(crate) fn unfold(&self, x: Tensor<'g>) -> Tensor<'g> {
        let [heads, kv_heads] = &self.heads;
        if heads == kv_heads { x } else { self.with(x, heads, &self.queries) }
    }

    #[track_caller]
    fn with(&self, x: Tensor<'g>, heads: &Dim, rows: &Dim) -> Tensor<'g> {
        let mut shape = x.shape();
        if let [_, h, t, _] = &mut shape.0[..] {
            (*h, *t) = (heads.clone(), rows.clone());
        }
        x.reshape(shape)
    }
}

/// Where a query sees a key, from the keys' numbers, `[batch or 1, 1, queries, keys]`: an outer `None` if sizes must be
/// known first, an inner one if it sees all of them.
#[track_caller]
fn seen<'g>(op: &Attention, key: Tensor<'g>, lengths: Option<Tensor<'g>>) -> Option<Option<Tensor<'g>>> {
    let (g, shape) = (key.graph(), key.shape());
    let mut all: Vec<Tensor<'g>> = lengths.map(|n| key.less(n)).into_iter().collect();
    if op.causal || op.window.is_some() {
        let query = g.iota(DType::I32, &shape, 2);
        let place = match op.align {
            AttentionAlign::TopLeft => query,
            AttentionAlign::BottomRight => {
                let size = |axis: usize| Some(shape.0.get(axis)?.size()? as f64);
                let (queries, keys) = (size(2)?, size(3)?);
                match lengths {
                    Some(n) => query + (n - queries),
                    None => query + (keys - queries),
                }
            }
        };
        // Larger than any tensor, and far from the largest integer.
        let [left, right] = op.window.unwrap_or([u32::MAX; 2]).map(|n| f64::from(n.min(1 << 30)));
        all.push(if op.causal { key.less_equal(place) } else { key.less_equal(place + right) });
        if op.window.is_some() {
            all.push(key.greater_equal(place - left));
        }
    }
    Some(all.into_iter().reduce(Tensor::and))
}
