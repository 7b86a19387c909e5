//! `concat`: tensors one behind the other along an axis.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, check_axis, fixed_size, same_dtype, want_shape};
use crate::shape::around;
use crate::{DType, Dense, Dim, Mistake, Type};

/// At least one operand; all have one dtype and, but for `axis`, one shape. The sizes along `axis` are numbers (a
/// single operand may have any).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

impl OpRule for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }
    fn attrs(&self) -> Attrs {
        vec![("axis", int(self.axis))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let Some(first) = operands.first() else {
            return Err(Mistake::new("takes at least one operand, got none", "give it a tensor"));
        };
        check_axis(self.axis, first)?;
        if operands.len() == 1 {
            return Ok(vec![first.clone()]);
        }
        same_dtype(&operands.iter().collect::<Vec<_>>())?;
        let mut total = 0usize;
        for (i, x) in operands.iter().enumerate() {
            let mut want = first.shape.clone();
            if x.shape.rank() == want.rank() {
                want.0[self.axis] = x.shape.0[self.axis].clone();
            }
            want_shape(&format!("operand {i}"), x, &want)?;
            total = total
                .checked_add(fixed_size(self.axis, x)?)
                .ok_or_else(|| Mistake::new("the joined size overflows", "join fewer tensors"))?;
        }
        let mut out = first.clone();
        out.shape.0[self.axis] = Dim::fixed(total);
        Ok(vec![out])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let sizes = results[0].sizes();
        let mut out = Dense::full(results[0].dtype, &sizes, 0.0);
        let mut start = 0;
        for x in inputs {
            let (outer, n, inner) = around(&x.shape, self.axis);
            let mut at = vec![];
            for o in 0..outer {
                let first = (o * sizes[self.axis] + start) * inner;
                at.extend(first..first + n * inner);
            }
            out.place(&at, x);
            start += n;
        }
        Ok(vec![out])
    }
}

impl OpTable for Concat {
    const NAMES: &'static [&'static str] = &["concat"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Concat { axis: attrs.size("axis")? })
    }
    fn samples() -> Vec<Sample> {
        let r = Range::Int(-9, 9);
        vec![
            Sample::reals(Concat { axis: 1 }, &[&[2, 3, 2], &[2, 1, 2], &[2, 2, 2]]),
            Sample::reals(Concat { axis: 0 }, &[&[3], &[0], &[2]]),
            Sample::reals(Concat { axis: 0 }, &[&[3, 2]]),
            Sample::reals(Concat { axis: 0 }, &[]).and(DType::I32, &[2], r).and(DType::I32, &[1], r),
        ]
    }
}
