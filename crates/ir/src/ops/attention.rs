//! `attention`: scaled dot-product attention (Vaswani and others, "Attention is all you need", 2017), and what its
//! gradient needs: the log-sum-exp of each row of scores (Dao and others, "FlashAttention", 2022).
//!
//! `scores = scale · q·kᵀ`; with a soft cap `cap · tanh(scores / cap)` (Gemma 2); plus an additive mask; −inf where a
//! query does not see a key. `weights = softmax(scores)`, `out = weights · v`. Query head `h` reads key and value head
//! `h / (heads / kv_heads)` (Ainslie and others, "GQA", 2023).
//!
//! **What a query sees.** Query `i` stands at place `p` among the keys: `p = i` aligned at the top left, as PyTorch's
//! `is_causal` is; `p = i + keys − queries` at the bottom right, as in FlashAttention, where the last query stands at the
//! last key. It sees key `j` if everything given allows it: `causal`, `j ≤ p`; `window = [left, right]`,
//! `p − left ≤ j ≤ p + right` (FlashAttention's `window_size`; a model's sliding window of `w` keys is causal with
//! `[w − 1, 0]`); a `bool` mask, where it is true; `lengths`, `j < lengths[batch]`, and then `keys` is that length in `p`
//! too, which is a cache's alignment. A row that sees nothing gives 0, and −inf as its log-sum-exp. What lies beyond a
//! length takes no part, whatever it holds. A length outside `0..=keys` is a mistake that the reference names; backends
//! raise the flag of bad indices.

use super::attention_options::{AttentionAlign, AttentionLayout};
use super::attention_scores::{Heads, Primitives};
use super::softmax::row_scale;
use crate::attrs::{Attr, AttrReader, Attrs, Real};
use crate::op::{OpRule, OpTable, Range, Sample, same_dtype, want_float, want_shape};
use crate::{DType, Dense, Dim, GraphBuilder, Mistake, Shape, Tensor, Type};

/// Operands `q`, `k`, `v` of one float dtype, in the declared layout; optionally `mask`, exactly `[batch or 1, heads or 1,
/// queries, keys]`, `bool` (true: may attend) or of `q`'s dtype (added to the scores); and, if so declared, `lengths`,
/// `i32` of `[batch]`: how many keys there are. `k` has `q`'s head size and a number of heads that divides that of `q`;
/// `v` has `k`'s heads and may have its own head size. Results: `out` in `q`'s layout with `v`'s head size, and the
/// log-sum-exp `[batch, heads, queries]` in the dtype that it is computed in, `f32` at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Attention {
    /// The order of the axes.
    pub layout: AttentionLayout,
    /// Whether a query sees only keys up to its place.
    pub causal: bool,
    /// Multiplies the scores; `1/√head size` as a rule.
    pub scale: Real,
    /// The bound that scaled scores approach, above 0: `cap · tanh(scores / cap)`, before any mask.
    pub softcap: Option<Real>,
    /// How many keys before and behind its place a query sees.
    pub window: Option<[u32; 2]>,
    /// Where the queries stand among the keys.
    pub align: AttentionAlign,
    /// Whether the last operand is the number of keys in each sequence of the batch.
    pub lengths: bool,
}

/// The operands of an attention, whatever stands for one.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOperands<T> {
    /// The queries.
    pub q: T,
    /// The keys.
    pub k: T,
    /// The values.
    pub v: T,
    /// The mask.
    pub mask: Option<T>,
    /// How many keys there are.
    pub lengths: Option<T>,
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
    /// An attention in which every query sees every key.
    pub fn new(layout: AttentionLayout, scale: f64) -> Attention {
        Attention {
            layout,
            causal: false,
            scale: Real::new(scale),
            softcap: None,
            window: None,
            align: AttentionAlign::TopLeft,
            lengths: false,
        }
    }

    /// The operands by name, and the last `N` of the list, which an attention itself has not.
    pub fn operands<T: Copy, const N: usize>(
        &self,
        all: &[T],
    ) -> Result<(AttentionOperands<T>, [T; N]), Mistake> {
        let least = 3 + usize::from(self.lengths) + N;
        let wrong = || {
            let lengths = if self.lengths { ", the lengths" } else { "" };
            let more = if N > 0 { ", out, lse and dout" } else { "" };
            Mistake::new(
                format!("takes {least} or {} operands, got {}", least + 1, all.len()),
                format!("give q, k, v, perhaps a mask{lengths}{more}"),
            )
        };
        let (front, more) = all.split_last_chunk().ok_or_else(wrong)?;
        let (front, lengths) = match front {
            [front @ .., lengths] if self.lengths => (front, Some(*lengths)),
            _ => (front, None),
        };
        match *front {
            [q, k, v] => Ok((AttentionOperands { q, k, v, mask: None, lengths }, *more)),
            [q, k, v, mask] => Ok((AttentionOperands { q, k, v, mask: Some(mask), lengths }, *more)),
            _ => Err(wrong()),
        }
    }

    /// The rule of the operands.
    pub(crate) fn check(&self, operands: &AttentionOperands<&Type>) -> Result<AttentionDims, Mistake> {
        let AttentionOperands { q, k, v, mask, lengths } = *operands;
        same_dtype(&[q, k, v])?;
        want_float(q)?;
        if let Some(cap) = self.softcap.map(Real::get).filter(|c| !(c.is_finite() && *c > 0.0)) {
            return Err(Mistake::new(format!("the soft cap is {cap}"), "give a number above 0"));
        }
        let split = |what: &str, ty: &Type| -> Result<[Dim; 4], Mistake> {
            let dims: [Dim; 4] = ty.shape.0.clone().try_into().map_err(|_| {
                Mistake::new(
                    format!("{what} has shape {}", ty.shape),
                    format!("give it four axes ({})", self.layout.name()),
                )
            })?;
            Ok(self.layout.arrange(dims))
        };
        let ([batch, heads, queries, size], [_, kv_heads, keys, _]) = (split("q", q)?, split("k", k)?);
        let [_, _, _, values] = split("v", v)?;
        if heads != kv_heads && heads.divide(&kv_heads).is_none() {
            return Err(Mistake::new(
                format!("q has {heads} heads and k has {kv_heads}"),
                "give k and v a number of heads that divides that of q",
            ));
        }
        let want = |t: &Dim, d: &Dim| {
            Shape(self.layout.arrange([batch.clone(), kv_heads.clone(), t.clone(), d.clone()]).to_vec())
        };
        want_shape("k", k, &want(&keys, &size))?;
        want_shape("v", v, &want(&keys, &values))?;
        if let Some(mask) = mask {
            check_mask(mask, q.dtype, [&batch, &heads, &queries, &keys])?;
        }
        if let Some(lengths) = lengths {
            want_shape("lengths", lengths, &Shape(vec![batch.clone()]))?;
            if lengths.dtype != DType::I32 {
                return Err(Mistake::new(format!("the lengths are {}", lengths.dtype), "cast them to i32"));
            }
        }
        Ok(AttentionDims { batch, heads, queries, values })
    }
}

/// The rule of a mask, for an attention of this dtype and batch, heads, queries and keys.
fn check_mask(mask: &Type, dtype: DType, full: [&Dim; 4]) -> Result<(), Mistake> {
    if mask.dtype != DType::Bool && mask.dtype != dtype {
        return Err(Mistake::new(
            format!("the mask is {}", mask.dtype),
            format!("give bool (true: may attend) or {dtype} (added to the scores)"),
        ));
    }
    let fits = |(i, (d, full)): (usize, (&Dim, &Dim))| d == full || (i < 2 && d.is_one());
    if mask.shape.rank() == 4 && mask.shape.0.iter().zip(full).enumerate().all(fits) {
        return Ok(());
    }
    let [batch, heads, queries, keys] = full;
    Err(Mistake::new(
        format!("the mask has shape {}", mask.shape),
        format!("give it shape [{batch} or 1, {heads} or 1, {queries}, {keys}]"),
    ))
}

impl OpRule for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }
    /// What differs from [`Attention::new`] behind the scale.
    fn attrs(&self) -> Attrs {
        let mut attrs = vec![
            ("layout", Attr::Word(self.layout.name().into())),
            ("causal", Attr::Bool(self.causal)),
            ("scale", Attr::Real(self.scale)),
        ];
        attrs.extend(self.softcap.map(|cap| ("softcap", Attr::Real(cap))));
        attrs.extend(self.window.map(|sides| ("window", Attr::Ints(sides.map(i64::from).to_vec()))));
        if self.align != AttentionAlign::default() {
            attrs.push(("align", Attr::Word(self.align.name().into())));
        }
        if self.lengths {
            attrs.push(("lengths", Attr::Bool(true)));
        }
        attrs
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let all: Vec<&Type> = operands.iter().collect();
        let (operands, []) = self.operands(&all)?;
        let dims = self.check(&operands)?;
        Ok(vec![dims.out(self.layout, operands.q.dtype), dims.lse(operands.q.dtype)])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (operands, []) = self.operands(inputs)?;
        let heads = Heads::new(self, operands)?;
        let v = operands.v.reals();
        let (mut out, mut lse) = (vec![0.0; results[0].numel()], vec![]);
        for at in heads.all_queries() {
            let seen = heads.seen(at);
            let (shift, sum) = row_scale(seen.iter().map(|s| s.score));
            lse.push(shift + libm::log(sum));
            let row = &mut out[heads.query(at, heads.value_size)..][..heads.value_size];
            for s in seen {
                let weight = if sum == 0.0 { 0.0 } else { libm::exp(s.score - shift) / sum };
                let value = &v[heads.key([at[0], at[1], s.key], heads.value_size)..][..row.len()];
                row.iter_mut().zip(value).for_each(|(o, x)| *o += weight * x);
            }
        }
        let out = Dense::from_reals(operands.q.dtype, &results[0].sizes(), out);
        Ok(vec![out, Dense::from_reals(results[1].dtype, &results[1].sizes(), lse)])
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let (operands, []) = self.operands(operands).ok()?;
        let dtype = operands.q.dtype();
        let p = Primitives::new(self, operands)?;
        let top = p.scores.max_keep(&[-1]);
        let shift = top.equals(f64::NEG_INFINITY).select(0.0, top);
        let weights = (p.scores - shift).exp();
        let sum = weights.sum_keep(&[-1]);
        let blind = sum.equals(0.0);
        // No logarithm of 0 in a row that sees nothing, nor its infinite slope.
        let sum = blind.select(1.0, sum);
        let lse = blind.select(f64::NEG_INFINITY, shift + sum.log());
        let weights = weights / sum;
        let out = p.unfold(p.product([false, false], dtype, p.fold(weights.cast(dtype)), p.v));
        let rows = Shape(sum.shape().0.into_iter().take(3).collect());
        Some(vec![p.swap(out), lse.reshape(rows)])
    }
}

impl OpTable for Attention {
    const NAMES: &'static [&'static str] = &["attention"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        let window = attrs.maybe("window", |attrs, name| {
            let sides: Option<Vec<u32>> =
                attrs.sizes(name)?.into_iter().map(|n| u32::try_from(n).ok()).collect();
            sides.and_then(|sides| <[u32; 2]>::try_from(sides).ok()).ok_or_else(|| {
                Mistake::new("a window takes two numbers below 2³²", "write window=[left, right]")
            })
        })?;
        Ok(Attention {
            layout: AttentionLayout::parse(&attrs.word("layout")?)?,
            causal: attrs.bool("causal")?,
            scale: attrs.real("scale")?,
            softcap: attrs.maybe("softcap", AttrReader::real)?,
            window,
            align: match attrs.maybe("align", AttrReader::word)? {
                Some(word) => AttentionAlign::parse(&word)?,
                None => AttentionAlign::default(),
            },
            lengths: attrs.maybe("lengths", AttrReader::bool)?.unwrap_or(false),
        })
    }
    fn samples() -> Vec<Sample> {
        samples_of(|op, sample| Sample { op: op.into(), ..sample })
    }
}

/// Samples for attention and its gradient: `finish` makes the op's of those of an attention.
pub(crate) fn samples_of(finish: impl Fn(Attention, Sample) -> Sample) -> Vec<Sample> {
    use AttentionLayout::{Bhtd, Bthd};
    let real = Range::Real(-2.0, 2.0);
    let plain = |op: Attention, [b, h, kv, tq, tk]: [usize; 5], [d, dv]: [usize; 2]| {
        let [q, k, v] = [[b, h, tq, d], [b, kv, tk, d], [b, kv, tk, dv]].map(|s| op.layout.arrange(s));
        Sample::reals(op, &[&q, &k, &v])
    };
    let mut all = vec![];
    for layout in [Bhtd, Bthd] {
        for causal in [false, true] {
            let op = Attention { causal, ..Attention::new(layout, 0.5) };
            let plain = plain(op, [2, 2, 2, 3, 5], [4, 3]);
            all.push(finish(op, plain.clone()));
            all.push(finish(op, plain.clone().and(DType::Bool, &[1, 2, 3, 5], Range::Int(0, 2))));
            all.push(finish(op, plain.and(DType::F64, &[2, 1, 3, 5], real)));
        }
        // Grouped queries, a soft cap below the scores, and every way to see less.
        let capped = Attention { softcap: Some(Real::new(1.5)), ..Attention::new(layout, 1.0) };
        let bias = plain(capped, [1, 4, 2, 2, 3], [2, 2]).and(DType::F64, &[1, 1, 2, 3], real);
        all.push(finish(capped, bias));
        let window = Attention { window: Some([1, 0]), ..capped };
        all.push(finish(window, plain(window, [1, 3, 1, 3, 3], [2, 1])));
        let ragged = Attention { causal: true, lengths: true, ..window };
        let ragged = Attention { align: AttentionAlign::BottomRight, window: Some([2, 9]), ..ragged };
        let sample = plain(ragged, [2, 2, 1, 2, 4], [2, 1]).and(DType::F64, &[1, 2, 2, 4], real);
        all.push(finish(ragged, sample.and(DType::I32, &[2], Range::Int(3, 5))));
    }
    let ragged = Attention { lengths: true, ..Attention::new(Bthd, 0.5) };
    let sample = plain(ragged, [2, 1, 1, 2, 3], [2, 2]).and(DType::I32, &[2], Range::Int(2, 4));
    all.push(finish(ragged, sample));
    // As many positions as heads: only the declared layout tells the axes apart.
    let square = Attention { causal: true, ..Attention::new(Bthd, 0.5) };
    all.push(finish(square, plain(square, [1, 4, 4, 4, 4], [2, 2])));
    // No key at all.
    all.push(finish(square, plain(square, [1, 2, 2, 3, 0], [2, 2])));
    let half = (0..3).fold(Sample::reals(square, &[]), |s, _| s.and(DType::BF16, &[1, 3, 2, 4], real));
    all.push(finish(square, half));
    let end = Attention { align: AttentionAlign::BottomRight, softcap: Some(Real::new(2.0)), ..square };
    let half = Sample::reals(end, &[]).and(DType::F16, &[1, 2, 2, 4], real);
    let half = (0..2).fold(half, |s, _| s.and(DType::F16, &[1, 3, 1, 4], real));
    all.push(finish(end, half.and(DType::F16, &[1, 2, 2, 3], real)));
    all
}
