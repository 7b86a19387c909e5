//! Gradient of `dropout`: the dropout of the cotangent by the same bits.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::Dropout;

impl Gradient for Dropout {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        Some(vec![Some(at.g.emit1(*self, &[at.dy(), at.operands[1]])), None])
    }
}
