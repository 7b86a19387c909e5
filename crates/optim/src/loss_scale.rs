//! Dynamic loss scaling, wholly in the graph (Micikevicius and others, "Mixed precision training", ICLR 2018; the course
//! is that of `torch.amp.GradScaler`).
//!
//! The gradients are those of `scale · loss`, so that small ones do not vanish in `f16`, and are divided by the scale
//! again before anything looks at them. A call whose gradients overflow is refused by the commit guard:
//!
//! ```text
//! overflow:  scale ← max(scale · backoff_factor, floor)      tracker ← 0
//! a step:    tracker ← tracker + 1; at growth_interval:
//!            scale ← min(scale · growth_factor, ceiling)     tracker ← 0
//! ```
//!
//! All of it is `opt/loss_scale/<name>`: `scale`, `growth_factor`, `backoff_factor`, `floor`, `ceiling` (`f32`),
//! `growth_tracker`, `growth_interval` (`i32`). Scale and tracker are written at every call, whatever the guard says.

use crate::OptimError;
use crate::error::check;
use onestep_ir::{DType, GraphBuilder, Init, Role, Tensor};

/// The first numbers of loss scaling; in a run they are state.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossScale {
    initial: f64,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u32,
    floor: f64,
    ceiling: f64,
}

impl Default for LossScale {
    /// PyTorch's numbers (from 65536, doubled after 2000 steps without an overflow, halved at one), within `[1, 2²⁴]`.
    fn default() -> LossScale {
        LossScale {
            initial: 65_536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2_000,
            floor: 1.0,
            ceiling: 16_777_216.0,
        }
    }
}

impl LossScale {
    /// Dynamic scaling that starts here.
    pub fn dynamic(initial: f64) -> LossScale {
        LossScale { initial, ..LossScale::default() }
    }

    /// A scale that stays; 1 scales nothing.
    pub fn constant(scale: f64) -> LossScale {
        let still = LossScale { growth_factor: 1.0, backoff_factor: 1.0, ..LossScale::dynamic(scale) };
        still.bounds(scale, scale)
    }

    /// Multiplies the scale by `factor` after `interval` steps in a row without an overflow.
    pub fn growth(self, factor: f64, interval: u32) -> LossScale {
        LossScale { growth_factor: factor, growth_interval: interval, ..self }
    }

    /// Multiplies the scale by `factor` at an overflow.
    pub fn backoff(self, factor: f64) -> LossScale {
        LossScale { backoff_factor: factor, ..self }
    }

    /// Keeps the scale within `[floor, ceiling]`.
    pub fn bounds(self, floor: f64, ceiling: f64) -> LossScale {
        LossScale { floor, ceiling, ..self }
    }

    /// Refuses numbers out of range.
    pub fn check(&self) -> Result<(), OptimError> {
        let positive = |x: f64| x > 0.0 && x <= f32::MAX as f64;
        let owner = "loss scale";
        check(owner, "floor", self.floor, positive, "use a finite number above 0")?;
        check(owner, "ceiling", self.ceiling, positive, "use a finite number above 0")?;
        let within = |x: f64| (self.floor..=self.ceiling).contains(&x);
        check(owner, "initial", self.initial, within, "use a number from the floor to the ceiling")?;
        let grows = |x: f64| x >= 1.0 && x.is_finite();
        check(owner, "growth_factor", self.growth_factor, grows, "use a finite number, 1 or above")?;
        let falls = |x: f64| x > 0.0 && x <= 1.0;
        check(owner, "backoff_factor", self.backoff_factor, falls, "use a number above 0, at most 1")?;
        let counts = |x: f64| (1.0..=i32::MAX as f64).contains(&x);
        let interval = self.growth_interval as f64;
        check(owner, "growth_interval", interval, counts, "use a number of steps, 1 or above, in 32 bits")
    }

    /// Declares the state.
    pub(crate) fn declare<'g>(&self, g: &'g GraphBuilder) -> Scaling<'g> {
        let scalar = |name: &str, dtype, value| {
            g.state(&format!("opt/loss_scale/{name}"), Role::Scalar, dtype, &[], Init::Constant(value))
        };
        Scaling {
            scale: scalar("scale", DType::F32, self.initial),
            tracker: scalar("growth_tracker", DType::I32, 0.0),
            growth_factor: scalar("growth_factor", DType::F32, self.growth_factor),
            backoff_factor: scalar("backoff_factor", DType::F32, self.backoff_factor),
            growth_interval: scalar("growth_interval", DType::I32, self.growth_interval as f64),
            floor: scalar("floor", DType::F32, self.floor),
            ceiling: scalar("ceiling", DType::F32, self.ceiling),
        }
    }
}

/// The state of loss scaling in a graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scaling<'g> {
    /// The scale of this call.
    pub scale: Tensor<'g>,
    tracker: Tensor<'g>,
    growth_factor: Tensor<'g>,
    backoff_factor: Tensor<'g>,
    growth_interval: Tensor<'g>,
    floor: Tensor<'g>,
    ceiling: Tensor<'g>,
}

impl<'g> Scaling<'g> {
    /// A gradient of the scaled loss as that of the loss.
    pub fn unscale(&self, gradient: Tensor<'g>) -> Tensor<'g> {
        gradient * (1.0 / self.scale).cast(gradient.dtype())
    }

    /// Writes the next scale: `finite` says that this call's gradients are; `last`, if given, whether the call ends a
    /// step, without which it counts neither for nor against growth.
    pub fn update(&self, g: &'g GraphBuilder, finite: Tensor<'g>, last: Option<Tensor<'g>>) {
        let counted = self.tracker + 1.0;
        let counted = last.map_or(counted, |last| last.select(counted, self.tracker));
        let grows = counted.greater_equal(self.growth_interval);
        let grown = (self.scale * self.growth_factor).minimum(self.ceiling);
        let fallen = (self.scale * self.backoff_factor).maximum(self.floor);
        let scale = finite.select(grows.select(grown, self.scale), fallen);
        let tracker = finite.select(grows.select(0.0, counted), 0.0);
        g.update(self.scale, scale, false);
        g.update(self.tracker, tracker, false);
    }
}
