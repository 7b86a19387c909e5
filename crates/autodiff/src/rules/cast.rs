//! Gradient of `cast` between floats: the cotangent in the operand's dtype. That of an 8-bit float stays as wide as it comes.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::Cast;

impl Gradient for Cast {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let x = at.x().dtype();
        Some(vec![at.want(0, || if x.is_fp8() { at.dy() } else { at.dy().cast(x) })])
    }
}
