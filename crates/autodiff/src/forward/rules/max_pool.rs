//! Tangent of `max_pool`: that of the element that each place came from.

use super::{At, Forward, Tangents, planes};
use onestep_ir::ops::{GatherAlong, MaxPool};

impl Forward for MaxPool {
    fn push<'g>(&self, at: &At<'_, 'g>) -> Option<Tangents<'g>> {
        let axes = self.kernel.len();
        let places = planes(at.results[1], axes);
        let dy = at.g.emit1(GatherAlong { axis: 1 }, &[planes(at.dx()?, axes), places]);
        Some(vec![Some(dy.reshape(at.results[0].shape())), None])
    }
}
