//! `dynamic_update_slice`: a start for each member makes it a choice between the tensor and the update, which is gathered
//! at each place's distance from the start. Where the range does not lie in the axis, the distance is −1, which is out of
//! range, and the tensor stays as it is.

use super::dynamic_slice::starts;
use super::gather::gather;
use super::{At, Batch};
use crate::vmap::Lane;
use onestep_ir::Tensor;
use onestep_ir::ops::DynamicUpdateSlice;

impl Batch for DynamicUpdateSlice {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let (x, start) = (at.wide(0), at.lanes[2]);
        if !start.mapped {
            let op = DynamicUpdateSlice { axis: self.axis + 1 };
            return Some(at.g.emit(op, &[x, at.wide(1), start.tensor]));
        }
        let (n, m) = (at.sizes(0)[self.axis], at.sizes(1)[self.axis]);
        let Some(last) = m.checked_sub(1) else { return Some(vec![x]) };
        let (start, valid) = starts(start.tensor, n - m);
        let valid = valid.expand(1);
        let distance = at.g.iota(start.dtype(), [1, n], 1) - start.expand(1);
        let inside = valid.and(distance.greater_equal(0.0)).and(distance.less_equal(last as f64));
        let nearest = distance.maximum(0.0).minimum(last as f64);
        let indices = Lane { tensor: valid.select(nearest, -1.0), mapped: true };
        let update = gather(at.size, self.axis, at.lanes[1], indices);
        let mut along = vec![1; x.rank()];
        (along[0], along[self.axis + 1]) = (at.size, n);
        Some(vec![inside.reshape(&along[..]).select(update, x)])
    }
}
