//! Operators along one axis in order: running sums, differences, trapezoids.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble};
use super::helpers::{along, fixed, one, sizes};
use crate::samples::Value;
use onestep_ir::{DType, Tensor};

pub const TABLE: &[Entry] = &[
    ("cumsum", |c| one(running(c, c.x()?, |x, a| x.cumsum(a))?)),
    ("cumprod", |c| one(running(c, c.x()?, |x, a| x.cumprod(a))?)),
    ("cummax", |c| with_places(c, |x, a| (x.cummax(a), x.cumargmax(a)))),
    ("cummin", |c| with_places(c, |x, a| (x.cummin(a), x.cumargmin(a)))),
    ("logcumsumexp", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 1, "dim", 0)?);
        one(along(x, axis, |x, a| x.log_cumsum_exp(a)))
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
        one(parts.cumsum(axis as isize))
    }),
];

/// A scan along the axis that the call names.
pub fn running<'g>(
    c: &Call<'_, 'g>,
    x: Tensor<'g>,
    f: impl FnOnce(Tensor<'g>, isize) -> Tensor<'g>,
) -> Result<Tensor<'g>, Trouble> {
    let x = match c.dtype(KEYWORD, "dtype")? {
        Some(dtype) => x.cast(dtype),
        None => x,
    };
    Ok(along(x, c.axis(x.rank(), 1, "dim", 0)?, f))
}

/// The extremum so far and where it stands.
fn with_places<'g>(
    c: &Call<'_, 'g>,
    f: impl FnOnce(Tensor<'g>, isize) -> (Tensor<'g>, Tensor<'g>),
) -> Built<'g> {
    let x = c.x()?;
    let axis = c.axis(x.rank(), 1, "dim", 0)?;
    if x.rank() == 0 {
        return Ok(vec![x, c.g.scalar(DType::I64, 0.0)]);
    }
    let (values, places) = f(x, axis as isize);
    Ok(vec![values, places.cast(DType::I64)])
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
