//! Tangent of `round_stochastic`: that of its mean, which is the number itself.

use super::{At, Forward, Tangents};
use onestep_ir::DType;
use onestep_ir::ops::RoundStochastic;

impl Forward for RoundStochastic {
    fn push<'g>(&self, at: &At<'_, 'g>) -> Option<Tangents<'g>> {
        Some(vec![Some(at.dx()?.cast(DType::BF16))])
    }
}
