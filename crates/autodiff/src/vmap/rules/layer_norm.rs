//! `layer_norm` and `rms_norm`: more rows under one weight; with a weight for each member, by the decomposition.

use super::{At, Batch};
use onestep_ir::Tensor;
use onestep_ir::ops::{LayerNorm, RmsNorm};

impl Batch for LayerNorm {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let shared = !at.mapped(1) && !at.mapped(2);
        shared.then(|| at.g.emit(*self, &[at.wide(0), at.operand(1), at.operand(2)]))
    }
}

impl Batch for RmsNorm {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        (!at.mapped(1)).then(|| at.g.emit(*self, &[at.wide(0), at.operand(1)]))
    }
}
