//! `matmul`: the members are a batch dimension in front. A left factor that all members share is repeated as a view, and
//! a right one stays the one matrix that serves every batch.

use super::{At, Batch};
use onestep_ir::Tensor;
use onestep_ir::ops::Matmul;

impl Batch for Matmul {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let (a, b) = (at.sizes(0), at.sizes(1));
        if b.len() == 2 && !at.mapped(1) {
            return Some(at.g.emit(*self, &[at.wide(0), at.operand(1)]));
        }
        if a.len() == b.len() {
            return Some(at.g.emit(*self, &[at.wide(0), at.wide(1)]));
        }
        // One right factor for the whole batch of a member.
        let (batch, [rows, columns]) = (&a[..a.len() - 2], [a[a.len() - 2], a[a.len() - 1]]);
        if self.transpose_a {
            let ones = vec![1; batch.len()];
            let spread = |front: &[usize]| [&[at.size], front, &b[..]].concat();
            let right = at.wide(1).reshape(&spread(&ones)[..]).broadcast(&spread(batch)[..].into());
            return Some(at.g.emit(*self, &[at.wide(0), right]));
        }
        // Rows of all its batches are rows of one product.
        let rows = batch.iter().product::<usize>() * rows;
        let mut left = at.lanes[0];
        let front: &[usize] = if left.mapped { &[at.size] } else { &[] };
        left.tensor = left.tensor.reshape(&[front, &[rows, columns]].concat()[..]);
        let product = at.g.emit1(*self, &[left.wide(at.size), at.wide(1)]);
        let n = if self.transpose_b { b[0] } else { b[1] };
        Some(vec![product.reshape(&[&[at.size], batch, &[a[a.len() - 2], n]].concat()[..])])
    }
}
