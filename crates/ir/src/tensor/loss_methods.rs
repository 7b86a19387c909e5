//! Losses composed of other ops. Unless it says otherwise, each is the mean over all elements, a scalar of `f32` (`f64`
//! for `f64`), and refuses a target of another shape: broadcasting a loss hides mistakes.

use super::Tensor;
use crate::DType;
use crate::ops::BceWithLogits;

/// How [`Tensor::cross_entropy_of`] weighs rows and classes. The default: every class alike, no smoothing, −100 ignored.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyOptions<'g> {
    /// The label of rows that do not count.
    pub ignore_index: i64,
    /// The share of the target that is spread over all classes.
    pub label_smoothing: f64,
    /// One weight per class, `[classes]`. The mean is then weighted too.
    pub weights: Option<Tensor<'g>>,
}

impl Default for CrossEntropyOptions<'_> {
    fn default() -> Self {
        CrossEntropyOptions { ignore_index: super::nn_methods::IGNORED, label_smoothing: 0.0, weights: None }
    }
}

impl<'g> Tensor<'g> {
    /// Refuses a target of another shape; then both in the accumulator's dtype.
    #[track_caller]
    fn with_target(self, loss: &str, target: Tensor<'g>) -> (Tensor<'g>, Tensor<'g>) {
        if self.value.is_some() && target.value.is_some() && self.shape() != target.shape() {
            let what = format!("shapes {} and {} differ", self.shape(), target.shape());
            let poisoned = self.mistake(loss, what, "reshape or broadcast the target");
            return (poisoned, poisoned);
        }
        (self.wide(), target.wide())
    }

    /// The mean absolute difference from `target`.
    #[track_caller]
    pub fn l1(self, target: Tensor<'g>) -> Tensor<'g> {
        let (x, t) = self.with_target("l1", target);
        (x - t).abs().mean()
    }

    /// The mean of half the squared difference where that is at most `delta`, and of δ·(|difference| − δ/2) beyond
    /// (Huber, 1964).
    #[track_caller]
    pub fn huber(self, target: Tensor<'g>, delta: f64) -> Tensor<'g> {
        let (x, t) = self.with_target("huber", target);
        let gap = (x - t).abs();
        gap.less_equal(delta).select(gap.square() * 0.5, (gap - 0.5 * delta) * delta).mean()
    }

    /// [`Tensor::huber`] divided by `beta`; of 0, [`Tensor::l1`].
    #[track_caller]
    pub fn smooth_l1(self, target: Tensor<'g>, beta: f64) -> Tensor<'g> {
        if beta == 0.0 {
            return self.l1(target);
        }
        let (x, t) = self.with_target("smooth_l1", target);
        let gap = (x - t).abs();
        gap.less(beta).select(gap.square() * (0.5 / beta), gap - 0.5 * beta).mean()
    }

    /// The mean binary cross-entropy of these logits with targets in [0, 1], exact at any logit.
    #[track_caller]
    pub fn bce_with_logits(self, target: Tensor<'g>) -> Tensor<'g> {
        let (x, t) = self.with_target("bce_with_logits", target);
        x.bce_with_logits_each(t).mean()
    }

    /// The binary cross-entropy of each of these logits with its target, which has this tensor's type.
    #[track_caller]
    pub fn bce_with_logits_each(self, target: Tensor<'g>) -> Tensor<'g> {
        self.g.emit1(BceWithLogits, &[self, target])
    }

    /// The same with the loss of positive targets multiplied by `weight`, which is broadcast.
    #[track_caller]
    pub fn bce_with_logits_weighted(self, target: Tensor<'g>, weight: Tensor<'g>) -> Tensor<'g> {
        let (x, t, w) = (self.wide(), target.wide(), weight.wide());
        (t * (-x).softplus() * w + (1.0 - t) * x.softplus()).cast(self.dtype())
    }

    /// The mean of max(0, 1 − x·t) for targets of −1 and 1.
    #[track_caller]
    pub fn hinge(self, target: Tensor<'g>) -> Tensor<'g> {
        let (x, t) = self.with_target("hinge", target);
        (1.0 - x * t).at_least(0.0).mean()
    }

    /// The Kullback–Leibler divergence of these log-probabilities from the probabilities `target`, summed over all and
    /// divided by the size of the first axis. A probability of 0 contributes nothing.
    #[track_caller]
    pub fn kl_divergence(self, target: Tensor<'g>) -> Tensor<'g> {
        let (x, t) = self.with_target("kl_divergence", target);
        let total = (t.xlogy(t) - t * x).sum_all();
        if x.rank() == 0 { total } else { total / x.count_over(x.dtype(), &[0]) }
    }

    /// The mean of `−x[label]` over rows of log-probabilities, `[.., classes]`, whose integer label, `[..]`, is not −100;
    /// 0 when there is none.
    #[track_caller]
    pub fn nll(self, labels: Tensor<'g>) -> Tensor<'g> {
        let x = self.wide();
        let (counts, class) = labels.counted(super::nn_methods::IGNORED);
        let at = labels.rank() as isize;
        let chosen = x.gather_along(at, class.expand(labels.rank())).squeeze(at);
        let counts = counts.cast(x.dtype());
        -(counts.equals(0.0).select(0.0, chosen).sum_all()) / counts.sum_all().maximum(1.0)
    }

    /// Which labels are not `ignored` (`bool`), and the labels with 0 in the place of the others.
    #[track_caller]
    fn counted(self, ignored: i64) -> (Tensor<'g>, Tensor<'g>) {
        // A constant that the labels' dtype does not hold would wrap to one of theirs.
        let labels = if self.dtype() == DType::I32 { self } else { self.cast(DType::I64) };
        let counts = labels.not_equal(ignored as f64);
        (counts, counts.select(labels, 0.0))
    }

    /// [`Tensor::cross_entropy`] with class weights and label smoothing: of each row the weighted negative
    /// log-likelihood, of which the share `label_smoothing` is the weighted mean over all classes; summed, and divided by
    /// the weights of the labels.
    #[track_caller]
    pub fn cross_entropy_of(self, labels: Tensor<'g>, options: CrossEntropyOptions<'g>) -> Tensor<'g> {
        let CrossEntropyOptions { ignore_index, label_smoothing: smoothing, weights } = options;
        let logits = self.wide();
        let losses = logits.cross_entropy_with(labels, ignore_index);
        let (counts, class) = labels.counted(ignore_index);
        let counts = counts.cast(logits.dtype());
        let weight = match weights {
            Some(w) => counts * w.wide().gather(0, class),
            None => counts,
        };
        let mut total = (losses * weight).sum_all();
        if smoothing != 0.0 {
            let log = logits.log_softmax(-1);
            let log = weights.map_or(log, |w| log * w.wide());
            let spread = counts.not_equal(0.0).select(log.sum(&[-1]), 0.0).sum_all();
            total = total * (1.0 - smoothing) - spread * smoothing / logits.count_over(logits.dtype(), &[-1]);
        }
        let divisor = weight.sum_all();
        total / divisor.equals(0.0).select(1.0, divisor)
    }

    /// 1 − cos of the angle between the rows (the last axis) of this and `other` where `target` is 1, and what the cosine
    /// exceeds `margin` by where it is −1; the mean over rows.
    #[track_caller]
    pub fn cosine_embedding(self, other: Tensor<'g>, target: Tensor<'g>, margin: f64) -> Tensor<'g> {
        let (a, b) = (self.wide(), other.wide());
        // As PyTorch: ε is added under the root, not a lower limit.
        let (sa, sb) = (a.square().sum(&[-1]) + 1e-12, b.square().sum(&[-1]) + 1e-12);
        let angle = (a * b).sum(&[-1]) / (sa * sb).sqrt();
        let apart = (angle - margin).at_least(0.0);
        let together = target.equals(1.0).select(1.0 - angle, 0.0);
        (together + target.equals(-1.0).select(apart, 0.0)).mean()
    }
}
