//! Gradient of `slice`: the cotangent back in its place, with zeros between and around.

use super::{At, Cotangents, Gradient, sizes};
use onestep_ir::ops::{Pad, Slice};

impl Gradient for Slice {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (n, taken) = (sizes(at.x())[self.axis], sizes(at.y())[self.axis]);
        let Some(gaps) = taken.checked_sub(1) else { return Some(vec![None]) };
        let behind = self.start + gaps * self.step + 1;
        let (low, high, interior) = (self.start, n - behind, self.step - 1);
        Some(vec![Some(
            at.g.emit1(Pad { axis: self.axis, low, high, interior, value: 0.0.into() }, &[at.dy()]),
        )])
    }
}
