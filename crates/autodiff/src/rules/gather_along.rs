//! Gradient of `gather_along`: each element's cotangent added to the element that it came from, in `f32` at least.

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::{GatherAlong, ScatterAddAlong};

impl Gradient for GatherAlong {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (data, indices) = (at.operands[0], at.operands[1]);
        let zeros = wide(at.zeros(data));
        let sum = at.g.emit1(ScatterAddAlong { axis: self.axis }, &[zeros, indices, wide(at.dy())]);
        Some(vec![Some(sum.cast(data.dtype())), None])
    }
}
