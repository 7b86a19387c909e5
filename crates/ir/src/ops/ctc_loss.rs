//! `ctc_loss`: the negative log-likelihood of a sequence of labels, however they are aligned in time, and the posterior
//! probabilities of that alignment (Graves and others, "Connectionist temporal classification", 2006).
//!
//! A path names a class or the blank at each time; it stands for the labels that are left when repetitions are merged and
//! blanks removed. The loss is −log of the sum of `Π exp(log_probs[t, path(t)])` over all paths that stand for the target,
//! by the forward recursion in logarithms over the states `blank, label, blank, … blank`. A target that no path stands for,
//! because there are too few times, has the loss +∞ (and no posterior: 0). Of no time and no label, the loss is 0.
//!
//! The posterior of class `c` at time `t`, given the target, is exactly −∂loss/∂log_probs[t, c], so that the gradient needs
//! no op of its own. It holds for any `log_probs`, normalised or not.
//!
//! A length beyond its axis, or a label within its length that is no class, is a mistake that the reference names; the
//! decomposition and backends give NaN as the loss, and backends raise the flag of bad indices. What stands behind a
//! length is not read.

use crate::attrs::{AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, Range, Sample, arity, check_index, want_float, want_int, want_shape};
use crate::ops::softmax::row_scale;
use crate::{DType, Dense, GraphBuilder, Mistake, Shape, Tensor, Type};

/// Operands `log_probs`, floats of `[time, batch, classes]`; `targets`, integers of `[batch, labels]`; and the lengths of
/// both, integers of `[batch]` each. Results in the dtype that they are computed in, `f32` at least: the losses `[batch]`,
/// and the posterior probabilities of the classes, of `log_probs`' shape, 0 behind a length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CtcLoss {
    /// The class that stands for no label.
    pub blank: usize,
}

impl OpRule for CtcLoss {
    fn name(&self) -> &'static str {
        "ctc_loss"
    }
    fn attrs(&self) -> Attrs {
        vec![("blank", int(self.blank))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [log_probs, targets, input_lengths, target_lengths] = arity(operands)?;
        want_float(log_probs)?;
        [targets, input_lengths, target_lengths].into_iter().try_for_each(want_int)?;
        let [_, batch, classes] = &log_probs.shape.0[..] else {
            let what = format!("the log-probabilities have shape {}", log_probs.shape);
            return Err(Mistake::new(what, "give them as [time, batch, classes]"));
        };
        let [_, labels] = &targets.shape.0[..] else {
            let what = format!("the targets have shape {}", targets.shape);
            return Err(Mistake::new(what, "give them as [batch, labels]"));
        };
        want_shape("the targets", targets, &Shape(vec![batch.clone(), labels.clone()]))?;
        let rows = Shape(vec![batch.clone()]);
        want_shape("the third operand (input lengths)", input_lengths, &rows)?;
        want_shape("the fourth operand (target lengths)", target_lengths, &rows)?;
        if classes.size().is_some_and(|n| self.blank >= n) {
            let what = format!("the blank, {}, is none of {classes} classes", self.blank);
            return Err(Mistake::new(what, "name one of the classes"));
        }
        let acc = log_probs.dtype.accumulator();
        Ok(vec![Type::new(acc, rows), Type::new(acc, log_probs.shape.clone())])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (log_probs, targets, input_lengths, target_lengths) =
            (inputs[0], inputs[1], inputs[2], inputs[3]);
        let (time, batch, classes) = (log_probs.shape[0], log_probs.shape[1], log_probs.shape[2]);
        let most = targets.shape[1];
        let (mut losses, mut posteriors) = (vec![], vec![0.0; log_probs.len()]);
        for n in 0..batch {
            let steps = check_length(input_lengths.ints()[n], n, time)?;
            let length = check_length(target_lengths.ints()[n], n, most)?;
            let mut states = vec![self.blank];
            for (i, &label) in targets.ints()[n * most..][..length].iter().enumerate() {
                states.extend([check_index(label, n * most + i, classes)?, self.blank]);
            }
            let place = |t: usize, s: usize| (t * batch + n) * classes + states[s];
            let log_prob = |t: usize, s: usize| log_probs.reals()[place(t, s)];
            let (forward, backward) =
                (forward(&states, steps, &log_prob), backward(&states, steps, &log_prob));
            let ends = states.len().saturating_sub(2)..states.len();
            let loss = -log_sum(&forward[steps][ends]);
            losses.push(loss);
            if loss == f64::INFINITY {
                continue;
            }
            for (t, s) in (0..steps).flat_map(|t| (0..states.len()).map(move |s| (t, s))) {
                posteriors[place(t, s)] += libm::exp(forward[t + 1][s] + backward[t][s] + loss);
            }
        }
        let dense = |i: usize, values| Dense::from_reals(results[i].dtype, &results[i].sizes(), values);
        Ok(vec![dense(0, losses), dense(1, posteriors)])
    }
    fn decompose<'g>(&self, g: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        Unrolled::new(g, self.blank, operands)?.results()
    }
}

/// A length as a number of elements of its axis.
fn check_length(length: i64, n: usize, most: usize) -> Result<usize, Mistake> {
    usize::try_from(length).ok().filter(|&l| l <= most).ok_or_else(|| {
        Mistake::new(
            format!("length {length} (element {n} of the lengths) is outside 0..={most}"),
            "keep lengths within the axis",
        )
    })
}

/// Whether a path may go from state `s − 2` to `s`: past a blank between different labels.
fn skips(states: &[usize], s: usize) -> bool {
    s >= 2 && states[s] != states[s - 2]
}

/// log Σ eˣ; −∞ of nothing.
fn log_sum(terms: &[f64]) -> f64 {
    let (shift, sum) = row_scale(terms.iter().copied());
    shift + libm::log(sum)
}

/// For each number of times, the log-likelihood of all paths to each state. Before the first, a path is at the first blank.
fn forward(states: &[usize], steps: usize, log_prob: &dyn Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
    let mut rows = vec![vec![f64::NEG_INFINITY; states.len()]];
    rows[0][0] = 0.0;
    for t in 0..steps {
        let before = &rows[t];
        let next = |s: usize| {
            let from = if skips(states, s) { s - 2 } else { s.saturating_sub(1) };
            log_sum(&before[from..=s]) + log_prob(t, s)
        };
        rows.push((0..states.len()).map(next).collect());
    }
    rows
}

/// For each time, the log-likelihood of the rest of all paths behind it, from each state.
fn backward(states: &[usize], steps: usize, log_prob: &dyn Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
    let last = states.len() - 1;
    let mut rows = vec![vec![f64::NEG_INFINITY; states.len()]; steps];
    for t in (0..steps).rev() {
        for s in 0..=last {
            rows[t][s] = if t + 1 == steps {
                if s + 1 >= last { 0.0 } else { f64::NEG_INFINITY }
            } else {
                let to = if s + 2 <= last && skips(states, s + 2) { s + 2 } else { last.min(s + 1) };
                log_sum(&(s..=to).map(|to| rows[t + 1][to] + log_prob(t + 1, to)).collect::<Vec<_>>())
            };
        }
    }
    rows
}

/// The recursions by primitives, one step a time.
struct Unrolled<'g> {
    g: &'g GraphBuilder,
    /// The log-probability of each state at each time, `[batch, states]`.
    emissions: Vec<Tensor<'g>>,
    /// The class of each state, `[batch, states]`.
    states: Tensor<'g>,
    /// The number of each state.
    number: Tensor<'g>,
    /// Where paths may skip the state before, and where they may end.
    skips: Tensor<'g>,
    ends: Tensor<'g>,
    /// Times, `[batch, 1]`.
    steps: Tensor<'g>,
    /// Whether both lengths are within their axes, `[batch]`.
    valid: Tensor<'g>,
    log_probs: Tensor<'g>,
}

impl<'g> Unrolled<'g> {
    fn new(g: &'g GraphBuilder, blank: usize, operands: &[Tensor<'g>]) -> Option<Unrolled<'g>> {
        let [log_probs, targets, input_lengths, target_lengths] = operands.try_into().ok()?;
        let [time, batch, _] = log_probs.shape().sizes()?.try_into().ok()?;
        let labels = targets.shape().0[1].size()?;
        let count = 2 * labels + 1;
        let log_probs = log_probs.cast(log_probs.dtype().accumulator());
        let [targets, steps, length] =
            [targets, input_lengths, target_lengths].map(|x: Tensor<'g>| x.cast(DType::I64));
        let within = |x: Tensor<'g>, most: usize| x.greater_equal(0.0).and(x.less_equal(most as f64));
        let valid = within(steps, time).and(within(length, labels));
        let (steps, last) = (steps.expand(1), length.expand(1) * 2.0);
        let number = g.iota(DType::I64, [batch, count], 1);
        let blanks = |n: usize| g.full(DType::I64, [batch, n, 1], blank as f64);
        let pairs = g.concat(&[blanks(labels), targets.expand(2)], 2).reshape([batch, 2 * labels]);
        let states = g.concat(&[pairs, blanks(1).squeeze(2)], 1);
        let states = number.less_equal(last).select(states, blank as f64);
        let before = states.slice(1, 0, count - count.min(2)).pad(1, count.min(2), 0, blank as f64);
        let skips = number.greater_equal(2.0).and(states.not_equal(before));
        let ends = number.equals(last).or(number.equals(last - 1.0));
        let classes = states.expand(0).broadcast(&Shape::fixed(&[time, batch, count]));
        let each = log_probs.gather_along(2, classes);
        let emissions = (0..time).map(|t| each.at(0, t)).collect();
        Some(Unrolled { g, emissions, states, number, skips, ends, steps, valid, log_probs })
    }

    /// The states moved by `by` places, towards the end where positive; −∞ moves in.
    fn moved(x: Tensor<'g>, by: isize) -> Tensor<'g> {
        let (n, low) = (x.shape().0[1].size().unwrap_or(0), f64::NEG_INFINITY);
        let k = by.unsigned_abs().min(n);
        if by > 0 { x.slice(1, 0, n - k).pad(1, k, 0, low) } else { x.slice(1, k, n).pad(1, 0, k, low) }
    }

    /// log(eᵃ + eᵇ + eᶜ), −∞ where all are.
    fn log_sum([a, b, c]: [Tensor<'g>; 3]) -> Tensor<'g> {
        let top = a.maximum(b).maximum(c);
        let shift = top.equals(f64::NEG_INFINITY).select(0.0, top);
        let sum = (a - shift).exp() + (b - shift).exp() + (c - shift).exp();
        Self::log(sum, shift)
    }

    /// shift + log(sum): −∞ for a sum of 0, without the logarithm's infinite slope there.
    fn log(sum: Tensor<'g>, shift: Tensor<'g>) -> Tensor<'g> {
        let none = sum.equals(0.0);
        none.select(f64::NEG_INFINITY, none.select(1.0, sum).log() + shift)
    }

    fn results(self) -> Option<Vec<Tensor<'g>>> {
        let Unrolled { g, emissions, states, number, skips, ends, steps, valid, log_probs } = self;
        let low = f64::NEG_INFINITY;
        let acc = log_probs.dtype();
        let zero = g.full(acc, number.shape(), 0.0);
        let goes_on = |t: usize| steps.greater(t as f64).broadcast(&number.shape());
        // Behind a sequence's end, the states stay.
        let mut forward = vec![];
        let mut at = number.equals(0.0).select(zero, low);
        for (t, emission) in emissions.iter().enumerate() {
            let skipped = skips.select(Self::moved(at, 2), low);
            let next = Self::log_sum([at, Self::moved(at, 1), skipped]) + *emission;
            at = goes_on(t).select(next, at);
            forward.push(at);
        }
        let end = ends.select(at, low);
        let top = end.max_keep(&[1]);
        let shift = top.equals(low).select(0.0, top);
        let loss = -Self::log((end - shift).exp().sum_keep(&[1]), shift);
        let loss = valid.expand(1).select(loss, f64::NAN);
        let given = loss.equals(f64::INFINITY).select(0.0, loss);

        let mut rest = ends.select(zero, low);
        let mut posteriors = vec![];
        for t in (0..emissions.len()).rev() {
            if let Some(emission) = emissions.get(t + 1) {
                let next = rest + *emission;
                let skipped = Self::moved(skips.select(next, low), -2);
                rest = goes_on(t + 1).select(Self::log_sum([next, Self::moved(next, -1), skipped]), rest);
            }
            posteriors.push(goes_on(t).select((forward[t] + rest + given).exp(), 0.0));
        }
        posteriors.reverse();
        let none = g.full(acc, log_probs.shape(), 0.0);
        let posterior = if posteriors.is_empty() {
            none
        } else {
            let each = g.stack(&posteriors, 0);
            let classes = states.expand(0).broadcast(&each.shape());
            none.scatter_add_along(2, classes, each)
        };
        Some(vec![loss.squeeze(1), posterior])
    }
}

impl OpTable for CtcLoss {
    const NAMES: &'static [&'static str] = &["ctc_loss"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(CtcLoss { blank: attrs.size("blank")? })
    }
    fn samples() -> Vec<Sample> {
        let case = |blank, [t, n, c, s]: [usize; 4], label, times, labels| {
            Sample::reals(CtcLoss { blank }, &[&[t, n, c]])
                .and(DType::I32, &[n, s], label)
                .and(DType::I64, &[n], times)
                .and(DType::I32, &[n], labels)
        };
        let real = Range::Real(-2.0, 2.0);
        vec![
            case(0, [5, 3, 4, 2], Range::Int(1, 4), Range::Int(4, 6), Range::Int(0, 3)),
            // One label, repeated: a blank must stand between.
            case(2, [5, 2, 3, 2], Range::Int(1, 2), Range::Int(3, 6), Range::Int(2, 3)),
            // Too few times for some.
            case(0, [4, 4, 3, 3], Range::Int(1, 3), Range::Int(0, 5), Range::Int(0, 4)),
            case(1, [3, 2, 2, 0], Range::Int(0, 2), Range::Int(2, 4), Range::Int(0, 1)),
            Sample::reals(CtcLoss { blank: 0 }, &[])
                .and(DType::BF16, &[3, 1, 3], real)
                .and(DType::U8, &[1, 1], Range::Int(1, 3))
                .and(DType::I32, &[1], Range::Int(3, 4))
                .and(DType::I32, &[1], Range::Int(1, 2)),
        ]
    }
}
