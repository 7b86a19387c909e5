//! Tangent of `log_softmax`, from its result: dy = dx − Σ eʸ·dx along the axis.

use super::{At, Forward, Tangents};
use crate::rules::wide;
use onestep_ir::ops::LogSoftmax;

impl Forward for LogSoftmax {
    fn push<'g>(&self, at: &At<'_, 'g>) -> Option<Tangents<'g>> {
        let (y, dx) = (wide(at.results[0]), wide(at.dx()?));
        let dy = dx - (y.exp() * dx).sum_keep(&[self.axis as isize]);
        Some(vec![Some(dy.cast(at.x().dtype()))])
    }
}
