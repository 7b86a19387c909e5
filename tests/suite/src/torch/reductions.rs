//! Reductions over axes.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble};
use super::helpers::{along, fixed, kept, like, log_sum_exp, norm, one, signed, sizes, sum};
use crate::samples::Value;
use onestep_ir::{DType, Tensor};

pub const TABLE: &[Entry] = &[
    ("sum", |c| reduced(c, |x, axes| sum(x, axes))),
    ("mean", |c| reduced(c, |x, axes| x.mean_over(&signed(axes)))),
    ("amax", |c| reduced(c, |x, axes| x.max(&signed(axes)))),
    ("amin", |c| reduced(c, |x, axes| x.min(&signed(axes)))),
    ("prod", |c| reduced(c, |x, axes| x.prod(&signed(axes)))),
    ("all", |c| reduced(c, |x, axes| x.all_over(&signed(axes)))),
    ("any", |c| reduced(c, |x, axes| x.any_over(&signed(axes)))),
    ("count_nonzero", |c| reduced(c, |x, axes| x.count_nonzero(&signed(axes)))),
    ("nansum", |c| reduced(c, |x, axes| sum(without_nan(x), axes))),
    ("nanmean", |c| {
        reduced(c, |x, axes| sum(without_nan(x), axes) / sum(x.is_nan().not().cast(x.dtype()), axes))
    }),
    ("logsumexp", |c| reduced(c, |x, axes| log_sum_exp(x, axes))),
    ("max/reduction_no_dim", |c| one(whole(c.x()?, |x, axes| x.max(axes)))),
    ("min/reduction_no_dim", |c| one(whole(c.x()?, |x, axes| x.min(axes)))),
    ("aminmax", |c| {
        let x = c.x()?;
        let (axes, keep) = (c.axes(x, 1, "dim")?, c.flag(2, "keepdim", false)?);
        let over = signed(&axes);
        Ok(vec![kept(x.min(&over), x, &axes, keep), kept(x.max(&over), x, &axes, keep)])
    }),
    ("argmax", |c| one(arg_reduced(c, |x, axis| x.argmax(axis))?)),
    ("argmin", |c| one(arg_reduced(c, |x, axis| x.argmin(axis))?)),
    ("max/reduction_with_dim", |c| with_index(c, |x, axis| x.argmax(axis))),
    ("min/reduction_with_dim", |c| with_index(c, |x, axis| x.argmin(axis))),
    ("var", |c| spread(c).map(|s| vec![s.0])),
    ("std", |c| spread(c).map(|s| vec![s.0.safe_sqrt()])),
    ("var_mean", |c| spread(c).map(|s| vec![s.0, s.1])),
    ("std_mean", |c| spread(c).map(|s| vec![s.0.safe_sqrt(), s.1])),
    ("norm linalg.vector_norm linalg.norm linalg.matrix_norm", |c| {
        let x = c.x()?;
        let of_matrices = match c.sample.key.as_str() {
            "linalg.matrix_norm" => true,
            "norm" | "linalg.vector_norm" => false,
            _ => x.rank() > 1,
        };
        // Frobenius's is the length of all elements; the others are of singular values, or of rows.
        if of_matrices && !matches!(c.get(1, "ord"), Value::None) && c.text(1, "ord", "fro") != Ok("fro") {
            return Err(Trouble::Refused(super::gaps::DECOMPOSITION));
        }
        let p = match c.get(1, if c.sample.key.starts_with("linalg") { "ord" } else { "p" }) {
            Value::Text(_) | Value::None => 2.0,
            Value::Float(p) => *p,
            Value::Int(p) => *p as f64,
            other => return Err(Trouble::Malformed(format!("a norm of order {other:?}"))),
        };
        let axes = c.axes(x, 2, "dim")?;
        let x = match c.dtype(4, "dtype")? {
            Some(dtype) => x.cast(dtype),
            None => x,
        };
        one(kept(norm(x, p, &axes), x, &axes, c.flag(3, "keepdim", false)?))
    }),
    ("sum_to_size", |c| {
        let (x, want) = (c.x()?, c.sizes(1, "size")?);
        let lead = x.rank() - want.len();
        let shape: Vec<usize> = want.iter().map(|&n| n as usize).collect();
        let of = sizes(x);
        let gone = |&a: &usize| a < lead || (shape[a - lead] == 1 && of[a] != 1);
        let axes: Vec<usize> = (0..x.rank()).filter(gone).collect();
        one(sum(x, &axes).reshape(fixed(&shape)))
    }),
    ("trace", |c| one(c.x()?.trace())),
    ("renorm", |c| {
        let x = c.x()?;
        let (p, axis, most) = (c.number(1, "p")?, c.axis(x.rank(), 2, "dim", 0)?, c.number(3, "maxnorm")?);
        let axes: Vec<usize> = (0..x.rank()).filter(|&a| a != axis).collect();
        let size = kept(norm(x, p, &axes), x, &axes, true);
        one(x * size.greater(most).select(most / (size + 1e-7), like(size, 1.0)))
    }),
    ("gradient", |c| {
        let x = c.x()?;
        let axes: Vec<usize> = match c.maybe_ints(2, "dim")? {
            Some(dims) => {
                dims.iter().map(|&d| super::call::wrapped(d, x.rank())).collect::<Result<_, _>>()?
            }
            None => (0..x.rank()).collect(),
        };
        let second = c.int_or(3, "edge_order", 1)? == 2;
        let gap = |i: usize, n: usize, axis: usize| -> Result<Tensor<'_>, Trouble> {
            let shape: Vec<usize> = (0..x.rank()).map(|a| if a == axis { n - 1 } else { 1 }).collect();
            let even = |h: f64| c.g.full(x.dtype(), fixed(&shape), h);
            Ok(match c.get(1, "spacing") {
                Value::None => even(1.0),
                Value::List(items) => match &items[i] {
                    Value::Tensor(_) => {
                        let at = c.list(1, "spacing")?[i];
                        (at.slice(0, 1, n) - at.slice(0, 0, n - 1)).reshape(fixed(&shape))
                    }
                    Value::Float(h) => even(*h),
                    other => return Err(Trouble::Malformed(format!("a spacing of {other:?}"))),
                },
                _ => even(c.number(1, "spacing")?),
            })
        };
        axes.iter()
            .enumerate()
            .map(|(i, &axis)| Ok(slope(x, axis, gap(i, sizes(x)[axis], axis)?, second)))
            .collect()
    }),
];

/// `f` over the axes that the call names.
fn reduced<'g>(c: &Call<'_, 'g>, f: impl FnOnce(Tensor<'g>, &[usize]) -> Tensor<'g>) -> Built<'g> {
    let x = c.x()?;
    let x = match c.dtype(3, "dtype")? {
        Some(dtype) => x.cast(dtype),
        None => x,
    };
    let axes = c.axes(x, 1, "dim")?;
    one(kept(f(x, &axes), x, &axes, c.flag(2, "keepdim", false)?))
}

fn whole<'g>(x: Tensor<'g>, f: impl FnOnce(Tensor<'g>, &[isize]) -> Tensor<'g>) -> Tensor<'g> {
    let axes: Vec<usize> = (0..x.rank()).collect();
    f(x, &signed(&axes))
}

fn without_nan(x: Tensor<'_>) -> Tensor<'_> {
    x.is_nan().select(like(x, 0.0), x)
}

/// An `argmax` along the axis that the call names, or over all elements in row-major order.
pub fn arg_reduced<'g>(
    c: &Call<'_, 'g>,
    f: impl FnOnce(Tensor<'g>, isize) -> Tensor<'g>,
) -> Result<Tensor<'g>, Trouble> {
    arg_reduced_of(c, c.x()?, f)
}

/// The same of another tensor than the input.
pub fn arg_reduced_of<'g>(
    c: &Call<'_, 'g>,
    x: Tensor<'g>,
    f: impl FnOnce(Tensor<'g>, isize) -> Tensor<'g>,
) -> Result<Tensor<'g>, Trouble> {
    let keep = c.flag(2, "keepdim", false)?;
    let (at, axes) = match c.maybe_int(1, "dim")? {
        None => (f(x.flatten(), 0), (0..x.rank()).collect()),
        Some(_) if x.rank() == 0 => (f(x.reshape([1]), 0), vec![]),
        Some(_) => {
            let axis = c.axis(x.rank(), 1, "dim", 0)?;
            (f(x, axis as isize), vec![axis])
        }
    };
    Ok(kept(at.cast(DType::I64), x, &axes, keep))
}

/// The value and where it stands. The gradient goes to that one element.
fn with_index<'g>(c: &Call<'_, 'g>, f: impl Fn(Tensor<'g>, isize) -> Tensor<'g>) -> Built<'g> {
    let x = c.x()?;
    if x.rank() == 0 {
        return Ok(vec![x, c.g.scalar(DType::I64, 0.0)]);
    }
    let axis = c.axis(x.rank(), 1, "dim", 0)?;
    let at = f(x, axis as isize).cast(DType::I64);
    let value = along(x, axis, |x, a| x.gather_along(a, at.expand(axis)).squeeze(a));
    let keep = c.flag(2, "keepdim", false)?;
    Ok(vec![kept(value, x, &[axis], keep), kept(at, x, &[axis], keep)])
}

/// Variance and mean. `unbiased` may stand in the place of `dim`.
fn spread<'g>(c: &Call<'_, 'g>) -> Result<(Tensor<'g>, Tensor<'g>), Trouble> {
    let x = c.x()?;
    let (axes, unbiased) = match c.get(1, "dim") {
        Value::Bool(b) => ((0..x.rank()).collect(), *b),
        _ => (c.axes(x, 1, "dim")?, c.flag(2, "unbiased", true)?),
    };
    let keep = c.flag(3, "keepdim", false)?;
    let correction = c.number_or(KEYWORD, "correction", unbiased as u8 as f64)?;
    let mean = x.mean_over(&signed(&axes));
    Ok((kept(x.var_with(&signed(&axes), correction), x, &axes, keep), kept(mean, x, &axes, keep)))
}

/// Differences over `gap` in the middle, and one-sided ones of the first or second order at both ends.
fn slope<'g>(x: Tensor<'g>, axis: usize, gap: Tensor<'g>, second: bool) -> Tensor<'g> {
    let (n, a) = (sizes(x)[axis], axis as isize);
    let at = |t: Tensor<'g>, i: usize| t.slice(a, i, i + 1);
    let step = (x.slice(a, 1, n) - x.slice(a, 0, n - 1)) / gap;
    // The weighted mean of both sides' slopes.
    let (before, after) = (gap.slice(a, 0, n - 2), gap.slice(a, 1, n - 1));
    let middle = (step.slice(a, 0, n - 2) * after + step.slice(a, 1, n - 1) * before) / (before + after);
    let edge = |near: usize, far: usize| {
        let first = at(step, near);
        if !second {
            return first;
        }
        let (h, k) = (at(gap, near), at(gap, far));
        first + (first - at(step, far)) * h / (h + k)
    };
    x.graph().concat(&[edge(0, 1.min(n - 2)), middle, edge(n - 2, n.saturating_sub(3))], a)
}
