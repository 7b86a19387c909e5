//! `softmax`: eˣ over its sum along one axis.
//!
//! The row's largest element is subtracted first, so that rows near ±1e8 are exact. A row that is all −inf (every
//! element masked) gives 0, not NaN. A row with NaN or +inf is NaN.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axis, want_float};
use crate::shape::around;
use crate::{DType, Dense, GraphBuilder, Mistake, Tensor, Type};

/// Softmax of a float tensor along one axis, computed in `f32` at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Softmax {
    /// The axis.
    pub axis: usize,
}

/// What a row of a softmax needs: the number subtracted from every element before `exp` (the largest; 0 when that is
/// −inf) and the sum of the exponentials (0 only for a row of −inf or of nothing).
pub(crate) fn row_scale(row: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let top = row.clone().fold(f64::NEG_INFINITY, |a, b| crate::ops::BinaryKind::Max.real(a, b));
    let shift = if top == f64::NEG_INFINITY { 0.0 } else { top };
    (shift, row.map(|v| libm::exp(v - shift)).sum())
}

/// Applies `f` to every element of `x` with its row's [`row_scale`].
pub(crate) fn map_rows(x: &Dense, axis: usize, f: impl Fn(f64, f64, f64) -> f64) -> Dense {
    let (outer, n, inner) = around(&x.shape, axis);
    let v = x.reals();
    let mut out = vec![0.0; v.len()];
    for o in 0..outer {
        for i in 0..inner {
            let places = (0..n).map(|a| (o * n + a) * inner + i);
            let (shift, sum) = row_scale(places.clone().map(|p| v[p]));
            for p in places {
                out[p] = f(v[p], shift, sum);
            }
        }
    }
    Dense::from_reals(x.dtype, &x.shape, out)
}

/// The same by primitives: `x` minus the shift, and the sum of its exponentials with 0 replaced by 1.
#[track_caller]
pub(crate) fn shifted<'g>(x: Tensor<'g>, axis: isize) -> (Tensor<'g>, Tensor<'g>) {
    let top = x.max_keep(&[axis]);
    let shifted = x - top.equals(f64::NEG_INFINITY).select(0.0, top);
    let sum = shifted.exp().sum_keep(&[axis]);
    (shifted, sum.equals(0.0).select(1.0, sum))
}

impl OpRule for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
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
        let one = |v: f64, shift: f64, sum: f64| if sum == 0.0 { 0.0 } else { libm::exp(v - shift) / sum };
        Ok(vec![map_rows(inputs[0], self.axis, one)])
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        let [x] = operands.try_into().ok()?;
        let (shifted, sum) = shifted(x.cast(x.dtype().accumulator()), self.axis as isize);
        Some(vec![(shifted.exp() / sum).cast(x.dtype())])
    }
}

impl OpTable for Softmax {
    const NAMES: &'static [&'static str] = &["softmax"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Softmax { axis: attrs.size("axis")? })
    }
    fn samples() -> Vec<Sample> {
        vec![
            Sample::reals(Softmax { axis: 1 }, &[&[2, 5]]),
            Sample::reals(Softmax { axis: 0 }, &[&[3, 2, 2]]),
            Sample::within(Softmax { axis: 1 }, &[&[2, 3]], Range::Real(0.99e8, 1e8)),
            Sample::reals(Softmax { axis: 1 }, &[&[2, 0]]),
            Sample::reals(Softmax { axis: 0 }, &[]).and(DType::F16, &[4], Range::Real(-2.0, 2.0)),
        ]
    }
}
