//! `gather`: members that share their indices have one axis more in front of the indexed one; members that share the data
//! have more indices; and where each has both, the indices are moved into each member's part of one long axis.
//!
//! An index out of range stays one: it becomes −1, never an element of another member.

use super::{At, Batch, merged};
use crate::vmap::Lane;
use onestep_ir::ops::Gather;
use onestep_ir::{DType, Tensor};

impl Batch for Gather {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        Some(vec![gather(at.size, self.axis, at.lanes[0], at.lanes[1])])
    }
}

/// The slices of `data` along a member's `axis` that `indices` name, for all members.
pub(crate) fn gather<'g>(size: usize, axis: usize, data: Lane<'g>, indices: Lane<'g>) -> Tensor<'g> {
    let g = data.tensor.graph();
    if !indices.mapped {
        return g.emit1(Gather { axis: axis + 1 }, &[data.wide(size), indices.tensor]);
    }
    // A member's rank of indices, and of what stands on both sides of the indexed axis.
    let many = indices.tensor.rank() - 1;
    if !data.mapped {
        let rank = data.tensor.rank() + many;
        let found = g.emit1(Gather { axis }, &[data.tensor, indices.tensor]);
        let perm: Vec<usize> = [axis].into_iter().chain(0..axis).chain(axis + 1..rank).collect();
        return found.transpose(&perm);
    }
    let n = crate::rules::sizes(data.tensor)[axis + 1];
    let rows = merged(data.tensor.transpose(&indexed_first(data.tensor.rank(), axis)));
    let found = g.emit1(Gather { axis: 0 }, &[rows, apart(indices.tensor, n)]);
    found.transpose(&indices_between(found.rank(), axis, many))
}

/// Puts a member's indexed axis behind the leading one.
pub(crate) fn indexed_first(rank: usize, axis: usize) -> Vec<usize> {
    [0, axis + 1].into_iter().chain(1..axis + 1).chain(axis + 2..rank).collect()
}

/// From `[members, indices…, before…, behind…]` to `[members, before…, indices…, behind…]`, with `axis` axes before and
/// `many` of indices.
fn indices_between(rank: usize, axis: usize, many: usize) -> Vec<usize> {
    let before = 1 + many..1 + many + axis;
    [0].into_iter().chain(before).chain(1..1 + many).chain(1 + many + axis..rank).collect()
}

/// The reverse.
pub(crate) fn indices_first(rank: usize, axis: usize, many: usize) -> Vec<usize> {
    let indices = 1 + axis..1 + axis + many;
    [0].into_iter().chain(indices).chain(1..1 + axis).chain(1 + axis + many..rank).collect()
}

/// Each member's indices into its own `n` elements as indices into those of all members; −1 where one is out of range.
pub(crate) fn apart<'g>(indices: Tensor<'g>, n: usize) -> Tensor<'g> {
    let size = crate::rules::sizes(indices)[0];
    let small = i32::try_from(size.saturating_mul(n)).is_ok() && fits_i32(indices.dtype());
    let indices = indices.cast(if small { DType::I32 } else { DType::I64 });
    let member = indices.graph().iota(indices.dtype(), indices.shape(), 0);
    let valid = indices.greater_equal(0.0).and(indices.less(n as f64));
    valid.select(indices + member * n as f64, -1.0)
}

/// Whether every number of an integer dtype is an `i32`.
pub(crate) fn fits_i32(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8 | DType::I32)
}
