//! Gradient of `softmax`, from its result: dx = y·(dy − Σ dy·y) along the axis. A row of zeros (all masked) gets 0.

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::Softmax;

impl Gradient for Softmax {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (y, dy) = (wide(at.y()), wide(at.dy()));
        let dx = y * (dy - (dy * y).sum_keep(&[self.axis as isize]));
        Some(vec![Some(dx.cast(at.x().dtype()))])
    }
}
