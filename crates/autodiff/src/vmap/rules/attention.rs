//! `attention` and its gradient: the members are more of the batch. A mask that serves the whole batch serves all members,
//! unless each has its own.

use super::{At, Batch, merged, parted};
use onestep_ir::ops::{Attention, AttentionGrad};
use onestep_ir::{Op, Tensor};

impl Batch for Attention {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let masked = self.operands::<_, 0>(at.lanes).ok()?.0.mask.is_some();
        Some(folded(at, *self, masked, false))
    }
}

impl Batch for AttentionGrad {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let masked = self.forward.operands::<_, 3>(at.lanes).ok()?.0.mask.is_some();
        let mut results = folded(at, *self, masked, self.mask_grad);
        // Where one mask serves a member's batch, its gradient is the sum over that.
        if self.mask_grad && at.sizes(3)[0] == 1 {
            results[3] = results[3].sum_keep(&[1]);
        }
        Some(results)
    }
}

/// The op on operands whose batches are those of all members, in order. With a mask, operand 3 is that; each member has its
/// own where it is mapped, or `apart`.
fn folded<'g>(at: &At<'_, 'g>, op: impl Into<Op>, masked: bool, apart: bool) -> Vec<Tensor<'g>> {
    let batch = at.sizes(0)[0];
    let fold = |i: usize| {
        let mut sizes = at.sizes(i);
        if masked && i == 3 && sizes[0] == 1 {
            if !at.mapped(i) && !apart {
                return at.operand(i);
            }
            sizes[0] = batch;
        }
        let full = [&[at.size], &sizes[..]].concat();
        merged(at.wide(i).broadcast(&full[..].into()))
    };
    let operands: Vec<Tensor<'g>> = (0..at.lanes.len()).map(fold).collect();
    at.g.emit(op, &operands).into_iter().map(|t| parted(t, at.size)).collect()
}
