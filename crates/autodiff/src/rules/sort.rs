//! Gradient of `sort`: each sorted element's cotangent back to where the element stood.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::{ScatterAddAlong, Sort};

impl Gradient for Sort {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (zeros, indices) = (at.zeros(at.x()), at.results[1]);
        // Every index occurs once: nothing is added up.
        let dx = at.g.emit1(ScatterAddAlong { axis: self.axis }, &[zeros, indices, at.dy()]);
        Some(vec![Some(dx)])
    }
}
