//! AdamW: Adam with decoupled weight decay (`torch.optim.AdamW`; Loshchilov and Hutter, "Decoupled Weight Decay
//! Regularization", ICLR 2019).
//!
//! ```text
//! p ← p · (1 − ηλ)             first, on the old weight
//! then Adam's step on the gradient alone
//! ```

use super::adam::{Options, adam_step, shared_options};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// AdamW. Numbers: `lr`, `one_minus_beta1`, `one_minus_beta2`, `eps`, `weight_decay`. Slots: `m`, `v`, and with AMSGrad
/// `v_max`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdamW(Options);

impl AdamW {
    /// AdamW with this learning rate and a weight decay of 0.01.
    pub fn new(lr: f64) -> AdamW {
        AdamW(Options::new(lr, 0.01))
    }

    shared_options!();

    /// Shrinks the parameter by `lr · weight_decay` of itself at each step, apart from the moments.
    pub fn weight_decay(self, weight_decay: f64) -> AdamW {
        AdamW(Options { weight_decay, ..self.0 })
    }
}

impl UpdateRule for AdamW {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn hyper(&self) -> Vec<Hyper> {
        self.0.hyper()
    }

    fn slots(&self) -> Vec<SlotSpec> {
        self.0.slots()
    }

    fn check(&self) -> Result<(), OptimError> {
        self.0.check("adamw")
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let keep = ctx.once("adamw.keep", || 1.0 - ctx.lr() * ctx.hyper("weight_decay"));
        adam_step(ctx, p * keep, self.0.descent(g), slots)
    }
}
