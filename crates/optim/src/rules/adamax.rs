//! Adamax (`torch.optim.Adamax`; Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, section 7).
//!
//! ```text
//! g ← g + λp
//! m ← β1 m + (1 − β1) g        u ← max(β2 u, |g| + ε)
//! p ← p − η / (1 − β1ᵗ) · m / u
//! ```

use super::adam::decayed;
use super::{check_all, check_rates, setters};
use crate::error::check;
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// Adamax. Numbers: `lr`, `one_minus_beta1`, `one_minus_beta2`, `eps`, `weight_decay`. Slots: `m`, `u`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Adamax {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    maximize: bool,
}

impl Adamax {
    /// Adamax with this learning rate and no weight decay.
    pub fn new(lr: f64) -> Adamax {
        Adamax { lr, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, maximize: false }
    }

    setters! {
        /// The decay rates of the moment and of the norm; 0.9 and 0.999 unless given.
        betas(beta1, beta2)
    }
    setters! {
        /// What is added to `|g|`, so that the norm is never 0: a number above 0; 1e-8 unless given.
        eps: f64,
        /// Adds `weight_decay · p` to the gradient.
        weight_decay: f64,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

impl UpdateRule for Adamax {
    fn name(&self) -> &'static str {
        "adamax"
    }

    fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("one_minus_beta1", 1.0 - self.beta1),
            Hyper::new("one_minus_beta2", 1.0 - self.beta2),
            Hyper::new("eps", self.eps),
            Hyper::new("weight_decay", self.weight_decay),
        ]
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("m", shape), SlotSpec::zeros("u", shape)]
    }

    fn check(&self) -> Result<(), OptimError> {
        check_all("adamax", &[("lr", self.lr), ("weight_decay", self.weight_decay)])?;
        check("adamax", "eps", self.eps, |x| x > 0.0 && x.is_finite(), "use a finite number above 0")?;
        check_rates("adamax", &[("beta1", self.beta1), ("beta2", self.beta2)])
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [m, u] = *slots else { return ctx.wrong_slots(p) };
        let (p, g) = decayed(ctx, false, p, if self.maximize { -g } else { g });
        let m = m + (g - m) * ctx.hyper("one_minus_beta1");
        let beta2 = ctx.once("beta2", || 1.0 - ctx.hyper("one_minus_beta2"));
        let u = (u * beta2).maximum(g.abs() + ctx.hyper("eps"));
        let step_size = ctx.once("step_size", || ctx.lr() / ctx.bias_correction("one_minus_beta1"));
        (p - m / u * step_size, vec![m, u])
    }
}
