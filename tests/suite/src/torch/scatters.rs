//! Writing and adding by index.

use super::Entry;
use super::call::{Call, KEYWORD, Trouble};
use super::helpers::{fixed, like, one, sizes};
use super::indexing::{counted, flat_places, part};
use crate::samples::Value;
use onestep_ir::{DType, Meeting, Tensor};

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
    ("scatter_reduce/prod", |c| met(c, Meeting::Prod)),
    ("scatter_reduce/amax", |c| met(c, Meeting::Max)),
    ("scatter_reduce/amin", |c| met(c, Meeting::Min)),
    ("index_reduce/prod", |c| met_by_index(c, Meeting::Prod)),
    ("index_reduce/amax", |c| met_by_index(c, Meeting::Max)),
    ("index_reduce/amin", |c| met_by_index(c, Meeting::Min)),
    ("_segment_reduce", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), KEYWORD, "axis", 0)?);
        if x.rank() != 1 {
            return Err(Trouble::Refused("segments of more than a vector"));
        }
        let ends = match c.maybe(KEYWORD, "lengths")? {
            Some(lengths) => lengths.cumsum(0),
            None => c.tensor(KEYWORD, "offsets")?.slice_signed(0, Some(1), None, 1),
        };
        // The segment of an element: how many end before it.
        let (n, segments) = (sizes(x)[0], sizes(ends)[0]);
        let place = c.g.iota(ends.dtype(), [n, segments], 0);
        let segment = ends.less_equal(place).cast(DType::I64).sum(&[1]);
        let initial = c.g.full(x.dtype(), [segments], c.number(KEYWORD, "initial")?);
        let by = |meeting| initial.scatter_reduce_along(axis as isize, segment, x, meeting, true);
        one(match c.text(1, "reduce", "sum")? {
            "max" => by(Meeting::Max),
            "min" => by(Meeting::Min),
            "prod" => by(Meeting::Prod),
            "mean" => {
                let count = c.g.full(x.dtype(), [segments], 0.0).scatter_add(0, segment, like(x, 1.0));
                by(Meeting::Sum) / count.maximum(1.0)
            }
            _ => by(Meeting::Sum),
        })
    }),
    ("masked_scatter", |c| {
        let (x, mask) = c.x()?.stretched(c.tensor(1, "mask")?);
        let source = c.tensor(2, "source")?.flatten();
        let count = mask.flatten().cast(DType::I64).cumsum(0);
        let last = sizes(source)[0] as f64 - 1.0;
        let place = (count - 1.0).maximum(0.0).minimum(last).reshape(x.shape());
        one(mask.select(source.gather(0, place), x))
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

/// `scatter_reduce` with a meeting that is no sum.
fn met<'g>(c: &Call<'_, 'g>, meeting: Meeting) -> super::Built<'g> {
    let (x, index) = (c.x()?, as_row(c.tensor(2, "index")?));
    let (x, shape) = (as_row(x), x.shape());
    let axis = c.axis(x.rank(), 1, "dim", 0)?;
    let reach = sizes(index);
    let (own, source) = (part(x, &reach, axis), part(as_row(c.tensor(3, "src")?), &reach, usize::MAX));
    let y = own.scatter_reduce_along(
        axis as isize,
        index,
        source,
        meeting,
        c.flag(KEYWORD, "include_self", true)?,
    );
    // What the indices do not reach stays.
    let rest = (0..x.rank()).filter(|&a| a != axis).rev().fold(y, |y, a| {
        let (n, whole) = (sizes(y)[a], part(x, &sizes(y), a));
        c.g.concat(&[y, whole.slice(a as isize, n, sizes(x)[a])], a as isize)
    });
    one(rest.reshape(shape))
}

/// `index_reduce` with a meeting that is no sum.
fn met_by_index<'g>(c: &Call<'_, 'g>, meeting: Meeting) -> super::Built<'g> {
    let own = c.flag(KEYWORD, "include_self", true)?;
    indexed(c, |x, a, index| {
        let source = as_row(c.tensor(3, "source")?);
        let row: Vec<usize> =
            (0..x.rank()).map(|i| if i as isize == a { sizes(index)[0] } else { 1 }).collect();
        let index = index.reshape(fixed(&row)).broadcast(&source.shape());
        Ok(x.scatter_reduce_along(a, index, source, meeting, own))
    })
}

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
