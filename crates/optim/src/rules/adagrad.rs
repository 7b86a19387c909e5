//! Adagrad (`torch.optim.Adagrad`; Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and
//! Stochastic Optimization", JMLR 2011).
//!
//! ```text
//! g ← g + λp
//! sum ← sum + g²
//! p ← p − η / (1 + (t − 1) lr_decay) · g / (√sum + ε)
//! ```

use super::adam::decayed;
use super::{check_all, setters};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::{Init, Tensor};

/// Adagrad. Numbers: `lr`, `lr_decay`, `eps`, `weight_decay`. Slot: `sum`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Adagrad {
    lr: f64,
    lr_decay: f64,
    eps: f64,
    weight_decay: f64,
    initial_accumulator: f64,
    maximize: bool,
}

impl Adagrad {
    /// Adagrad with this learning rate, that does not decay, and no weight decay.
    pub fn new(lr: f64) -> Adagrad {
        Adagrad {
            lr,
            lr_decay: 0.0,
            eps: 1e-10,
            weight_decay: 0.0,
            initial_accumulator: 0.0,
            maximize: false,
        }
    }

    setters! {
        /// Divides the learning rate by `1 + (t − 1) · lr_decay`.
        lr_decay: f64,
        /// What is added to the denominator; 1e-10 unless given.
        eps: f64,
        /// Adds `weight_decay · p` to the gradient.
        weight_decay: f64,
        /// The first value of the sum of squares; 0 unless given.
        initial_accumulator: f64,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

impl UpdateRule for Adagrad {
    fn name(&self) -> &'static str {
        "adagrad"
    }

    fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("lr_decay", self.lr_decay),
            Hyper::new("eps", self.eps),
            Hyper::new("weight_decay", self.weight_decay),
        ]
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        let init = Init::Constant(self.initial_accumulator);
        vec![SlotSpec { init, ..SlotSpec::zeros("sum", shape) }]
    }

    fn check(&self) -> Result<(), OptimError> {
        let numbers = [("lr", self.lr), ("lr_decay", self.lr_decay), ("eps", self.eps)];
        check_all("adagrad", &numbers)?;
        let first = ("initial_accumulator", self.initial_accumulator);
        check_all("adagrad", &[("weight_decay", self.weight_decay), first])
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [sum] = *slots else { return ctx.wrong_slots(p) };
        let (p, g) = decayed(ctx, false, p, if self.maximize { -g } else { g });
        let sum = sum + g.square();
        let rate = ctx.once("rate", || ctx.lr() / (1.0 + (ctx.t() - 1.0) * ctx.hyper("lr_decay")));
        (p - g / (sum.sqrt() + ctx.hyper("eps")) * rate, vec![sum])
    }
}
