//! Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023, algorithm 2): the sign of an
//! interpolated momentum.
//!
//! ```text
//! p ← p − η (sign(β1 m + (1 − β1) g) + λp)
//! m ← β2 m + (1 − β2) g
//! ```

use super::{check_all, check_rates, setters};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// Lion. Numbers: `lr`, `one_minus_beta1`, `one_minus_beta2`, `weight_decay`. Slot: `m`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lion {
    lr: f64,
    beta1: f64,
    beta2: f64,
    weight_decay: f64,
    maximize: bool,
}

impl Lion {
    /// Lion with this learning rate (a third to a tenth of AdamW's) and no weight decay.
    pub fn new(lr: f64) -> Lion {
        Lion { lr, beta1: 0.9, beta2: 0.99, weight_decay: 0.0, maximize: false }
    }

    setters! {
        /// The share of the momentum in the step's sign, and its decay rate; 0.9 and 0.99 unless given.
        betas(beta1, beta2)
    }
    setters! {
        /// Shrinks the parameter by `lr · weight_decay` of itself at each step.
        weight_decay: f64,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

impl UpdateRule for Lion {
    fn name(&self) -> &'static str {
        "lion"
    }

    fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("one_minus_beta1", 1.0 - self.beta1),
            Hyper::new("one_minus_beta2", 1.0 - self.beta2),
            Hyper::new("weight_decay", self.weight_decay),
        ]
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("m", shape)]
    }

    fn check(&self) -> Result<(), OptimError> {
        check_all("lion", &[("lr", self.lr), ("weight_decay", self.weight_decay)])?;
        check_rates("lion", &[("beta1", self.beta1), ("beta2", self.beta2)])
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [m] = *slots else { return ctx.wrong_slots(p) };
        let g = if self.maximize { -g } else { g };
        let sign = (m + (g - m) * ctx.hyper("one_minus_beta1")).sign();
        let p = p - (sign + p * ctx.hyper("weight_decay")) * ctx.lr();
        (p, vec![m + (g - m) * ctx.hyper("one_minus_beta2")])
    }
}
