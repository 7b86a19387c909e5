//! `slice`: every `step`-th element of a range along one axis.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, fixed_size};
use crate::shape::around;
use crate::{DType, Dense, Dim, Mistake, Type};

/// Elements `start`, `start + step` … below `end` of one axis, whose size is a number. The other axes stay whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// The first element.
    pub start: usize,
    /// One past the last element, at most the axis's size.
    pub end: usize,
    /// The distance between elements, at least 1.
    pub step: usize,
}

impl OpRule for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }
    fn attrs(&self) -> Attrs {
        vec![
            ("axis", int(self.axis)),
            ("start", int(self.start)),
            ("end", int(self.end)),
            ("step", int(self.step)),
        ]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x] = arity(operands)?;
        let n = fixed_size(self.axis, x)?;
        if self.step == 0 {
            return Err(Mistake::new("step is 0", "use a step of at least 1"));
        }
        if self.start > self.end || self.end > n {
            return Err(Mistake::new(
                format!("range {}..{} does not lie in axis {} of {x}", self.start, self.end, self.axis),
                format!("use start ≤ end ≤ {n}"),
            ));
        }
        let mut out = x.clone();
        out.shape.0[self.axis] = Dim::fixed((self.end - self.start).div_ceil(self.step));
        Ok(vec![out])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let sizes = results[0].sizes();
        let (outer, n, inner) = around(&inputs[0].shape, self.axis);
        let mut from = vec![];
        for o in 0..outer {
            for a in (self.start..self.end).step_by(self.step) {
                from.extend((0..inner).map(|i| (o * n + a) * inner + i));
            }
        }
        Ok(vec![inputs[0].pick(&sizes, &from)])
    }
}

impl OpTable for Slice {
    const NAMES: &'static [&'static str] = &["slice"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Slice {
            axis: attrs.size("axis")?,
            start: attrs.size("start")?,
            end: attrs.size("end")?,
            step: attrs.size("step")?,
        })
    }
    fn samples() -> Vec<Sample> {
        let cut = |axis, start, end, step| Slice { axis, start, end, step };
        vec![
            Sample::reals(cut(1, 1, 4, 1), &[&[2, 5, 2]]),
            Sample::reals(cut(1, 1, 5, 3), &[&[2, 5, 2]]),
            Sample::reals(cut(0, 0, 4, 2), &[&[4]]),
            Sample::reals(cut(0, 2, 2, 1), &[&[4, 2]]),
            Sample::reals(cut(0, 1, 3, 1), &[]).and(DType::I32, &[4], Range::Int(-9, 9)),
        ]
    }
}
