//! Learning-rate schedules: multipliers of `opt/lr`, computed in the graph from the counter.
//!
//! The counter counts completed steps, so a skipped step does not advance the schedule. The schedule's own numbers
//! are state too, under the names that the fields have here: a run may be made longer without compiling again. Without a
//! schedule the host sets `opt/lr` as it likes.
//!
//! Below, `n` is the number of completed steps, 0 at the first: where PyTorch has a scheduler of the kind
//! (`torch.optim.lr_scheduler`, its `step()` called after each step), the multiplier is the same.

mod build;

use crate::OptimError;
use crate::error::{check, check_non_negative};
use onestep_ir::{Array, DType, GraphBuilder, Tensor, interp};

/// How the learning rate follows the step.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Schedule {
    /// `opt/lr` itself.
    #[default]
    Constant,
    /// A linear warm-up, then half a cosine down to a floor (Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent
    /// with Warm Restarts", ICLR 2017, without restarts). With the step's number `t = n + 1`:
    ///
    /// ```text
    /// t ≤ warmup:  t / warmup
    /// later:       floor + (1 − floor) · ½ (1 + cos(π · min(1, (t − warmup) / (total − warmup))))
    /// ```
    ///
    /// Step `warmup` has the whole rate; step `total` and every later one have `floor` of it.
    WarmupCosine {
        /// Steps until the whole rate.
        warmup: u32,
        /// Steps until the floor.
        total: u32,
        /// The share of the rate that is left at the end.
        floor: f64,
    },
    /// `from + (to − from) · min(1, n / steps)` (`LinearLR`).
    Linear {
        /// The first share of the rate.
        from: f64,
        /// The last.
        to: f64,
        /// Steps until the last.
        steps: u32,
    },
    /// `floor + (1 − floor) · ½ (1 + cos(π · min(1, n / steps)))` (`CosineAnnealingLR`, which goes up again after
    /// `T_max` steps; this one stays at the floor).
    Cosine {
        /// Steps until the floor.
        steps: u32,
        /// The share of the rate that is left at the end.
        floor: f64,
    },
    /// The same again and again: the first time over `period` steps, each time over `growth` times as many as before
    /// (`CosineAnnealingWarmRestarts`).
    CosineRestarts {
        /// Steps of the first period.
        period: u32,
        /// What each period is multiplied with for the next; 1 for equal periods.
        growth: u32,
        /// The share of the rate that a period ends with.
        floor: f64,
    },
    /// `factor^⌊n / every⌋` (`StepLR`).
    Step {
        /// Steps of one rate.
        every: u32,
        /// What the rate is multiplied with then.
        factor: f64,
    },
    /// `factor` to the number of milestones that are not above `n` (`MultiStepLR`). The milestones are the state scalars
    /// `at.0`, `at.1`, ….
    MultiStep {
        /// The milestones.
        at: Vec<u32>,
        /// What the rate is multiplied with at each.
        factor: f64,
    },
    /// `factorⁿ` (`ExponentialLR`).
    Exponential {
        /// What the rate is multiplied with at each step.
        factor: f64,
    },
    /// A linear warm-up, then the inverse square root (Vaswani et al., "Attention Is All You Need", NeurIPS 2017):
    /// `min(t / warmup, √(warmup / t))` with `t = n + 1`.
    InverseSqrt {
        /// Steps until the whole rate, at least 1.
        warmup: u32,
    },
    /// Up from `start` to the whole rate at `n = rise · total − 1`, and down to `end` at `n = total − 1` (`OneCycleLR`;
    /// Smith and Topin, "Super-Convergence", 2018). PyTorch's `div_factor` is `1 / start`, its `final_div_factor`
    /// `start / end`. Momentum stays as it is.
    OneCycle {
        /// Steps of the cycle.
        total: u32,
        /// The share of the steps that go up.
        rise: f64,
        /// The first share of the rate.
        start: f64,
        /// The last.
        end: f64,
        /// Straight lines, rather than halves of a cosine.
        linear: bool,
    },
    /// `(1 − min(1, n / steps))^power` (`PolynomialLR`).
    Polynomial {
        /// Steps until 0.
        steps: u32,
        /// The power.
        power: f64,
    },
    /// One schedule after the other: each from the step `n` given with it, where its own `n` is 0, until the next
    /// (`SequentialLR`). The first is given with 0. Numbers are `0/<number>`, `1/start`, `1/<number>`, ….
    Sequence(Vec<(u32, Schedule)>),
    /// The product of schedules (`ChainedScheduler`). Numbers are `0/<number>`, `1/<number>`, ….
    Product(Vec<Schedule>),
}

impl Schedule {
    /// This schedule after a linear warm-up of so many steps, the last of which has the whole rate. Its own `n` is 0 at
    /// the first step after.
    pub fn after_warmup(self, steps: u32) -> Schedule {
        if steps == 0 {
            return self;
        }
        let rise = Schedule::Linear { from: 1.0 / steps as f64, to: 1.0, steps: (steps - 1).max(1) };
        Schedule::Sequence(vec![(0, rise), (steps, self)])
    }

    /// Refuses numbers out of range.
    pub fn check(&self) -> Result<(), OptimError> {
        let share = |name, x| check_non_negative("schedule", name, x);
        let steps = |name, n: u32| {
            let most = i32::MAX as f64;
            check("schedule", name, n as f64, |n| n <= most, "the counter is 32 bits: use fewer steps")
        };
        let some = |name, n: u32| {
            steps(name, n)?;
            check("schedule", name, n as f64, |n| n >= 1.0, "use 1 step or more")
        };
        match self {
            Schedule::Constant => Ok(()),
            Schedule::WarmupCosine { warmup, total, floor } => {
                steps("total", *total)?;
                let fits = |x| x <= *total as f64;
                check("schedule", "warmup", *warmup as f64, fits, "use no more than total")?;
                share("floor", *floor)
            }
            Schedule::Linear { from, to, steps: n } => {
                some("steps", *n)?;
                share("from", *from)?;
                share("to", *to)
            }
            Schedule::Cosine { steps: n, floor } => {
                some("steps", *n)?;
                share("floor", *floor)
            }
            Schedule::CosineRestarts { period, growth, floor } => {
                some("period", *period)?;
                some("growth", *growth)?;
                share("floor", *floor)
            }
            Schedule::Step { every, factor } => {
                some("every", *every)?;
                share("factor", *factor)
            }
            Schedule::MultiStep { at, factor } => {
                at.iter().try_for_each(|n| steps("at", *n))?;
                share("factor", *factor)
            }
            Schedule::Exponential { factor } => share("factor", *factor),
            Schedule::InverseSqrt { warmup } => some("warmup", *warmup),
            Schedule::OneCycle { total, rise, start, end, .. } => {
                some("total", *total)?;
                check("schedule", "rise", *rise, |x| (0.0..=1.0).contains(&x), "use a share from 0 to 1")?;
                share("start", *start)?;
                share("end", *end)
            }
            Schedule::Polynomial { steps: n, power } => {
                some("steps", *n)?;
                share("power", *power)
            }
            Schedule::Sequence(parts) => {
                let first = parts.first().map_or(f64::NAN, |(start, _)| *start as f64);
                check(
                    "schedule",
                    "start",
                    first,
                    |n| n == 0.0,
                    "give the sequence's first part with step 0",
                )?;
                for pair in parts.windows(2) {
                    let after = |n| n > pair[0].0 as f64;
                    check("schedule", "start", pair[1].0 as f64, after, "start after the part before")?;
                }
                parts.iter().try_for_each(|(start, part)| steps("start", *start).and(part.check()))
            }
            Schedule::Product(parts) => parts.iter().try_for_each(Schedule::check),
        }
    }

    /// The multiplier at step `t`, from 1: for tables and plots of what the graph will do, whose formula in `f64` it is.
    /// NaN if [`Schedule::check`] refuses the numbers.
    pub fn multiplier(&self, t: u32) -> f64 {
        let compute = || {
            self.check().ok()?;
            let g = GraphBuilder::new("multiplier");
            let step = g.input("t", DType::I32, ());
            let multiplier = self.build(&g, "schedule", step, DType::F64);
            g.output("multiplier", multiplier.unwrap_or_else(|| g.scalar(DType::F64, 1.0)));
            let graph = g.build().ok()?;
            let first = |s: &onestep_ir::StatePort| {
                Some((s.name.clone(), s.init.array(graph.ty(s.value).dtype, &[], 0, &s.name).ok()?))
            };
            let mut state = graph.states.iter().map(first).collect::<Option<_>>()?;
            let t = Array::from_f64(DType::I32, &[], &[t as f64]).ok()?;
            interp::run_arrays(&graph, &[t], &mut state).ok()?.first()?.to_f64().first().copied()
        };
        compute().unwrap_or(f64::NAN)
    }

    /// The multiplier in the graph, in `dtype`, from the step's number `t` (an `i32` scalar, from 1); declares the
    /// schedule's numbers as state at `path`. `None` for a constant rate.
    pub fn build<'g>(
        &self,
        g: &'g GraphBuilder,
        path: &str,
        t: Tensor<'g>,
        dtype: DType,
    ) -> Option<Tensor<'g>> {
        (*self != Schedule::Constant).then(|| build::Numbers { g, path, dtype }.multiplier(self, t))
    }
}
