//! `ctc_loss`: the members' sequences are more of the batch, which is the second axis of the log-probabilities.

use super::{At, Batch, merged, parted};
use onestep_ir::Tensor;
use onestep_ir::ops::CtcLoss;

impl Batch for CtcLoss {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let [time, batch, classes] = at.sizes(0).try_into().ok()?;
        let log_probs = at.wide(0).transpose(&[1, 0, 2, 3]).reshape([time, at.size * batch, classes]);
        let rest = (1..4).map(|i| merged(at.wide(i)));
        let operands: Vec<Tensor<'g>> = std::iter::once(log_probs).chain(rest).collect();
        let [losses, posteriors] = at.g.emit(*self, &operands).try_into().ok()?;
        let posteriors = posteriors.reshape([time, at.size, batch, classes]).transpose(&[1, 0, 2, 3]);
        Some(vec![parted(losses, at.size), posteriors])
    }
}
