//! The operators of `torch.masked`: elements that the mask leaves out do not take part.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble};
use super::helpers::{along, at_least, kept, like, log_sum_exp, norm, one, signed, sum};
use super::prefix::running;
use super::reductions::arg_reduced_of;
use onestep_ir::Tensor;

const INF: f64 = f64::INFINITY;

pub const TABLE: &[Entry] = &[
    ("masked.sum", |c| reduced(c, 1, 0.0, |x, axes| sum(x, axes))),
    ("masked.prod", |c| reduced(c, 1, 1.0, |x, axes| x.prod(&signed(axes)))),
    ("masked.amax", |c| reduced(c, 1, -INF, |x, axes| x.max(&signed(axes)))),
    ("masked.amin", |c| reduced(c, 1, INF, |x, axes| x.min(&signed(axes)))),
    ("masked.logsumexp", |c| reduced(c, 1, -INF, |x, axes| log_sum_exp(x, axes))),
    ("masked.norm", |c| {
        let p = c.number(1, "ord")?;
        reduced(c, 2, if p < 0.0 { INF } else { 0.0 }, |x, axes| norm(x, p, axes))
    }),
    ("masked.mean", |c| {
        let (x, mask) = (c.x()?, mask(c)?);
        let axes = c.axes(x, 1, "dim")?;
        let mean = sum(filled(x, mask, 0.0), &axes) / sum(taken(x, mask), &axes);
        one(kept(mean, x, &axes, c.flag(KEYWORD, "keepdim", false)?))
    }),
    ("masked.var", |c| one(variance(c)?)),
    ("masked.std", |c| one(variance(c)?.safe_sqrt())),
    ("masked.argmax", |c| {
        let x = filled(c.x()?, mask(c)?, -INF);
        one(arg_reduced_of(c, x, |x, a| x.argmax(a))?.cast(x.dtype()))
    }),
    ("masked.argmin", |c| {
        let x = filled(c.x()?, mask(c)?, INF);
        one(arg_reduced_of(c, x, |x, a| x.argmin(a))?.cast(x.dtype()))
    }),
    ("masked.softmax", |c| normalised(c, -INF, |x, a| x.softmax(a))),
    ("masked.softmin", |c| normalised(c, INF, |x, a| (-x).softmax(a))),
    ("masked.log_softmax", |c| normalised(c, -INF, |x, a| x.log_softmax(a))),
    ("masked.cumsum", |c| one(running(c, filled(c.x()?, mask(c)?, 0.0), |x, a| x.cumsum(a))?)),
    ("masked.cumprod", |c| one(running(c, filled(c.x()?, mask(c)?, 1.0), |x, a| x.cumprod(a))?)),
    ("masked.normalize", |c| {
        let (x, p) = (c.x()?, c.number(1, "ord")?);
        let x = filled(x, mask(c)?, 0.0);
        let axes = match x.rank() {
            0 => vec![],
            rank => vec![c.axis(rank, 2, "dim", 0)?],
        };
        let length = kept(norm(x, p, &axes), x, &axes, true);
        one(x / at_least(length, like(length, c.number_or(KEYWORD, "eps", 1e-12)?)))
    }),
    ("masked.logaddexp", |c| {
        let (a, b) = (c.x()?, c.tensor(1, "other")?);
        let a = filled(a, c.maybe(KEYWORD, "input_mask")?, -INF);
        one(a.log_add_exp(filled(b, c.maybe(KEYWORD, "other_mask")?, -INF)))
    }),
];

fn mask<'g>(c: &Call<'_, 'g>) -> Result<Option<Tensor<'g>>, Trouble> {
    c.maybe(KEYWORD, "mask")
}

/// The elements that take part, and `value` in the place of the others.
fn filled<'g>(x: Tensor<'g>, mask: Option<Tensor<'g>>, value: f64) -> Tensor<'g> {
    mask.map_or(x, |m| m.select(x, like(x, value)))
}

/// 1 for each element that takes part, 0 for the others.
fn taken<'g>(x: Tensor<'g>, mask: Option<Tensor<'g>>) -> Tensor<'g> {
    mask.map_or(like(x, 1.0), |m| m.broadcast(&x.shape()).cast(x.dtype()))
}

/// A reduction in which `value` stands for what does not take part.
fn reduced<'g>(
    c: &Call<'_, 'g>,
    at: usize,
    value: f64,
    f: impl FnOnce(Tensor<'g>, &[usize]) -> Tensor<'g>,
) -> Built<'g> {
    let x = c.x()?;
    let axes = c.axes(x, at, "dim")?;
    let y = f(filled(x, mask(c)?, value), &axes);
    one(kept(y, x, &axes, c.flag(KEYWORD, "keepdim", false)?))
}

fn normalised<'g>(
    c: &Call<'_, 'g>,
    value: f64,
    f: impl FnOnce(Tensor<'g>, isize) -> Tensor<'g>,
) -> Built<'g> {
    let x = filled(c.x()?, mask(c)?, value);
    one(along(x, c.axis(x.rank(), 1, "dim", -1)?, f))
}

/// The unbiased variance of the elements that take part.
fn variance<'g>(c: &Call<'_, 'g>) -> Result<Tensor<'g>, Trouble> {
    let (x, mask) = (c.x()?, mask(c)?);
    let (axes, keep) = (c.axes(x, 1, "dim")?, c.flag(KEYWORD, "keepdim", false)?);
    let part = taken(x, mask);
    let count = sum(part, &axes);
    let mean = kept(sum(x * part, &axes) / count, x, &axes, true);
    let gap = filled(x - mean, mask, 0.0);
    let divisor = count - c.flag(2, "unbiased", true)? as u8 as f64;
    let y = sum(gap.square(), &axes) / at_least(divisor, like(divisor, 0.0));
    Ok(kept(y, x, &axes, keep))
}
