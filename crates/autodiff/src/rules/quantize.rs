//! Gradient of `quantize`: that of `x / scale` for a given scale, straight through the rounding.

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::Quantize;

impl Gradient for Quantize {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let Some(dq) = at.cotangents[0] else { return Some(vec![None]) };
        let inverse = at.results[1].reciprocal();
        let x = at.x().dtype();
        Some(vec![at.want(0, || {
            let dq = wide(dq);
            (dq * inverse.cast(dq.dtype())).cast(x)
        })])
    }
}
