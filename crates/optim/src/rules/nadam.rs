//! NAdam (`torch.optim.NAdam`; Dozat, "Incorporating Nesterov Momentum into Adam", ICLR 2016 workshop).
//!
//! ```text
//! g ← g + λp, or decoupled: p ← p · (1 − ηλ)
//! μ_t = β1 (1 − ½ · 0.96^(tψ))        Π ← Π μ_t
//! m ← β1 m + (1 − β1) g               v ← β2 v + (1 − β2) g²
//! d = √(v / bc2) + ε
//! p ← p − η (1 − μ_t) / (1 − Π) · g/d − η μ_{t+1} / (1 − Π μ_{t+1}) · m/d
//! ```
//!
//! The product `Π` over all steps so far is a scalar that all parameters share.

use super::adam::{decayed, moments};
use super::{check_all, check_rates, setters};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// NAdam. Numbers: `lr`, `one_minus_beta1`, `one_minus_beta2`, `eps`, `weight_decay`, `momentum_decay`. Slots: `m`, `v`.
/// Scalar: `mu_product`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Nadam {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    momentum_decay: f64,
    decoupled: bool,
    maximize: bool,
}

impl Nadam {
    /// NAdam with this learning rate and no weight decay.
    pub fn new(lr: f64) -> Nadam {
        Nadam {
            lr,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum_decay: 4e-3,
            decoupled: false,
            maximize: false,
        }
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
        /// `ψ`: how fast the momentum grows to `β1`; 0.004 unless given.
        momentum_decay: f64,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

/// `μ` at the step `t + after`.
fn momentum<'g>(ctx: &RuleContext<'g>, after: f64) -> Tensor<'g> {
    let power = ((ctx.t() + after) * ctx.hyper("momentum_decay") * 0.96f64.ln()).exp();
    ctx.once("beta1", || 1.0 - ctx.hyper("one_minus_beta1")) * (1.0 - 0.5 * power)
}

/// `μ_t`.
fn mu<'g>(ctx: &RuleContext<'g>) -> Tensor<'g> {
    ctx.once("mu", || momentum(ctx, 0.0))
}

/// The product of every `μ` up to this step's.
fn product<'g>(ctx: &RuleContext<'g>) -> Tensor<'g> {
    ctx.once("product", || ctx.hyper("mu_product") * mu(ctx))
}

impl UpdateRule for Nadam {
    fn name(&self) -> &'static str {
        "nadam"
    }

    fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("one_minus_beta1", 1.0 - self.beta1),
            Hyper::new("one_minus_beta2", 1.0 - self.beta2),
            Hyper::new("eps", self.eps),
            Hyper::new("weight_decay", self.weight_decay),
            Hyper::new("momentum_decay", self.momentum_decay),
        ]
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("m", shape), SlotSpec::zeros("v", shape)]
    }

    fn scalars(&self) -> Vec<Hyper> {
        vec![Hyper::new("mu_product", 1.0)]
    }

    fn advance<'g>(&self, ctx: &RuleContext<'g>) -> Vec<Tensor<'g>> {
        vec![product(ctx)]
    }

    fn check(&self) -> Result<(), OptimError> {
        let decays = [("weight_decay", self.weight_decay), ("momentum_decay", self.momentum_decay)];
        check_all("nadam", &[("lr", self.lr), ("eps", self.eps)])?;
        check_all("nadam", &decays)?;
        check_rates("nadam", &[("beta1", self.beta1), ("beta2", self.beta2)])
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
        let of_gradient = ctx.once("of_gradient", || ctx.lr() * (1.0 - mu(ctx)) / (1.0 - product(ctx)));
        let of_moment = ctx.once("of_moment", || {
            let next = momentum(ctx, 1.0);
            ctx.lr() * next / (1.0 - product(ctx) * next)
        });
        let d = (v / ctx.bias_correction("one_minus_beta2")).sqrt() + ctx.hyper("eps");
        (p - g / d * of_gradient - m / d * of_moment, vec![m, v])
    }
}
