//! `dynamic_slice`: a start for each member makes it a gather of a range of indices for each. A range that does not lie in
//! the axis stays out of range: all its indices become −1.

use super::gather::{fits_i32, gather};
use super::{At, Batch};
use crate::vmap::Lane;
use onestep_ir::ops::DynamicSlice;
use onestep_ir::{DType, Tensor};

impl Batch for DynamicSlice {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let (x, start) = (at.lanes[0], at.lanes[1]);
        if !start.mapped {
            return Some(at.g.emit(DynamicSlice { axis: self.axis + 1, ..*self }, &[x.tensor, start.tensor]));
        }
        let n = at.sizes(0)[self.axis];
        let (start, valid) = starts(start.tensor, n - self.size);
        let start = start.expand(1);
        let indices = start + at.g.iota(start.dtype(), [1, self.size], 1);
        let indices = Lane { tensor: valid.expand(1).select(indices, -1.0), mapped: true };
        Some(vec![gather(at.size, self.axis, x, indices)])
    }
}

/// Starts that can be reckoned with, and whether each lies in `0..=last`.
pub(crate) fn starts<'g>(start: Tensor<'g>, last: usize) -> (Tensor<'g>, Tensor<'g>) {
    let small = fits_i32(start.dtype()) && i32::try_from(last).is_ok();
    let start = start.cast(if small { DType::I32 } else { DType::I64 });
    (start, start.greater_equal(0.0).and(start.less_equal(last as f64)))
}
