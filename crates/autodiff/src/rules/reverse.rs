//! Gradient of `reverse`: the cotangent reversed.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::Reverse;

impl Gradient for Reverse {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        Some(vec![Some(at.g.emit1(self.clone(), &[at.dy()]))])
    }
}
