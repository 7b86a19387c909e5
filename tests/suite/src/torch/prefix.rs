//! Operators along one axis in order: running sums, differences, trapezoids.

use super::Entry;
use super::call::{Call, KEYWORD, Trouble};
use super::helpers::{along, fixed, log_sum_exp, one, sizes};
use crate::samples::Value;
use onestep_ir::Tensor;

pub const TABLE: &[Entry] = &[
    ("cumsum", |c| one(running(c, c.x()?, |a, b| a + b)?)),
    ("cumprod", |c| one(running(c, c.x()?, |a, b| a * b)?)),
    ("logcumsumexp", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 1, "dim", 0)?);
        one(along(x, axis, |x, a| {
            let prefix = |i| log_sum_exp(x.slice(a, 0, i + 1), &[axis]);
            let rows: Vec<_> = (0..sizes(x)[axis]).map(prefix).collect();
            if rows.is_empty() { x } else { x.graph().stack(&rows, a) }
        }))
    }),
    ("diff", |c| {
        let x = c.x()?;
        let axis = c.axis(x.rank(), 2, "dim", -1)? as isize;
        let parts = [c.maybe(3, "prepend")?, Some(x), c.maybe(4, "append")?];
        let mut x = c.g.concat(&parts.into_iter().flatten().collect::<Vec<_>>(), axis);
        for _ in 0..c.int_or(1, "n", 1)? {
            let n = sizes(x)[axis as usize];
            x = if n == 0 { x } else { x.slice(axis, 1, n) - x.slice(axis, 0, n - 1) };
        }
        one(x)
    }),
    ("trapezoid trapz", |c| {
        let (parts, axis) = trapezoids(c)?;
        one(parts.sum(&[axis as isize]))
    }),
    ("cumulative_trapezoid", |c| {
        let (parts, axis) = trapezoids(c)?;
        one(scanned(parts, axis, |a, b| a + b))
    }),
];

/// The running combination of the elements along an axis.
pub fn scanned<'g>(
    x: Tensor<'g>,
    axis: usize,
    f: impl Fn(Tensor<'g>, Tensor<'g>) -> Tensor<'g>,
) -> Tensor<'g> {
    along(x, axis, |x, a| {
        let n = sizes(x)[a as usize];
        if n == 0 {
            return x;
        }
        let mut rows = vec![x.slice(a, 0, 1)];
        (1..n).for_each(|i| rows.push(f(rows[i - 1], x.slice(a, i, i + 1))));
        x.graph().concat(&rows, a)
    })
}

/// The same along the axis that the call names.
pub fn running<'g>(
    c: &Call<'_, 'g>,
    x: Tensor<'g>,
    f: impl Fn(Tensor<'g>, Tensor<'g>) -> Tensor<'g>,
) -> Result<Tensor<'g>, Trouble> {
    let x = match c.dtype(KEYWORD, "dtype")? {
        Some(dtype) => x.cast(dtype),
        None => x,
    };
    Ok(scanned(x, c.axis(x.rank(), 1, "dim", 0)?, f))
}

/// The area between each two neighbours along an axis.
fn trapezoids<'g>(c: &Call<'_, 'g>) -> Result<(Tensor<'g>, usize), Trouble> {
    let y = c.x()?;
    let axis = c.axis(y.rank(), 9, "dim", -1)?;
    let (a, n) = (axis as isize, sizes(y)[axis]);
    let pairs = (y.slice(a, 1, n) + y.slice(a, 0, n - 1)) * 0.5;
    let width = match c.get(1, "x") {
        Value::Tensor(_) => {
            let x = c.tensor(1, "x")?;
            let (at, x) = if x.rank() == 1 {
                let shape: Vec<usize> = (0..y.rank()).map(|i| if i == axis { n } else { 1 }).collect();
                (a, x.reshape(fixed(&shape)))
            } else {
                (a - y.rank() as isize, x)
            };
            let m = sizes(x)[(at + if at < 0 { x.rank() as isize } else { 0 }) as usize];
            x.slice(at, 1, m) - x.slice(at, 0, m - 1)
        }
        _ => c.g.scalar(y.dtype(), c.number_or(1, "dx", 1.0)?),
    };
    Ok((pairs * width, axis))
}
