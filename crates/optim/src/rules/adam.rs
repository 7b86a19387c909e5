//! Adam and AMSGrad (`torch.optim.Adam`; Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015;
//! Reddi, Kale and Kumar, "On the Convergence of Adam and Beyond", ICLR 2018), and the part that AdamW shares.
//!
//! ```text
//! g ← g + λp                                             (coupled decay; AdamW has its own)
//! m ← β1 m + (1 − β1) g        v ← β2 v + (1 − β2) g²
//! v̂ = v, or with AMSGrad v_max ← max(v_max, v) and v̂ = v_max
//! p ← p − (η / bc1) · m / (√v̂ / √bc2 + ε)                bci = 1 − βiᵗ
//! ```
//!
//! The state holds `c = 1 − β`, since `1 − 0.999` in f32 has lost half its digits; `1 − βᵗ` is then
//! `−expm1(t · log1p(−c))`.

use crate::error::{check, check_non_negative};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// The options that Adam and AdamW share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Options {
    pub lr: f64,
    pub betas: (f64, f64),
    pub eps: f64,
    pub weight_decay: f64,
    pub amsgrad: bool,
    pub maximize: bool,
}

impl Options {
    pub fn new(lr: f64, weight_decay: f64) -> Options {
        Options { lr, betas: (0.9, 0.999), eps: 1e-8, weight_decay, amsgrad: false, maximize: false }
    }

    pub fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("one_minus_beta1", 1.0 - self.betas.0),
            Hyper::new("one_minus_beta2", 1.0 - self.betas.1),
            Hyper::new("eps", self.eps),
            Hyper::new("weight_decay", self.weight_decay),
        ]
    }

    pub fn slots(&self) -> Vec<SlotSpec> {
        let names: &[&str] = if self.amsgrad { &["m", "v", "v_max"] } else { &["m", "v"] };
        names.iter().map(|name| SlotSpec::zeros(name)).collect()
    }

    pub fn check(&self, rule: &'static str) -> Result<(), OptimError> {
        check_non_negative(rule, "lr", self.lr)?;
        check_non_negative(rule, "eps", self.eps)?;
        check_non_negative(rule, "weight_decay", self.weight_decay)?;
        let unit = |x: f64| (0.0..1.0).contains(&x);
        check(rule, "beta1", self.betas.0, unit, "use a number in [0, 1)")?;
        check(rule, "beta2", self.betas.1, unit, "use a number in [0, 1)")
    }

    /// The gradient to descend along.
    pub fn descent<'g>(&self, g: Tensor<'g>) -> Tensor<'g> {
        if self.maximize { -g } else { g }
    }
}

/// `p − (η / bc1) · m / (√v̂ / √bc2 + ε)` with the new slots `m`, `v` and, if there is a third, `v_max`.
pub(super) fn adam_step<'g>(
    ctx: &RuleContext<'g>,
    p: Tensor<'g>,
    g: Tensor<'g>,
    slots: &[Tensor<'g>],
) -> (Tensor<'g>, Vec<Tensor<'g>>) {
    let &[m, v, ref v_max @ ..] = slots else {
        return (p.mistake("adam", "m or v is missing", "give both"), vec![]);
    };
    let (c1, c2) = (ctx.hyper("one_minus_beta1"), ctx.hyper("one_minus_beta2"));
    let beta2 = ctx.once("adam.beta2", || 1.0 - c2);
    let step_size = ctx.once("adam.step_size", || ctx.lr() / bias_correction(ctx, c1));
    let root = ctx.once("adam.root", || bias_correction(ctx, c2).sqrt());

    let m = m + (g - m) * c1;
    let v = v * beta2 + g.square() * c2;
    let v_max: Vec<_> = v_max.iter().map(|old| old.maximum(v)).collect();
    let v_hat = v_max.first().copied().unwrap_or(v);
    let denominator = v_hat.sqrt() / root + ctx.hyper("eps");
    (p - m / denominator * step_size, [vec![m, v], v_max].concat())
}

/// `1 − βᵗ` from `c = 1 − β`.
fn bias_correction<'g>(ctx: &RuleContext<'g>, c: Tensor<'g>) -> Tensor<'g> {
    -((-c).log_1p() * ctx.t()).exp_m1()
}

/// The builder methods that Adam and AdamW share.
macro_rules! shared_options {
    () => {
        /// The decay rates of the two moments; 0.9 and 0.999 unless given.
        pub fn betas(self, beta1: f64, beta2: f64) -> Self {
            Self(Options { betas: (beta1, beta2), ..self.0 })
        }

        /// What is added to the denominator; 1e-8 unless given.
        pub fn eps(self, eps: f64) -> Self {
            Self(Options { eps, ..self.0 })
        }

        /// Divides by the largest second moment so far (AMSGrad).
        pub fn amsgrad(self, amsgrad: bool) -> Self {
            Self(Options { amsgrad, ..self.0 })
        }

        /// Ascends instead of descending.
        pub fn maximize(self, maximize: bool) -> Self {
            Self(Options { maximize, ..self.0 })
        }
    };
}
pub(super) use shared_options;

/// Adam. Numbers: `lr`, `one_minus_beta1`, `one_minus_beta2`, `eps`, `weight_decay`. Slots: `m`, `v`, and with AMSGrad
/// `v_max`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Adam(Options);

impl Adam {
    /// Adam with this learning rate and no weight decay.
    pub fn new(lr: f64) -> Adam {
        Adam(Options::new(lr, 0.0))
    }

    shared_options!();

    /// Adds `weight_decay · p` to the gradient, so that the moments see it ([`AdamW`](crate::AdamW) decays apart).
    pub fn weight_decay(self, weight_decay: f64) -> Adam {
        Adam(Options { weight_decay, ..self.0 })
    }
}

impl UpdateRule for Adam {
    fn name(&self) -> &'static str {
        "adam"
    }

    fn hyper(&self) -> Vec<Hyper> {
        self.0.hyper()
    }

    fn slots(&self) -> Vec<SlotSpec> {
        self.0.slots()
    }

    fn check(&self) -> Result<(), OptimError> {
        self.0.check("adam")
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let g = self.0.descent(g) + p * ctx.hyper("weight_decay");
        adam_step(ctx, p, g, slots)
    }
}
