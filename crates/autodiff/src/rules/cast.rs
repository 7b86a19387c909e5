//! Gradient of `cast` between floats: the cotangent in the operand's dtype.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::Cast;

impl Gradient for Cast {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        Some(vec![at.want(0, || at.dy().cast(at.x().dtype()))])
    }
}
