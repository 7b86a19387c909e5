//! Adam that touches only the rows that have a gradient, for embeddings (`torch.optim.SparseAdam`).
//!
//! A row is what lies along the first axis. One whose gradient is 0 throughout is untouched: parameter and slots keep
//! their values. (PyTorch asks which ids were looked up instead: a row that was, and has a gradient of exactly 0, is
//! touched there and not here.)
//!
//! ```text
//! m ← β1 m + (1 − β1) g        v ← β2 v + (1 − β2) g²
//! p ← p − η √bc2 / bc1 · m / (√v + ε)                      ε before the bias correction
//! ```

use super::adam::moments;
use super::{check_all, check_rates, setters};
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// Adam on touched rows. Numbers: `lr`, `one_minus_beta1`, `one_minus_beta2`, `eps`. Slots: `m`, `v`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SparseAdam {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    maximize: bool,
}

impl SparseAdam {
    /// The rule with this learning rate.
    pub fn new(lr: f64) -> SparseAdam {
        SparseAdam { lr, beta1: 0.9, beta2: 0.999, eps: 1e-8, maximize: false }
    }

    setters! {
        /// The decay rates of the two moments; 0.9 and 0.999 unless given.
        betas(beta1, beta2)
    }
    setters! {
        /// What is added to the denominator; 1e-8 unless given.
        eps: f64,
        /// Ascends instead of descending.
        maximize: bool,
    }
}

impl UpdateRule for SparseAdam {
    fn name(&self) -> &'static str {
        "sparse_adam"
    }

    fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("one_minus_beta1", 1.0 - self.beta1),
            Hyper::new("one_minus_beta2", 1.0 - self.beta2),
            Hyper::new("eps", self.eps),
        ]
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("m", shape), SlotSpec::zeros("v", shape)]
    }

    fn check(&self) -> Result<(), OptimError> {
        check_all("sparse_adam", &[("lr", self.lr), ("eps", self.eps)])?;
        check_rates("sparse_adam", &[("beta1", self.beta1), ("beta2", self.beta2)])
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [old_m, old_v] = *slots else { return ctx.wrong_slots(p) };
        let g = if self.maximize { -g } else { g };
        let along_row: Vec<isize> = (1..g.rank() as isize).collect();
        // As |g| and not as truth values, whose reduction would not keep the axes.
        let touched = g.abs().max_keep(&along_row).not_equal(0.0);

        let (m, v) = moments(ctx, old_m, old_v, g);
        let step_size = ctx.once("step_size", || {
            let root = ctx.bias_correction("one_minus_beta2").sqrt();
            ctx.lr() * root / ctx.bias_correction("one_minus_beta1")
        });
        let new = p - m / (v.sqrt() + ctx.hyper("eps")) * step_size;
        (touched.select(new, p), vec![touched.select(m, old_m), touched.select(v, old_v)])
    }
}
