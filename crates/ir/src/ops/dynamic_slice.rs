//! `dynamic_slice`: a range of fixed size along one axis, whose start is computed in the graph.
//!
//! A range that does not lie in the axis is a mistake that the reference names; it is never moved to fit. Backends
//! give NaN (0 for integers) and raise the flag of bad indices.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axis, want_index};
use crate::shape::around;
use crate::{DType, Dense, Dim, Mistake, Type};

/// Operands `x` and `start` (one integer); the result is `x[start .. start + size]` along `axis`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DynamicSlice {
    /// The axis.
    pub axis: usize,
    /// The size of the range.
    pub size: usize,
}

/// The range's start, if the range lies in the axis.
pub(crate) fn checked_start(start: &Dense, size: usize, bound: usize) -> Result<usize, Mistake> {
    let at = start.ints()[0];
    let fits = |s: &usize| s.checked_add(size).is_some_and(|end| end <= bound);
    usize::try_from(at).ok().filter(fits).ok_or_else(|| {
        Mistake::new(
            format!("{size} element(s) from index {at} do not lie in 0..{bound}"),
            format!("use a start in 0..={}", bound.saturating_sub(size)),
        )
    })
}

/// The places of the range's elements.
pub(crate) fn range_places(sizes: &[usize], axis: usize, start: usize, size: usize) -> Vec<usize> {
    let (outer, n, inner) = around(sizes, axis);
    (0..outer).flat_map(|o| (o * n + start) * inner..(o * n + start + size) * inner).collect()
}

impl OpRule for DynamicSlice {
    fn name(&self) -> &'static str {
        "dynamic_slice"
    }
    fn attrs(&self) -> Attrs {
        vec![("axis", int(self.axis)), ("size", int(self.size))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x, start] = arity(operands)?;
        check_axis(self.axis, x)?;
        want_index(start)?;
        if let Some(n) = x.shape.0[self.axis].size().filter(|&n| self.size > n) {
            return Err(Mistake::new(
                format!("{} elements do not fit axis {} of {x}", self.size, self.axis),
                format!("use a size of at most {n}"),
            ));
        }
        let mut out = x.clone();
        out.shape.0[self.axis] = Dim::fixed(self.size);
        Ok(vec![out])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let x = inputs[0];
        let start = checked_start(inputs[1], self.size, x.shape[self.axis])?;
        Ok(vec![x.pick(&results[0].sizes(), &range_places(&x.shape, self.axis, start, self.size))])
    }
}

impl OpTable for DynamicSlice {
    const NAMES: &'static [&'static str] = &["dynamic_slice"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(DynamicSlice { axis: attrs.size("axis")?, size: attrs.size("size")? })
    }
    fn samples() -> Vec<Sample> {
        let start = Range::Int(0, 3);
        vec![
            Sample::reals(DynamicSlice { axis: 1, size: 2 }, &[&[2, 4, 3]]).and(DType::I32, &[], start),
            Sample::reals(DynamicSlice { axis: 0, size: 4 }, &[&[4]]).and(DType::I64, &[], Range::Int(0, 1)),
            Sample::reals(DynamicSlice { axis: 0, size: 0 }, &[&[4]]).and(DType::U32, &[], start),
            Sample::reals(DynamicSlice { axis: 0, size: 1 }, &[])
                .and(DType::I32, &[3, 2], Range::Int(-9, 9))
                .and(DType::U8, &[], start),
        ]
    }
}
