//! Histograms, and the places of what is not 0.

use super::Entry;
use super::call::{Call, KEYWORD, Trouble};
use super::helpers::{fixed, one, sizes};
use crate::samples::Value;
use onestep_ir::{DType, Tensor, row_major};

pub const TABLE: &[Entry] = &[
    ("histc", |c| {
        let (x, bins) = (c.x()?.flatten(), c.int_or(1, "bins", 100)? as usize);
        let (low, high) = (c.number_or(2, "min", 0.0)?, c.number_or(3, "max", 0.0)?);
        let (low, high) = match low == high {
            true => spread(x, 1.0),
            false => (c.g.scalar(x.dtype(), low), c.g.scalar(x.dtype(), high)),
        };
        // The bin by one division, as PyTorch has it, whose rounding is not that of edges.
        let place = ((x - low) * bins as f64 / (high - low)).floor().minimum(bins as f64 - 1.0);
        let inside = x.greater_equal(low).and(x.less_equal(high));
        one(inside.select(place, -1.0).cast(DType::I64).bincount(bins, None, x.dtype()))
    }),
    ("histogram", |c| {
        let x = c.x()?.flatten();
        let edges = edges(c, x, c.get(1, "bins"))?;
        let counts = x.histogram(edges, c.maybe(KEYWORD, "weight")?);
        let counts = if c.flag(KEYWORD, "density", false)? { dense(counts, &[edges]) } else { counts };
        Ok(vec![counts, edges])
    }),
    ("histogramdd", |c| {
        let (x, Value::List(given)) = (c.x()?, c.get(1, "bins")) else {
            return Err(Trouble::Refused("histogramdd with one number of bins for all axes"));
        };
        let (mut all, mut shape, mut place) = (vec![], vec![], c.g.full(DType::I64, [sizes(x)[0]], 0.0));
        for (axis, bins) in given.iter().enumerate() {
            let column = x.at(1, axis);
            let edges = edges(c, column, bins)?;
            let (bin, n) = (column.bins(edges), sizes(edges)[0] - 1);
            // Outside along one axis is outside of all.
            let next = place * n as f64 + bin;
            place = bin.less(0.0).or(place.less(0.0)).select(-1.0, next);
            all.push(edges);
            shape.push(n);
        }
        let weights = c.maybe(KEYWORD, "weight")?;
        let counts = place.bincount(shape.iter().product(), weights, x.dtype()).reshape(fixed(&shape));
        let counts = if c.flag(KEYWORD, "density", false)? { dense(counts, &all) } else { counts };
        Ok([vec![counts], all].concat())
    }),
    ("nonzero_static", |c| {
        let (x, size) = (c.x()?, c.int(KEYWORD, "size")? as usize);
        let fill = c.number_or(KEYWORD, "fill_value", -1.0)?;
        let (of, flat) = (sizes(x), x.flatten().not_equal(0.0));
        let n = sizes(flat)[0];
        if of.is_empty() || n == 0 {
            return one(c.g.full(DType::I64, [size, of.len()], fill));
        }
        // A stable order by truth has those that hold first, each where it stood.
        let order = flat.cast(DType::I32).argsort(0, true).cast(DType::I64);
        let order = if size > n { order.pad(0, 0, size - n, 0.0) } else { order.slice(0, 0, size) };
        let there = c.g.iota(DType::I64, [size], 0).less(flat.cast(DType::I64).sum_all());
        let column =
            |(&n, step): (&usize, usize)| there.select((order / step as f64).remainder(n as f64), fill);
        let columns: Vec<_> = of.iter().zip(row_major(&of)).map(column).collect();
        one(c.g.stack(&columns, 1))
    }),
];

/// The smallest and the largest element; `by` to both sides of them where they are equal.
fn spread<'g>(x: Tensor<'g>, by: f64) -> (Tensor<'g>, Tensor<'g>) {
    let (low, high) = (x.min(&[0]), x.max(&[0]));
    let same = low.equals(high);
    (same.select(low - by, low), same.select(high + by, high))
}

/// The edges that a call gives, or of a number of bins of one width.
fn edges<'g>(c: &Call<'_, 'g>, x: Tensor<'g>, bins: &Value) -> Result<Tensor<'g>, Trouble> {
    match bins {
        Value::Int(n) => {
            let (low, high) = spread(x, 0.5);
            let place = c.g.iota(DType::I32, [*n as usize + 1], 0);
            let share = place.cast(x.dtype()) / *n as f64;
            // The last is exact, whatever the sum is rounded to.
            Ok(place.equals(*n as f64).select(high, low + (high - low) * share))
        }
        Value::Tensor(n) => {
            c.tensors.get(n).copied().ok_or_else(|| Trouble::Malformed(format!("there is no tensor {n}")))
        }
        other => Err(Trouble::Malformed(format!("{other:?} are no bins"))),
    }
}

/// Counts as a density: over their sum and the sizes of their bins.
fn dense<'g>(counts: Tensor<'g>, edges: &[Tensor<'g>]) -> Tensor<'g> {
    let total = counts / counts.sum_all();
    edges.iter().enumerate().fold(total, |y, (axis, e)| {
        let n = sizes(*e)[0];
        let mut shape = vec![1; edges.len()];
        shape[axis] = n - 1;
        y / (e.slice(0, 1, n) - e.slice(0, 0, n - 1)).reshape(fixed(&shape))
    })
}
