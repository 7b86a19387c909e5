//! `attention_grad`: the gradient of `attention` from its output and log-sum-exp, without keeping the weights (Dao and
//! others, "FlashAttention", 2022).
//!
//! `p = exp(scores − lse)`, 0 where masked and in rows that see nothing (whose lse is −inf); `dv = pᵀ·dout`;
//! `ds = p · (dout·vᵀ − Σ dout·out)`, which is also the gradient of an additive mask; `dq = slope · ds·k`;
//! `dk = slope · dsᵀ·q`, where the slope is `scale`, times `1 − tanh²` under a soft cap. `dk` and `dv` add up over the
//! query heads that share a key head, and the mask's gradient over the axes along which it is repeated. The log-sum-exp
//! is taken to have no cotangent of its own.

use super::attention::{Attention, AttentionOperands, samples_of};
use super::attention_scores::{Heads, Primitives};
use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Range, Sample, want_shape};
use crate::{DType, Dense, GraphBuilder, Mistake, Tensor, Type};

/// Operands `q`, `k`, `v`, perhaps `mask`, `lengths` if so declared, then `out`, `lse` and `dout`: those of [`Attention`],
/// its two results, and the cotangent of the first. Results `dq`, `dk`, `dv` with the types of `q`, `k`, `v`, and that of
/// an additive mask if it is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttentionGrad {
    /// The attention that this is the gradient of.
    pub forward: Attention,
    /// Whether the gradient of the mask, which is additive, is a fourth result.
    pub mask_grad: bool,
}

impl OpRule for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }
    fn attrs(&self) -> Attrs {
        let mut attrs = self.forward.attrs();
        if self.mask_grad {
            attrs.push(("mask_grad", Attr::Bool(true)));
        }
        attrs
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let all: Vec<&Type> = operands.iter().collect();
        let (operands, [out, lse, dout]) = self.forward.operands(&all)?;
        let dims = self.forward.check(&operands)?;
        let AttentionOperands { q, k, v, mask, .. } = operands;
        let like_out = dims.out(self.forward.layout, q.dtype);
        let wants = [(&like_out, "out", out), (&dims.lse(q.dtype), "lse", lse), (&like_out, "dout", dout)];
        for (want, what, ty) in wants {
            want_shape(what, ty, &want.shape)?;
            if ty.dtype != want.dtype {
                return Err(Mistake::new(
                    format!("{what} is {}", ty.dtype),
                    format!("cast it to {}", want.dtype),
                ));
            }
        }
        let mut results = vec![q.clone(), k.clone(), v.clone()];
        match mask.filter(|m| m.dtype != DType::Bool) {
            Some(mask) if self.mask_grad => results.push(mask.clone()),
            None if self.mask_grad => {
                return Err(Mistake::new("there is no additive mask", "leave mask_grad away, or add a mask"));
            }
            _ => {}
        }
        Ok(results)
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (operands, [out, lse, dout]) = self.forward.operands(inputs)?;
        let heads = Heads::new(&self.forward, operands)?;
        let AttentionOperands { q, k, v, mask, .. } = operands;
        let mask = mask.filter(|_| self.mask_grad);
        let [mut gq, mut gk, mut gv] = [q, k, v].map(|x| vec![0.0; x.len()]);
        let mut gmask = vec![0.0; mask.map_or(0, Dense::len)];
        let (d, dv) = (heads.size, heads.value_size);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let add = |to: &mut [f64], by: f64, x: &[f64]| to.iter_mut().zip(x).for_each(|(o, x)| *o += by * x);
        for (at, &lse) in heads.all_queries().zip(lse.reals()) {
            let (query, row) = (heads.query(at, d), heads.query(at, dv));
            let cotangent = &dout.reals()[row..][..dv];
            let delta = dot(cotangent, &out.reals()[row..][..dv]);
            for s in heads.seen(at) {
                let there = [at[0], at[1], s.key];
                let (key, value) = (heads.key(there, d), heads.key(there, dv));
                let p = if lse == f64::NEG_INFINITY { 0.0 } else { libm::exp(s.score - lse) };
                let ds = p * (dot(cotangent, &v.reals()[value..][..dv]) - delta);
                if let Some(mask) = mask {
                    gmask[heads.in_mask(mask, at, s.key)] += ds;
                }
                add(&mut gv[value..][..dv], p, cotangent);
                add(&mut gq[query..][..d], ds * s.slope, &k.reals()[key..][..d]);
                add(&mut gk[key..][..d], ds * s.slope, &q.reals()[query..][..d]);
            }
        }
        let dense = |like: &Dense, x| Dense::from_reals(like.dtype, &like.shape, x);
        let mut results = vec![dense(q, gq), dense(k, gk), dense(v, gv)];
        results.extend(mask.map(|mask| dense(mask, gmask)));
        Ok(results)
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let (operands, [out, lse, dout]) = self.forward.operands(operands).ok()?;
        let (dtype, acc) = (operands.q.dtype(), operands.q.dtype().accumulator());
        let p = Primitives::new(&self.forward, operands)?;
        let [out, dout] = [out, dout].map(|x| p.swap(x));
        let lse = lse.expand(3);
        let blind = lse.equals(f64::NEG_INFINITY);
        let weights = (p.scores - blind.select(0.0, lse)).exp();
        let weights = blind.select(0.0, weights);
        let delta = (dout.cast(acc) * out.cast(acc)).sum_keep(&[-1]);
        let to_weights = p.unfold(p.product([false, true], acc, p.fold(dout), p.v));
        let dscores = weights * (to_weights - delta);
        let ds = match p.tanh {
            Some(tanh) => dscores * (-tanh.square() + 1.0) * self.forward.scale.get(),
            None => dscores * self.forward.scale.get(),
        };
        let (weights, ds) = (p.fold(weights.cast(dtype)), p.fold(ds.cast(dtype)));
        let dq = p.unfold(p.product([false, false], dtype, ds, p.k));
        let dk = p.product([true, false], dtype, ds, p.fold(p.q));
        let dv = p.product([true, false], dtype, weights, p.fold(dout));
        let mut results = [dq, dk, dv].map(|x| p.swap(x)).to_vec();
        if let Some(mask) = operands.mask.filter(|_| self.mask_grad) {
            let full = dscores.shape();
            let repeated = (0..2).filter(|&axis| mask.shape().0.get(axis) != full.0.get(axis));
            let repeated: Vec<isize> = repeated.map(|axis| axis as isize).collect();
            let sum = if repeated.is_empty() { dscores } else { dscores.sum_keep(&repeated) };
            results.push(sum.cast(mask.dtype()));
        }
        Some(results)
    }
}

impl OpTable for AttentionGrad {
    const NAMES: &'static [&'static str] = &["attention_grad"];
    fn parse(name: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        let mask_grad = attrs.maybe("mask_grad", AttrReader::bool)?.unwrap_or(false);
        Ok(AttentionGrad { forward: Attention::parse(name, attrs)?, mask_grad })
    }
    fn samples() -> Vec<Sample> {
        // Any out, lse and dout define the op's value, whether or not an attention gave them.
        samples_of(|forward, mut sample| {
            let types: Vec<Type> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
            let results = forward.infer(&types).unwrap_or_default();
            let more = [results.first(), results.get(1), results.first()].into_iter().flatten();
            sample.operands.extend(more.map(|ty| (ty.clone(), Range::Real(1.0, 2.0))));
            let mask_grad = types.get(3).is_some_and(|mask| mask.dtype.is_float());
            Sample { op: AttentionGrad { forward, mask_grad }.into(), ..sample }
        })
    }
}
