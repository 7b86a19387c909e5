//! Gradient of `broadcast`: the sum over the axes along which the operand was repeated.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::Broadcast;

impl Gradient for Broadcast {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let from = at.x().shape();
        let lead = self.dims.len() - from.rank();
        let repeated = |&a: &usize| a < lead || (from.0[a - lead].is_one() && !self.dims[a].is_one());
        let axes: Vec<isize> = (0..self.dims.len()).filter(repeated).map(|a| a as isize).collect();
        let sum = if axes.is_empty() { at.dy() } else { at.dy().sum(&axes) };
        Some(vec![Some(sum.reshape(from))])
    }
}
