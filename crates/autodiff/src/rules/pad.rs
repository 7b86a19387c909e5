//! Gradient of `pad`: the cotangent of the elements, without that of the constants.

use super::{At, Cotangents, Gradient, sizes};
use onestep_ir::ops::{Pad, Slice};

impl Gradient for Pad {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (start, step) = (self.low, self.interior + 1);
        let end = match sizes(at.x())[self.axis] {
            0 => start,
            n => start + (n - 1) * step + 1,
        };
        Some(vec![Some(at.g.emit1(Slice { axis: self.axis, start, end, step }, &[at.dy()]))])
    }
}
