//! Tangent of `sort`: each sorted element's, from where the element stood.

use super::{At, Forward, Tangents};
use onestep_ir::ops::{GatherAlong, Sort};

impl Forward for Sort {
    fn push<'g>(&self, at: &At<'_, 'g>) -> Option<Tangents<'g>> {
        let dy = at.g.emit1(GatherAlong { axis: self.axis }, &[at.dx()?, at.results[1]]);
        Some(vec![Some(dy), None])
    }
}
