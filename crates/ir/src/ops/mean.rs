//! `mean`: the mean over axes, which disappear. The mean of nothing is NaN.

use crate::attrs::{AttrReader, Attrs, ints};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axes, want_float};
use crate::ops::{Reduce, ReduceKind};
use crate::{DType, Dense, GraphBuilder, Mistake, Tensor, Type};

/// The mean over axes of a float tensor, added in `f32` at least.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mean {
    /// The axes that disappear.
    pub axes: Vec<usize>,
}

impl OpRule for Mean {
    fn name(&self) -> &'static str {
        "mean"
    }
    fn attrs(&self) -> Attrs {
        vec![("axes", ints(&self.axes))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        want_float(x)?;
        check_axes(&self.axes, x)?;
        Ok(vec![Type::new(x.dtype, x.shape.without(&self.axes))])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let count: usize = self.axes.iter().map(|&a| inputs[0].shape[a]).product();
        let sum = Reduce { kind: ReduceKind::Sum, axes: self.axes.clone() }.reference(inputs, results)?;
        Ok(sum.iter().map(|s| s.map_reals(|v| v / count as f64)).collect())
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [x] = operands.try_into().ok()?;
        let axes: Vec<isize> = self.axes.iter().map(|&a| a as isize).collect();
        let wide = x.cast(x.dtype().accumulator());
        Some(vec![(wide.sum(&axes) / x.count_over(wide.dtype(), &axes)).cast(x.dtype())])
    }
}

impl OpTable for Mean {
    const NAMES: &'static [&'static str] = &["mean"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Mean { axes: attrs.sizes("axes")? })
    }
    fn samples() -> Vec<Sample> {
        let mean = |axes: &[usize]| Mean { axes: axes.to_vec() };
        vec![
            Sample::reals(mean(&[1]), &[&[2, 3, 2]]),
            Sample::reals(mean(&[0, 2]), &[&[2, 3, 2]]),
            Sample::reals(mean(&[]), &[&[2, 3]]),
            Sample::reals(mean(&[0]), &[&[0, 2]]),
            Sample::reals(mean(&[0]), &[]).and(DType::BF16, &[4, 2], Range::Real(-2.0, 2.0)),
        ]
    }
}
