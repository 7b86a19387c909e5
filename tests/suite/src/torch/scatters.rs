//! Writing and adding by index.

use super::Entry;
use super::call::{Call, KEYWORD, Trouble};
use super::helpers::{fixed, like, one, sizes};
use super::indexing::{counted, flat_places, part};
use crate::samples::Value;
use onestep_ir::{DType, Tensor};

pub const TABLE: &[Entry] = &[
    ("scatter_add", |c| scattered(c, |x, added, _| x + added)),
    ("scatter", |c| {
        if c.maybe(KEYWORD, "reduce")?.is_some() {
            return Err(Trouble::Refused("scatter with a product"));
        }
        // PyTorch leaves open which of equal indices wins, so the samples have none.
        scattered(c, |x, added, count| count.greater(0.0).select(added, x))
    }),
    ("scatter_reduce/sum", |c| {
        let own = c.flag(KEYWORD, "include_self", true)?;
        scattered(c, |x, added, count| if own { x + added } else { count.greater(0.0).select(added, x) })
    }),
    ("scatter_reduce/mean", |c| {
        let own = c.flag(KEYWORD, "include_self", true)?;
        scattered(c, |x, added, count| mean(x, added, count, own))
    }),
    ("index_add", |c| {
        let alpha = c.number_or(4, "alpha", 1.0)?;
        indexed(c, |x, a, index| {
            let source = c.tensor(3, "source")?;
            Ok(x.scatter_add(a, index, as_row(source) * alpha))
        })
    }),
    ("index_copy", |c| {
        indexed(c, |x, a, index| {
            let source = as_row(c.tensor(3, "source")?);
            let added = like(x, 0.0).scatter_add(a, index, source);
            Ok(hits(x, a, index, source).greater(0.0).select(added, x))
        })
    }),
    ("index_fill", |c| {
        indexed(c, |x, a, index| {
            let mut shape = sizes(x);
            shape[a as usize] = sizes(index)[0];
            let source = c.g.full(x.dtype(), fixed(&shape), 1.0);
            let value = c.operand(3, "value", x.dtype())?;
            Ok(hits(x, a, index, source).greater(0.0).select(value, x))
        })
    }),
    ("index_reduce/mean", |c| {
        let own = c.flag(KEYWORD, "include_self", true)?;
        indexed(c, |x, a, index| {
            let source = as_row(c.tensor(3, "source")?);
            let added = like(x, 0.0).scatter_add(a, index, source);
            Ok(mean(x, added, hits(x, a, index, source), own))
        })
    }),
    ("put", |c| {
        let x = c.x()?;
        let (flat, index) = (x.flatten(), c.tensor(1, "index")?.flatten());
        let (index, source) = (counted(index, sizes(flat)[0]), c.tensor(2, "source")?.flatten());
        let y = if c.flag(3, "accumulate", false)? {
            flat.scatter_add(0, index, source)
        } else {
            let added = like(flat, 0.0).scatter_add(0, index, source);
            hits(flat, 0, index, source).greater(0.0).select(added, flat)
        };
        one(y.reshape(x.shape()))
    }),
    ("index_put", |c| {
        let (x, index, values) = (c.x()?, c.list(1, "indices")?, c.tensor(2, "values")?);
        let [index] = index[..] else { return Err(Trouble::Refused("index_put with several indices")) };
        let adds = c.flag(3, "accumulate", false)?;
        if index.dtype() == DType::Bool {
            let chosen = index.expand(1);
            return one(chosen.select(if adds { x + values } else { values }, x));
        }
        if adds {
            return one(x.scatter_add(0, index, values));
        }
        let added = like(x, 0.0).scatter_add(0, index, values);
        one(hits(x, 0, index, values).greater(0.0).select(added, x))
    }),
    ("_unsafe_masked_index_put_accumulate", |c| {
        let (x, mask, values) = (c.x()?, c.tensor(1, "mask")?, c.tensor(3, "values")?);
        let (flat, place) = flat_places(x, &c.list(2, "indices")?);
        let values = mask.select(values, like(values, 0.0));
        one(flat.scatter_add(0, place, values).reshape(x.shape()))
    }),
];

/// A scalar as a row of one element.
fn as_row(t: Tensor<'_>) -> Tensor<'_> {
    if t.rank() == 0 { t.reshape([1]) } else { t }
}

/// `f` of the input (a scalar as one row), the axis and the index at 2.
fn indexed<'g>(
    c: &Call<'_, 'g>,
    f: impl FnOnce(Tensor<'g>, isize, Tensor<'g>) -> Result<Tensor<'g>, Trouble>,
) -> super::Built<'g> {
    let (x, index) = (c.x()?, as_row(c.tensor(2, "index")?));
    let axis = c.axis(x.rank(), 1, "dim", 0)?;
    one(f(as_row(x), axis as isize, index)?.reshape(x.shape()))
}

/// How often each element of `x` is named by an index along an axis. Constants, so that nothing is differentiated.
fn hits<'g>(x: Tensor<'g>, axis: isize, index: Tensor<'g>, source: Tensor<'g>) -> Tensor<'g> {
    like(x, 0.0).scatter_add(axis, index, like(source, 1.0))
}

/// `f` of the input, what is added to each of its elements along an axis, and how many times.
fn scattered<'g>(
    c: &Call<'_, 'g>,
    f: impl FnOnce(Tensor<'g>, Tensor<'g>, Tensor<'g>) -> Tensor<'g>,
) -> super::Built<'g> {
    let (whole, index) = (c.x()?, as_row(c.tensor(2, "index")?));
    let x = as_row(whole);
    let axis = c.axis(x.rank(), 1, "dim", 0)?;
    let reach = sizes(index);
    let source = match c.get(3, "src") {
        Value::Tensor(_) => as_row(c.tensor(3, "src")?),
        _ => c.g.full(x.dtype(), fixed(&reach), c.number(3, "value")?),
    };
    let source = part(source, &reach, usize::MAX);
    let spread = |t: Tensor<'g>| {
        let mut y = part(like(x, 0.0), &reach, axis).scatter_add_along(axis as isize, index, t);
        for (a, n) in sizes(x).into_iter().enumerate() {
            y = y.pad(a as isize, 0, n - sizes(y)[a], 0.0);
        }
        y
    };
    one(f(x, spread(source), spread(like(source, 1.0))).reshape(whole.shape()))
}

/// The mean of what was added to each element, and of the element itself where it takes part.
fn mean<'g>(x: Tensor<'g>, added: Tensor<'g>, count: Tensor<'g>, own: bool) -> Tensor<'g> {
    if own {
        return (x + added) / (count + 1.0);
    }
    count.greater(0.0).select(added / count.maximum(1.0), x)
}
