//! Functions of two and three elements.

use super::Entry;
use super::helpers::{at_least, at_most, like, one, paired, signed, sizes, two};
use onestep_ir::{DType, Tensor};
use std::f64::consts::LN_2;

pub const TABLE: &[Entry] = &[
    ("add __radd__", |c| two(c).and_then(|(a, b)| one(a + b * c.number_or(2, "alpha", 1.0)?))),
    ("sub", |c| two(c).and_then(|(a, b)| one(a - b * c.number_or(2, "alpha", 1.0)?))),
    ("rsub __rsub__", |c| two(c).and_then(|(a, b)| one(b - a * c.number_or(2, "alpha", 1.0)?))),
    ("mul __rmul__", |c| two(c).and_then(|(a, b)| one(a * b))),
    ("div/no_rounding_mode true_divide", |c| two(c).and_then(|(a, b)| one(a / b))),
    ("div/trunc_rounding", |c| two(c).and_then(|(a, b)| one((a / b).trunc()))),
    ("div/floor_rounding floor_divide", |c| two(c).and_then(|(a, b)| one((a / b).floor()))),
    ("__rdiv__", |c| two(c).and_then(|(a, b)| one(b / a))),
    ("fmod", |c| two(c).and_then(|(a, b)| one(a.remainder(b)))),
    ("remainder", |c| two(c).and_then(|(a, b)| one(a.floor_mod(b)))),
    ("__rmod__", |c| two(c).and_then(|(a, b)| one(b.floor_mod(a)))),
    ("pow", |c| two(c).and_then(|(a, b)| one(a.pow(b)))),
    ("__rpow__", |c| two(c).and_then(|(a, b)| one(b.pow(a)))),
    ("float_power", |c| two(c).and_then(|(a, b)| one(a.cast(DType::F64).pow(b.cast(DType::F64))))),
    ("ldexp", |c| two(c).and_then(|(a, b)| one(a * like(b, 2.0).pow(b)))),
    ("maximum max/binary", |c| two(c).and_then(|(a, b)| one(a.maximum(b)))),
    ("minimum min/binary", |c| two(c).and_then(|(a, b)| one(a.minimum(b)))),
    ("fmax", |c| {
        let (a, b) = two(c)?;
        one(a.greater_equal(b).or(b.stretched(a).0.is_nan()).select(a, b))
    }),
    ("fmin", |c| {
        let (a, b) = two(c)?;
        one(a.less_equal(b).or(b.stretched(a).0.is_nan()).select(a, b))
    }),
    ("clamp_min", |c| two(c).and_then(|(x, low)| one(at_least(x, low)))),
    ("clamp_max", |c| two(c).and_then(|(x, high)| one(at_most(x, high)))),
    ("clamp", |c| {
        let (low, high) = (c.maybe(1, "min")?, c.maybe(2, "max")?);
        let mut x = c.x()?;
        if let Some(low) = low {
            let (a, b) = paired(x, low);
            x = at_least(a, b);
        }
        if let Some(high) = high {
            let (a, b) = paired(x, high);
            x = at_most(a, b);
        }
        one(x)
    }),
    ("eq", |c| two(c).and_then(|(a, b)| one(a.equals(b)))),
    ("ne", |c| two(c).and_then(|(a, b)| one(a.not_equal(b)))),
    ("lt", |c| two(c).and_then(|(a, b)| one(a.less(b)))),
    ("le", |c| two(c).and_then(|(a, b)| one(a.less_equal(b)))),
    ("gt", |c| two(c).and_then(|(a, b)| one(a.greater(b)))),
    ("ge", |c| two(c).and_then(|(a, b)| one(a.greater_equal(b)))),
    ("logical_and", |c| two(c).and_then(|(a, b)| one(a.not_equal(0.0).and(b.not_equal(0.0))))),
    ("logical_or", |c| two(c).and_then(|(a, b)| one(a.not_equal(0.0).or(b.not_equal(0.0))))),
    ("logical_xor", |c| two(c).and_then(|(a, b)| one(a.not_equal(0.0).xor(b.not_equal(0.0))))),
    ("heaviside", |c| {
        let (x, at_zero) = two(c)?;
        let step = x.greater(0.0).cast(x.dtype());
        one(x.equals(0.0).select(at_zero, step))
    }),
    ("isclose", |c| {
        let (a, b) = two(c)?;
        let (rtol, atol) = (c.number_or(2, "rtol", 1e-5)?, c.number_or(3, "atol", 1e-8)?);
        let (a, b) = a.stretched(b);
        let near = (a - b).abs().less_equal(b.abs() * rtol + atol).and(b.is_finite());
        let same = a.equals(b).or(near);
        one(if c.flag(4, "equal_nan", false)? { same.or(a.is_nan().and(b.is_nan())) } else { same })
    }),
    ("isin", |c| {
        let (x, among) = two(c)?;
        let found = x.expand(x.rank()).equals(among.flatten()).max(&[x.rank() as isize]);
        one(if c.flag(3, "invert", false)? { found.not() } else { found })
    }),
    ("hypot", |c| two(c).and_then(|(a, b)| one(a.hypot(b)))),
    ("atan2", |c| two(c).and_then(|(a, b)| one(a.atan2(b)))),
    ("copysign", |c| two(c).and_then(|(a, b)| one(a.copysign(b)))),
    ("lerp", |c| {
        let (a, b) = two(c)?;
        one(a + (b - a) * c.operand(2, "weight", a.dtype())?)
    }),
    ("logaddexp", |c| two(c).and_then(|(a, b)| one(a.log_add_exp(b)))),
    ("logaddexp2", |c| two(c).and_then(|(a, b)| one((a * LN_2).log_add_exp(b * LN_2) / LN_2))),
    ("xlogy", |c| two(c).and_then(|(a, b)| one(a.xlogy(b)))),
    ("special.xlog1py", |c| two(c).and_then(|(a, b)| one(times_log_1p(a, b)))),
    ("masked_fill", |c| {
        let x = c.x()?;
        one(c.tensor(1, "mask")?.select(c.operand(2, "value", x.dtype())?, x))
    }),
    ("where", |c| {
        let (a, b) = paired(c.x()?, c.operand(2, "other", c.x()?.dtype())?);
        one(c.tensor(1, "condition")?.select(a, b))
    }),
    ("addcmul", |c| {
        let (a, b) = (c.tensor(1, "tensor1")?, c.tensor(2, "tensor2")?);
        one(c.x()? + a * b * c.number_or(3, "value", 1.0)?)
    }),
    ("addcdiv", |c| {
        let (a, b) = (c.tensor(1, "tensor1")?, c.tensor(2, "tensor2")?);
        one(c.x()? + a / b * c.number_or(3, "value", 1.0)?)
    }),
    ("dist", |c| {
        let gap = c.x()? - c.tensor(1, "other")?;
        let axes: Vec<usize> = (0..sizes(gap).len()).collect();
        one(super::helpers::norm(gap, c.number_or(2, "p", 2.0)?, &axes))
    }),
    ("linalg.vecdot", |c| {
        let product = c.x()? * c.tensor(1, "other")?;
        let axis = c.axis(product.rank(), 2, "dim", -1)?;
        one(product.sum(&signed(&[axis])))
    }),
];

/// a·log(1 + b), and 0 where a is 0 and there is no logarithm.
fn times_log_1p<'g>(a: Tensor<'g>, b: Tensor<'g>) -> Tensor<'g> {
    let (a, b) = a.stretched(b);
    let none = a.equals(0.0).and(b.less_equal(-1.0));
    none.select(0.0, a * none.select(1.0, b).log_1p())
}
