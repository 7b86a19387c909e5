//! Operators that give the same elements another shape, repeat them, cut them or join them.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble, wrapped};
use super::helpers::{fixed, one, sizes};
use crate::samples::Value;
use onestep_ir::Tensor;

pub const TABLE: &[Entry] = &[
    ("reshape view view_copy", |c| {
        let x = c.x()?;
        one(x.reshape(fixed(&with_rest(&c.sizes(1, "shape")?, sizes(x).iter().product()))))
    }),
    ("reshape_as view_as", |c| one(c.x()?.reshape(c.tensor(1, "other")?.shape()))),
    ("ravel", |c| one(c.x()?.flatten())),
    ("flatten", |c| {
        let (x, rank) = (c.x()?, c.x()?.rank());
        let (a, b) = (c.axis(rank, 1, "start_dim", 0)?, c.axis(rank, 2, "end_dim", -1)?);
        let of = if rank == 0 { vec![1] } else { sizes(x) };
        let middle: usize = of[a..=b].iter().product();
        one(x.reshape(fixed(&[&of[..a], &[middle], &of[b + 1..]].concat())))
    }),
    ("unflatten", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 1, "dim", 0)?);
        let of = sizes(x);
        let parts = with_rest(&c.ints(2, "sizes")?, of[axis]);
        one(x.reshape(fixed(&[&of[..axis], &parts, &of[axis + 1..]].concat())))
    }),
    ("squeeze squeeze_copy", |c| {
        let x = c.x()?;
        let of = sizes(x);
        let named = match c.maybe_ints(1, "dim")? {
            None => (0..of.len()).collect(),
            Some(dims) => dims.iter().map(|&d| wrapped(d, of.len().max(1))).collect::<Result<Vec<_>, _>>()?,
        };
        let stay = |a: &usize| of[*a] != 1 || !named.contains(a);
        one(x.reshape(fixed(&(0..of.len()).filter(stay).map(|a| of[a]).collect::<Vec<_>>())))
    }),
    ("unsqueeze unsqueeze_copy", |c| {
        let x = c.x()?;
        one(x.expand(wrapped(c.int(1, "dim")?, x.rank() + 1)?))
    }),
    ("atleast_1d", |c| each(c, |x| if x.rank() == 0 { x.expand(0) } else { x })),
    ("atleast_2d", |c| {
        each(c, |x| match x.rank() {
            0 => x.reshape([1, 1]),
            1 => x.expand(0),
            _ => x,
        })
    }),
    ("atleast_3d", |c| each(c, three_axes)),
    ("expand expand_copy broadcast_to", |c| {
        let (x, want) = (c.x()?, c.sizes(1, "size")?);
        let of = sizes(x);
        let lead = want.len() - of.len();
        let full = |(i, &n): (usize, &isize)| if n < 0 { of[i - lead] } else { n as usize };
        one(x.broadcast(&fixed(&want.iter().enumerate().map(full).collect::<Vec<_>>())))
    }),
    ("expand_as", |c| one(c.x()?.broadcast(&c.tensor(1, "other")?.shape()))),
    ("broadcast_tensors", |c| {
        let all = c.all()?;
        let widest = all.iter().fold(all[0], |a, &b| a.stretched(b).0);
        Ok(all.iter().map(|t| t.broadcast(&widest.shape())).collect())
    }),
    ("meshgrid", |c| {
        let mut all = c.all()?;
        let swap = c.text(KEYWORD, "indexing", "ij")? == "xy" && all.len() > 1;
        if swap {
            all.swap(0, 1);
        }
        let mut grids = grid(&all);
        if swap {
            grids.swap(0, 1);
        }
        Ok(grids)
    }),
    ("repeat tile", |c| {
        let (x, times) = (c.x()?, c.sizes(1, "repeats")?);
        one(x.tile(&times.iter().map(|&n| n as usize).collect::<Vec<_>>()))
    }),
    ("permute permute_copy", |c| {
        let x = c.x()?;
        let dims = c.sizes(1, "dims")?.into_iter().map(|d| wrapped(d, x.rank()));
        one(x.transpose(&dims.collect::<Result<Vec<_>, _>>()?))
    }),
    ("transpose transpose_copy", |c| {
        let (x, rank) = (c.x()?, c.x()?.rank());
        let (a, b) = (c.axis(rank, 1, "dim0", 0)?, c.axis(rank, 2, "dim1", 0)?);
        one(if rank == 0 { x } else { x.transpose(&swapped(rank, a, b)) })
    }),
    ("T H t t_copy mT mH", |c| one(if c.x()?.rank() < 2 { c.x()? } else { c.x()?.transpose_last() })),
    ("movedim", |c| {
        let (x, rank) = (c.x()?, c.x()?.rank());
        let from = c.ints(1, "source")?.into_iter().map(|d| wrapped(d, rank));
        let to = c.ints(2, "destination")?.into_iter().map(|d| wrapped(d, rank));
        let (from, to) = (from.collect::<Result<Vec<_>, _>>()?, to.collect::<Result<Vec<_>, _>>()?);
        let mut rest = (0..rank).filter(|a| !from.contains(a));
        let source = |a| to.iter().position(|&t| t == a).map(|i| from[i]).or_else(|| rest.next());
        one(x.transpose(&(0..rank).filter_map(source).collect::<Vec<_>>()))
    }),
    ("cat", |c| {
        // PyTorch passes over empty vectors, whatever the rank of the others.
        let mut parts = c.list(0, "tensors")?;
        if parts.iter().any(|t| t.rank() > 1) {
            parts.retain(|t| sizes(*t) != [0]);
        }
        one(c.g.concat(&parts, c.int_or(1, "dim", 0)?))
    }),
    ("stack", |c| one(c.g.stack(&c.list(0, "tensors")?, c.int_or(1, "dim", 0)?))),
    ("hstack", |c| {
        let parts = c.list(0, "tensors")?;
        one(c.g.concat(&parts, if parts[0].rank() == 1 { 0 } else { 1 }))
    }),
    ("vstack", |c| {
        let rows = c.list(0, "tensors")?.into_iter().map(|t| if t.rank() == 1 { t.expand(0) } else { t });
        one(c.g.concat(&rows.collect::<Vec<_>>(), 0))
    }),
    ("dstack", |c| {
        let parts: Vec<_> = c.list(0, "tensors")?.into_iter().map(three_axes).collect();
        one(c.g.concat(&parts, 2))
    }),
    ("column_stack", |c| {
        let column = |t: Tensor<'_>| sizes(t).first().copied().unwrap_or(1);
        let parts = c.list(0, "tensors")?;
        let parts = parts.into_iter().map(|t| if t.rank() < 2 { t.reshape([column(t), 1]) } else { t });
        one(c.g.concat(&parts.collect::<Vec<_>>(), 1))
    }),
    ("block_diag", |c| {
        let all: Vec<_> =
            c.all()?.into_iter().map(|t| if t.rank() < 2 { t.flatten().expand(0) } else { t }).collect();
        let width: usize = all.iter().map(|t| sizes(*t)[1]).sum();
        let mut left = 0;
        let rows = all.into_iter().map(|t| {
            let n = sizes(t)[1];
            left += n;
            t.pad(1, left - n, width - left, 0.0)
        });
        one(c.g.concat(&rows.collect::<Vec<_>>(), 0))
    }),
    ("_chunk_cat", |c| {
        let (axis, chunks) = (c.int(1, "dim")?, c.int(2, "num_chunks")? as usize);
        let parts = c.list(0, "tensors")?.into_iter().map(|t| {
            let axis = wrapped(axis, t.rank())?;
            let of = sizes(t);
            let each = of[axis].div_ceil(chunks);
            let full = t.pad(axis as isize, 0, each * chunks - of[axis], 0.0);
            let rest: usize = of[axis + 1..].iter().product();
            Ok(full.reshape(fixed(&[&of[..axis], &[chunks, each * rest]].concat())))
        });
        one(c.g.concat(&parts.collect::<Result<Vec<_>, Trouble>>()?, -1))
    }),
    ("split unsafe_split split_with_sizes split_with_sizes_copy", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 2, "dim", 0)?);
        let n = sizes(x)[axis];
        let parts = match c.get(1, "split_size") {
            Value::Int(size) => pieces(n, *size as usize),
            _ => c.ints(1, "split_size")?.into_iter().map(|n| n as usize).collect(),
        };
        Ok(x.split(axis as isize, &parts))
    }),
    ("chunk unsafe_chunk", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 2, "dim", 0)?);
        let n = sizes(x)[axis];
        Ok(x.split(axis as isize, &pieces(n, n.div_ceil(c.int(1, "chunks")? as usize))))
    }),
    ("tensor_split", |c| tensor_split(c, c.axis(c.x()?.rank(), 2, "dim", 0)?)),
    ("hsplit", |c| tensor_split(c, (c.x()?.rank() > 1) as usize)),
    ("vsplit", |c| tensor_split(c, 0)),
    ("dsplit", |c| tensor_split(c, 2)),
    ("unbind unbind_copy", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 1, "dim", 0)?);
        Ok((0..sizes(x)[axis]).map(|i| x.at(axis as isize, i)).collect())
    }),
    ("cartesian_prod", |c| {
        let all = c.all()?;
        if let [only] = all[..] {
            return one(only);
        }
        one(c.g.stack(&grid(&all).into_iter().map(|t| t.flatten()).collect::<Vec<_>>(), 1))
    }),
];

/// Each vector along its own axis of a grid, repeated along the others.
fn grid<'g>(vectors: &[Tensor<'g>]) -> Vec<Tensor<'g>> {
    let full: Vec<usize> = vectors.iter().map(|t| sizes(*t).iter().product()).collect();
    let one = |(i, t): (usize, &Tensor<'g>)| {
        let mut shape = vec![1; full.len()];
        shape[i] = full[i];
        t.reshape(fixed(&shape)).broadcast(&fixed(&full))
    };
    vectors.iter().enumerate().map(one).collect()
}

/// Sizes of which one may be −1: whatever is left of `total`.
fn with_rest(given: &[isize], total: usize) -> Vec<usize> {
    let known: usize = given.iter().filter(|&&n| n >= 0).map(|&n| n as usize).product();
    given.iter().map(|&n| if n < 0 { total / known.max(1) } else { n as usize }).collect()
}

/// The identity permutation with two axes swapped.
pub fn swapped(rank: usize, a: usize, b: usize) -> Vec<usize> {
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(a, b);
    perm
}

fn three_axes(x: Tensor<'_>) -> Tensor<'_> {
    match x.rank() {
        0 => x.reshape([1, 1, 1]),
        1 => x.expand(0).expand(2),
        2 => x.expand(2),
        _ => x,
    }
}

fn each<'g>(c: &Call<'_, 'g>, f: impl Fn(Tensor<'g>) -> Tensor<'g>) -> Built<'g> {
    Ok(c.all()?.into_iter().map(f).collect())
}

/// Parts of `size` that make up `n`; the last may be smaller.
fn pieces(n: usize, size: usize) -> Vec<usize> {
    (0..n.div_ceil(size)).map(|i| size.min(n - i * size)).collect()
}

/// Parts that begin at the given indices, or a number of nearly equal parts of which the first are larger.
fn tensor_split<'g>(c: &Call<'_, 'g>, axis: usize) -> Built<'g> {
    let x = c.x()?;
    let n = sizes(x)[axis];
    let parts: Vec<usize> = match c.get(1, "indices_or_sections") {
        Value::Tensor(_) => return Err(Trouble::Refused(super::gaps::DATA_SHAPE)),
        Value::Int(k) => {
            let k = *k as usize;
            (0..k).map(|i| n / k + (i < n % k) as usize).collect()
        }
        _ => {
            let mut marks = vec![0];
            marks.extend(c.ints(1, "indices_or_sections")?.iter().map(|&i| i as usize));
            marks.push(n);
            marks.windows(2).map(|w| w[1] - w[0]).collect()
        }
    };
    Ok(x.split(axis as isize, &parts))
}
