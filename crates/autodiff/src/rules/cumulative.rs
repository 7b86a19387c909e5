//! Gradients of the scans, by ops that have gradients themselves.
//!
//! - sum: the cotangents summed from the other end;
//! - max, min: each cotangent to the element that holds the extremum so far, the last of equals, as in PyTorch;
//! - product: see [`product`]; right at zeros too.

use super::{At, Cotangents, Gradient, sizes, wide};
use onestep_ir::ops::{Cumulative, Pad, ReduceKind, ScatterAddAlong, Slice};
use onestep_ir::{DType, Tensor};

impl Gradient for Cumulative {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (x, dy) = (wide(at.x()), wide(at.dy()));
        let dx = match self.kind {
            ReduceKind::Sum => at.g.emit1(Cumulative { reverse: !self.reverse, ..*self }, &[dy]),
            ReduceKind::Prod => product(self, x, self.inclusive(dy)),
            ReduceKind::Max | ReduceKind::Min => extremum(self, at.x(), self.inclusive(dy)),
        };
        Some(vec![Some(dx.cast(at.x().dtype()))])
    }
}

/// What the scan needs of itself.
pub(crate) trait Scan {
    fn inclusive<'g>(&self, dy: Tensor<'g>) -> Tensor<'g>;
    fn moved<'g>(&self, x: Tensor<'g>, by: usize, later: bool, fill: f64) -> Tensor<'g>;
}

impl Scan for Cumulative {
    /// The cotangents of the scan that includes each element: those of the exclusive one belong to the element before.
    fn inclusive<'g>(&self, dy: Tensor<'g>) -> Tensor<'g> {
        if self.exclusive { self.moved(dy, 1, false, 0.0) } else { dy }
    }

    /// Every element `by` places later in the scan's direction (or earlier); `fill` where none comes from.
    fn moved<'g>(&self, x: Tensor<'g>, by: usize, later: bool, fill: f64) -> Tensor<'g> {
        let (axis, n) = (self.axis, sizes(x)[self.axis]);
        let by = by.min(n);
        let forward = later != self.reverse;
        let (start, end, low, high) = if forward { (0, n - by, by, 0) } else { (by, n, 0, by) };
        let kept = x.graph().emit1(Slice { axis, start, end, step: 1 }, &[x]);
        x.graph().emit1(Pad { axis, low, high, interior: 0, value: fill.into() }, &[kept])
    }
}

/// dxᵢ = (Π of the elements before i) · Σₖ₌ᵢ dyₖ · Π of the elements from i + 1 to k.
///
/// The sum is the composition of the maps t ↦ dyᵢ + xᵢ₊₁·t from the end to i, found by doubling: no division by an
/// element, which may be 0.
fn product<'g>(op: &Cumulative, x: Tensor<'g>, dy: Tensor<'g>) -> Tensor<'g> {
    let n = sizes(x)[op.axis];
    let (mut sum, mut factor) = (dy, op.moved(x, 1, false, 1.0));
    let mut reach = 1;
    while reach < n {
        sum = sum + factor * op.moved(sum, reach, false, 0.0);
        factor = factor * op.moved(factor, reach, false, 1.0);
        reach *= 2;
    }
    x.graph().emit1(Cumulative { exclusive: true, ..*op }, &[x]) * sum
}

/// The cotangents at the places of the running extrema.
fn extremum<'g>(op: &Cumulative, x: Tensor<'g>, dy: Tensor<'g>) -> Tensor<'g> {
    let zeros = x.graph().full(dy.dtype(), dy.shape(), 0.0);
    x.graph().emit1(ScatterAddAlong { axis: op.axis }, &[zeros, place_of_extremum(op, x), dy])
}

/// The place of the running extremum: the last so far at which the element was the extremum itself.
pub(crate) fn place_of_extremum<'g>(op: &Cumulative, x: Tensor<'g>) -> Tensor<'g> {
    let (g, n) = (x.graph(), sizes(x)[op.axis]);
    let running = g.emit1(Cumulative { exclusive: false, ..*op }, &[x]);
    let record = x.equals(running).or(x.is_nan());
    let places = g.iota(DType::I32, x.shape(), op.axis);
    let (kind, first) =
        if op.reverse { (ReduceKind::Min, n.saturating_sub(1)) } else { (ReduceKind::Max, 0) };
    g.emit1(Cumulative { kind, exclusive: false, ..*op }, &[record.select(places, first as f64)])
}
