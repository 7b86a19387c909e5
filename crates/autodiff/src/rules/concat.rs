//! Gradient of `concat`: each operand's own range of the cotangent.

use super::{At, Cotangents, Gradient, sizes};
use onestep_ir::ops::{Concat, Slice};

impl Gradient for Concat {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (axis, dy) = (self.axis, at.dy());
        let mut start = 0;
        let part = |(i, x)| {
            let end = start + sizes(x)[axis];
            let part = at.want(i, || at.g.emit1(Slice { axis, start, end, step: 1 }, &[dy]));
            start = end;
            part
        };
        Some(at.operands.iter().copied().enumerate().map(part).collect())
    }
}
