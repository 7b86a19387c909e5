//! `bce_with_logits`: binary cross-entropy of a logit with a target in [0, 1].
//!
//! −t·log σ(x) − (1 − t)·log(1 − σ(x)), written as max(x, 0) − x·t + log(1 + e^−|x|): neither a logarithm of 0 nor an
//! overflow at any logit.

use crate::attrs::AttrReader;
use crate::op::{OpRule, OpTable, Range, Sample, arity, same_dtype, want_float};
use crate::ops::binary::same_shape;
use crate::{DType, Dense, GraphBuilder, Mistake, Tensor, Type};

/// Operands `logits` and `targets` of one float type; the result is one loss per element, computed in `f32` at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BceWithLogits;

impl OpRule for BceWithLogits {
    fn name(&self) -> &'static str {
        "bce_with_logits"
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x, t] = arity(operands)?;
        want_float(x)?;
        same_dtype(&[x, t])?;
        same_shape(x, t)?;
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let loss = |x: f64, t: f64| {
            let above = if x < 0.0 { 0.0 } else { x };
            above - x * t + libm::log1p(libm::exp(-x.abs()))
        };
        Ok(vec![inputs[0].zip_reals(inputs[1], loss)])
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [logits, targets] = operands.try_into().ok()?;
        let (x, t) = (logits.wide(), targets.wide());
        // −t·log σ(x) − (1 − t)·log σ(−x), each logarithm smooth, so that derivatives hold at 0 too.
        let loss = t * (-x).softplus() + (1.0 - t) * x.softplus();
        Some(vec![loss.cast(logits.dtype())])
    }
}

impl OpTable for BceWithLogits {
    const NAMES: &'static [&'static str] = &["bce_with_logits"];
    fn parse(_: &str, _: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(BceWithLogits)
    }
    fn samples() -> Vec<Sample> {
        let (wide, share) = (Range::Real(-4.0, 4.0), Range::Real(0.0, 1.0));
        vec![
            Sample::within(BceWithLogits, &[&[2, 3]], wide).and(DType::F64, &[2, 3], share),
            Sample::within(BceWithLogits, &[&[4]], Range::Real(99.0, 101.0)).and(DType::F64, &[4], share),
            Sample::reals(BceWithLogits, &[]).and(DType::BF16, &[5], wide).and(DType::BF16, &[5], share),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_logits() {
        let dense = |v: &[f64]| Dense::from_reals(DType::F32, &[v.len()], v.to_vec());
        let (x, t) = (dense(&[100.0, -100.0, 100.0, 0.0]), dense(&[0.0, 1.0, 1.0, 0.5]));
        let loss = BceWithLogits.reference(&[&x, &t], &[x.ty()]).unwrap();
        assert_eq!(loss[0].reals()[..2], [100.0, 100.0]);
        assert!(loss[0].reals()[2] < 1e-40);
        assert!((loss[0].reals()[3] - std::f64::consts::LN_2).abs() < 1e-15);
    }
}
