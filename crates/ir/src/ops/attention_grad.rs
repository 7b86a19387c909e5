//! `attention_grad`: the gradient of `attention` from its output and log-sum-exp, without keeping the weights (Dao and
//! others, "FlashAttention", 2022).
//!
//! `p = exp(scores − lse)`, 0 where masked and in rows that see nothing (whose lse is −inf); `dv = pᵀ·dout`;
//! `ds = p · (dout·vᵀ − Σ dout·out)`; `dq = scale · ds·k`; `dk = scale · dsᵀ·q`. The log-sum-exp is taken to have no
//! cotangent of its own. An additive mask gets no gradient from this op.

use crate::attrs::{AttrReader, Attrs, Real};
use crate::op::{OpRule, OpTable, Range, Sample, want_shape};
use crate::ops::attention::{Heads, attention_attrs, samples_of};
use crate::ops::{Attention, AttentionLayout, Matmul};
use crate::{Dense, GraphBuilder, Mistake, Tensor, Type};

/// Operands `q`, `k`, `v`, perhaps `mask`, then `out`, `lse` and `dout`: those of [`Attention`], its two results, and
/// the cotangent of the first. Results `dq`, `dk`, `dv` with the types of `q`, `k`, `v`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttentionGrad {
    /// The order of the axes.
    pub layout: AttentionLayout,
    /// Whether query `i` sees only keys `j ≤ i`.
    pub causal: bool,
    /// Multiplies the scores.
    pub scale: Real,
}

impl AttentionGrad {
    /// The attention that this is the gradient of.
    pub fn forward(&self) -> Attention {
        Attention { layout: self.layout, causal: self.causal, scale: self.scale }
    }
}

/// `q`, `k`, `v`; the mask; `out`, `lse`, `dout`. `None` for another number of operands.
fn split<T: Copy>(operands: &[T]) -> Option<([T; 3], Option<T>, [T; 3])> {
    match *operands {
        [q, k, v, out, lse, dout] => Some(([q, k, v], None, [out, lse, dout])),
        [q, k, v, mask, out, lse, dout] => Some(([q, k, v], Some(mask), [out, lse, dout])),
        _ => None,
    }
}

fn wrong_count(n: usize) -> Mistake {
    Mistake::new(format!("takes 6 or 7 operands, got {n}"), "give q, k, v, perhaps a mask, out, lse and dout")
}

impl OpRule for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }
    fn attrs(&self) -> Attrs {
        attention_attrs(&self.forward())
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let all: Vec<&Type> = operands.iter().collect();
        let ([q, k, v], mask, [out, lse, dout]) = split(&all).ok_or_else(|| wrong_count(all.len()))?;
        let dims = self.forward().check(q, k, v, mask)?;
        let wants = [(dims.out(self.layout, q.dtype), "out", out), (dims.lse(q.dtype), "lse", lse)];
        let cotangent = (dims.out(self.layout, q.dtype), "dout", dout);
        for (want, what, ty) in wants.into_iter().chain([cotangent]) {
            want_shape(what, ty, &want.shape)?;
            if ty.dtype != want.dtype {
                return Err(Mistake::new(
                    format!("{what} is {}", ty.dtype),
                    format!("cast it to {}", want.dtype),
                ));
            }
        }
        Ok(vec![q.clone(), k.clone(), v.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let ([q, k, v], mask, [out, lse, dout]) = split(inputs).ok_or_else(|| wrong_count(inputs.len()))?;
        let heads = Heads::new(self.layout, q, k, v);
        let [b, h, tq, tk, d, dv] = heads.sizes;
        let scale = q.dtype.accumulator().round(self.scale.get());
        let [mut gq, mut gk, mut gv] = [q, k, v].map(|x| vec![0.0; x.len()]);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let add = |to: &mut [f64], by: f64, x: &[f64]| to.iter_mut().zip(x).for_each(|(o, x)| *o += by * x);
        for (b, h, i) in (0..b).flat_map(|b| (0..h).flat_map(move |h| (0..tq).map(move |i| (b, h, i)))) {
            let scores = heads.scores(&self.forward(), [b, h, i], q, k, mask);
            let lse = lse.reals()[(b * heads.sizes[1] + h) * tq + i];
            let (query, row) = (heads.row(b, h, i, tq, d), heads.row(b, h, i, tq, dv));
            let cotangent = &dout.reals()[row..][..dv];
            let delta = dot(cotangent, &out.reals()[row..][..dv]);
            for (j, s) in scores.iter().enumerate() {
                let (key, value) = (heads.row(b, h, j, tk, d), heads.row(b, h, j, tk, dv));
                let p = if lse == f64::NEG_INFINITY { 0.0 } else { libm::exp(s - lse) };
                let ds = p * (dot(cotangent, &v.reals()[value..][..dv]) - delta) * scale;
                add(&mut gv[value..][..dv], p, cotangent);
                add(&mut gq[query..][..d], ds, &k.reals()[key..][..d]);
                add(&mut gk[key..][..d], ds, &q.reals()[query..][..d]);
            }
        }
        let dense = |like: &Dense, x| Dense::from_reals(like.dtype, &like.shape, x);
        Ok(vec![dense(q, gq), dense(k, gk), dense(v, gv)])
    }
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let ([q, k, v], mask, [out, lse, dout]) = split(operands)?;
        let (dtype, acc) = (q.dtype(), q.dtype().accumulator());
        let [q, k, v, out, dout] = [q, k, v, out, dout].map(|x| self.layout.swap(x));
        let product = |transpose_a, transpose_b, dtype, a, b| {
            g.emit1(Matmul { transpose_a, transpose_b, dtype }, &[a, b])
        };
        let lse = lse.expand(3);
        let blind = lse.equals(f64::NEG_INFINITY);
        let p = (self.forward().scores(q, k, mask) - blind.select(0.0, lse)).exp();
        let p = blind.select(0.0, p);
        let delta = (dout.cast(acc) * out.cast(acc)).sum_keep(&[-1]);
        let ds = p * (product(false, true, acc, dout, v) - delta) * self.scale.get();
        let (p, ds) = (p.cast(dtype), ds.cast(dtype));
        let dq = product(false, false, dtype, ds, k);
        let dk = product(true, false, dtype, ds, q);
        let dv = product(true, false, dtype, p, dout);
        Some([dq, dk, dv].map(|x| self.layout.swap(x)).to_vec())
    }
}

impl OpTable for AttentionGrad {
    const NAMES: &'static [&'static str] = &["attention_grad"];
    fn parse(name: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        let Attention { layout, causal, scale } = Attention::parse(name, attrs)?;
        Ok(AttentionGrad { layout, causal, scale })
    }
    fn samples() -> Vec<Sample> {
        let op = |a: Attention| AttentionGrad { layout: a.layout, causal: a.causal, scale: a.scale }.into();
        // Any out, lse and dout define the op's value, whether or not an attention gave them.
        samples_of(op, |attention, mut sample| {
            let types: Vec<Type> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
            let results = attention.infer(&types).unwrap_or_default();
            let more = [results.first(), results.get(1), results.first()].into_iter().flatten();
            sample.operands.extend(more.map(|ty| (ty.clone(), Range::Real(1.0, 2.0))));
            sample
        })
    }
}
