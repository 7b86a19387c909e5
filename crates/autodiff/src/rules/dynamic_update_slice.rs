//! Gradients of `dynamic_update_slice`: the update gets the cotangent of the range, the tensor under it that of the
//! rest.

use super::{At, Cotangents, Gradient, sizes};
use onestep_ir::ops::{DynamicSlice, DynamicUpdateSlice};

impl Gradient for DynamicUpdateSlice {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (update, start, dy) = (at.operands[1], at.operands[2], at.dy());
        let (axis, size) = (self.axis, sizes(update)[self.axis]);
        let dx = at.want(0, || at.g.emit1(*self, &[dy, at.zeros(update), start]));
        let du = at.want(1, || at.g.emit1(DynamicSlice { axis, size }, &[dy, start]));
        Some(vec![dx, du, None])
    }
}
