//! Padding with a constant, with the edge, with a mirror, and around.

use super::Entry;
use super::call::{Built, Call, Trouble};
use super::helpers::{chosen, one, sizes};
use onestep_ir::Tensor;

pub const TABLE: &[Entry] = &[
    ("constant_pad_nd", |c| constant(c, c.number_or(2, "value", 0.0)?)),
    ("nn.functional.pad/constant", |c| constant(c, c.number_or(3, "value", 0.0)?)),
    ("nn.functional.pad/reflect", |c| {
        by_index(c, |i, n| if n < 2 { 0 } else { (n - 1) - ((n - 1) - i.rem_euclid(2 * n - 2)).abs() })
    }),
    ("nn.functional.pad/replicate nn.functional.pad/replicate_negative", |c| {
        by_index(c, |i, n| i.clamp(0, n - 1))
    }),
    ("nn.functional.pad/circular", |c| {
        // What is cut off does not come around again.
        let mut x = c.x()?;
        for (axis, low, high) in pads(c)? {
            let n = sizes(x)[axis];
            x = x.slice(axis as isize, (-low).max(0) as usize, n - (-high).max(0) as usize);
            let n = sizes(x)[axis] as isize;
            let at = (-low.max(0)..n + high.max(0)).map(|i| i.rem_euclid(n) as usize);
            x = chosen(x, axis, &at.collect::<Vec<_>>());
        }
        one(x)
    }),
];

/// The axes from the last, each with what is added before and behind; less than 0 cuts off.
fn pads<'g>(c: &Call<'_, 'g>) -> Result<Vec<(usize, isize, isize)>, Trouble> {
    let (rank, pads) = (c.x()?.rank(), c.ints(1, "pad")?);
    Ok(pads.chunks(2).enumerate().map(|(i, p)| (rank - 1 - i, p[0], p[1])).collect())
}

fn constant<'g>(c: &Call<'_, 'g>, value: f64) -> Built<'g> {
    let mut x = c.x()?;
    for (axis, low, high) in pads(c)? {
        let (a, n) = (axis as isize, sizes(x)[axis]);
        let cut = x.slice(a, (-low).max(0) as usize, n - (-high).max(0) as usize);
        x = cut.pad(a, low.max(0) as usize, high.max(0) as usize, value);
    }
    one(x)
}

/// Every place of the padded axis reads the element that `f` gives for its distance from the first and the size.
fn by_index<'g>(c: &Call<'_, 'g>, f: impl Fn(isize, isize) -> isize) -> Built<'g> {
    let mut x: Tensor<'g> = c.x()?;
    for (axis, low, high) in pads(c)? {
        let n = sizes(x)[axis] as isize;
        let at: Vec<usize> = (-low..n + high).map(|i| f(i, n) as usize).collect();
        x = chosen(x, axis, &at);
    }
    one(x)
}
