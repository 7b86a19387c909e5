//! Gradient of `select`: each side gets the cotangent where it was chosen, and 0 elsewhere. The condition carries none.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::Select;

impl Gradient for Select {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (chosen, dy) = (at.x(), at.dy());
        let da = at.want(1, || chosen.select(dy, 0.0));
        let db = at.want(2, || chosen.select(0.0, dy));
        Some(vec![None, da, db])
    }
}
