//! `log_softmax`: the logarithm of softmax along one axis, without the loss of taking the logarithm afterwards.
//!
//! Exact for rows near ±1e8. A row that is all −inf gives −inf, the logarithm of softmax's 0.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axis, want_float};
use crate::ops::softmax::{map_rows, shifted};
use crate::{DType, Dense, GraphBuilder, Mistake, Tensor, Type};

/// x − log Σ eˣ of a float tensor along one axis, computed in `f32` at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LogSoftmax {
    /// The axis.
    pub axis: usize,
}

impl OpRule for LogSoftmax {
    fn name(&self) -> &'static str {
        "log_softmax"
    }
    fn attrs(&self) -> Attrs {
        vec![("axis", int(self.axis))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        want_float(x)?;
        check_axis(self.axis, x)?;
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let one = |v: f64, shift: f64, sum: f64| {
            if sum == 0.0 { f64::NEG_INFINITY } else { (v - shift) - libm::log(sum) }
        };
        Ok(vec![map_rows(inputs[0], self.axis, one)])
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [x] = operands.try_into().ok()?;
        let (shifted, sum) = shifted(x.cast(x.dtype().accumulator()), self.axis as isize);
        Some(vec![(shifted - sum.log()).cast(x.dtype())])
    }
}

impl OpTable for LogSoftmax {
    const NAMES: &'static [&'static str] = &["log_softmax"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(LogSoftmax { axis: attrs.size("axis")? })
    }
    fn samples() -> Vec<Sample> {
        vec![
            Sample::reals(LogSoftmax { axis: 1 }, &[&[2, 5]]),
            Sample::reals(LogSoftmax { axis: 0 }, &[&[3, 2, 2]]),
            Sample::within(LogSoftmax { axis: 1 }, &[&[2, 3]], Range::Real(0.99e8, 1e8)),
            Sample::reals(LogSoftmax { axis: 1 }, &[&[2, 0]]),
            Sample::reals(LogSoftmax { axis: 0 }, &[]).and(DType::F16, &[4], Range::Real(-2.0, 2.0)),
        ]
    }
}
