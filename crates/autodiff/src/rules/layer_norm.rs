//! Gradients of `layer_norm`. With r = 1/√(variance + ε), x̂ = (x − mean)·r and dx̂ = dy·weight:
//!
//! dx = r·(dx̂ − mean(dx̂) − x̂·mean(dx̂·x̂)) along the last axis; dweight = Σ dy·x̂ and dbias = Σ dy over the rows.
//!
//! Mean and variance are computed again: two reductions of a row that is read anyway.

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::Tensor;
use onestep_ir::ops::LayerNorm;

impl Gradient for LayerNorm {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (x, weight, bias) = (at.operands[0], at.operands[1], at.operands[2]);
        let dy = wide(at.dy());
        let normal = || {
            let centred = wide(x) - row_mean(wide(x));
            let r = (row_mean(centred.square()) + self.eps.get()).rsqrt();
            (centred * r, r)
        };
        let scaled = (at.wanted[0] || at.wanted[1]).then(normal);
        let dx = scaled.filter(|_| at.wanted[0]).map(|(hat, r)| {
            let d = dy * wide(weight);
            (r * (d - row_mean(d) - hat * row_mean(d * hat))).cast(x.dtype())
        });
        let dw = scaled.filter(|_| at.wanted[1]).map(|(hat, _)| over_rows(dy * hat).cast(weight.dtype()));
        let db = at.want(2, || over_rows(dy).cast(bias.dtype()));
        Some(vec![dx, dw, db])
    }
}

/// The mean along the last axis, which stays with size 1.
pub(crate) fn row_mean(t: Tensor<'_>) -> Tensor<'_> {
    t.mean_keep(&[-1])
}

/// The sum over every axis but the last.
pub(super) fn over_rows(t: Tensor<'_>) -> Tensor<'_> {
    let rows: Vec<isize> = (0..t.rank() as isize - 1).collect();
    t.sum(&rows)
}
