//! Learning-rate schedules: multipliers of `opt/lr`, computed in the graph from the counter.
//!
//! The counter counts completed steps, so a skipped step does not advance the schedule. The schedule's own numbers
//! are state too: a run may be made longer without compiling again.

use crate::OptimError;
use crate::error::check;
use onestep_ir::{DType, GraphBuilder, Init, Role, Tensor};
use std::f64::consts::PI;

/// How the learning rate follows the step's number `t`, from 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Schedule {
    /// `opt/lr` itself.
    #[default]
    Constant,
    /// A linear warm-up, then half a cosine down to a floor (Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent
    /// with Warm Restarts", ICLR 2017, without restarts):
    ///
    /// ```text
    /// t ≤ warmup:  t / warmup
    /// later:       floor + (1 − floor) · ½ (1 + cos(π · min(1, (t − warmup) / (total − warmup))))
    /// ```
    ///
    /// Step `warmup` has the whole rate; step `total` and every later one have `floor` of it. The numbers are the state
    /// scalars `opt/schedule/warmup`, `opt/schedule/total` (`i32`) and `opt/schedule/floor`.
    WarmupCosine {
        /// Steps until the whole rate.
        warmup: u32,
        /// Steps until the floor.
        total: u32,
        /// The share of the rate that is left at the end.
        floor: f64,
    },
}

impl Schedule {
    /// Refuses numbers out of range.
    pub fn check(&self) -> Result<(), OptimError> {
        let Schedule::WarmupCosine { warmup, total, floor } = *self else { return Ok(()) };
        let most = i32::MAX as f64;
        check("schedule", "total", total as f64, |x| x <= most, "the counter is 32 bits: use fewer steps")?;
        check("schedule", "warmup", warmup as f64, |x| x <= total as f64, "use no more than total")?;
        check("schedule", "floor", floor, |x| x >= 0.0 && x.is_finite(), "use a finite share, 0 or above")
    }

    /// The multiplier at step `t`, from 1, on the host: for tables and plots of what the graph will do.
    pub fn multiplier(&self, t: u32) -> f64 {
        match *self {
            Schedule::Constant => 1.0,
            Schedule::WarmupCosine { warmup, .. } if t <= warmup => t as f64 / warmup as f64,
            Schedule::WarmupCosine { warmup, total, floor } => {
                let progress = (t - warmup) as f64 / total.saturating_sub(warmup).max(1) as f64;
                floor + (1.0 - floor) * 0.5 * (1.0 + (PI * progress.min(1.0)).cos())
            }
        }
    }

    /// The multiplier in the graph, in `dtype`, from the step's number `t` (an `i32` scalar, from 1); declares the
    /// schedule's state. `None` for a constant rate.
    pub fn build<'g>(&self, g: &'g GraphBuilder, t: Tensor<'g>, dtype: DType) -> Option<Tensor<'g>> {
        let Schedule::WarmupCosine { warmup, total, floor } = *self else { return None };
        let scalar = |name: &str, dtype, value| {
            g.state(&format!("opt/schedule/{name}"), Role::Scalar, dtype, &[], Init::Constant(value))
        };
        let warmup = scalar("warmup", DType::I32, warmup as f64);
        let total = scalar("total", DType::I32, total as f64);
        let floor = scalar("floor", dtype, floor);
        // Differences of steps are exact in integers; no value of the state divides by zero.
        let ratio = |a: Tensor<'g>, b: Tensor<'g>| a.cast(dtype) / b.maximum(1.0).cast(dtype);
        let rise = ratio(t, warmup);
        let progress = ratio(t - warmup, total - warmup).minimum(1.0);
        let cosine = ((progress * PI).cos() + 1.0) * 0.5;
        Some(t.less_equal(warmup).select(rise, floor + (1.0 - floor) * cosine))
    }
}
