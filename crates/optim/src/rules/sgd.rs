//! Stochastic gradient descent, plain or with momentum (`torch.optim.SGD`; Sutskever, Martens, Dahl and Hinton, "On
//! the importance of initialization and momentum in deep learning", ICML 2013).
//!
//! ```text
//! g ← g + λp
//! b ← g at t = 1 (undamped), later μb + (1 − τ)g        with momentum μ and dampening τ
//! d = g + μb (Nesterov), b (momentum) or g (neither)
//! p ← p − ηd
//! ```

use super::{check_all, setters};
use crate::error::check;
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// Stochastic gradient descent. Numbers: `lr`, `weight_decay`, and with momentum `momentum` and `dampening`. Slot:
/// `momentum`, if there is momentum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sgd {
    lr: f64,
    momentum: Option<f64>,
    dampening: f64,
    weight_decay: f64,
    nesterov: bool,
    maximize: bool,
}

impl Sgd {
    /// Plain descent with this learning rate.
    pub fn new(lr: f64) -> Sgd {
        Sgd { lr, momentum: None, dampening: 0.0, weight_decay: 0.0, nesterov: false, maximize: false }
    }

    /// Keeps a momentum buffer, with this factor `μ`; even 0 keeps one, so that the factor may change later.
    pub fn momentum(self, momentum: f64) -> Sgd {
        Sgd { momentum: Some(momentum), ..self }
    }

    setters! {
        /// Damps what enters the momentum buffer by `1 − dampening`, from the second step on.
        dampening: f64,
        /// Adds `weight_decay · p` to the gradient.
        weight_decay: f64,
        /// Nesterov's form: looks ahead by one momentum step. Needs momentum and no dampening.
        nesterov: bool,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

impl UpdateRule for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn hyper(&self) -> Vec<Hyper> {
        let mut all = vec![Hyper::new("lr", self.lr), Hyper::new("weight_decay", self.weight_decay)];
        if let Some(momentum) = self.momentum {
            all.extend([Hyper::new("momentum", momentum), Hyper::new("dampening", self.dampening)]);
        }
        all
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        self.momentum.map(|_| SlotSpec::zeros("momentum", shape)).into_iter().collect()
    }

    fn check(&self) -> Result<(), OptimError> {
        let momentum = self.momentum.unwrap_or(0.0);
        check_all("sgd", &[("lr", self.lr), ("weight_decay", self.weight_decay), ("momentum", momentum)])?;
        check("sgd", "dampening", self.dampening, f64::is_finite, "use a finite number")?;
        if self.momentum.is_none() {
            check(
                "sgd",
                "dampening",
                self.dampening,
                |x| x == 0.0,
                "it damps momentum: give a momentum too",
            )?;
        }
        if self.nesterov {
            check("sgd", "momentum", momentum, |x| x > 0.0, "Nesterov's form needs a momentum above 0")?;
            check("sgd", "dampening", self.dampening, |x| x == 0.0, "Nesterov's form takes no dampening")?;
        }
        Ok(())
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let g = if self.maximize { -g } else { g };
        let g = g + p * ctx.hyper("weight_decay");
        let Some(&b) = slots.first() else { return (p - g * ctx.lr(), vec![]) };
        let momentum = ctx.hyper("momentum");
        // The choice at the first step is made on the scalar factor: the buffer starts at zero.
        let share = ctx.once("share", || ctx.is_first().select(1.0, 1.0 - ctx.hyper("dampening")));
        let b = b * momentum + g * share;
        let d = if self.nesterov { g + b * momentum } else { b };
        (p - d * ctx.lr(), vec![b])
    }
}
