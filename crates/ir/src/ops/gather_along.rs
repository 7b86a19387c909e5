//! `gather_along`: one element per index along an axis (`torch.gather`, `numpy.take_along_axis`).
//!
//! An index outside the axis is a mistake that the reference names; backends give NaN (0 for integers) in its place
//! and raise the flag of bad indices.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axis, check_index, want_int, want_shape};
use crate::shape::around;
use crate::{DType, Dense, Mistake, Type};

/// Operands `data` and `indices` (integers) of one rank, with equal sizes but on `axis`. Element `[…, j, …]` of the
/// result, which has the indices' shape, is `data[…, indices[…, j, …], …]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GatherAlong {
    /// The axis of `data` that is indexed.
    pub axis: usize,
}

/// The rule that indices have the data's shape but on the axis.
pub(crate) fn check_along(data: &Type, indices: &Type, axis: usize) -> Result<(), Mistake> {
    check_axis(axis, data)?;
    want_int(indices)?;
    let mut want = data.shape.clone();
    if indices.shape.rank() == want.rank() {
        want.0[axis] = indices.shape.0[axis].clone();
    }
    want_shape("the second operand (indices)", indices, &want)
}

/// The place in `data` of each indexed element, in row-major order of the indices.
pub(crate) fn places_along(sizes: &[usize], indices: &Dense, axis: usize) -> Result<Vec<usize>, Mistake> {
    let (_, n, inner) = around(sizes, axis);
    let row = (indices.shape[axis] * inner).max(1);
    let place =
        |(at, &i): (usize, &i64)| Ok((at / row * n + check_index(i, at, n)?) * inner + at % inner.max(1));
    indices.ints().iter().enumerate().map(place).collect()
}

impl OpRule for GatherAlong {
    fn name(&self) -> &'static str {
        "gather_along"
    }
    fn attrs(&self) -> Attrs {
        vec![("axis", int(self.axis))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [data, indices] = arity(operands)?;
        check_along(data, indices, self.axis)?;
        Ok(vec![Type::new(data.dtype, indices.shape.clone())])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let places = places_along(&inputs[0].shape, inputs[1], self.axis)?;
        Ok(vec![inputs[0].pick(&results[0].sizes(), &places)])
    }
}

impl OpTable for GatherAlong {
    const NAMES: &'static [&'static str] = &["gather_along"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(GatherAlong { axis: attrs.size("axis")? })
    }
    fn samples() -> Vec<Sample> {
        let ids = Range::Int(0, 4);
        vec![
            Sample::reals(GatherAlong { axis: 1 }, &[&[2, 4, 3]]).and(DType::I32, &[2, 5, 3], ids),
            Sample::reals(GatherAlong { axis: 0 }, &[&[4]]).and(DType::I64, &[3], ids),
            Sample::reals(GatherAlong { axis: 0 }, &[&[4, 2]]).and(DType::I32, &[0, 2], ids),
            Sample::reals(GatherAlong { axis: 1 }, &[]).and(DType::I32, &[2, 4], Range::Int(-9, 9)).and(
                DType::U8,
                &[2, 1],
                ids,
            ),
        ]
    }
}
