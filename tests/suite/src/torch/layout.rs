//! Operators that pick elements by position: slices, diagonals, triangles, turns, windows, shuffles.

use super::Entry;
use super::call::{Trouble, wrapped};
use super::helpers::{fixed, indices, one, picked, sizes};
use super::shape::swapped;
use crate::samples::Value;
use onestep_ir::{DType, Tensor};

pub const TABLE: &[Entry] = &[
    ("slice", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 1, "dim", 0)?);
        let n = sizes(x)[axis];
        let end = c.int_or(3, "end", n as isize)? as usize;
        one(x.slice_step(
            axis as isize,
            c.int_or(2, "start", 0)? as usize,
            end,
            c.int_or(4, "step", 1)? as usize,
        ))
    }),
    ("narrow narrow_copy", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 1, "dim", 0)?);
        let n = c.int(3, "length")? as usize;
        one(match c.get(2, "start") {
            Value::Tensor(_) => x.dynamic_slice(axis as isize, c.tensor(2, "start")?, n),
            _ => {
                let start = c.int(2, "start")? as usize;
                x.slice(axis as isize, start, start + n)
            }
        })
    }),
    ("select", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 1, "dim", 0)?);
        one(x.at(axis as isize, wrapped(c.int(2, "index")?, sizes(x)[axis])?))
    }),
    ("select_scatter", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 2, "dim", 0)?);
        let at = wrapped(c.int(3, "index")?, sizes(x)[axis])?;
        let here = c.g.iota(DType::I32, x.shape(), axis).equals(at as f64);
        one(here.select(c.tensor(1, "src")?.expand(axis), x))
    }),
    ("flip", |c| {
        let x = c.x()?;
        c.ints(1, "dims")?
            .iter()
            .try_fold(x, |x, &d| Ok(x.reverse(&[wrapped(d, x.rank())? as isize])))
            .map(|x| vec![x])
    }),
    ("fliplr", |c| one(c.x()?.reverse(&[1]))),
    ("flipud", |c| one(c.x()?.reverse(&[0]))),
    ("roll", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 2, "dims", 0)?);
        one(x.roll(axis as isize, c.int(1, "shifts")?))
    }),
    ("rot90", |c| {
        let x = c.x()?;
        let dims = c.maybe_ints(2, "dims")?.unwrap_or(vec![0, 1]);
        let (a, b) = (wrapped(dims[0], x.rank())?, wrapped(dims[1], x.rank())?);
        let mut y = x;
        for _ in 0..c.int_or(1, "k", 1)?.rem_euclid(4) {
            y = y.transpose(&swapped(y.rank(), a, b)).reverse(&[a as isize]);
        }
        one(y)
    }),
    ("diagonal diagonal_copy", |c| {
        let (x, rank) = (c.x()?, c.x()?.rank());
        let (a, b) = (c.axis(rank, 2, "dim1", 0)?, c.axis(rank, 3, "dim2", 1)?);
        one(diagonal(x, c.int_or(1, "offset", 0)?, a, b))
    }),
    ("linalg.diagonal", |c| {
        let (x, rank) = (c.x()?, c.x()?.rank());
        let (a, b) = (c.axis(rank, 2, "dim1", -2)?, c.axis(rank, 3, "dim2", -1)?);
        one(diagonal(x, c.int_or(1, "offset", 0)?, a, b))
    }),
    ("diag", |c| {
        let (x, offset) = (c.x()?, c.int_or(1, "diagonal", 0)?);
        one(if x.rank() == 1 { x.diag_embed(offset) } else { diagonal(x, offset, 0, 1) })
    }),
    ("diagflat", |c| one(c.x()?.flatten().diag_embed(c.int_or(1, "offset", 0)?))),
    ("diag_embed", |c| {
        if c.maybe_int(2, "dim1")?.is_some() || c.maybe_int(3, "dim2")?.is_some() {
            return Err(Trouble::Refused("diag_embed into other axes than the last two"));
        }
        one(c.x()?.diag_embed(c.int_or(1, "offset", 0)?))
    }),
    ("diagonal_scatter", |c| {
        let (x, offset) = (c.x()?, c.int_or(2, "offset", 0)?);
        let of = sizes(x);
        if of.len() != 2 {
            return Err(Trouble::Refused("diagonal_scatter into more than a matrix"));
        }
        // The source along the longer axis, where the other one does not reach it.
        let (low, right) = ((-offset).max(0) as usize, offset.max(0) as usize);
        let src = c.tensor(1, "src")?;
        let column = src.pad(0, right, of[1] - right - sizes(src)[0], 0.0);
        let rows = c.g.iota(DType::I64, [of[0], of[1]], 0) + right as f64;
        let here = rows.equals(c.g.iota(DType::I64, [of[0], of[1]], 1) + low as f64);
        one(here.select(column.broadcast(&x.shape()), x))
    }),
    ("tril", |c| one(c.x()?.tril(c.int_or(1, "diagonal", 0)?))),
    ("triu", |c| one(c.x()?.triu(c.int_or(1, "diagonal", 0)?))),
    ("as_strided as_strided_copy", |c| {
        let shape: Vec<usize> = c.ints(1, "size")?.iter().map(|&n| n as usize).collect();
        let strides = c.ints(2, "stride")?;
        let start = c.int_or(3, "storage_offset", 0)?;
        one(picked(c.x()?, &shape, |i| {
            let along = |(i, s): (&usize, &isize)| *i as isize * s;
            (start + i.iter().zip(&strides).map(along).sum::<isize>()) as usize
        }))
    }),
    ("unfold unfold_copy", |c| {
        let (x, axis) = (c.x()?, c.axis(c.x()?.rank(), 1, "dimension", 0)?);
        let (size, step) = (c.int(2, "size")? as usize, c.int(3, "step")? as usize);
        if x.rank() == 0 {
            return one(x.reshape([size]));
        }
        one(x.windows(axis as isize, size, step))
    }),
    ("nn.functional.unfold", |c| {
        let pair = |i, name: &str, default| {
            let v = c.maybe_ints(i, name)?.unwrap_or(vec![default]);
            Ok([v[0] as usize, v[v.len() - 1] as usize])
        };
        let (k, dilation) = (pair(1, "kernel_size", 1)?, pair(2, "dilation", 1)?);
        let (padding, stride) = (pair(3, "padding", 0)?, pair(4, "stride", 1)?);
        let x = c.x()?.pad(-2, padding[0], padding[0], 0.0).pad(-1, padding[1], padding[1], 0.0);
        let of = sizes(x);
        let out = |a: usize| (of[2 + a] - dilation[a] * (k[a] - 1) - 1) / stride[a] + 1;
        let at = |a: usize| {
            let places = (0..k[a]).flat_map(|i| (0..out(a)).map(move |w| w * stride[a] + i * dilation[a]));
            indices(x, &[k[a], out(a)], &places.collect::<Vec<_>>())
        };
        // [n, channels, k₀, out₀, k₁, out₁]
        let cut = x.gather(2, at(0)).gather(4, at(1)).transpose(&[0, 1, 2, 4, 3, 5]);
        one(cut.reshape([of[0], of[1] * k[0] * k[1], out(0) * out(1)]))
    }),
    ("combinations", |c| {
        let (x, r) = (c.x()?, c.int_or(1, "r", 2)? as usize);
        let again = c.flag(2, "with_replacement", false)?;
        let n = sizes(x)[0];
        let mut rows: Vec<Vec<usize>> = vec![vec![]];
        for _ in 0..r {
            let from = |row: &Vec<usize>| row.last().map_or(0, |&l| l + !again as usize);
            rows = rows.iter().flat_map(|row| (from(row)..n).map(|i| [&row[..], &[i]].concat())).collect();
        }
        one(x.gather(0, indices(x, &[rows.len(), r], &rows.concat())))
    }),
    ("nn.functional.pixel_shuffle", |c| one(c.x()?.pixel_shuffle(c.int(1, "upscale_factor")? as usize))),
    ("nn.functional.pixel_unshuffle", |c| {
        one(c.x()?.pixel_unshuffle(c.int(1, "downscale_factor")? as usize))
    }),
    ("nn.functional.channel_shuffle", |c| {
        let (x, groups) = (c.x()?, c.int(1, "groups")? as usize);
        let of = sizes(x);
        let split = x.reshape(fixed(&[&[of[0], groups, of[1] / groups], &of[2..]].concat()));
        one(split.transpose(&swapped(of.len() + 1, 1, 2)).reshape(x.shape()))
    }),
];

/// The diagonal over axes `a` and `b`, as a last axis.
fn diagonal(x: Tensor<'_>, offset: isize, a: usize, b: usize) -> Tensor<'_> {
    let rest = (0..x.rank()).filter(|i| ![a, b].contains(i));
    x.transpose(&rest.chain([a, b]).collect::<Vec<_>>()).diagonal(offset)
}
