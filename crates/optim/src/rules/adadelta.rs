//! Adadelta (`torch.optim.Adadelta`; Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012).
//!
//! ```text
//! g ← g + λp
//! v ← ρv + (1 − ρ)g²
//! Δ = √(u + ε) / √(v + ε) · g
//! u ← ρu + (1 − ρ)Δ²
//! p ← p − ηΔ
//! ```

use super::adam::decayed;
use super::{check_all, check_rates, setters};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// Adadelta. Numbers: `lr`, `one_minus_rho`, `eps`, `weight_decay`. Slots: `v` (of gradients) and `u` (of steps).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Adadelta {
    lr: f64,
    rho: f64,
    eps: f64,
    weight_decay: f64,
    maximize: bool,
}

impl Adadelta {
    /// Adadelta with this learning rate (the paper's is 1), and no weight decay.
    pub fn new(lr: f64) -> Adadelta {
        Adadelta { lr, rho: 0.9, eps: 1e-6, weight_decay: 0.0, maximize: false }
    }

    setters! {
        /// The decay rate of both averages; 0.9 unless given.
        rho: f64,
        /// What is added under both roots; 1e-6 unless given.
        eps: f64,
        /// Adds `weight_decay · p` to the gradient.
        weight_decay: f64,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

impl UpdateRule for Adadelta {
    fn name(&self) -> &'static str {
        "adadelta"
    }

    fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("one_minus_rho", 1.0 - self.rho),
            Hyper::new("eps", self.eps),
            Hyper::new("weight_decay", self.weight_decay),
        ]
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("v", shape), SlotSpec::zeros("u", shape)]
    }

    fn check(&self) -> Result<(), OptimError> {
        let numbers = [("lr", self.lr), ("eps", self.eps), ("weight_decay", self.weight_decay)];
        check_all("adadelta", &numbers)?;
        check_rates("adadelta", &[("rho", self.rho)])
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [v, u] = *slots else { return ctx.wrong_slots(p) };
        let (p, g) = decayed(ctx, false, p, if self.maximize { -g } else { g });
        let (c, eps) = (ctx.hyper("one_minus_rho"), ctx.hyper("eps"));
        let rho = ctx.once("rho", || 1.0 - c);
        let v = v * rho + g.square() * c;
        let delta = (u + eps).sqrt() / (v + eps).sqrt() * g;
        (p - delta * ctx.lr(), vec![v, u * rho + delta.square() * c])
    }
}
