//! Tangent of `layer_norm`. With r = 1/√(variance + ε) and x̂ = (x − mean)·r:
//!
//! dx̂ = r·(dx − mean(dx) − x̂·mean(dx·x̂)) along the last axis; dy = dx̂·weight + x̂·dweight + dbias.

use super::{At, Forward, Tangents};
use crate::rules::layer_norm::row_mean;
use crate::rules::wide;
use onestep_ir::ops::LayerNorm;

impl Forward for LayerNorm {
    fn push<'g>(&self, at: &At<'_, 'g>) -> Option<Tangents<'g>> {
        let (x, weight) = (wide(at.x()), wide(at.operands[1]));
        let centred = x - row_mean(x);
        let r = (row_mean(centred.square()) + self.eps.get()).rsqrt();
        let hat = centred * r;
        let dy = at.sum(|i, t| {
            let t = wide(t);
            Some(Some(match i {
                0 => r * (t - row_mean(t) - hat * row_mean(t * hat)) * weight,
                1 => hat * t,
                _ => t.broadcast(&hat.shape()),
            }))
        })?;
        Some(vec![dy.map(|dy| dy.cast(at.x().dtype()))])
    }
}
