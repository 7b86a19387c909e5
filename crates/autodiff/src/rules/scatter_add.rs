//! Gradients of `scatter_add`: the base gets the cotangent whole, each update that of the slice it was added to.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::{Gather, ScatterAdd};

impl Gradient for ScatterAdd {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (dy, indices) = (at.dy(), at.operands[1]);
        let updates = at.want(2, || at.g.emit1(Gather { axis: self.axis }, &[dy, indices]));
        Some(vec![Some(dy), None, updates])
    }
}
