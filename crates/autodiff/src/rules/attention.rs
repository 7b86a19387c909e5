//! Gradients of `attention`: one `attention_grad`, which needs the output and the log-sum-exp but not the weights.
//!
//! That op knows neither the gradient of an additive mask nor a cotangent of the log-sum-exp: where one of these is
//! asked for, the decomposition is differentiated instead.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::{Attention, AttentionGrad};

impl Gradient for Attention {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let ([Some(dout), None], [out, lse]) = (at.cotangents, at.results) else { return None };
        if at.wanted.get(3) == Some(&true) {
            return None;
        }
        let Attention { layout, causal, scale } = *self;
        let operands = [at.operands, &[*out, *lse, *dout]].concat();
        let mut back: Cotangents<'g> =
            at.g.emit(AttentionGrad { layout, causal, scale }, &operands).into_iter().map(Some).collect();
        back.resize(at.operands.len(), None);
        Some(back)
    }
}
