//! Gradient of `round_stochastic`: that of its mean, which is the number itself, as of a cast between floats.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::RoundStochastic;

impl Gradient for RoundStochastic {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        Some(vec![at.want(0, || at.dy().cast(at.x().dtype())), None])
    }
}
