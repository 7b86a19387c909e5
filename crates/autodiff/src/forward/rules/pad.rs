//! Tangent of `pad`: the constants do not move.

use super::{At, Forward, Tangents};
use onestep_ir::ops::Pad;

impl Forward for Pad {
    fn push<'g>(&self, at: &At<'_, 'g>) -> Option<Tangents<'g>> {
        Some(vec![Some(at.g.emit1(Pad { value: 0.0.into(), ..*self }, &[at.dx()?]))])
    }
}
