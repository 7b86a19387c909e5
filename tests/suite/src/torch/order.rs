//! Sorting and selection by rank.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble};
use super::helpers::{along, kept, one, sizes};
use crate::samples::Value;
use onestep_ir::{DType, QuantileKind, Tensor};

pub const TABLE: &[Entry] = &[
    ("sort", |c| {
        // A leading `stable` is a keyword of its own overload.
        let (values, places) =
            sorted(c, c.axis(c.x()?.rank(), 1, "dim", -1)?, c.flag(2, "descending", false)?)?;
        Ok(vec![values, places])
    }),
    ("argsort", |c| {
        let axis = c.axis(c.x()?.rank(), 1, "dim", -1)?;
        one(sorted(c, axis, c.flag(2, "descending", false)?)?.1)
    }),
    ("msort", |c| one(sorted(c, 0, false)?.0)),
    ("topk", |c| {
        let (x, k) = (c.x()?, c.int(1, "k")? as usize);
        let axis = c.axis(x.rank(), 2, "dim", -1)?;
        if x.rank() == 0 {
            return Ok(vec![x, c.g.scalar(DType::I64, 0.0)]);
        }
        let (values, places) = x.sort(axis as isize, c.flag(3, "largest", true)?);
        let (a, places) = (axis as isize, places.cast(DType::I64));
        Ok(vec![values.slice(a, 0, k), places.slice(a, 0, k)])
    }),
    ("kthvalue", |c| {
        let (x, k) = (c.x()?, c.int(1, "k")? as usize);
        let axis = c.axis(x.rank(), 2, "dim", -1)?;
        ranked(c, axis, c.flag(3, "keepdim", false)?, |x, a| x.kth_smallest(a, k - 1))
    }),
    ("median", |c| {
        let x = c.x()?;
        if matches!(c.get(1, "dim"), Value::None) {
            return one(x.flatten().median(0));
        }
        let axis = c.axis(x.rank(), 1, "dim", -1)?;
        ranked(c, axis, c.flag(2, "keepdim", false)?, |x, a| {
            let (n, at) = (sizes(x)[a as usize], a as usize);
            // Where there is a NaN, the first one's place.
            let first = x.is_nan().cast(DType::I32).argmax(a);
            let place = x.is_nan().any_over(&[a]).select(first, x.kth_smallest(a, (n - 1) / 2).1);
            (x.gather_along(a, place.expand(at)).squeeze(a), place)
        })
    }),
    ("nanmedian", |c| {
        let x = c.x()?;
        if matches!(c.get(1, "dim"), Value::None) {
            return one(x.flatten().nan_median(0));
        }
        let axis = c.axis(x.rank(), 1, "dim", -1)?;
        ranked(c, axis, c.flag(2, "keepdim", false)?, |x, a| {
            let (sorted, places) = x.sort(a, false);
            let count = sorted.is_nan().not().cast(DType::I32).sum_keep(&[a]);
            let middle = (count - 1.0).maximum(0.0).shr(1.0);
            (sorted.gather_along(a, middle).squeeze(a), places.gather_along(a, middle).squeeze(a))
        })
    }),
    ("masked.median", |c| {
        let x = c.x()?;
        let axis = c.axis(x.rank(), 1, "dim", -1)?;
        let x = match c.maybe(KEYWORD, "mask")? {
            Some(mask) => mask.select(x, f64::NAN),
            None => x,
        };
        let y = along(x, axis, |x, a| x.nan_median(a).expand(a as usize));
        one(if c.flag(2, "keepdim", false)? || x.rank() == 0 { y } else { y.squeeze(axis as isize) })
    }),
    ("quantile", |c| quantiles(c, Tensor::quantile_by)),
    ("nanquantile", |c| quantiles(c, Tensor::nan_quantile_by)),
    ("mode", |c| {
        let axis = c.axis(c.x()?.rank(), 1, "dim", -1)?;
        ranked(c, axis, c.flag(2, "keepdim", false)?, |x, a| x.mode(a))
    }),
];

/// Sorted values and their places.
fn sorted<'g>(c: &Call<'_, 'g>, axis: usize, descending: bool) -> Result<(Tensor<'g>, Tensor<'g>), Trouble> {
    let x = c.x()?;
    if x.rank() == 0 {
        return Ok((x, c.g.scalar(DType::I64, 0.0)));
    }
    let (values, places) = x.sort(axis as isize, descending);
    Ok((values, places.cast(DType::I64)))
}

/// A value of each row and its place.
fn ranked<'g>(
    c: &Call<'_, 'g>,
    axis: usize,
    keep: bool,
    f: impl FnOnce(Tensor<'g>, isize) -> (Tensor<'g>, Tensor<'g>),
) -> Built<'g> {
    let x = c.x()?;
    if x.rank() == 0 {
        return Ok(vec![x, c.g.scalar(DType::I64, 0.0)]);
    }
    let (value, place) = f(x, axis as isize);
    let kept = |t| kept(t, x, &[axis], keep);
    Ok(vec![kept(value), kept(place.cast(DType::I64))])
}

/// A quantile by `f` along the axis that the call names, or of all elements.
fn quantiles<'g>(
    c: &Call<'_, 'g>,
    f: impl FnOnce(Tensor<'g>, f64, isize, QuantileKind) -> Tensor<'g>,
) -> Built<'g> {
    let x = c.x()?;
    let kind = match c.text(KEYWORD, "interpolation", "linear")? {
        "lower" => QuantileKind::Lower,
        "higher" => QuantileKind::Higher,
        "nearest" => QuantileKind::Nearest,
        "midpoint" => QuantileKind::Midpoint,
        _ => QuantileKind::Linear,
    };
    if let Value::Tensor(_) = c.get(1, "q") {
        return Err(Trouble::Refused("quantile at ranks that are data"));
    }
    let (q, keep) = (c.number(1, "q")?, c.flag(3, "keepdim", false)?);
    one(match c.maybe_int(2, "dim")? {
        Some(_) if x.rank() > 0 => {
            let axis = c.axis(x.rank(), 2, "dim", 0)?;
            kept(f(x, q, axis as isize, kind), x, &[axis], keep)
        }
        _ => {
            let axes: Vec<usize> = (0..x.rank()).collect();
            kept(f(x.flatten(), q, 0, kind), x, &axes, keep)
        }
    })
}
