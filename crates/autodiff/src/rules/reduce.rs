//! Gradients of the reductions.

use super::{At, Cotangents, Gradient, sizes, spread, wide};
use onestep_ir::ops::{Pad, Reduce, ReduceKind, Slice};
use onestep_ir::{Shape, Tensor};

impl Gradient for Reduce {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (x, y, dy) = (at.x(), at.y(), at.dy());
        let shape = x.shape();
        let spread = |t: Tensor<'g>| spread(t, &self.axes, &shape);
        let dx = match self.kind {
            ReduceKind::Sum => spread(dy),
            ReduceKind::Max => share(dy, x.less(spread(y)), &self.axes),
            ReduceKind::Min => share(dy, x.greater(spread(y)), &self.axes),
            ReduceKind::Prod => (wide(spread(dy)) * others(wide(x), &self.axes)).cast(x.dtype()),
        };
        Some(vec![Some(dx)])
    }
}

/// For max and min: the cotangent in equal parts to the elements that did not lose.
fn share<'g>(dy: Tensor<'g>, lost: Tensor<'g>, axes: &[usize]) -> Tensor<'g> {
    let one = dy.graph().scalar(wide(dy).dtype(), 1.0);
    let over: Vec<isize> = axes.iter().map(|&a| a as isize).collect();
    let ties = lost.select(0.0, one).sum(&over);
    let part = (wide(dy) / ties).cast(dy.dtype());
    lost.select(0.0, spread(part, axes, &lost.shape()))
}

/// For each element, the product of the others of its group: products before it times products after it, so that
/// zeros need no division and every derivative is right too.
fn others<'g>(x: Tensor<'g>, axes: &[usize]) -> Tensor<'g> {
    // The reduced axes together, last.
    let kept: Vec<usize> = (0..x.rank()).filter(|a| !axes.contains(a)).collect();
    let perm = [&kept[..], axes].concat();
    let mut back = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(i, &p)| back[p] = i);
    let moved = x.transpose(&perm);
    let mut flat = sizes(moved);
    let n: usize = flat.drain(kept.len()..).product();
    flat.push(n);
    let flat = moved.reshape(Shape::fixed(&flat));
    let others = exclusive(flat, n, true) * exclusive(flat, n, false);
    others.reshape(moved.shape()).transpose(&back)
}

/// Products of the elements before (or after) each one along the last axis, of size `n`, by doubling.
fn exclusive<'g>(x: Tensor<'g>, n: usize, before: bool) -> Tensor<'g> {
    let mut products = shifted(x, n, 1, before);
    let mut reach = 1;
    while reach < n {
        products = products * shifted(products, n, reach, before);
        reach *= 2;
    }
    products
}

/// Moves the last axis by `by` places and fills with 1.
fn shifted<'g>(x: Tensor<'g>, n: usize, by: usize, forward: bool) -> Tensor<'g> {
    let (axis, by) = (x.rank() - 1, by.min(n));
    let (start, end, low, high) = if forward { (0, n - by, by, 0) } else { (by, n, 0, by) };
    let kept = x.graph().emit1(Slice { axis, start, end, step: 1 }, &[x]);
    x.graph().emit1(Pad { axis, low, high, interior: 0, value: 1.0.into() }, &[kept])
}
