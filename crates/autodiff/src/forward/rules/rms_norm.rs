//! Tangent of `rms_norm`. With r = 1/√(mean(x²) + ε) and x̂ = x·r:
//!
//! dx̂ = r·(dx − x̂·mean(dx·x̂)) along the last axis; dy = dx̂·weight + x̂·dweight.

use super::{At, Forward, Tangents};
use crate::rules::layer_norm::row_mean;
use crate::rules::wide;
use onestep_ir::ops::RmsNorm;

impl Forward for RmsNorm {
    fn push<'g>(&self, at: &At<'_, 'g>) -> Option<Tangents<'g>> {
        let (x, weight) = (wide(at.x()), wide(at.operands[1]));
        let r = (row_mean(x.square()) + self.eps.get()).rsqrt();
        let hat = x * r;
        let dy = at.sum(|i, t| {
            let t = wide(t);
            Some(Some(if i == 0 { r * (t - hat * row_mean(t * hat)) * weight } else { hat * t }))
        })?;
        Some(vec![dy.map(|dy| dy.cast(at.x().dtype()))])
    }
}
