//! Gradient of `gather`: each slice's cotangent added to the slice that it came from. Added up in `f32` at least.

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::{Gather, ScatterAdd};

impl Gradient for Gather {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (data, indices) = (at.operands[0], at.operands[1]);
        let zeros = wide(at.zeros(data));
        let sum = at.g.emit1(ScatterAdd { axis: self.axis }, &[zeros, indices, wide(at.dy())]);
        Some(vec![Some(sum.cast(data.dtype())), None])
    }
}
