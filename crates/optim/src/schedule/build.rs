//! The formulas of the schedules, as graphs. No value that the state may get divides by zero.

use super::Schedule;
use onestep_ir::{DType, GraphBuilder, Init, Role, Tensor};
use std::f64::consts::PI;

/// Where the numbers of a schedule are.
pub(super) struct Numbers<'a, 'g> {
    pub g: &'g GraphBuilder,
    pub path: &'a str,
    pub dtype: DType,
}

impl<'g> Numbers<'_, 'g> {
    fn state(&self, name: &str, dtype: DType, value: f64) -> Tensor<'g> {
        self.g.state(&format!("{}/{name}", self.path), Role::Scalar, dtype, &[], Init::Constant(value))
    }

    /// A share of the rate, or another number.
    fn number(&self, name: &str, value: f64) -> Tensor<'g> {
        self.state(name, self.dtype, value)
    }

    /// A number of steps, `i32`.
    fn steps(&self, name: &str, value: u32) -> Tensor<'g> {
        self.state(name, DType::I32, value as f64)
    }

    /// The quotient of two numbers of steps: their differences are exact in integers.
    fn ratio(&self, a: Tensor<'g>, b: Tensor<'g>) -> Tensor<'g> {
        a.cast(self.dtype) / b.maximum(1.0).cast(self.dtype)
    }

    /// The multiplier of a part, whose numbers are in the folder `at`.
    fn part(&self, at: usize, part: &Schedule, t: Tensor<'g>) -> Tensor<'g> {
        let path = format!("{}/{at}", self.path);
        Numbers { path: &path, ..*self }.multiplier(part, t)
    }

    /// The multiplier at the step `t`, from 1.
    pub fn multiplier(&self, schedule: &Schedule, t: Tensor<'g>) -> Tensor<'g> {
        let n = t - 1.0;
        match *schedule {
            Schedule::Constant => self.g.scalar(self.dtype, 1.0),
            Schedule::WarmupCosine { warmup, total, floor } => {
                let (warmup, total) = (self.steps("warmup", warmup), self.steps("total", total));
                let fall = fall(self.ratio(t - warmup, total - warmup), self.number("floor", floor));
                t.less_equal(warmup).select(self.ratio(t, warmup), fall)
            }
            Schedule::Linear { from, to, steps } => {
                let (from, to) = (self.number("from", from), self.number("to", to));
                let steps = self.steps("steps", steps);
                from + (to - from) * self.ratio(n.minimum(steps), steps)
            }
            Schedule::Cosine { steps, floor } => {
                fall(self.ratio(n, self.steps("steps", steps)), self.number("floor", floor))
            }
            Schedule::CosineRestarts { period, growth, floor } => {
                let (period, growth) = (self.steps("period", period), self.steps("growth", growth));
                fall(self.share_of_period(n, period, growth), self.number("floor", floor))
            }
            Schedule::Step { every, factor } => {
                let periods = (n / self.steps("every", every).maximum(1.0)).cast(self.dtype);
                self.number("factor", factor).pow(periods)
            }
            Schedule::MultiStep { ref at, factor } => {
                let reached = |(i, at): (usize, &u32)| {
                    n.greater_equal(self.steps(&format!("at.{i}"), *at)).cast(self.dtype)
                };
                let zero = self.g.scalar(self.dtype, 0.0);
                let count = at.iter().enumerate().map(reached).fold(zero, |sum, x| sum + x);
                self.number("factor", factor).pow(count)
            }
            Schedule::Exponential { factor } => self.number("factor", factor).pow(n.cast(self.dtype)),
            Schedule::InverseSqrt { warmup } => {
                let warmup = self.steps("warmup", warmup);
                self.ratio(t, warmup).minimum(self.ratio(warmup, t).sqrt())
            }
            Schedule::OneCycle { total, rise, start, end, linear } => {
                let total = self.steps("total", total).cast(self.dtype);
                let (start, end) = (self.number("start", start), self.number("end", end));
                let top = self.number("rise", rise) * total - 1.0;
                let n = n.cast(self.dtype);
                let between = |from: Tensor<'g>, to: Tensor<'g>, share: Tensor<'g>| {
                    let share = share.minimum(1.0);
                    to + (from - to) * if linear { 1.0 - share } else { half_cosine(share) }
                };
                let one = self.g.scalar(self.dtype, 1.0);
                let up = between(start, one, n / top.maximum(1e-6));
                let down = between(one, end, (n - top) / (total - 1.0 - top).maximum(1e-6));
                n.less_equal(top).select(up, down)
            }
            Schedule::Polynomial { steps, power } => {
                let left = 1.0 - self.ratio(n, self.steps("steps", steps)).minimum(1.0);
                left.pow(self.number("power", power))
            }
            Schedule::Sequence(ref parts) => {
                let mut parts = parts.iter().enumerate();
                let first = parts.next().map(|(i, (_, part))| self.part(i, part, t));
                parts.fold(first.unwrap_or_else(|| self.g.scalar(self.dtype, 1.0)), |before, (i, part)| {
                    let start = self.steps(&format!("{i}/start"), part.0);
                    n.greater_equal(start).select(self.part(i, &part.1, t - start), before)
                })
            }
            Schedule::Product(ref parts) => {
                let factors = parts.iter().enumerate().map(|(i, part)| self.part(i, part, t));
                factors.fold(self.g.scalar(self.dtype, 1.0), |a, b| a * b)
            }
        }
    }

    /// How far the step `n` is into its period, as a share of it. Period `k` begins at `period (growthᵏ − 1) / (growth − 1)`.
    fn share_of_period(&self, n: Tensor<'g>, period: Tensor<'g>, growth: Tensor<'g>) -> Tensor<'g> {
        let period = period.maximum(1.0);
        let equal = growth.less_equal(1.0);
        let ratio = growth.maximum(2.0).cast(self.dtype);
        let length = |k: Tensor<'g>| period * ratio.pow(k).round().cast(DType::I32);
        let begin = |k| (length(k) - period) / (growth.maximum(2.0) - 1.0);
        // The logarithm is rounded: at a period's end it may fall short by one, or be too large.
        let guess = ((self.ratio(n, period) * (ratio - 1.0) + 1.0).log() / ratio.log()).floor();
        let short = n.greater_equal(begin(guess + 1.0)).cast(self.dtype);
        let long = n.less(begin(guess)).cast(self.dtype);
        let k = guess + short - long;
        equal.select(self.ratio(n.remainder(period), period), self.ratio(n - begin(k), length(k)))
    }
}

/// `½ (1 + cos πx)`: from 1 at 0 to 0 at 1.
fn half_cosine<'g>(x: Tensor<'g>) -> Tensor<'g> {
    ((x * PI).cos() + 1.0) * 0.5
}

/// Half a cosine from 1 down to the floor, where it stays.
fn fall<'g>(share: Tensor<'g>, floor: Tensor<'g>) -> Tensor<'g> {
    floor + (1.0 - floor) * half_cosine(share.minimum(1.0))
}
