//! `scatter_add`: adds slices to the slices of a tensor that integer indices choose; the adjoint of `gather`.
//!
//! Equal indices add up in the row-major order of the indices, so that the result does not depend on threads. An
//! index outside the axis is a mistake that the reference names; backends leave its slice out and raise the flag.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, same_dtype, want_shape};
use crate::ops::gather::{gathered_places, gathered_shape};
use crate::{DType, Dense, Mistake, Type};

/// Operands `base`, `indices` (integers of any shape) and `updates` of shape
/// `base.shape[..axis] ++ indices.shape ++ base.shape[axis + 1..]`; the result is `base` with the updates added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScatterAdd {
    /// The axis of `base` that is indexed.
    pub axis: usize,
}

/// Refuses to add truth values.
pub(crate) fn want_sum(ty: &Type) -> Result<(), Mistake> {
    if ty.dtype != DType::Bool {
        return Ok(());
    }
    Err(Mistake::new("is not defined on bool", "cast it to i32 first"))
}

impl OpRule for ScatterAdd {
    fn name(&self) -> &'static str {
        "scatter_add"
    }
    fn attrs(&self) -> Attrs {
        vec![("axis", int(self.axis))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [base, indices, updates] = arity(operands)?;
        same_dtype(&[base, updates])?;
        want_sum(base)?;
        want_shape("the third operand (updates)", updates, &gathered_shape(base, indices, self.axis)?)?;
        Ok(vec![base.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let places = gathered_places(&inputs[0].shape, inputs[1], self.axis)?;
        let mut out = inputs[0].clone();
        out.accumulate(&places, inputs[2]);
        Ok(vec![out])
    }
}

impl OpTable for ScatterAdd {
    const NAMES: &'static [&'static str] = &["scatter_add"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(ScatterAdd { axis: attrs.size("axis")? })
    }
    fn samples() -> Vec<Sample> {
        let (ids, real, whole) = (Range::Int(0, 4), Range::Real(-2.0, 2.0), Range::Int(-9, 9));
        vec![
            Sample::reals(ScatterAdd { axis: 0 }, &[&[4, 3]]).and(DType::I32, &[2, 3], ids).and(
                DType::F64,
                &[2, 3, 3],
                real,
            ),
            Sample::reals(ScatterAdd { axis: 1 }, &[&[2, 4, 3]]).and(DType::I64, &[5], ids).and(
                DType::F64,
                &[2, 5, 3],
                real,
            ),
            Sample::reals(ScatterAdd { axis: 0 }, &[&[4]]).and(DType::I32, &[], ids).and(
                DType::F64,
                &[],
                real,
            ),
            Sample::reals(ScatterAdd { axis: 0 }, &[])
                .and(DType::I32, &[4], whole)
                .and(DType::U8, &[6], ids)
                .and(DType::I32, &[6], whole),
        ]
    }
}
