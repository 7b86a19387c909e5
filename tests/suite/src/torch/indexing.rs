//! Reading by index.

use super::Entry;
use super::call::{Call, KEYWORD, Trouble, wrapped};
use super::helpers::{along, chosen, fixed, indices, like, one, sizes};
use crate::samples::Value;
use onestep_ir::{DType, Tensor, row_major};

pub const TABLE: &[Entry] = &[
    ("gather", |c| {
        let (x, index) = (c.x()?, c.tensor(2, "index")?);
        if sizes(index).contains(&0) {
            return one(c.g.full(x.dtype(), index.shape(), 0.0));
        }
        if x.rank() == 0 {
            return one(x.reshape([1]).gather(0, index));
        }
        let axis = c.axis(x.rank(), 1, "dim", 0)?;
        one(part(x, &sizes(index), axis).gather_along(axis as isize, index))
    }),
    ("take_along_dim", |c| {
        let (x, index) = (c.x()?, c.tensor(1, "indices")?);
        let Some(dim) = c.maybe_int(2, "dim")? else {
            let flat = x.flatten();
            return one(flat.gather(0, counted(index.flatten(), sizes(flat)[0])));
        };
        let axis = wrapped(dim, x.rank())?;
        let index = counted(index, sizes(x)[axis]);
        let (sx, si) = (sizes(x), sizes(index));
        let common: Vec<usize> = sx.iter().zip(&si).map(|(&a, &b)| a.max(b)).collect();
        let full = |own: &[usize]| {
            let mut shape = common.clone();
            shape[axis] = own[axis];
            fixed(&shape)
        };
        one(x.broadcast(&full(&sx)).gather_along(axis as isize, index.broadcast(&full(&si))))
    }),
    ("index_select", |c| {
        let (x, index) = (c.x()?, c.tensor(2, "index")?);
        let axis = c.axis(x.rank(), 1, "dim", 0)?;
        one(along(x, axis, |x, a| x.gather(a, index)))
    }),
    ("take", |c| {
        let (x, index) = (c.x()?.flatten(), c.tensor(1, "index")?);
        one(x.gather(0, counted(index, sizes(x)[0])))
    }),
    ("nn.functional.embedding", |c| {
        if c.maybe_number(3, "max_norm")?.is_some() {
            return Err(Trouble::Refused("an embedding that changes its weight"));
        }
        one(c.x()?.gather(0, c.tensor(1, "input")?))
    }),
    ("nn.functional.embedding_bag", |c| {
        let (table, ids) = (c.x()?, c.tensor(1, "input")?);
        if c.text(KEYWORD, "mode", "mean")? != "sum" {
            return Err(Trouble::Refused("embedding_bag with another mode than sum"));
        }
        let mut rows = table.gather(0, ids);
        if let Some(weight) = c.maybe(KEYWORD, "per_sample_weights")? {
            rows = rows * weight.expand(weight.rank());
        }
        if let Some(padding) = c.maybe_int(KEYWORD, "padding_idx")? {
            let padding = wrapped(padding, sizes(table)[0])?;
            rows = ids.equals(padding as f64).expand(ids.rank()).select(like(rows, 0.0), rows);
        }
        let Some(offsets) = c.maybe(KEYWORD, "offsets")? else { return one(rows.sum(&[1])) };
        // The bag of a row: how many offsets are not behind it. Bags times rows is the sum.
        let n = sizes(ids)[0];
        let mut bags = sizes(offsets)[0];
        let place = c.g.iota(DType::I64, [n, bags], 0);
        let bag = offsets.cast(DType::I64).less_equal(place).cast(DType::I64).sum(&[1]);
        bags -= c.flag(KEYWORD, "include_last_offset", false)? as usize;
        let own = (c.g.iota(DType::I64, [bags, n], 0) + 1.0).equals(bag).cast(table.dtype());
        one(own.matmul(rows))
    }),
    ("_unsafe_masked_index", |c| {
        let (x, mask) = (c.x()?, c.tensor(1, "mask")?);
        let (flat, place) = flat_places(x, &c.list(2, "indices")?);
        one(mask.select(flat.gather(0, place), c.operand(3, "fill", x.dtype())?))
    }),
    ("bucketize", |c| one(insertion(c, c.tensor(1, "boundaries")?, c.x()?)?)),
    ("searchsorted", |c| {
        let mut sorted = c.x()?;
        if let Some(order) = c.maybe(KEYWORD, "sorter")? {
            sorted = sorted.gather_along(-1, order);
        }
        one(insertion(c, sorted, c.tensor(1, "input")?)?)
    }),
    ("repeat_interleave", |c| {
        let x = c.x()?;
        let (x, axis) = match c.maybe_int(2, "dim")? {
            None => (x.flatten(), 0),
            Some(dim) => (x, wrapped(dim, x.rank())?),
        };
        let n = sizes(x)[axis];
        one(match (c.get(1, "repeats"), c.maybe_int(KEYWORD, "output_size")?) {
            (Value::Tensor(_), None) => return Err(Trouble::Refused(super::gaps::DATA_SHAPE)),
            (Value::Tensor(_), Some(total)) => {
                let ends = c.tensor(1, "repeats")?.cumsum(0);
                let place = c.g.iota(DType::I64, [total as usize, n], 0);
                x.gather(axis as isize, ends.less_equal(place).cast(DType::I64).sum(&[1]))
            }
            _ => {
                let times = c.int(1, "repeats")? as usize;
                x.repeat_interleave(axis as isize, times)
            }
        })
    }),
    ("__getitem__", |c| {
        let mut x = c.x()?;
        let whole = c.get(1, "index");
        let numbers = |v: &Value| matches!(v, Value::List(l) if l.iter().all(|i| matches!(i, Value::Int(_))));
        let one_index = [whole.clone()];
        let parts: &[Value] = match whole {
            Value::List(parts) if !numbers(whole) => parts,
            _ => &one_index,
        };
        let list = |v: &Value, n: usize| -> Result<Vec<usize>, Trouble> {
            let Value::List(items) = v else { return Err(Trouble::Malformed(format!("an index {v:?}"))) };
            let at = |i: &Value| if let Value::Int(i) = i { wrapped(*i as isize, n) } else { Ok(0) };
            items.iter().map(at).collect()
        };
        if parts.len() > 1 && parts.iter().all(numbers) {
            let (of, strides) = (sizes(x), row_major(&sizes(x)));
            let lists = parts.iter().zip(&of).map(|(p, &n)| list(p, n)).collect::<Result<Vec<_>, _>>()?;
            let rest = &of[parts.len()..];
            let step: usize = rest.iter().product();
            let place = |k: usize| lists.iter().zip(&strides).map(|(l, s)| l[k] * s).sum::<usize>() / step;
            let places: Vec<usize> = (0..lists[0].len()).map(place).collect();
            let lead: usize = of[..parts.len()].iter().product();
            let rows = x.reshape(fixed(&[&[lead], rest].concat()));
            return one(rows.gather(0, indices(x, &[places.len()], &places)));
        }
        let mut axis = 0;
        for p in parts {
            let n = sizes(x)[axis];
            match p {
                Value::Int(i) => x = x.at(axis as isize, wrapped(*i as isize, n)?),
                Value::Slice([start, end, step]) if step.unwrap_or(1) > 0 => {
                    let at = |i: &Option<i64>, default: usize| {
                        i.map_or(default, |i| {
                            (if i < 0 { i + n as i64 } else { i }).clamp(0, n as i64) as usize
                        })
                    };
                    let (a, b) = (at(start, 0), at(end, n));
                    x = x.slice_step(axis as isize, a, b.max(a), step.unwrap_or(1) as usize);
                    axis += 1;
                }
                Value::List(_) => {
                    x = chosen(x, axis, &list(p, n)?);
                    axis += 1;
                }
                _ => return Err(Trouble::Refused("an index with an ellipsis, a mask or a new axis")),
            }
        }
        one(x)
    }),
];

/// The leading part of a tensor that indices of these sizes reach, whole along `axis`.
pub fn part<'g>(x: Tensor<'g>, index: &[usize], axis: usize) -> Tensor<'g> {
    let cut = |x: Tensor<'g>, a: usize| {
        if a == axis || sizes(x)[a] == index[a] { x } else { x.slice(a as isize, 0, index[a]) }
    };
    (0..index.len()).fold(x, cut)
}

/// Indices of which the negative ones count from the end.
pub fn counted(index: Tensor<'_>, n: usize) -> Tensor<'_> {
    index.less(0.0).select(index + n as f64, index)
}

/// A tensor in one axis, and the places there that one index per axis names, held inside each axis.
pub fn flat_places<'g>(x: Tensor<'g>, at: &[Tensor<'g>]) -> (Tensor<'g>, Tensor<'g>) {
    let (of, strides) = (sizes(x), row_major(&sizes(x)));
    let one = |(i, t): (usize, &Tensor<'g>)| {
        t.cast(DType::I64).maximum(0.0).minimum(of[i] as f64 - 1.0) * strides[i] as f64
    };
    let place = at.iter().enumerate().map(one).reduce(|a, b| a + b);
    (x.flatten(), place.unwrap_or(x))
}

/// How many of the sorted numbers stand before each value.
fn insertion<'g>(c: &Call<'_, 'g>, sorted: Tensor<'g>, values: Tensor<'g>) -> Result<Tensor<'g>, Trouble> {
    let right = c.flag(KEYWORD, "right", false)? || c.text(KEYWORD, "side", "left")? == "right";
    let dtype = if c.flag(KEYWORD, "out_int32", false)? { DType::I32 } else { DType::I64 };
    let v = values.expand(values.rank());
    let sorted = if sorted.rank() > 1 { sorted.expand(sorted.rank() - 1) } else { sorted };
    let before = if right { v.greater_equal(sorted) } else { v.greater(sorted) };
    Ok(before.cast(dtype).sum(&[-1]))
}
