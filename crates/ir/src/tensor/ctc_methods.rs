//! Connectionist temporal classification.

use super::Tensor;
use crate::ops::CtcLoss;

/// What becomes of the losses of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CtcReduction {
    /// Each is divided by its number of labels, at least 1; then the mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// They stay as they are, `[batch]`.
    None,
}

/// How [`Tensor::ctc_loss`] reads its operands. The default is PyTorch's: the blank is class 0, the mean, infinite losses
/// stay.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CtcOptions {
    /// The class that stands for no label.
    pub blank: usize,
    /// What becomes of the losses.
    pub reduction: CtcReduction,
    /// Whether the loss of a target that its input is too short for counts as 0 instead of +∞. Either way such a sequence
    /// has no gradient.
    pub zero_infinity: bool,
}

impl<'g> Tensor<'g> {
    /// The connectionist temporal classification loss of these log-probabilities, as a rule those of `log_softmax`: the
    /// negative log-likelihood of the targets under every alignment (Graves and others, 2006). PyTorch's `ctc_loss`.
    ///
    /// This tensor is `[time, batch, classes]`, floats; `targets` are integers `[batch, labels]`, whose rows count as far as
    /// `target_lengths`, `[batch]`; `input_lengths`, `[batch]`, are the times that count. A length beyond its axis, or a
    /// label that is no class, is an index out of range. The result is `f32` (`f64` for `f64`), a scalar unless it is not
    /// reduced. The mean over no sequence is 0.
    #[track_caller]
    pub fn ctc_loss(
        self,
        targets: Tensor<'g>,
        input_lengths: Tensor<'g>,
        target_lengths: Tensor<'g>,
        options: CtcOptions,
    ) -> Tensor<'g> {
        let CtcOptions { blank, reduction, zero_infinity } = options;
        let operands = [self.wide(), targets, input_lengths, target_lengths];
        let mut losses = self.g.emit1(CtcLoss { blank }, &operands);
        if zero_infinity {
            losses = losses.equals(f64::INFINITY).select(0.0, losses);
        }
        match reduction {
            CtcReduction::None => losses,
            CtcReduction::Sum => losses.sum_all(),
            CtcReduction::Mean => {
                let each = losses / target_lengths.cast(losses.dtype()).maximum(1.0);
                each.sum_all() / losses.count_over(losses.dtype(), &[0]).maximum(1.0)
            }
        }
    }
}
