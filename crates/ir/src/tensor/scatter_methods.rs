//! Scatters whose values meet in a product, an extremum or a mean.
//!
//! Each place looks at every value and takes those whose index names it, so that the work is the number of places times the
//! number of values along the axis, whatever the order of the values: for short axes.

use super::Tensor;
use crate::ops::ReduceKind;
use crate::{Dim, Shape};

/// What becomes of values that meet at one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meeting {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// Their mean.
    Mean,
    /// The largest; equal ones share the gradient.
    Max,
    /// The smallest; equal ones share the gradient.
    Min,
}

impl<'g> Tensor<'g> {
    /// This tensor with the elements of `axis` that an index names replaced by what the values there make together, and with
    /// the element itself when `with_own`: `torch.scatter_reduce`. `indices` (integers) and `values` have one shape, which
    /// is this tensor's but on `axis`, where sizes are numbers; an index outside the axis names no place.
    #[track_caller]
    pub fn scatter_reduce_along(
        self,
        axis: isize,
        indices: Tensor<'g>,
        values: Tensor<'g>,
        meeting: Meeting,
        with_own: bool,
    ) -> Tensor<'g> {
        let op = "scatter_reduce_along";
        let Some(at) = self.axis(op, axis) else { return self.poison() };
        let (Some(own), Some(of), Some(by)) = (self.ty(), values.ty(), indices.ty()) else {
            return self.poison();
        };
        let others = |s: &Shape| s.without(&[at]);
        let fits = own.dtype == of.dtype && of.shape == by.shape && of.shape.rank() == own.shape.rank();
        let sizes = (own.shape.0[at].size(), of.shape.0.get(at).and_then(Dim::size));
        let (Some(n), Some(k), true) = (sizes.0, sizes.1, fits && by.dtype.is_int()) else {
            let what = format!("{own} does not take values {of} at {by} along axis {axis}");
            return self.mistake(
                op,
                what,
                "give values of its dtype, and integers, of its shape but on the axis",
            );
        };
        if others(&own.shape) != others(&of.shape) {
            let what = format!("shapes {} and {} differ beside axis {axis}", own.shape, of.shape);
            return self.mistake(op, what, "slice or broadcast the values");
        }
        // The axis last: places are rows of all values.
        let mut order: Vec<usize> = (0..own.shape.rank()).collect();
        order.swap(at, own.shape.rank() - 1);
        let last = own.shape.rank() - 1;
        let (x, values) = (self.transpose(&order), values.transpose(&order).expand(last));
        let mut dims = x.shape().0;
        dims.push(Dim::fixed(k));
        let place = self.g.iota(indices.dtype(), Shape(dims), last);
        let here = indices.transpose(&order).expand(last).equals(place);
        let neutral = match meeting {
            Meeting::Sum | Meeting::Mean => 0.0,
            Meeting::Prod => 1.0,
            Meeting::Max => f64::NEG_INFINITY,
            Meeting::Min => f64::INFINITY,
        };
        let mut taken = here.select(values, neutral);
        if with_own {
            taken = self.g.concat(&[taken, x.expand(last + 1)], -1);
        }
        let kind = match meeting {
            Meeting::Sum | Meeting::Mean => ReduceKind::Sum,
            Meeting::Prod => ReduceKind::Prod,
            Meeting::Max => ReduceKind::Max,
            Meeting::Min => ReduceKind::Min,
        };
        let count = here.cast(crate::DType::I32).sum(&[-1]);
        let mut y = match kind {
            ReduceKind::Sum => taken.sum(&[-1]),
            ReduceKind::Prod => taken.prod(&[-1]),
            ReduceKind::Max => taken.max(&[-1]),
            ReduceKind::Min => taken.min(&[-1]),
        };
        if meeting == Meeting::Mean {
            let count = if with_own { count + 1.0 } else { count.maximum(1.0) };
            y = y / count.cast(own.dtype);
        }
        let y = if with_own || n == 0 { y } else { count.equals(0.0).select(x, y) };
        y.transpose(&order)
    }
}
