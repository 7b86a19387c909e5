//! Muon (`torch.optim.Muon`; Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): momentum,
//! made orthogonal. For matrices; parameters of any other rank are updated by AdamW, with numbers of its own
//! (`opt/adamw/lr`, …). Embeddings and the last layer are matrices too, but better off in a group with AdamW.
//!
//! ```text
//! b ← b + (1 − μ)(g − b)
//! u = orthogonal(g + μ(b − g)), or without Nesterov orthogonal(b)
//! p ← p · (1 − ηλ) − η s(n, m) u                               for p of n rows and m columns
//! ```

use super::newton_schulz::NewtonSchulz;
use super::{AdamW, check_all, setters};
use crate::error::check;
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::{DType, Tensor};

/// How the rate of a matrix of `n` rows and `m` columns follows its shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MuonRate {
    /// `√max(1, n/m)`.
    #[default]
    Original,
    /// `0.2 √max(n, m)`: updates as large as AdamW's, so that one learning rate serves both.
    MatchAdamW,
    /// `√(n/m)`.
    Spectral,
}

impl MuonRate {
    /// The factor.
    fn factor(self, n: usize, m: usize) -> f64 {
        let (n, m) = (n as f64, m.max(1) as f64);
        match self {
            MuonRate::Original => (n / m).max(1.0).sqrt(),
            MuonRate::MatchAdamW => 0.2 * n.max(m).sqrt(),
            MuonRate::Spectral => (n / m).sqrt(),
        }
    }
}

/// Muon. Numbers: `lr`, `momentum`, `eps`, `weight_decay`. Slot: `momentum`. Other tensors than matrices have AdamW's
/// slots.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Muon {
    lr: f64,
    momentum: f64,
    nesterov: bool,
    eps: f64,
    weight_decay: f64,
    rate: MuonRate,
    others: AdamW,
    iteration: NewtonSchulz,
    maximize: bool,
}

impl Muon {
    /// Muon with this learning rate, Nesterov momentum of 0.95 and a weight decay of 0.1; other tensors by AdamW with a
    /// learning rate of 3e-4.
    pub fn new(lr: f64) -> Muon {
        Muon {
            lr,
            momentum: 0.95,
            nesterov: true,
            eps: 1e-7,
            weight_decay: 0.1,
            rate: MuonRate::Original,
            others: AdamW::new(3e-4),
            iteration: NewtonSchulz { steps: 5, coefficients: (3.4445, -4.775, 2.0315), dtype: None },
            maximize: false,
        }
    }

    setters! {
        /// The momentum; 0.95 unless given.
        momentum: f64,
        /// Looks ahead by one momentum step; so unless told otherwise.
        nesterov: bool,
        /// The least norm that the momentum is divided by; 1e-7 unless given.
        eps: f64,
        /// Shrinks a matrix by `lr · weight_decay` of itself at each step; 0.1 unless given.
        weight_decay: f64,
        /// How the rate follows the shape; `√max(1, n/m)` unless given.
        rate: MuonRate,
        /// The rule for everything that is not a matrix.
        others: AdamW,
        /// Ascends instead of descending, on matrices.
        maximize: bool,
    }

    /// Rounds to `bf16` between the products of the iteration, as PyTorch does; without it they are in the parameter's
    /// dtype. The two differ by some thousandths of a step.
    pub fn bf16(self, bf16: bool) -> Muon {
        let dtype = bf16.then_some(DType::BF16);
        Muon { iteration: NewtonSchulz { dtype, ..self.iteration }, ..self }
    }

    /// How many steps the iteration has; 5 unless given.
    pub fn steps(self, steps: usize) -> Muon {
        Muon { iteration: NewtonSchulz { steps, ..self.iteration }, ..self }
    }

    /// The coefficients of the iteration's polynomial `ax + bx³ + cx⁵`; 3.4445, −4.775 and 2.0315 unless given.
    pub fn coefficients(self, a: f64, b: f64, c: f64) -> Muon {
        Muon { iteration: NewtonSchulz { coefficients: (a, b, c), ..self.iteration }, ..self }
    }
}

impl UpdateRule for Muon {
    fn name(&self) -> &'static str {
        "muon"
    }

    fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("momentum", self.momentum),
            Hyper::new("eps", self.eps),
            Hyper::new("weight_decay", self.weight_decay),
        ]
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("momentum", shape)]
    }

    fn instead(&self, shape: &[usize]) -> Option<&dyn UpdateRule> {
        (shape.len() != 2).then_some(&self.others)
    }

    fn check(&self) -> Result<(), OptimError> {
        let numbers = [("lr", self.lr), ("momentum", self.momentum), ("weight_decay", self.weight_decay)];
        check_all("muon", &numbers)?;
        check("muon", "eps", self.eps, |x| x > 0.0 && x.is_finite(), "use a finite number above 0")?;
        check("muon", "steps", self.iteration.steps as f64, |x| x < 100.0, "use fewer than 100")?;
        let (a, b, c) = self.iteration.coefficients;
        [a, b, c]
            .iter()
            .try_for_each(|x| check("muon", "coefficients", *x, f64::is_finite, "use finite numbers"))?;
        self.others.check()
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [b] = *slots else { return ctx.wrong_slots(p) };
        let g = if self.maximize { -g } else { g };
        let momentum = ctx.hyper("momentum");
        let share = ctx.once("share", || 1.0 - momentum);
        let b = b + (g - b) * share;
        let u = self.iteration.run(if self.nesterov { g + (b - g) * momentum } else { b }, ctx.hyper("eps"));
        let factor = match p.shape().sizes().as_deref() {
            Some(&[n, m]) => self.rate.factor(n, m),
            _ => return (p.mistake("muon", "the parameter is no matrix", "use AdamW for it"), vec![b]),
        };
        let keep = ctx.once("keep", || 1.0 - ctx.lr() * ctx.hyper("weight_decay"));
        (p * keep - u * (ctx.lr() * factor), vec![b])
    }
}
