//! Gradient of `silu`, with s = sigmoid(x): dx = dy·s·(1 + x·(1 − s)).

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::Silu;

impl Gradient for Silu {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (x, dy) = (wide(at.x()), wide(at.dy()));
        let s = x.sigmoid();
        Some(vec![Some((dy * (s * (x * (1.0 - s) + 1.0))).cast(at.x().dtype()))])
    }
}
