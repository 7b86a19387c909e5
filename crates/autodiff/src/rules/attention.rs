//! Gradients of `attention`: one `attention_grad`, which needs the output and the log-sum-exp but not the weights, and gives
//! that of an additive mask where it is asked for.
//!
//! That op knows no cotangent of the log-sum-exp: where there is one, the decomposition is differentiated instead.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::{Attention, AttentionGrad};

impl Gradient for Attention {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let ([Some(dout), None], [out, lse]) = (at.cotangents, at.results) else { return None };
        let (operands, []) = self.operands(at.operands).ok()?;
        let mask_grad =
            operands.mask.is_some_and(|m| m.dtype().is_float()) && at.wanted.get(3) == Some(&true);
        let operands = [at.operands, &[*out, *lse, *dout]].concat();
        let mut back: Cotangents<'g> =
            at.g.emit(AttentionGrad { forward: *self, mask_grad }, &operands).into_iter().map(Some).collect();
        back.resize(at.operands.len(), None);
        Some(back)
    }
}
