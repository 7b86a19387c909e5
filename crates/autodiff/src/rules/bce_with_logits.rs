//! Gradients of `bce_with_logits`: dx = dy·(σ(x) − t) and dt = −dy·x.

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::BceWithLogits;

impl Gradient for BceWithLogits {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (x, t, dy) = (wide(at.operands[0]), wide(at.operands[1]), wide(at.dy()));
        let dtype = at.x().dtype();
        let dx = at.want(0, || (dy * (x.sigmoid() - t)).cast(dtype));
        let dt = at.want(1, || (-(dy * x)).cast(dtype));
        Some(vec![dx, dt])
    }
}
