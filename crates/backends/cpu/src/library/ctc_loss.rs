//! `ctc_loss`: the forward recursion over the states of a target, kept for all times, then the backward one, which gives
//! the posteriors on its way.
//!
//! Both run in f64 whatever the dtype: sums of logarithms over hundreds of steps lose digits. A chunk is a sequence, so that
//! nothing is shared. A sequence with a length or label out of range is NaN.

use super::indexed::index;
use crate::error::CpuError;
use crate::kernel::{Memory, Work};
use crate::math::double::{exp, log};
use onestep_ir::DType;
use onestep_ir::ops::CtcLoss as Op;
use onestep_passes::schedule::{BufferId, View};
use std::marker::PhantomData;

/// A type of log-probabilities.
trait Element: Copy + Into<f64> + Send + Sync + 'static {
    fn narrow(x: f64) -> Self;
}
impl Element for f32 {
    fn narrow(x: f64) -> f32 {
        x as f32
    }
}
impl Element for f64 {
    fn narrow(x: f64) -> f64 {
        x
    }
}

struct CtcLoss<T> {
    blank: usize,
    /// Times, sequences, classes, and labels of a target at most.
    sizes: [usize; 4],
    /// Log-probabilities, targets and both lengths.
    operands: [View; 4],
    /// The integer operands' dtypes.
    dtypes: [DType; 3],
    losses: BufferId,
    posteriors: BufferId,
    element: PhantomData<T>,
}

/// Compiles the op.
pub(super) fn compile(
    op: &Op,
    dtypes: [DType; 4],
    operands: [View; 4],
    results: [BufferId; 2],
) -> Result<Box<dyn Work>, CpuError> {
    fn make<T: Element>(
        op: &Op,
        dtypes: [DType; 3],
        operands: [View; 4],
        results: [BufferId; 2],
    ) -> Box<dyn Work> {
        let ([time, batch, classes], labels) = match (&operands[0].shape[..], &operands[1].shape[..]) {
            (&[time, batch, classes], &[_, labels]) => ([time, batch, classes], labels),
            _ => ([0; 3], 0),
        };
        let (sizes, [losses, posteriors]) = ([time, batch, classes, labels], results);
        Box::new(CtcLoss::<T> {
            blank: op.blank,
            sizes,
            operands,
            dtypes,
            losses,
            posteriors,
            element: PhantomData,
        })
    }
    let [data, a, b, c] = dtypes;
    match data {
        DType::F64 => Ok(make::<f64>(op, [a, b, c], operands, results)),
        _ => Ok(make::<f32>(op, [a, b, c], operands, results)),
    }
}

/// log(eᵃ + eᵇ + eᶜ); −∞ where all are.
#[inline(always)]
fn log_sum([a, b, c]: [f64; 3]) -> f64 {
    // The largest in front: its own term is 1. A NaN stays, wherever it is.
    let (a, b) = if b > a { (b, a) } else { (a, b) };
    let (a, c) = if c > a { (c, a) } else { (a, c) };
    let term = |x: f64| if x == f64::NEG_INFINITY { 0.0 } else { exp(x - a) };
    let rest = term(b) + term(c);
    if rest == 0.0 { a } else { a + log(1.0 + rest) }
}

/// The states of a target: the blank at even numbers, its labels between.
struct States<'a> {
    /// The class of each state.
    classes: &'a [u32],
}

impl States<'_> {
    /// The value of the state `by` before `s`, or −∞ where a path may not come from there.
    #[inline(always)]
    fn before(&self, row: &[f64], s: usize, by: usize) -> f64 {
        let allowed = s >= by && (by < 2 || self.classes[s] != self.classes[s - by]);
        if allowed { row[s - by] } else { f64::NEG_INFINITY }
    }

    /// The value of the state `by` behind `s`, or −∞ where a path may not go there.
    #[inline(always)]
    fn behind(&self, row: &[f64], s: usize, by: usize) -> f64 {
        let allowed = s + by < row.len() && (by < 2 || self.classes[s] != self.classes[s + by]);
        if allowed { row[s + by] } else { f64::NEG_INFINITY }
    }

    /// Whether a path may end at a state.
    fn ends(&self, s: usize) -> bool {
        s + 2 >= self.classes.len()
    }
}

impl<T: Element> CtcLoss<T> {
    /// The most states that a target has.
    fn most(&self) -> usize {
        2 * self.sizes[3] + 1
    }

    /// The times and labels of sequence `n`, whose states are written; `None` for an index out of range.
    ///
    /// # Safety
    ///
    /// As for [`Work::run_chunk`]; sequence `n` exists.
    unsafe fn read(&self, n: usize, memory: Memory<'_>, classes: &mut [u32]) -> Option<(usize, usize)> {
        let [time, _, count, most] = self.sizes;
        let of = |i: usize, at: usize, bound: usize| {
            let (view, dtype) = (&self.operands[i], self.dtypes[i - 1]);
            let first = memory.at::<u8>(view.buffer, view.offset * dtype.size());
            // SAFETY: the operand has an element `at`.
            unsafe { index(dtype, first, at, bound) }
        };
        let (steps, length) = (of(2, n, time + 1)?, of(3, n, most + 1)?);
        classes.fill(self.blank as u32);
        for i in 0..length {
            classes[2 * i + 1] = of(1, n * most + i, count)? as u32;
        }
        Some((steps, length))
    }
}

impl<T: Element> Work for CtcLoss<T> {
    fn label(&self) -> String {
        let [time, batch, classes, labels] = self.sizes;
        format!("ctc_loss {time}×{batch}×{classes}, {labels} labels")
    }
    fn chunks(&self, _phase: usize) -> usize {
        self.sizes[1]
    }
    fn scratch_bytes(&self) -> usize {
        // The forward table with the row before the first time, three rows, and the classes.
        (self.sizes[0] + 4) * self.most() * size_of::<f64>() + self.most() * size_of::<u32>()
    }
    unsafe fn run_chunk(&self, _phase: usize, n: usize, memory: Memory<'_>) {
        let [time, batch, count, _] = self.sizes;
        let most = self.most();
        let log_probs = memory.of::<T>(&self.operands[0]).cast_const();
        let (loss_at, posteriors) = (memory.at::<T>(self.losses, n), memory.at::<T>(self.posteriors, 0));
        let table = memory.scratch.cast::<f64>();
        // SAFETY: the scratch is as large as `scratch_bytes` says, `f64`s before `u32`s, and is this thread's; zeros are
        // values of both. Log-probabilities and posteriors have `time · batch · count` elements, and this chunk alone
        // touches the posteriors of sequence `n`.
        unsafe {
            let cells = (time + 4) * most;
            std::ptr::write_bytes(table, 0, cells);
            std::ptr::write_bytes(table.add(cells).cast::<u32>(), 0, most);
            let (cells, classes) = (
                std::slice::from_raw_parts_mut(table, cells),
                std::slice::from_raw_parts_mut(table.add(cells).cast::<u32>(), most),
            );
            let row_of = |t: usize| std::slice::from_raw_parts(log_probs.add((t * batch + n) * count), count);
            let out_of =
                |t: usize| std::slice::from_raw_parts_mut(posteriors.add((t * batch + n) * count), count);
            let Some((steps, length)) = self.read(n, memory, classes) else {
                (0..time).for_each(|t| out_of(t).fill(T::narrow(f64::NAN)));
                *loss_at = T::narrow(f64::NAN);
                return;
            };
            let states = 2 * length + 1;
            let target = States { classes: &classes[..states] };
            let (forward, rows) = cells.split_at_mut((time + 1) * most);
            forward[..states].fill(f64::NEG_INFINITY);
            forward[0] = 0.0;
            for t in 0..steps {
                let (before, next) = forward[t * most..].split_at_mut(most);
                let emissions = row_of(t);
                for s in 0..states {
                    let from = [before[s], target.before(before, s, 1), target.before(before, s, 2)];
                    next[s] = log_sum(from) + emissions[target.classes[s] as usize].into();
                }
            }
            let last = &forward[steps * most..][..states];
            let end = |k: usize| last.len().checked_sub(k).map_or(f64::NEG_INFINITY, |s| last[s]);
            let loss = -log_sum([end(1), end(2), f64::NEG_INFINITY]);
            *loss_at = T::narrow(loss);
            (steps..time).for_each(|t| out_of(t).fill(T::narrow(0.0)));

            let (rest, next) = rows.split_at_mut(most);
            let (rest, next) = (&mut rest[..states], &mut next[..states]);
            for t in (0..steps).rev() {
                if t + 1 == steps {
                    (0..states).for_each(|s| rest[s] = if target.ends(s) { 0.0 } else { f64::NEG_INFINITY });
                } else {
                    let emissions = row_of(t + 1);
                    for s in 0..states {
                        next[s] = rest[s] + emissions[target.classes[s] as usize].into();
                    }
                    for s in 0..states {
                        rest[s] = log_sum([next[s], target.behind(next, s, 1), target.behind(next, s, 2)]);
                    }
                }
                let out = out_of(t);
                out.fill(T::narrow(0.0));
                if loss < f64::INFINITY || loss.is_nan() {
                    let here = &forward[(t + 1) * most..][..states];
                    for s in 0..states {
                        let class = &mut out[target.classes[s] as usize];
                        *class = T::narrow((*class).into() + exp(here[s] + rest[s] + loss));
                    }
                }
            }
        }
    }
}
