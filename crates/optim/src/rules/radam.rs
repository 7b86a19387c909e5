//! RAdam (`torch.optim.RAdam`; Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", ICLR 2020).
//!
//! ```text
//! g ← g + λp, or decoupled: p ← p · (1 − ηλ)
//! m ← β1 m + (1 − β1) g        v ← β2 v + (1 − β2) g²
//! ρ∞ = 2 / (1 − β2) − 1        ρ = ρ∞ − 2t β2ᵗ / (1 − β2ᵗ)
//! ρ > 5: r = √((ρ − 4)(ρ − 2) ρ∞ / ((ρ∞ − 4)(ρ∞ − 2) ρ))        p ← p − η m / bc1 · r √bc2 / (√v + ε)
//! else:  p ← p − η m / bc1
//! ```
//!
//! `ρ` is the small difference of two large numbers: 5 of 1999 at the step that decides. With `x = −ln β2` and
//! `k(u) = 2/u − 2/(eᵘ − 1)`, which is smooth and 1 at 0, it is `t · k(tx) + 1 − k(x)`, which loses nothing.

use super::adam::{decayed, moments};
use super::{check_all, check_rates, setters};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// RAdam. Numbers: `lr`, `one_minus_beta1`, `one_minus_beta2`, `eps`, `weight_decay`. Slots: `m`, `v`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Radam {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    decoupled: bool,
    maximize: bool,
}

impl Radam {
    /// RAdam with this learning rate and no weight decay.
    pub fn new(lr: f64) -> Radam {
        let (beta1, beta2) = (0.9, 0.999);
        Radam { lr, beta1, beta2, eps: 1e-8, weight_decay: 0.0, decoupled: false, maximize: false }
    }

    setters! {
        /// The decay rates of the two moments; 0.9 and 0.999 unless given.
        betas(beta1, beta2)
    }
    setters! {
        /// What is added to the denominator; 1e-8 unless given.
        eps: f64,
        /// Adds `weight_decay · p` to the gradient, unless it is decoupled.
        weight_decay: f64,
        /// Shrinks the parameter by `lr · weight_decay` of itself instead, apart from the moments.
        decoupled: bool,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

/// `k(u) = 2/u − 2/(eᵘ − 1)` for `u > 0`: below ¼ by its series, whose next term is less than 1e-16 there.
fn k<'g>(u: Tensor<'g>) -> Tensor<'g> {
    let s = u.square();
    let terms = [-1.0 / 1_209_600.0, 1.0 / 30_240.0, -1.0 / 720.0, 1.0 / 12.0];
    let series = terms[1..].iter().fold(s / 47_900_160.0 + terms[0], |sum, c| sum * s + *c);
    let direct = 2.0 / u - 2.0 / u.exp_m1();
    u.less(0.25).select(1.0 - series * u * 2.0, direct)
}

/// What the step is multiplied with, and whether it is divided by `√v + ε`.
fn rectification<'g>(ctx: &RuleContext<'g>) -> (Tensor<'g>, Tensor<'g>) {
    let c = ctx.hyper("one_minus_beta2");
    let rho = ctx.once("rho", || {
        let x = -(-c).log_1p();
        ctx.t() * k(ctx.t() * x) + (1.0 - k(x))
    });
    let adapts = ctx.once("adapts", || rho.greater(5.0));
    let step_size = ctx.once("step_size", || {
        let limit = 2.0 / c - 1.0;
        let r = (rho - 4.0) / (limit - 4.0) * ((rho - 2.0) / (limit - 2.0)) * (limit / rho);
        let adaptive = (r * ctx.bias_correction("one_minus_beta2")).sqrt();
        ctx.lr() / ctx.bias_correction("one_minus_beta1") * adapts.select(adaptive, 1.0)
    });
    (step_size, adapts)
}

impl UpdateRule for Radam {
    fn name(&self) -> &'static str {
        "radam"
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
        vec![SlotSpec::zeros("m", shape), SlotSpec::zeros("v", shape)]
    }

    fn check(&self) -> Result<(), OptimError> {
        let numbers = [("lr", self.lr), ("eps", self.eps), ("weight_decay", self.weight_decay)];
        check_all("radam", &numbers)?;
        check_rates("radam", &[("beta1", self.beta1), ("beta2", self.beta2)])
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [m, v] = *slots else { return ctx.wrong_slots(p) };
        let (p, g) = decayed(ctx, self.decoupled, p, if self.maximize { -g } else { g });
        let (m, v) = moments(ctx, m, v, g);
        let (step_size, adapts) = rectification(ctx);
        let denominator = adapts.select(v.sqrt() + ctx.hyper("eps"), 1.0);
        (p - m / denominator * step_size, vec![m, v])
    }
}
