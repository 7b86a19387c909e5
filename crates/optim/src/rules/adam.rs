//! Adam and AMSGrad (`torch.optim.Adam`; Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015;
//! Reddi, Kale and Kumar, "On the Convergence of Adam and Beyond", ICLR 2018), and the moments that its kin share.
//!
//! ```text
//! g ← g + λp                                             (coupled decay; AdamW has its own)
//! m ← β1 m + (1 − β1) g        v ← β2 v + (1 − β2) g²
//! v̂ = v, or with AMSGrad v_max ← max(v_max, v) and v̂ = v_max
//! p ← p − (η / bc1) · m / (√v̂ / √bc2 + ε)                bci = 1 − βiᵗ
//! ```

use super::{check_all, check_rates, setters};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// Adam, whose weight decay is part of the gradient: [`AdamWith`] the coupled form.
pub type Adam = AdamWith<false>;

/// [`Adam`], or with `DECOUPLED` weight decay [`AdamW`](crate::AdamW). Numbers: `lr`, `one_minus_beta1`,
/// `one_minus_beta2`, `eps`, `weight_decay`. Slots: `m`, `v`, and with AMSGrad `v_max`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdamWith<const DECOUPLED: bool> {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    amsgrad: bool,
    maximize: bool,
}

impl<const DECOUPLED: bool> AdamWith<DECOUPLED> {
    /// The rule with this learning rate, and a weight decay of 0, or 0.01 if it is decoupled.
    pub fn new(lr: f64) -> Self {
        let weight_decay = if DECOUPLED { 0.01 } else { 0.0 };
        Self { lr, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay, amsgrad: false, maximize: false }
    }

    setters! {
        /// The decay rates of the two moments; 0.9 and 0.999 unless given.
        betas(beta1, beta2)
    }
    setters! {
        /// What is added to the denominator; 1e-8 unless given.
        eps: f64,
        /// Adds `weight_decay · p` to the gradient, so that the moments see it; decoupled, shrinks the parameter by
        /// `lr · weight_decay` of itself at each step, apart from the moments.
        weight_decay: f64,
        /// Divides by the largest second moment so far (AMSGrad).
        amsgrad: bool,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

impl<const DECOUPLED: bool> UpdateRule for AdamWith<DECOUPLED> {
    fn name(&self) -> &'static str {
        if DECOUPLED { "adamw" } else { "adam" }
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
        let names: &[&str] = if self.amsgrad { &["m", "v", "v_max"] } else { &["m", "v"] };
        names.iter().map(|name| SlotSpec::zeros(name, shape)).collect()
    }

    fn check(&self) -> Result<(), OptimError> {
        let numbers = [("lr", self.lr), ("eps", self.eps), ("weight_decay", self.weight_decay)];
        check_all(self.name(), &numbers)?;
        check_rates(self.name(), &[("beta1", self.beta1), ("beta2", self.beta2)])
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [m, v, ref v_max @ ..] = *slots else { return ctx.wrong_slots(p) };
        let (p, g) = decayed(ctx, DECOUPLED, p, if self.maximize { -g } else { g });
        let (m, v) = moments(ctx, m, v, g);
        let v_max = v_max.first().map(|old| old.maximum(v));
        let v_hat = v_max.unwrap_or(v);

        let step_size = ctx.once("step_size", || ctx.lr() / ctx.bias_correction("one_minus_beta1"));
        let root = ctx.once("root", || ctx.bias_correction("one_minus_beta2").sqrt());
        let denominator = v_hat.sqrt() / root + ctx.hyper("eps");
        (p - m / denominator * step_size, [m, v].into_iter().chain(v_max).collect())
    }
}

/// Parameter and gradient after weight decay: of the parameter by `1 − ηλ` if it is decoupled, else `g + λp`.
pub(super) fn decayed<'g>(
    ctx: &RuleContext<'g>,
    decoupled: bool,
    p: Tensor<'g>,
    g: Tensor<'g>,
) -> (Tensor<'g>, Tensor<'g>) {
    if decoupled {
        (p * ctx.once("keep", || 1.0 - ctx.lr() * ctx.hyper("weight_decay")), g)
    } else {
        (p, g + p * ctx.hyper("weight_decay"))
    }
}

/// The new first and second moment.
pub(super) fn moments<'g>(
    ctx: &RuleContext<'g>,
    m: Tensor<'g>,
    v: Tensor<'g>,
    g: Tensor<'g>,
) -> (Tensor<'g>, Tensor<'g>) {
    let (c1, c2) = (ctx.hyper("one_minus_beta1"), ctx.hyper("one_minus_beta2"));
    let beta2 = ctx.once("beta2", || 1.0 - c2);
    (m + (g - m) * c1, v * beta2 + g.square() * c2)
}
