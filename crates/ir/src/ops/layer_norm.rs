//! `layer_norm`: rows scaled to mean 0 and variance 1, then by a weight and a bias (Ba, Kiros and Hinton, "Layer
//! normalization", 2016).
//!
//! Two passes, mean first and then the mean of squared differences, so that a large mean costs no accuracy.

use crate::attrs::{Attr, AttrReader, Attrs, Real};
use crate::op::{OpRule, OpTable, Range, Sample, arity, want_float, want_shape};
use crate::{DType, Dense, GraphBuilder, Mistake, Shape, Tensor, Type};

/// Operands `x` (floats, `[.., D]`), `weight` and `bias` (`[D]`, in `x`'s dtype or in the one that it is computed in,
/// `f32` at least). The result has `x`'s type: `(x − mean) / √(variance + eps) · weight + bias` along the last axis,
/// with the biased variance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: Real,
}

/// The rule that `scale` (a weight or bias) fits the last axis of `x`.
pub(crate) fn check_scale(what: &str, x: &Type, scale: &Type) -> Result<(), Mistake> {
    want_float(x)?;
    let Some(last) = x.shape.0.last() else {
        return Err(Mistake::new("x is a scalar", "give x of shape [.., D]"));
    };
    if scale.dtype != x.dtype && scale.dtype != x.dtype.accumulator() {
        return Err(Mistake::new(
            format!("the {what} is {} for x of {}", scale.dtype, x.dtype),
            format!("cast it to {} or {}", x.dtype, x.dtype.accumulator()),
        ));
    }
    want_shape(&format!("the {what}"), scale, &Shape(vec![last.clone()]))
}

impl OpRule for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }
    fn attrs(&self) -> Attrs {
        vec![("eps", Attr::Real(self.eps))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x, weight, bias] = arity(operands)?;
        check_scale("weight", x, weight)?;
        check_scale("bias", x, bias)?;
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, weight, bias) = (inputs[0], inputs[1].reals(), inputs[2].reals());
        let (d, eps) = (weight.len(), x.dtype.accumulator().round(self.eps.get()));
        let mut out = vec![];
        for row in x.reals().chunks_exact(d.max(1)) {
            let mean = row.iter().sum::<f64>() / d as f64;
            let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / d as f64;
            let scale = 1.0 / (variance + eps).sqrt();
            out.extend(row.iter().zip(weight.iter().zip(bias)).map(|(v, (w, b))| (v - mean) * scale * w + b));
        }
        Ok(vec![Dense::from_reals(x.dtype, &x.shape, out)])
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [x, weight, bias] = operands.try_into().ok()?;
        let acc = x.dtype().accumulator();
        let wide = x.cast(acc);
        let n = x.count_over(acc, &[-1]);
        let centred = wide - wide.sum_keep(&[-1]) / n;
        let variance = centred.square().sum_keep(&[-1]) / n;
        let y = centred * (variance + self.eps.get()).rsqrt();
        Some(vec![(y * weight.cast(acc) + bias.cast(acc)).cast(x.dtype())])
    }
}

impl OpTable for LayerNorm {
    const NAMES: &'static [&'static str] = &["layer_norm"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(LayerNorm { eps: attrs.real("eps")? })
    }
    fn samples() -> Vec<Sample> {
        let op = LayerNorm { eps: Real::new(1e-5) };
        let real = Range::Real(-2.0, 2.0);
        vec![
            Sample::reals(op, &[&[3, 4], &[4], &[4]]),
            Sample::reals(LayerNorm { eps: Real::new(0.1) }, &[&[2, 2, 5], &[5], &[5]]),
            Sample::reals(op, &[&[4], &[4], &[4]]),
            Sample::reals(op, &[&[0, 4], &[4], &[4]]),
            Sample::reals(op, &[]).and(DType::BF16, &[2, 4], real).and(DType::F32, &[4], real).and(
                DType::BF16,
                &[4],
                real,
            ),
        ]
    }
}
