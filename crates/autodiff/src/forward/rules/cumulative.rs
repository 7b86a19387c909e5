//! Tangents of the scans that are not linear.
//!
//! - max, min: the tangent of the element that holds the extremum so far, the last of equals, as in reverse mode;
//! - product: (p, s), a product and its tangent, compose as (p₁p₂, s₁p₂ + p₁s₂); all prefixes by doubling, without a
//!   division by an element, which may be 0.

use super::{At, Forward, Tangents};
use crate::rules::cumulative::{Scan, place_of_extremum};
use crate::rules::{sizes, wide};
use onestep_ir::Tensor;
use onestep_ir::ops::{Cumulative, GatherAlong, ReduceKind};

impl Forward for Cumulative {
    fn push<'g>(&self, at: &At<'_, 'g>) -> Option<Tangents<'g>> {
        let (x, dx) = (at.x(), at.dx()?);
        let inclusive = match self.kind {
            ReduceKind::Sum => return Some(vec![Some(at.g.emit1(*self, &[dx]))]),
            ReduceKind::Prod => product(self, wide(x), wide(dx)),
            ReduceKind::Max | ReduceKind::Min => {
                at.g.emit1(GatherAlong { axis: self.axis }, &[dx, place_of_extremum(self, x)])
            }
        };
        let dy = if self.exclusive { self.moved(inclusive, 1, true, 0.0) } else { inclusive };
        Some(vec![Some(dy.cast(x.dtype()))])
    }
}

/// The tangents of the products that include each element.
fn product<'g>(op: &Cumulative, x: Tensor<'g>, dx: Tensor<'g>) -> Tensor<'g> {
    let n = sizes(x)[op.axis];
    let (mut product, mut tangent) = (x, dx);
    let mut reach = 1;
    while reach < n {
        let (before, moved) = (op.moved(product, reach, true, 1.0), op.moved(tangent, reach, true, 0.0));
        tangent = tangent * before + product * moved;
        product = product * before;
        reach *= 2;
    }
    tangent
}
