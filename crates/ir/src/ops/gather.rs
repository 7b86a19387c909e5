//! `gather`: whole slices of a tensor, chosen by integer indices along one axis; an embedding is a gather of rows.
//!
//! An index outside the axis (a negative one too) is a mistake that the reference names. Backends give NaN (0 for
//! integers) in its place and raise the flag of bad indices.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axis, check_index, want_int};
use crate::shape::around;
use crate::{DType, Dense, Mistake, Shape, Type};

/// Operands `data`, `indices` (integers of any shape); the result has shape
/// `data.shape[..axis] ++ indices.shape ++ data.shape[axis + 1..]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gather {
    /// The axis of `data` that is indexed.
    pub axis: usize,
}

/// The shape of a gather's result, and of a scatter's updates.
pub(crate) fn gathered_shape(data: &Type, indices: &Type, axis: usize) -> Result<Shape, Mistake> {
    check_axis(axis, data)?;
    want_int(indices)?;
    let d = &data.shape.0;
    Ok(Shape([&d[..axis], &indices.shape.0, &d[axis + 1..]].concat()))
}

/// The place in `data` of each element of the gathered tensor, in row-major order.
pub(crate) fn gathered_places(sizes: &[usize], indices: &Dense, axis: usize) -> Result<Vec<usize>, Mistake> {
    let (outer, n, inner) = around(sizes, axis);
    let checked = indices.ints().iter().enumerate().map(|(at, &i)| check_index(i, at, n));
    let checked = checked.collect::<Result<Vec<_>, _>>()?;
    let mut places = vec![];
    for o in 0..outer {
        for &i in &checked {
            let first = (o * n + i) * inner;
            places.extend(first..first + inner);
        }
    }
    Ok(places)
}

impl OpRule for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }
    fn attrs(&self) -> Attrs {
        vec![("axis", int(self.axis))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [data, indices] = arity(operands)?;
        Ok(vec![Type::new(data.dtype, gathered_shape(data, indices, self.axis)?)])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let places = gathered_places(&inputs[0].shape, inputs[1], self.axis)?;
        Ok(vec![inputs[0].pick(&results[0].sizes(), &places)])
    }
}

impl OpTable for Gather {
    const NAMES: &'static [&'static str] = &["gather"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Gather { axis: attrs.size("axis")? })
    }
    fn samples() -> Vec<Sample> {
        let ids = Range::Int(0, 4);
        vec![
            Sample::reals(Gather { axis: 0 }, &[&[4, 3]]).and(DType::I32, &[2, 3], ids),
            Sample::reals(Gather { axis: 1 }, &[&[2, 4, 3]]).and(DType::I64, &[5], ids),
            Sample::reals(Gather { axis: 1 }, &[&[2, 4]]).and(DType::U8, &[], ids),
            Sample::reals(Gather { axis: 0 }, &[&[4, 3]]).and(DType::I32, &[0], ids),
            Sample::reals(Gather { axis: 0 }, &[]).and(DType::I32, &[4], Range::Int(-9, 9)).and(
                DType::U32,
                &[6],
                ids,
            ),
        ]
    }
}
