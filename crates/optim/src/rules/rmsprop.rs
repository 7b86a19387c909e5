//! RMSprop (`torch.optim.RMSprop`; Tieleman and Hinton, "Lecture 6.5: rmsprop", 2012; centred: Graves, "Generating
//! Sequences With Recurrent Neural Networks", 2013).
//!
//! ```text
//! g ← g + λp
//! v ← αv + (1 − α)g²
//! d = √v + ε, or centred: mean ← α·mean + (1 − α)g and d = √(v − mean²) + ε
//! p ← p − η g/d, or with momentum μ: b ← μb + g/d and p ← p − ηb
//! ```

use super::adam::decayed;
use super::{check_all, check_rates, setters};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// RMSprop. Numbers: `lr`, `one_minus_alpha`, `eps`, `weight_decay`, and with momentum `momentum`. Slots: `v`, with
/// momentum `momentum`, and centred `mean`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RmsProp {
    lr: f64,
    alpha: f64,
    eps: f64,
    weight_decay: f64,
    momentum: Option<f64>,
    centered: bool,
    maximize: bool,
}

impl RmsProp {
    /// RMSprop with this learning rate, and no momentum or weight decay.
    pub fn new(lr: f64) -> RmsProp {
        RmsProp {
            lr,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: None,
            centered: false,
            maximize: false,
        }
    }

    /// Keeps a momentum buffer, with this factor; even 0 keeps one, so that the factor may change later.
    pub fn momentum(self, momentum: f64) -> RmsProp {
        RmsProp { momentum: Some(momentum), ..self }
    }

    setters! {
        /// The decay rate of the second moment; 0.99 unless given.
        alpha: f64,
        /// What is added to the denominator; 1e-8 unless given.
        eps: f64,
        /// Adds `weight_decay · p` to the gradient.
        weight_decay: f64,
        /// Divides by the estimated standard deviation, rather than by the root of the second moment.
        centered: bool,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

impl UpdateRule for RmsProp {
    fn name(&self) -> &'static str {
        "rmsprop"
    }

    fn hyper(&self) -> Vec<Hyper> {
        let mut all = vec![
            Hyper::new("lr", self.lr),
            Hyper::new("one_minus_alpha", 1.0 - self.alpha),
            Hyper::new("eps", self.eps),
            Hyper::new("weight_decay", self.weight_decay),
        ];
        all.extend(self.momentum.map(|momentum| Hyper::new("momentum", momentum)));
        all
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        let momentum = self.momentum.map(|_| "momentum");
        let names = ["v"].into_iter().chain(momentum).chain(self.centered.then_some("mean"));
        names.map(|name| SlotSpec::zeros(name, shape)).collect()
    }

    fn check(&self) -> Result<(), OptimError> {
        let momentum = self.momentum.unwrap_or(0.0);
        let decay = self.weight_decay;
        let numbers = [("lr", self.lr), ("eps", self.eps), ("weight_decay", decay), ("momentum", momentum)];
        check_all("rmsprop", &numbers)?;
        check_rates("rmsprop", &[("alpha", self.alpha)])
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [v, ref rest @ ..] = *slots else { return ctx.wrong_slots(p) };
        let mut rest = rest.iter().copied();
        let b = self.momentum.and_then(|_| rest.next());
        let mean = rest.next();

        let (p, g) = decayed(ctx, false, p, if self.maximize { -g } else { g });
        let c = ctx.hyper("one_minus_alpha");
        let alpha = ctx.once("alpha", || 1.0 - c);
        let v = v * alpha + g.square() * c;
        let mean = mean.map(|mean| mean + (g - mean) * c);
        let variance = mean.map_or(v, |mean| v - mean.square());
        let direction = g / (variance.sqrt() + ctx.hyper("eps"));
        let b = b.map(|b| b * ctx.hyper("momentum") + direction);
        let new = [v].into_iter().chain(b).chain(mean).collect();
        (p - b.unwrap_or(direction) * ctx.lr(), new)
    }
}
