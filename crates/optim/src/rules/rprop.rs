//! Rprop, for whole batches (`torch.optim.Rprop`; Riedmiller and Braun, "A Direct Adaptive Method for Faster
//! Backpropagation Learning: The RPROP Algorithm", ICNN 1993).
//!
//! ```text
//! s = g · prev
//! step ← step · (η⁺ where s > 0, η⁻ where s < 0, else 1), within [least, most]
//! g ← 0 where s < 0                                        (no move, and the next product is 0)
//! p ← p − sign(g) · step        prev ← g
//! ```

use super::{check_all, setters};
use crate::error::check;
use crate::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
use onestep_ir::Tensor;

/// Rprop. Numbers: `lr`, which is the size of each element's first step, `shrink`, `grow`, `least_step`, `most_step`.
/// Slots: `prev` (the gradient before) and `step_size`, which starts as the first step's `lr`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rprop {
    lr: f64,
    shrink: f64,
    grow: f64,
    least_step: f64,
    most_step: f64,
    maximize: bool,
}

impl Rprop {
    /// Rprop with this size of the first step.
    pub fn new(lr: f64) -> Rprop {
        Rprop { lr, shrink: 0.5, grow: 1.2, least_step: 1e-6, most_step: 50.0, maximize: false }
    }

    setters! {
        /// What a step is multiplied with where the gradient's sign changed, and where it did not; 0.5 and 1.2 unless
        /// given.
        etas(shrink, grow)
    }
    setters! {
        /// The least and the greatest size of a step; 1e-6 and 50 unless given.
        step_sizes(least_step, most_step)
    }
    setters! {
        /// Ascends instead of descending.
        maximize: bool,
    }
}

impl UpdateRule for Rprop {
    fn name(&self) -> &'static str {
        "rprop"
    }

    fn hyper(&self) -> Vec<Hyper> {
        vec![
            Hyper::new("lr", self.lr),
            Hyper::new("shrink", self.shrink),
            Hyper::new("grow", self.grow),
            Hyper::new("least_step", self.least_step),
            Hyper::new("most_step", self.most_step),
        ]
    }

    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("prev", shape), SlotSpec::zeros("step_size", shape)]
    }

    fn check(&self) -> Result<(), OptimError> {
        check_all("rprop", &[("lr", self.lr), ("least_step", self.least_step)])?;
        check("rprop", "shrink", self.shrink, |x| x > 0.0 && x < 1.0, "use a number between 0 and 1")?;
        check("rprop", "grow", self.grow, |x| x > 1.0 && x.is_finite(), "use a finite number above 1")?;
        let fits = |x: f64| x >= self.least_step && x.is_finite();
        check("rprop", "most_step", self.most_step, fits, "use a finite number, at least the least step")
    }

    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let [prev, step] = *slots else { return ctx.wrong_slots(p) };
        let g = if self.maximize { -g } else { g };
        // Signs are multiplied, since a product of small gradients would be 0.
        let s = g.sign() * prev.sign();
        let (turned, kept) = (s.less(0.0), s.greater(0.0));
        let factor = turned.select(ctx.hyper("shrink"), kept.select(ctx.hyper("grow"), 1.0));
        let step = ctx.starting(step, ctx.lr()) * factor;
        let step = step.maximum(ctx.hyper("least_step")).minimum(ctx.hyper("most_step"));
        let g = turned.select(0.0, g);
        (p - g.sign() * step, vec![g, step])
    }
}
