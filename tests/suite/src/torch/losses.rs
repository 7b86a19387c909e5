//! Losses and distances.

use super::Entry;
use super::call::{Built, Call, KEYWORD};
use super::helpers::{at_least, chosen, fixed, like, norm, one, sizes, sum};
use onestep_ir::{CrossEntropyOptions, DType, Tensor};
use std::f64::consts::PI;

pub const TABLE: &[Entry] = &[
    ("nn.functional.multilabel_margin_loss", multilabel_margin),
    ("nn.functional.mse_loss", |c| pair(c, |x, t| (x - t).square())),
    ("nn.functional.l1_loss", |c| pair(c, |x, t| (x - t).abs())),
    ("nn.functional.smooth_l1_loss", |c| {
        let beta = c.number_or(KEYWORD, "beta", 1.0)?;
        pair(c, |x, t| {
            let gap = (x - t).abs();
            if beta == 0.0 {
                return gap;
            }
            gap.less(beta).select(gap.square() * (0.5 / beta), gap - 0.5 * beta)
        })
    }),
    ("nn.functional.huber_loss", |c| {
        let delta = c.number_or(KEYWORD, "delta", 1.0)?;
        pair(c, |x, t| {
            let gap = (x - t).abs();
            gap.less_equal(delta).select(gap.square() * 0.5, (gap - 0.5 * delta) * delta)
        })
    }),
    ("nn.functional.soft_margin_loss", |c| pair(c, |x, t| (-(x * t)).softplus())),
    ("nn.functional.hinge_embedding_loss", |c| {
        let margin = c.number_or(KEYWORD, "margin", 1.0)?;
        pair(c, |x, t| {
            let apart = t.not_equal(1.0).select(hinge(margin - x), like(x, 0.0));
            apart + t.not_equal(-1.0).select(x, like(x, 0.0))
        })
    }),
    ("nn.functional.poisson_nll_loss", |c| {
        let (log, full) = (c.flag(2, "log_input", true)?, c.flag(3, "full", false)?);
        let eps = c.number_or(KEYWORD, "eps", 1e-8)?;
        pair(c, |x, t| {
            let loss = if log { x.exp() - t * x } else { x - t * (x + eps).log() };
            if !full {
                return loss;
            }
            // Stirling's formula, for targets above 1.
            let large = t.greater(1.0);
            let t = large.select(t, like(t, 1.0));
            let stirling = t * t.log() - t + (t * (2.0 * PI)).log() * 0.5;
            loss + large.select(stirling, like(t, 0.0))
        })
    }),
    ("nn.functional.kl_div", |c| {
        let (x, t) = (c.x()?, c.tensor(1, "target")?);
        let loss = if c.flag(KEYWORD, "log_target", false)? {
            t.exp() * (t - x)
        } else {
            let zero = t.equals(0.0);
            let safe = zero.select(like(t, 1.0), t);
            zero.select(like(t, 0.0), t * safe.log()) - t * x
        };
        if c.text(KEYWORD, "reduction", "mean")? == "batchmean" {
            return one(loss.sum_all() / sizes(x).first().copied().unwrap_or(1) as f64);
        }
        together(c, loss)
    }),
    ("nn.functional.binary_cross_entropy", |c| {
        let weight = c.maybe(2, "weight")?;
        pair(c, |x, t| {
            // PyTorch's logarithms do not fall below −100.
            let (yes, no) = (x.log(), (1.0 - x).log());
            let (yes, no) = (at_least(yes, like(x, -100.0)), at_least(no, like(x, -100.0)));
            weighed(-(t * yes + (1.0 - t) * no), weight)
        })
    }),
    ("nn.functional.binary_cross_entropy_with_logits", |c| {
        let (weight, positive) = (c.maybe(2, "weight")?, c.maybe(KEYWORD, "pos_weight")?);
        pair(c, |x, t| {
            let loss = match positive {
                Some(positive) => x.bce_with_logits_weighted(t, positive),
                None => x.bce_with_logits_each(t),
            };
            weighed(loss, weight)
        })
    }),
    ("nn.functional.multilabel_soft_margin_loss", |c| {
        let weight = c.maybe(2, "weight")?;
        pair(c, |x, t| weighed(x.bce_with_logits_each(t), weight).mean_over(&[-1]))
    }),
    ("nn.functional.gaussian_nll_loss", |c| {
        let (x, t, var) = (c.x()?, c.tensor(1, "target")?, c.tensor(2, "var")?);
        let var = at_least(var, like(var, c.number_or(4, "eps", 1e-6)?));
        let loss = (var.log() + (x - t).square() / var) * 0.5;
        let full = c.flag(3, "full", false)?;
        together(c, if full { loss + 0.5 * (2.0 * PI).ln() } else { loss })
    }),
    ("nn.functional.margin_ranking_loss", |c| {
        let (a, b, t) = (c.x()?, c.tensor(1, "input2")?, c.tensor(2, "target")?);
        together(c, hinge(-t * (a - b) + c.number_or(3, "margin", 0.0)?))
    }),
    ("nn.functional.cosine_embedding_loss", |c| {
        let (a, b, t) = (c.x()?, c.tensor(1, "input2")?, c.tensor(2, "target")?);
        // As PyTorch: ε is added under the root, not a lower limit.
        let axis = [a.rank() - 1];
        let (sa, sb) = (sum(a.square(), &axis) + 1e-12, sum(b.square(), &axis) + 1e-12);
        let angle = sum(a * b, &axis) / (sa * sb).sqrt();
        let zero = like(angle, 0.0);
        let apart = hinge(angle - c.number_or(3, "margin", 0.0)?);
        let loss = t.equals(1.0).select(1.0 - angle, zero) + t.equals(-1.0).select(apart, zero);
        together(c, loss)
    }),
    ("nn.functional.triplet_margin_loss", |c| {
        let (a, near, far) = (c.x()?, c.tensor(1, "positive")?, c.tensor(2, "negative")?);
        let (p, eps) = (c.number_or(KEYWORD, "p", 2.0)?, c.number_or(KEYWORD, "eps", 1e-6)?);
        let mut apart = distance(a, far, p, eps);
        if c.flag(KEYWORD, "swap", false)? {
            apart = apart.minimum(distance(near, far, p, eps));
        }
        together(c, hinge(distance(a, near, p, eps) - apart + c.number_or(KEYWORD, "margin", 1.0)?))
    }),
    ("nn.functional.pairwise_distance", |c| {
        let (a, b) = (c.x()?, c.tensor(1, "x2")?);
        let y = distance(a, b, c.number_or(2, "p", 2.0)?, c.number_or(3, "eps", 1e-6)?);
        one(if c.flag(4, "keepdim", false)? { y.expand(y.rank()) } else { y })
    }),
    ("nn.functional.pdist", |c| {
        let (x, p) = (c.x()?, c.number_or(1, "p", 2.0)?);
        let n = sizes(x)[0];
        let pairs: Vec<(usize, usize)> = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).collect();
        let (left, right): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        one(norm(chosen(x, 0, &left) - chosen(x, 0, &right), p, &[1]))
    }),
    ("cdist", |c| {
        let (a, b) = (c.x()?, c.tensor(1, "x2")?);
        let gap = a.expand(a.rank() - 1) - b.expand(b.rank() - 2);
        one(norm(gap, c.number_or(2, "p", 2.0)?, &[gap.rank() - 1]))
    }),
    ("nn.functional.nll_loss", |c| likelihood(c, -classes_last(c.x()?), c.tensor(1, "target")?)),
    ("nn.functional.cross_entropy", |c| cross_entropy(c, c.x()?, c.tensor(1, "target")?)),
    ("nn.functional.linear_cross_entropy", |c| {
        let (x, weight, target) = (c.x()?, c.tensor(1, "linear_weight")?, c.tensor(2, "target")?);
        let (of, rows) = (sizes(weight), sizes(x));
        let (lead, width) = (&of[..of.len() - 1], of[of.len() - 1]);
        let flat = weight.reshape([lead.iter().product(), width]);
        let batch = &rows[..rows.len() - 1];
        let logits = x.reshape([batch.iter().product(), width]).matmul_t(flat, false, true);
        cross_entropy(c, logits.reshape(fixed(&[batch, lead].concat())), target)
    }),
    ("nn.functional.multi_margin_loss", |c| {
        let (x, target) = (c.x()?, c.tensor(1, "target")?);
        let x = if x.rank() == 0 { x.reshape([1]) } else { x };
        let n = *sizes(x).last().unwrap_or(&1);
        let rows: usize = sizes(x).iter().product::<usize>() / n.max(1);
        let single = x.rank() < 2;
        let (x, target) = (x.reshape([rows, n]), target.reshape([rows]));
        let own = x.gather_along(1, target.expand(1));
        let mut loss = hinge(x - own + c.number_or(KEYWORD, "margin", 1.0)?);
        if c.number_or(KEYWORD, "p", 1.0)? == 2.0 {
            loss = loss.square();
        }
        if let Some(weight) = c.maybe(KEYWORD, "weight")? {
            loss = loss * weight.gather(0, target).expand(1);
        }
        let other = c.g.iota(DType::I64, [rows, n], 1).not_equal(target.cast(DType::I64).expand(1));
        let loss = other.select(loss, like(loss, 0.0)).sum(&[1]) / n as f64;
        together(c, if single { loss.reshape(fixed(&[])) } else { loss })
    }),
];

/// The multi-label margin loss: the labels of each row, `[rows, classes]`, up to the first negative one.
fn multilabel_margin<'g>(c: &Call<'_, 'g>) -> Built<'g> {
    let (x, labels) = (c.x()?, c.tensor(1, "target")?);
    let classes = sizes(x).last().copied().unwrap_or(1);
    let rows = sizes(x).iter().product::<usize>() / classes.max(1);
    let single = x.rank() < 2;
    let (x, labels) = (x.reshape([rows, classes]), labels.reshape([rows, classes]));
    let named = labels.less(0.0).cast(DType::I64).cumsum(1).equals(0.0);
    let label = named.select(labels, 0.0);
    // Rows, labels, classes: every named class against every class without a name.
    let class = c.g.iota(label.dtype(), [rows, classes, classes], 2);
    let own = named.expand(2).and(label.expand(2).equals(class)).any_over(&[1]);
    let gap = x.expand(1) - x.gather_along(1, label).expand(2) + 1.0;
    let counts = named.expand(2).and(own.not().expand(1));
    let loss = counts.select(gap.relu(), 0.0).sum(&[1, 2]) / classes as f64;
    together(c, if single { loss.reshape(fixed(&[])) } else { loss })
}

/// max(x, 0), as PyTorch's `clamp_min`: its slope at 0 is 1.
fn hinge(x: Tensor<'_>) -> Tensor<'_> {
    at_least(x, like(x, 0.0))
}

fn weighed<'g>(loss: Tensor<'g>, weight: Option<Tensor<'g>>) -> Tensor<'g> {
    weight.map_or(loss, |w| loss * w)
}

/// The losses as the call wants them: each, their sum, or their mean.
fn together<'g>(c: &Call<'_, 'g>, loss: Tensor<'g>) -> Built<'g> {
    one(match c.text(KEYWORD, "reduction", "mean")? {
        "none" => loss,
        "sum" => loss.sum_all(),
        _ => loss.mean(),
    })
}

/// A loss of the input and the target at 1.
fn pair<'g>(c: &Call<'_, 'g>, f: impl FnOnce(Tensor<'g>, Tensor<'g>) -> Tensor<'g>) -> Built<'g> {
    together(c, f(c.x()?, c.tensor(1, "target")?))
}

fn distance<'g>(a: Tensor<'g>, b: Tensor<'g>, p: f64, eps: f64) -> Tensor<'g> {
    let gap = a - b + eps;
    norm(gap, p, &[gap.rank() - 1])
}

/// The classes, the second axis (the only one of a vector), moved to the end.
fn classes_last(x: Tensor<'_>) -> Tensor<'_> {
    let at = 1.min(x.rank() - 1);
    let perm: Vec<usize> = (0..x.rank()).filter(|&a| a != at).chain([at]).collect();
    x.transpose(&perm)
}

/// The weighted mean (or sum, or each) of `losses[.., target]`, without the rows of the ignored target.
fn likelihood<'g>(c: &Call<'_, 'g>, losses: Tensor<'g>, target: Tensor<'g>) -> Built<'g> {
    let ignored = target.equals(c.int_or(KEYWORD, "ignore_index", -100)? as f64);
    let class = ignored.select(like(target, 0.0), target);
    let at = target.rank() as isize;
    let zero = c.g.full(losses.dtype(), target.shape(), 0.0);
    let weight = match c.maybe(KEYWORD, "weight")? {
        Some(weight) => weight.gather(0, class),
        None => like(zero, 1.0),
    };
    let weight = ignored.select(zero, weight);
    let loss = losses.gather_along(at, class.expand(at as usize)).squeeze(at) * weight;
    one(match c.text(KEYWORD, "reduction", "mean")? {
        "none" => loss,
        "sum" => loss.sum_all(),
        _ => loss.sum_all() / weight.sum_all(),
    })
}

/// Cross-entropy with classes, by our op, or with a share for each class.
fn cross_entropy<'g>(c: &Call<'_, 'g>, logits: Tensor<'g>, target: Tensor<'g>) -> Built<'g> {
    let (weight, smoothing) = (c.maybe(KEYWORD, "weight")?, c.number_or(KEYWORD, "label_smoothing", 0.0)?);
    let rows = classes_last(logits);
    let classes = *sizes(rows).last().unwrap_or(&1) as f64;
    if target.dtype().is_float() {
        let shares = classes_last(target) * (1.0 - smoothing) + smoothing / classes;
        let loss = -sum(weighed(rows.log_softmax(-1) * shares, weight), &[rows.rank() - 1]);
        let count = sizes(loss).iter().product::<usize>() as f64;
        return match c.text(KEYWORD, "reduction", "mean")? {
            "mean" => one(loss.sum_all() / count),
            _ => together(c, loss),
        };
    }
    if weight.is_some() || smoothing != 0.0 {
        if c.text(KEYWORD, "reduction", "mean")? != "mean" {
            return weighted_rows(c, rows, target, weight, smoothing);
        }
        let ignore_index = c.int_or(KEYWORD, "ignore_index", -100)? as i64;
        let options = CrossEntropyOptions { ignore_index, label_smoothing: smoothing, weights: weight };
        return one(rows.cross_entropy_of(target, options));
    }
    if c.text(KEYWORD, "reduction", "mean")? == "mean" && c.maybe_int(KEYWORD, "ignore_index")?.is_none() {
        return one(rows.cross_entropy(target));
    }
    let ignore = c.int_or(KEYWORD, "ignore_index", -100)? as i64;
    let loss = rows.cross_entropy_with(target, ignore);
    let count = target.not_equal(ignore as f64).cast(loss.dtype()).sum_all();
    one(match c.text(KEYWORD, "reduction", "mean")? {
        "none" => loss,
        "sum" => loss.sum_all(),
        _ => loss.sum_all() / count,
    })
}

/// The cross-entropy of each row, or their sum, with weights of classes and smoothing.
fn weighted_rows<'g>(
    c: &Call<'_, 'g>,
    rows: Tensor<'g>,
    target: Tensor<'g>,
    weight: Option<Tensor<'g>>,
    smoothing: f64,
) -> Built<'g> {
    let ignore = c.int_or(KEYWORD, "ignore_index", -100)? as i64;
    let counts = target.not_equal(ignore as f64);
    let mut loss = rows.cross_entropy_with(target, ignore) * (1.0 - smoothing);
    if let Some(weight) = weight {
        loss = loss * weight.gather(0, counts.select(target, 0.0));
    }
    let classes = *sizes(rows).last().unwrap_or(&1) as f64;
    let spread = sum(weighed(rows.log_softmax(-1), weight), &[rows.rank() - 1]);
    together(c, loss - counts.select(spread, 0.0) * (smoothing / classes))
}
