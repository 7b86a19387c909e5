//! Gradients of `rms_norm`. With r = 1/√(mean(x²) + ε), x̂ = x·r and dx̂ = dy·weight:
//!
//! dx = r·(dx̂ − x̂·mean(dx̂·x̂)) along the last axis; dweight = Σ dy·x̂ over the rows.

use super::layer_norm::{over_rows, row_mean};
use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::RmsNorm;

impl Gradient for RmsNorm {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (x, weight, dy) = (wide(at.operands[0]), at.operands[1], wide(at.dy()));
        let r = (row_mean(x.square()) + self.eps.get()).rsqrt();
        let hat = x * r;
        let dx = at.want(0, || {
            let d = dy * wide(weight);
            (r * (d - hat * row_mean(d * hat))).cast(at.x().dtype())
        });
        let dw = at.want(1, || over_rows(dy * hat).cast(weight.dtype()));
        Some(vec![dx, dw])
    }
}
