//! The gradient of `barrier`: the cotangent, since the value is the operand's.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::Barrier;

impl Gradient for Barrier {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        Some(vec![at.cotangents[0]])
    }
}
