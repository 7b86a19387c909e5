//! `scatter_add_along`: adds one element per index along an axis; the adjoint of `gather_along`.
//!
//! Equal indices add up in row-major order of the indices. An index outside the axis is a mistake that the reference
//! names; backends leave its element out and raise the flag of bad indices.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, same_dtype, want_shape};
use crate::ops::gather_along::{check_along, places_along};
use crate::ops::scatter_add::want_sum;
use crate::{DType, Dense, Mistake, Type};

/// Operands `base`, `indices` (integers, `base`'s shape but on `axis`) and `updates` of the indices' shape; the result
/// is `base` with the updates added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScatterAddAlong {
    /// The axis of `base` that is indexed.
    pub axis: usize,
}

impl OpRule for ScatterAddAlong {
    fn name(&self) -> &'static str {
        "scatter_add_along"
    }
    fn attrs(&self) -> Attrs {
        vec![("axis", int(self.axis))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [base, indices, updates] = arity(operands)?;
        same_dtype(&[base, updates])?;
        want_sum(base)?;
        check_along(base, indices, self.axis)?;
        want_shape("the third operand (updates)", updates, &indices.shape)?;
        Ok(vec![base.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let places = places_along(&inputs[0].shape, inputs[1], self.axis)?;
        let mut out = inputs[0].clone();
        out.accumulate(&places, inputs[2]);
        Ok(vec![out])
    }
}

impl OpTable for ScatterAddAlong {
    const NAMES: &'static [&'static str] = &["scatter_add_along"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(ScatterAddAlong { axis: attrs.size("axis")? })
    }
    fn samples() -> Vec<Sample> {
        let (ids, real, whole) = (Range::Int(0, 4), Range::Real(-2.0, 2.0), Range::Int(-9, 9));
        vec![
            Sample::reals(ScatterAddAlong { axis: 1 }, &[&[2, 4, 3]]).and(DType::I32, &[2, 5, 3], ids).and(
                DType::F64,
                &[2, 5, 3],
                real,
            ),
            Sample::reals(ScatterAddAlong { axis: 0 }, &[&[4]]).and(DType::I64, &[3], ids).and(
                DType::F64,
                &[3],
                real,
            ),
            Sample::reals(ScatterAddAlong { axis: 0 }, &[])
                .and(DType::I32, &[4], whole)
                .and(DType::I32, &[6], ids)
                .and(DType::I32, &[6], whole),
        ]
    }
}
