//! `attention`: scaled dot-product attention (Vaswani and others, "Attention is all you need", 2017), and what its
//! gradient needs: the log-sum-exp of each row of scores (Dao and others, "FlashAttention", 2022).
//!
//! `scores = scale · q·kᵀ` (plus an additive mask; −inf where a `bool` mask is false or `causal` forbids), `weights =
//! softmax(scores)`, `out = weights · v`. `causal` aligns at the top left, as PyTorch's `is_causal` does: query `i`
//! sees keys `j ≤ i`. A row that sees nothing gives 0, and −inf as its log-sum-exp.

use crate::attrs::{Attr, AttrReader, Attrs, Real};
use crate::op::{OpRule, OpTable, Range, Sample, same_dtype, want_float, want_shape};
use crate::ops::Matmul;
use crate::ops::softmax::row_scale;
use crate::{DType, Dense, Dim, GraphBuilder, Mistake, Shape, Tensor, Type};

/// The order of the axes of queries, keys, values and output. It is declared, never guessed from sizes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttentionLayout {
    /// `[batch, heads, sequence, head size]`
    Bhtd,
    /// `[batch, sequence, heads, head size]`
    Bthd,
}

impl AttentionLayout {
    /// The keyword of the text form.
    pub fn name(self) -> &'static str {
        match self {
            AttentionLayout::Bhtd => "bhtd",
            AttentionLayout::Bthd => "bthd",
        }
    }

    /// The layout of this keyword.
    pub(crate) fn parse(attrs: &mut AttrReader) -> Result<AttentionLayout, Mistake> {
        let word = attrs.word("layout")?;
        let found = [AttentionLayout::Bhtd, AttentionLayout::Bthd].into_iter().find(|l| l.name() == word);
        found.ok_or_else(|| Mistake::new(format!("there is no layout '{word}'"), "write bhtd or bthd"))
    }

    /// Four things in this layout's order from those in the order batch, heads, sequence, head size; and back.
    pub fn arrange<T>(self, [b, h, t, d]: [T; 4]) -> [T; 4] {
        match self {
            AttentionLayout::Bhtd => [b, h, t, d],
            AttentionLayout::Bthd => [b, t, h, d],
        }
    }

    /// A tensor of this layout in the order batch, heads, sequence, head size; and back.
    #[track_caller]
    pub(crate) fn swap<'g>(self, x: Tensor<'g>) -> Tensor<'g> {
        x.transpose(&self.arrange([0, 1, 2, 3]))
    }
}

/// Operands `q`, `k`, `v` of one float dtype, in the declared layout, and optionally `mask`, exactly
/// `[batch or 1, heads or 1, queries, keys]`: `bool` (true: may attend) or of `q`'s dtype (added to the scores). `k`
/// has `q`'s head size; `v` may have its own. Results: `out` in `q`'s layout with `v`'s head size, and the log-sum-exp
/// `[batch, heads, queries]` in the dtype that it is computed in, `f32` at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Attention {
    /// The order of the axes.
    pub layout: AttentionLayout,
    /// Whether query `i` sees only keys `j ≤ i`.
    pub causal: bool,
    /// Multiplies the scores; `1/√head size` as a rule.
    pub scale: Real,
}

/// The dimensions of an attention.
pub(crate) struct AttentionDims {
    pub batch: Dim,
    pub heads: Dim,
    pub queries: Dim,
    pub values: Dim,
}

impl AttentionDims {
    /// The log-sum-exp's type.
    pub(crate) fn lse(&self, dtype: DType) -> Type {
        Type::new(
            dtype.accumulator(),
            Shape(vec![self.batch.clone(), self.heads.clone(), self.queries.clone()]),
        )
    }

    /// The output's type.
    pub(crate) fn out(&self, layout: AttentionLayout, dtype: DType) -> Type {
        let dims = [&self.batch, &self.heads, &self.queries, &self.values].map(Dim::clone);
        Type::new(dtype, Shape(layout.arrange(dims).to_vec()))
    }
}

impl Attention {
    /// The rule of the first three or four operands.
    pub(crate) fn check(
        &self,
        q: &Type,
        k: &Type,
        v: &Type,
        mask: Option<&Type>,
    ) -> Result<AttentionDims, Mistake> {
        same_dtype(&[q, k, v])?;
        want_float(q)?;
        let split = |what: &str, ty: &Type| -> Result<[Dim; 4], Mistake> {
            let dims: [Dim; 4] = ty.shape.0.clone().try_into().map_err(|_| {
                Mistake::new(
                    format!("{what} has shape {}", ty.shape),
                    format!("give it four axes ({})", self.layout.name()),
                )
            })?;
            Ok(self.layout.arrange(dims))
        };
        let ([batch, heads, queries, size], [_, _, keys, _]) = (split("q", q)?, split("k", k)?);
        let [_, _, _, values] = split("v", v)?;
        let want = |t: &Dim, d: &Dim| {
            Shape(self.layout.arrange([batch.clone(), heads.clone(), t.clone(), d.clone()]).to_vec())
        };
        want_shape("k", k, &want(&keys, &size))?;
        want_shape("v", v, &want(&keys, &values))?;
        if let Some(mask) = mask {
            if mask.dtype != DType::Bool && mask.dtype != q.dtype {
                return Err(Mistake::new(
                    format!("the mask is {}", mask.dtype),
                    format!("cast it to bool (true: may attend) or {} (added to the scores)", q.dtype),
                ));
            }
            let fits = |i: usize, full: &Dim| mask.shape.0[i] == *full || mask.shape.0[i].is_one();
            let ok = mask.shape.rank() == 4
                && fits(0, &batch)
                && fits(1, &heads)
                && mask.shape.0[2] == queries
                && mask.shape.0[3] == keys;
            if !ok {
                return Err(Mistake::new(
                    format!("the mask has shape {}", mask.shape),
                    format!("give it shape [{batch} or 1, {heads} or 1, {queries}, {keys}]"),
                ));
            }
        }
        Ok(AttentionDims { batch, heads, queries, values })
    }

    /// The scores by primitives, `[batch, heads, queries, keys]`, from operands in that order of axes.
    #[track_caller]
    pub(crate) fn scores<'g>(&self, q: Tensor<'g>, k: Tensor<'g>, mask: Option<Tensor<'g>>) -> Tensor<'g> {
        let g = q.graph();
        let acc = q.dtype().accumulator();
        let scores = g.emit1(Matmul { transpose_a: false, transpose_b: true, dtype: acc }, &[q, k]);
        let mut scores = scores * self.scale.get();
        match mask {
            Some(mask) if mask.dtype() == DType::Bool => scores = mask.select(scores, f64::NEG_INFINITY),
            Some(mask) => scores = scores + mask.cast(acc),
            None => {}
        }
        if self.causal && scores.rank() == 4 {
            let square = Shape(scores.shape().0[2..].to_vec());
            let seen = g.iota(DType::I32, &square, 1).less_equal(g.iota(DType::I32, &square, 0));
            scores = seen.select(scores, f64::NEG_INFINITY);
        }
        scores
    }
}

/// Views of the operands of an attention for its reference and that of its gradient.
pub(crate) struct Heads {
    layout: AttentionLayout,
    /// batch, heads, queries, keys, head size, head size of the values
    pub sizes: [usize; 6],
}

impl Heads {
    pub(crate) fn new(layout: AttentionLayout, q: &Dense, k: &Dense, v: &Dense) -> Heads {
        let split = |x: &Dense| layout.arrange([x.shape[0], x.shape[1], x.shape[2], x.shape[3]]);
        let ([b, h, tq, d], [_, _, tk, _], [_, _, _, dv]) = (split(q), split(k), split(v));
        Heads { layout, sizes: [b, h, tq, tk, d, dv] }
    }

    /// The place of the row at batch `b`, head `h`, position `t` in a tensor of `len` positions and head size `d`.
    pub(crate) fn row(&self, b: usize, h: usize, t: usize, len: usize, d: usize) -> usize {
        let heads = self.sizes[1];
        match self.layout {
            AttentionLayout::Bhtd => ((b * heads + h) * len + t) * d,
            AttentionLayout::Bthd => ((b * len + t) * heads + h) * d,
        }
    }

    /// The scores of one query: −inf where it may not attend.
    pub(crate) fn scores(
        &self,
        op: &Attention,
        at: [usize; 3],
        q: &Dense,
        k: &Dense,
        mask: Option<&Dense>,
    ) -> Vec<f64> {
        let ([b, h, i], [_, _, tq, tk, d, _]) = (at, self.sizes);
        let scale = q.dtype.accumulator().round(op.scale.get());
        let query = &q.reals()[self.row(b, h, i, tq, d)..][..d];
        let score = |j: usize| {
            if op.causal && j > i {
                return f64::NEG_INFINITY;
            }
            let key = &k.reals()[self.row(b, h, j, tk, d)..][..d];
            let score = query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() * scale;
            let Some(mask) = mask else { return score };
            let one_or = |at: usize, size: usize| if size == 1 { 0 } else { at };
            let place = one_or(b, mask.shape[0]) * mask.shape[1] + one_or(h, mask.shape[1]);
            let place = (place * tq + i) * tk + j;
            match mask.dtype {
                DType::Bool if mask.ints()[place] == 0 => f64::NEG_INFINITY,
                DType::Bool => score,
                _ => score + mask.reals()[place],
            }
        };
        (0..tk).map(score).collect()
    }
}

/// The attributes that attention and its gradient share.
pub(crate) fn attention_attrs(op: &Attention) -> Attrs {
    vec![
        ("layout", Attr::Word(op.layout.name().into())),
        ("causal", Attr::Bool(op.causal)),
        ("scale", Attr::Real(op.scale)),
    ]
}

impl OpRule for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }
    fn attrs(&self) -> Attrs {
        attention_attrs(self)
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let ([q, k, v] | [q, k, v, _]) = operands else {
            return Err(Mistake::new(
                format!("takes 3 or 4 operands, got {}", operands.len()),
                "give q, k, v and perhaps a mask",
            ));
        };
        let dims = self.check(q, k, v, operands.get(3))?;
        Ok(vec![dims.out(self.layout, q.dtype), dims.lse(q.dtype)])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (q, k, v, mask) = (inputs[0], inputs[1], inputs[2], inputs.get(3).copied());
        let heads = Heads::new(self.layout, q, k, v);
        let [b, h, tq, tk, _, dv] = heads.sizes;
        let mut out = vec![0.0; results[0].numel()];
        let mut lse = vec![];
        for (b, h, i) in (0..b).flat_map(|b| (0..h).flat_map(move |h| (0..tq).map(move |i| (b, h, i)))) {
            let scores = heads.scores(self, [b, h, i], q, k, mask);
            let (shift, sum) = row_scale(scores.iter().copied());
            lse.push(shift + libm::log(sum));
            let row = &mut out[heads.row(b, h, i, tq, dv)..][..dv];
            for (j, s) in scores.iter().enumerate() {
                let weight = if sum == 0.0 { 0.0 } else { libm::exp(s - shift) / sum };
                let value = &v.reals()[heads.row(b, h, j, tk, dv)..][..dv];
                row.iter_mut().zip(value).for_each(|(o, x)| *o += weight * x);
            }
        }
        let lse = Dense::from_reals(results[1].dtype, &results[1].sizes(), lse);
        Ok(vec![Dense::from_reals(q.dtype, &results[0].sizes(), out), lse])
    }
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let ([q, k, v] | [q, k, v, _]) = operands else { return None };
        let dtype = q.dtype();
        let [q, k, v] = [q, k, v].map(|x| self.layout.swap(*x));
        let scores = self.scores(q, k, operands.get(3).copied());
        let top = scores.max_keep(&[-1]);
        let shift = top.equals(f64::NEG_INFINITY).select(0.0, top);
        let weights = (scores - shift).exp();
        let sum = weights.sum_keep(&[-1]);
        let blind = sum.equals(0.0);
        // No logarithm of 0 in a row that sees nothing, nor its infinite slope.
        let sum = blind.select(1.0, sum);
        let lse = blind.select(f64::NEG_INFINITY, shift + sum.log());
        let weights = weights / sum;
        let out = Matmul { transpose_a: false, transpose_b: false, dtype };
        let out = g.emit1(out, &[weights.cast(dtype), v]);
        let rows = Shape(sum.shape().0.into_iter().take(3).collect());
        Some(vec![self.layout.swap(out), lse.reshape(rows)])
    }
}

impl OpTable for Attention {
    const NAMES: &'static [&'static str] = &["attention"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Attention {
            layout: AttentionLayout::parse(attrs)?,
            causal: attrs.bool("causal")?,
            scale: attrs.real("scale")?,
        })
    }
    fn samples() -> Vec<Sample> {
        samples_of(|op| op.into(), |_, sample| sample)
    }
}

/// Samples for attention and its gradient: `op` makes the op, `more` adds operands behind the mask.
pub(crate) fn samples_of(
    op: impl Fn(Attention) -> crate::Op,
    more: impl Fn(&Attention, Sample) -> Sample,
) -> Vec<Sample> {
    let real = Range::Real(-2.0, 2.0);
    let mut all = vec![];
    for layout in [AttentionLayout::Bhtd, AttentionLayout::Bthd] {
        for causal in [false, true] {
            let attention = Attention { layout, causal, scale: Real::new(0.5) };
            let [q, k, v] = [[2, 2, 3, 4], [2, 2, 5, 4], [2, 2, 5, 3]].map(|s| layout.arrange(s));
            let plain = Sample::reals(op(attention), &[&q, &k, &v]);
            all.push(more(&attention, plain.clone()));
            all.push(more(&attention, plain.clone().and(DType::Bool, &[1, 2, 3, 5], Range::Int(0, 2))));
            all.push(more(&attention, plain.and(DType::F64, &[2, 1, 3, 5], real)));
        }
    }
    // As many positions as heads: only the declared layout tells the axes apart.
    let square = Attention { layout: AttentionLayout::Bthd, causal: true, scale: Real::new(0.5) };
    all.push(more(&square, Sample::reals(op(square), &[&[1, 4, 4, 2][..]; 3])));
    // No key at all.
    let [q, k] = [[1, 2, 3, 2], [1, 2, 0, 2]].map(|s| square.layout.arrange(s));
    all.push(more(&square, Sample::reals(op(square), &[&q, &k, &k])));
    let half = (0..3).fold(Sample::reals(op(square), &[]), |s, _| s.and(DType::BF16, &[1, 3, 2, 4], real));
    all.push(more(&square, half));
    all
}
