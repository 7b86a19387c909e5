//! Gradient of `dynamic_slice`: zeros with the cotangent written over the range.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::{DynamicSlice, DynamicUpdateSlice};

impl Gradient for DynamicSlice {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (x, start) = (at.operands[0], at.operands[1]);
        let dx = at.g.emit1(DynamicUpdateSlice { axis: self.axis }, &[at.zeros(x), at.dy(), start]);
        Some(vec![Some(dx), None])
    }
}
