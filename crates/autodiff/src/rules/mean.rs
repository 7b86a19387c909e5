//! Gradient of `mean`: the cotangent over the number of elements, repeated along the reduced axes.

use super::{At, Cotangents, Gradient, sizes, spread, wide};
use onestep_ir::ops::Mean;

impl Gradient for Mean {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let of = sizes(at.x());
        let n: f64 = self.axes.iter().map(|&a| of[a] as f64).product();
        let part = (wide(at.dy()) / n).cast(at.x().dtype());
        Some(vec![Some(spread(part, &self.axes, &at.x().shape()))])
    }
}
