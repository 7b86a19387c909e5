//! Gradient of `log_softmax`, from its result: dx = dy − eʸ·Σ dy along the axis.

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::LogSoftmax;

impl Gradient for LogSoftmax {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (y, dy) = (wide(at.y()), wide(at.dy()));
        let dx = dy - y.exp() * dy.sum_keep(&[self.axis as isize]);
        Some(vec![Some(dx.cast(at.x().dtype()))])
    }
}
