//! Gradient of `ctc_loss`: minus the posterior probabilities, which are its second result, times each loss's cotangent.
//! Where these have a cotangent of their own, the decomposition is differentiated instead.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::CtcLoss;

impl Gradient for CtcLoss {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let ([Some(loss), None], [_, posterior]) = (at.cotangents, at.results) else { return None };
        let back = -(*posterior * loss.expand(1));
        Some(vec![Some(back.cast(at.x().dtype())), None, None, None])
    }
}
