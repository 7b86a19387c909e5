//! LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020, algorithm 2):
//! Adam's direction, scaled tensor by tensor to the parameter's own norm.
//!
//! ```text
//! m ← β1 m + (1 − β1) g        v ← β2 v + (1 − β2) g²
//! r = (m / bc1) / (√(v / bc2) + ε) + λp
//! p ← p − η · φ(‖p‖) / ‖r‖ · r        φ(z) = z, or min(max(z, least), most); the quotient is 1 where either is 0
//! ```

use super::adam::moments;
use super::{check_all, check_rates, setters};
use crate::error::check;
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// LAMB. Numbers: `lr`, `one_minus_beta1`, `one_minus_beta2`, `eps`, `weight_decay`, and with limits
/// `least_norm`, `most_norm`. Slots: `m`, `v`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lamb {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    norms: Option<(f64, f64)>,
    maximize: bool,
}

impl Lamb {
    /// LAMB with this learning rate and a weight decay of 0.01.
    pub fn new(lr: f64) -> Lamb {
        Lamb { lr, beta1: 0.9, beta2: 0.999, eps: 1e-6, weight_decay: 0.01, norms: None, maximize: false }
    }

    setters! {
        /// The decay rates of the two moments; 0.9 and 0.999 unless given.
        betas(beta1, beta2)
    }
    setters! {
        /// What is added to the denominator; 1e-6 unless given.
        eps: f64,
        /// Adds `weight_decay · p` to Adam's direction, before it is scaled; 0.01 unless given.
        weight_decay: f64,
        /// Ascends instead of descending.
        maximize: bool,
    }

    /// Limits the parameter's norm, where it scales the step, to `[least, most]`.
    pub fn norms(self, least: f64, most: f64) -> Lamb {
        Lamb { norms: Some((least, most)), ..self }
    }
}

/// The 2-norm of all elements.
fn norm<'g>(x: Tensor<'g>) -> Tensor<'g> {
    x.square().sum_all().sqrt()
}

impl UpdateRule for Lamb {
    fn name(&self) -> &'static str {
        "lamb"
    }

    fn hyper(&self) -> Vec<Hyper> {
        let mut all = vec![
            Hyper::new("lr", self.lr),
            Hyper::new("one_minus_beta1", 1.0 - self.beta1),
            Hyper::new("one_minus_beta2", 1.0 - self.beta2),
            Hyper::new("eps", self.eps),
            Hyper::new("weight_decay", self.weight_decay),
        ];
        if let Some((least, most)) = self.norms {
            all.extend([Hyper::new("least_norm", least), Hyper::new("most_norm", most)]);
        }
        all
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("m", shape), SlotSpec::zeros("v", shape)]
    }

    fn check(&self) -> Result<(), OptimError> {
        let numbers = [("lr", self.lr), ("eps", self.eps), ("weight_decay", self.weight_decay)];
        check_all("lamb", &numbers)?;
        let (least, most) = self.norms.unwrap_or((0.0, 0.0));
        check_all("lamb", &[("least_norm", least)])?;
        let fits = |x: f64| x >= least && x.is_finite();
        check("lamb", "most_norm", most, fits, "use a finite number, at least the least norm")?;
        check_rates("lamb", &[("beta1", self.beta1), ("beta2", self.beta2)])
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [m, v] = *slots else { return ctx.wrong_slots(p) };
        let (m, v) = moments(ctx, m, v, if self.maximize { -g } else { g });
        let root = ctx.once("root", || ctx.bias_correction("one_minus_beta2").sqrt());
        let adam = m / ctx.bias_correction("one_minus_beta1") / (v.sqrt() / root + ctx.hyper("eps"));
        let r = adam + p * ctx.hyper("weight_decay");

        let limit = |x: Tensor<'g>| x.maximum(ctx.hyper("least_norm")).minimum(ctx.hyper("most_norm"));
        let of_p = if self.norms.is_some() { limit(norm(p)) } else { norm(p) };
        let of_r = norm(r);
        let plain = of_p.equals(0.0).or(of_r.equals(0.0));
        let trust = plain.select(1.0, of_p / plain.select(1.0, of_r));
        (p - r * (ctx.lr() * trust), vec![m, v])
    }
}
