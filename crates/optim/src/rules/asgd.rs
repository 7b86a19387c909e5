//! Averaged stochastic gradient descent (`torch.optim.ASGD`; Polyak and Juditsky, "Acceleration of Stochastic
//! Approximation by Averaging", SIAM J. Control Optim. 1992).
//!
//! ```text
//! g ← g + λp
//! p ← p · (1 − Λ η_t) − η_t g
//! ax ← ax + μ_t (p − ax)
//! η_{t+1} = η / (1 + Λ η t)^α        μ_{t+1} = 1 / max(1, t − t0)
//! ```
//!
//! `η_1` is the learning rate, `μ_1` is 1, and both lag a step; all parameters share them. The average `ax` is what to
//! evaluate with.

use super::adam::decayed;
use super::{check_all, setters};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// Averaged descent. Numbers: `lr`, `lambda` (`Λ`), `alpha`, `t0`, `weight_decay`. Slot: `ax`, the average, which starts as
/// the parameter. Scalars: `eta`, which starts as the first step's `lr`, and `mu`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Asgd {
    lr: f64,
    lambda: f64,
    alpha: f64,
    t0: f64,
    weight_decay: f64,
    maximize: bool,
}

impl Asgd {
    /// Averaged descent with this learning rate and no weight decay.
    pub fn new(lr: f64) -> Asgd {
        Asgd { lr, lambda: 1e-4, alpha: 0.75, t0: 1e6, weight_decay: 0.0, maximize: false }
    }

    setters! {
        /// How strongly the parameter decays, and with it the rate; 1e-4 unless given.
        lambda: f64,
        /// The power by which the rate decays; 0.75 unless given.
        alpha: f64,
        /// The step after which averaging begins; a million unless given. Until then the average is the parameter.
        t0: f64,
        /// Adds `weight_decay · p` to the gradient.
        weight_decay: f64,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

/// The rate of this step: what the step before left, or the first.
fn eta<'g>(ctx: &RuleContext<'g>) -> Tensor<'g> {
    ctx.once("eta", || ctx.starting(ctx.hyper("eta"), ctx.lr()))
}

impl UpdateRule for Asgd {
    fn name(&self) -> &'static str {
        "asgd"
    }

    fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("lambda", self.lambda),
            Hyper::new("alpha", self.alpha),
            Hyper::new("t0", self.t0),
            Hyper::new("weight_decay", self.weight_decay),
        ]
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("ax", shape)]
    }

    fn scalars(&self) -> Vec<Hyper> {
        vec![Hyper::new("eta", self.lr), Hyper::new("mu", 1.0)]
    }

    fn advance<'g>(&self, ctx: &RuleContext<'g>) -> Vec<Tensor<'g>> {
        let decay = ctx.hyper("lambda") * ctx.lr() * ctx.t() + 1.0;
        let mu = 1.0 / (ctx.t() - ctx.hyper("t0")).maximum(1.0);
        vec![ctx.lr() / decay.pow(ctx.hyper("alpha")), mu]
    }

    fn check(&self) -> Result<(), OptimError> {
        let numbers = [("lr", self.lr), ("lambda", self.lambda), ("alpha", self.alpha), ("t0", self.t0)];
        check_all("asgd", &numbers)?;
        check_all("asgd", &[("weight_decay", self.weight_decay)])
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [ax] = *slots else { return ctx.wrong_slots(p) };
        let ax = ctx.starting(ax, p);
        let (p, g) = decayed(ctx, false, p, if self.maximize { -g } else { g });
        let keep = ctx.once("keep", || 1.0 - ctx.hyper("lambda") * eta(ctx));
        let p = p * keep - g * eta(ctx);
        // While μ is 1 the average is the parameter itself, without rounding.
        let mu = ctx.hyper("mu");
        (p, vec![mu.equals(1.0).select(p, ax + (p - ax) * mu)])
    }
}
