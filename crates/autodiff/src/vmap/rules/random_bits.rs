//! `random_bits`: each member's own draw, from its own key and counter, so that it sees the numbers it would see alone.

use super::{At, Batch};
use onestep_ir::Tensor;
use onestep_ir::ops::RandomBits;

impl Batch for RandomBits {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let of = |i: usize, k: usize| if at.mapped(i) { at.operand(i).at(0, k) } else { at.operand(i) };
        let draw = |k| at.g.emit1(self.clone(), &[of(0, k), of(1, k)]);
        let all: Vec<Tensor<'g>> = (0..at.size).map(draw).collect();
        Some(vec![at.g.stack(&all, 0)])
    }
}
