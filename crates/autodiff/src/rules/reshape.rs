//! Gradient of `reshape`: the cotangent under the operand's shape.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::Reshape;

impl Gradient for Reshape {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        Some(vec![Some(at.dy().reshape(at.x().shape()))])
    }
}
