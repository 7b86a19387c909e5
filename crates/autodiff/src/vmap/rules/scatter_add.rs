//! `scatter_add`: as `gather`. Each member's updates are added in the order in which it would add them alone.

use super::gather::{apart, indexed_first, indices_first};
use super::{At, Batch, merged, parted};
use onestep_ir::Tensor;
use onestep_ir::ops::{ScatterAdd, Transpose};

impl Batch for ScatterAdd {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let (base, indices, updates) = (at.wide(0), at.lanes[1], at.wide(2));
        if !indices.mapped {
            let op = ScatterAdd { axis: self.axis + 1 };
            return Some(at.g.emit(op, &[base, indices.tensor, updates]));
        }
        let many = indices.tensor.rank() - 1;
        let perm = indexed_first(base.rank(), self.axis);
        let rows = base.transpose(&perm);
        let updates = updates.transpose(&indices_first(updates.rank(), self.axis, many));
        let n = at.sizes(0)[self.axis];
        let sum = at.g.emit1(ScatterAdd { axis: 0 }, &[merged(rows), apart(indices.tensor, n), updates]);
        Some(vec![parted(sum, at.size).transpose(&Transpose { perm }.inverse())])
    }
}
