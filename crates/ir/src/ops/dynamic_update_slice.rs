//! `dynamic_update_slice`: a tensor with a range along one axis replaced, from a start computed in the graph: one row
//! of a key/value cache, for example.
//!
//! A range that does not lie in the axis is a mistake that the reference names; it is never moved to fit. Backends
//! leave the tensor as it was and raise the flag of bad indices.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_axis, same_dtype, want_index, want_shape};
use crate::ops::dynamic_slice::{checked_start, range_places};
use crate::{DType, Dense, Mistake, Type};

/// Operands `x`, `update` (`x`'s shape but on `axis`, where it is no larger) and `start` (one integer); the result is
/// `x` with `x[start .. start + n]` along `axis` replaced by `update`, whose size there is `n`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DynamicUpdateSlice {
    /// The axis.
    pub axis: usize,
}

impl OpRule for DynamicUpdateSlice {
    fn name(&self) -> &'static str {
        "dynamic_update_slice"
    }
    fn attrs(&self) -> Attrs {
        vec![("axis", int(self.axis))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x, update, start] = arity(operands)?;
        check_axis(self.axis, x)?;
        same_dtype(&[x, update])?;
        want_index(start)?;
        let mut want = x.shape.clone();
        if update.shape.rank() == want.rank() {
            want.0[self.axis] = update.shape.0[self.axis].clone();
        }
        want_shape("the second operand (update)", update, &want)?;
        let (room, need) = (x.shape.0[self.axis].size(), want.0[self.axis].size());
        if let (Some(room), Some(need)) = (room, need)
            && need > room
        {
            return Err(Mistake::new(
                format!("the update has {need} elements on axis {}, {x} has {room}", self.axis),
                "use a smaller update or a larger tensor",
            ));
        }
        Ok(vec![x.clone()])
    }
    fn reference(&self, inputs: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, update) = (inputs[0], inputs[1]);
        let size = update.shape[self.axis];
        let start = checked_start(inputs[2], size, x.shape[self.axis])?;
        let mut out = x.clone();
        out.place(&range_places(&x.shape, self.axis, start, size), update);
        Ok(vec![out])
    }
}

impl OpTable for DynamicUpdateSlice {
    const NAMES: &'static [&'static str] = &["dynamic_update_slice"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(DynamicUpdateSlice { axis: attrs.size("axis")? })
    }
    fn samples() -> Vec<Sample> {
        let (start, whole) = (Range::Int(0, 3), Range::Int(-9, 9));
        vec![
            Sample::reals(DynamicUpdateSlice { axis: 1 }, &[&[2, 4, 3], &[2, 2, 3]]).and(
                DType::I32,
                &[],
                start,
            ),
            Sample::reals(DynamicUpdateSlice { axis: 0 }, &[&[4], &[4]]).and(
                DType::I64,
                &[],
                Range::Int(0, 1),
            ),
            Sample::reals(DynamicUpdateSlice { axis: 0 }, &[&[4], &[0]]).and(DType::U32, &[], start),
            Sample::reals(DynamicUpdateSlice { axis: 0 }, &[])
                .and(DType::I32, &[3, 2], whole)
                .and(DType::I32, &[1, 2], whole)
                .and(DType::U8, &[], start),
        ]
    }
}
