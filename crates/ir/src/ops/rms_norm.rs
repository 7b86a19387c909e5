//! `rms_norm`: rows scaled to mean square 1, then by a weight (Zhang and Sennrich, "Root mean square layer
//! normalization", 2019).

use crate::attrs::{Attr, AttrReader, Attrs, Real};
use crate::op::{OpRule, OpTable, Range, Sample, arity};
use crate::ops::layer_norm::check_scale;
use crate::{DType, Dense, GraphBuilder, Mistake, Tensor, Type};

/// Operands `x` (floats, `[.., D]`) and `weight` (`[D]`, in `x`'s dtype or in the one that it is computed in, `f32` at
/// least). The result has `x`'s type: `x / √(mean(x²) + eps) · weight` along the last axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: Real,
}

impl OpRule for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }
    fn attrs(&self) -> Attrs {
        vec![("eps", Attr::Real(self.eps))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x, weight] = arity(operands)?;
        check_scale("weight", x, weight)?;
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, weight) = (inputs[0], inputs[1].reals());
        let (d, eps) = (weight.len(), x.dtype.accumulator().round(self.eps.get()));
        let mut out = vec![];
        for row in x.reals().chunks_exact(d.max(1)) {
            let scale = 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / d as f64 + eps).sqrt();
            out.extend(row.iter().zip(weight).map(|(v, w)| v * scale * w));
        }
        Ok(vec![Dense::from_reals(x.dtype, &x.shape, out)])
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [x, weight] = operands.try_into().ok()?;
        let acc = x.dtype().accumulator();
        let wide = x.cast(acc);
        let square = wide.square().sum_keep(&[-1]) / x.count_over(acc, &[-1]);
        let y = wide * (square + self.eps.get()).rsqrt();
        Some(vec![(y * weight.cast(acc)).cast(x.dtype())])
    }
}

impl OpTable for RmsNorm {
    const NAMES: &'static [&'static str] = &["rms_norm"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(RmsNorm { eps: attrs.real("eps")? })
    }
    fn samples() -> Vec<Sample> {
        let op = RmsNorm { eps: Real::new(1e-5) };
        let real = Range::Real(-2.0, 2.0);
        vec![
            Sample::reals(op, &[&[3, 4], &[4]]),
            Sample::reals(RmsNorm { eps: Real::new(0.1) }, &[&[2, 2, 5], &[5]]),
            Sample::reals(op, &[&[4], &[4]]),
            Sample::reals(op, &[&[0, 4], &[4]]),
            Sample::reals(op, &[]).and(DType::BF16, &[2, 4], real).and(DType::F32, &[4], real),
        ]
    }
}
