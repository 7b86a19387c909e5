//! Adafactor (`torch.optim.Adafactor`; Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory
//! Cost", ICML 2018): a second moment kept as the outer product of its rows' and its columns' means.
//!
//! ```text
//! c = t^d₂ (d₂ = −0.8)        ρ = min(η, 1/√t)        α = max(ε₂, RMS(p)) · ρ
//! p ← p · (1 − ηλ)
//! row ← row + c (mean of g² along a row − row), col likewise;   v = row · col / max(mean(row), ε₁)
//! or for vectors and scalars: v ← v + c (g² − v)
//! u = g / √max(v, ε₁²)
//! p ← p − α u / max(1, RMS(u) / d)
//! ```
//!
//! Axes before the last two are batches of matrices.

use super::{check_all, setters};
use crate::error::check;
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::{DType, Tensor};

/// Adafactor. Numbers: `lr`, `beta2_decay`, `eps1` (if given), `eps2`, `clip`, `weight_decay`. Slots: for a matrix
/// `[…, n, m]` `row` `[…, n, 1]` and `col` `[…, 1, m]`; for vectors and scalars `v`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Adafactor {
    lr: f64,
    beta2_decay: f64,
    eps1: Option<f64>,
    eps2: f64,
    clip: f64,
    weight_decay: f64,
    maximize: bool,
}

impl Adafactor {
    /// Adafactor with this bound on the relative learning rate, and no weight decay.
    pub fn new(lr: f64) -> Adafactor {
        Adafactor {
            lr,
            beta2_decay: -0.8,
            eps1: None,
            eps2: 1e-3,
            clip: 1.0,
            weight_decay: 0.0,
            maximize: false,
        }
    }

    /// Keeps the second moment away from 0; the machine epsilon of the parameter's dtype unless given, and then no
    /// number of the state.
    pub fn eps1(self, eps1: f64) -> Adafactor {
        Adafactor { eps1: Some(eps1), ..self }
    }

    setters! {
        /// The power of `t` that weighs new squares; −0.8 unless given.
        beta2_decay: f64,
        /// The least root mean square of a parameter that scales its step; 1e-3 unless given.
        eps2: f64,
        /// `d`: an update whose root mean square is larger is scaled down to it; 1 unless given.
        clip: f64,
        /// Shrinks the parameter by `lr · weight_decay` of itself at each step.
        weight_decay: f64,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

/// The root mean square of all elements.
fn rms<'g>(x: Tensor<'g>) -> Tensor<'g> {
    x.square().mean().sqrt()
}

impl UpdateRule for Adafactor {
    fn name(&self) -> &'static str {
        "adafactor"
    }

    fn hyper(&self) -> Vec<Hyper> {
        let mut all = vec![
            Hyper::new("lr", self.lr),
            Hyper::new("beta2_decay", self.beta2_decay),
            Hyper::new("eps2", self.eps2),
            Hyper::new("clip", self.clip),
            Hyper::new("weight_decay", self.weight_decay),
        ];
        all.extend(self.eps1.map(|eps1| Hyper::new("eps1", eps1)));
        all
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        let [batch @ .., n, m] = shape else { return vec![SlotSpec::zeros("v", shape)] };
        let row = SlotSpec::zeros("row", &[batch, &[*n, 1]].concat());
        vec![row, SlotSpec::zeros("col", &[batch, &[1, *m]].concat())]
    }

    fn check(&self) -> Result<(), OptimError> {
        let epsilons = [("eps1", self.eps1.unwrap_or(0.0)), ("eps2", self.eps2)];
        check_all("adafactor", &[("lr", self.lr), ("weight_decay", self.weight_decay)])?;
        check_all("adafactor", &epsilons)?;
        let decays = |x: f64| x <= 0.0 && x.is_finite();
        check("adafactor", "beta2_decay", self.beta2_decay, decays, "use a finite number, 0 or below")?;
        let clips = |x: f64| x > 0.0 && x.is_finite();
        check("adafactor", "clip", self.clip, clips, "use a finite number above 0")
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let g = if self.maximize { -g } else { g };
        let epsilon = if ctx.dtype() == DType::F64 { f64::EPSILON } else { f32::EPSILON as f64 };
        let eps1 = match self.eps1 {
            Some(_) => ctx.hyper("eps1"),
            None => ctx.once("eps1", || ctx.graph().scalar(ctx.dtype(), epsilon)),
        };
        let c = ctx.once("c", || ctx.t().pow(ctx.hyper("beta2_decay")));
        let square = g.square();
        let (v, new) = match *slots {
            [v] => {
                let v = v + (square - v) * c;
                (v, vec![v])
            }
            [row, col] => {
                let row = row + (square.mean_keep(&[-1]) - row) * c;
                let col = col + (square.mean_keep(&[-2]) - col) * c;
                (row / row.mean_keep(&[-2]).maximum(eps1) * col, vec![row, col])
            }
            _ => return ctx.wrong_slots(p),
        };
        let u = g / v.maximum(eps1.square()).sqrt();

        let rho = ctx.once("rho", || ctx.lr().minimum(ctx.t().rsqrt()));
        let alpha = rms(p).maximum(ctx.hyper("eps2")) * rho;
        let scale = alpha / (rms(u) / ctx.hyper("clip")).maximum(1.0);
        let keep = ctx.once("keep", || 1.0 - ctx.lr() * ctx.hyper("weight_decay"));
        (p * keep - u * scale, new)
    }
}
