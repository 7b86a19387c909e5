//! What several families need: promotion of dtypes, reductions with kept axes, constant indices, norms.

use super::call::{Built, Call, Trouble};
use onestep_ir::{Array, DType, Shape, Tensor};

/// One result.
pub fn one(t: Tensor<'_>) -> Built<'_> {
    Ok(vec![t])
}

/// The sizes of a tensor; samples have no variable dimension.
pub fn sizes(t: Tensor<'_>) -> Vec<usize> {
    t.shape().sizes().unwrap_or_default()
}

/// Axes as the methods of handles take them.
pub fn signed(axes: &[usize]) -> Vec<isize> {
    axes.iter().map(|&a| a as isize).collect()
}

/// A shape of known sizes.
pub fn fixed(sizes: &[usize]) -> Shape {
    Shape::fixed(sizes)
}

/// A constant with `value` everywhere, of the dtype and shape of `t`.
pub fn like<'g>(t: Tensor<'g>, value: f64) -> Tensor<'g> {
    t.graph().full(t.dtype(), t.shape(), value)
}

/// The dtype that PyTorch computes two operands in: floats before integers before truth values, a tensor with axes
/// before a scalar of the same kind, the wider of equals.
pub fn promoted(a: Tensor<'_>, b: Tensor<'_>) -> DType {
    let kind = |d: DType| if d.is_float() { 2 } else { d.is_int() as u8 };
    let rank = |t: Tensor<'_>| (kind(t.dtype()), t.rank() > 0, t.dtype().size());
    if rank(a) >= rank(b) { a.dtype() } else { b.dtype() }
}

/// Both operands in the dtype that PyTorch computes them in.
pub fn paired<'g>(a: Tensor<'g>, b: Tensor<'g>) -> (Tensor<'g>, Tensor<'g>) {
    let dtype = promoted(a, b);
    (a.cast(dtype), b.cast(dtype))
}

/// The input and the argument at 1, either of which may be a number, in their common dtype.
pub fn two<'g>(c: &Call<'_, 'g>) -> Result<(Tensor<'g>, Tensor<'g>), Trouble> {
    let a = c.operand(0, "input", c.sample.dtype)?;
    Ok(paired(a, c.operand(1, "other", a.dtype())?))
}

/// A reduced tensor, with the axes that disappeared put back where `keep` says so.
pub fn kept<'g>(reduced: Tensor<'g>, from: Tensor<'g>, axes: &[usize], keep: bool) -> Tensor<'g> {
    if !keep {
        return reduced;
    }
    let mut shape = sizes(from);
    axes.iter().for_each(|&a| shape[a] = 1);
    reduced.reshape(fixed(&shape))
}

/// `f` along one axis; a scalar counts as one axis of one element.
pub fn along<'g>(x: Tensor<'g>, axis: usize, f: impl FnOnce(Tensor<'g>, isize) -> Tensor<'g>) -> Tensor<'g> {
    if x.rank() == 0 { f(x.reshape([1]), 0).reshape(fixed(&[])) } else { f(x, axis as isize) }
}

/// A constant of indices.
pub fn indices<'g>(like: Tensor<'g>, shape: &[usize], data: &[usize]) -> Tensor<'g> {
    let data: Vec<i64> = data.iter().map(|&i| i as i64).collect();
    like.graph().constant(Array::new(shape, &data).expect("as many indices as the shape has"))
}

/// The tensor of `shape` whose element at an index is `x`'s element, in row-major order, that `from` gives.
pub fn picked<'g>(x: Tensor<'g>, shape: &[usize], mut from: impl FnMut(&[usize]) -> usize) -> Tensor<'g> {
    let mut places = vec![];
    onestep_ir::shape::for_each_index(shape, |i| places.push(from(i)));
    x.flatten().gather(0, indices(x, shape, &places))
}

/// Slices of one axis, chosen by numbers known when the graph is built.
pub fn chosen<'g>(x: Tensor<'g>, axis: usize, at: &[usize]) -> Tensor<'g> {
    x.gather(axis as isize, indices(x, &[at.len()], at))
}

/// The sum over axes.
pub fn sum<'g>(x: Tensor<'g>, axes: &[usize]) -> Tensor<'g> {
    x.sum(&signed(axes))
}

/// log Σ eˣ; −inf over nothing.
pub fn log_sum_exp<'g>(x: Tensor<'g>, axes: &[usize]) -> Tensor<'g> {
    x.log_sum_exp(&signed(axes))
}

/// The p-norm over axes.
pub fn norm<'g>(x: Tensor<'g>, p: f64, axes: &[usize]) -> Tensor<'g> {
    x.norm(p, &signed(axes))
}

/// x raised to at least `low`, with the gradient of PyTorch's `clamp`: all to x where they are equal.
pub fn at_least<'g>(x: Tensor<'g>, low: Tensor<'g>) -> Tensor<'g> {
    x.less(low).select(low, x)
}

/// x lowered to at most `high`, with the gradient of PyTorch's `clamp`.
pub fn at_most<'g>(x: Tensor<'g>, high: Tensor<'g>) -> Tensor<'g> {
    x.greater(high).select(high, x)
}

/// x held between two numbers.
pub fn clamped<'g>(x: Tensor<'g>, low: f64, high: f64) -> Tensor<'g> {
    at_most(at_least(x, like(x, low)), like(x, high))
}
