//! Functions of one element, and casts.

use super::Entry;
use super::helpers::{clamped, like, one};
use onestep_ir::DType;
use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

pub const TABLE: &[Entry] = &[
    (
        "clone contiguous conj conj_physical resolve_conj resolve_neg positive real alias_copy",
        |c| one(c.x()?),
    ),
    ("abs", |c| one(c.x()?.abs())),
    ("neg", |c| one(-c.x()?)),
    ("sign sgn", |c| one(c.x()?.sign())),
    ("exp", |c| one(c.x()?.exp())),
    ("exp2", |c| one(c.x()?.exp2())),
    ("expm1", |c| one(c.x()?.exp_m1())),
    ("log", |c| one(c.x()?.log())),
    ("log2", |c| one(c.x()?.log2())),
    ("log10", |c| one(c.x()?.log10())),
    ("log1p", |c| one(c.x()?.log_1p())),
    ("sqrt", |c| one(c.x()?.sqrt())),
    ("rsqrt", |c| one(c.x()?.rsqrt())),
    ("square", |c| one(c.x()?.square())),
    ("reciprocal", |c| one(c.x()?.reciprocal())),
    ("sin", |c| one(c.x()?.sin())),
    ("cos", |c| one(c.x()?.cos())),
    ("tan", |c| one(c.x()?.tan())),
    ("sinh", |c| one(c.x()?.sinh())),
    ("cosh", |c| one(c.x()?.cosh())),
    ("tanh", |c| one(c.x()?.tanh())),
    ("asin", |c| one(c.x()?.asin())),
    ("acos", |c| one(c.x()?.acos())),
    ("atan", |c| one(c.x()?.atan())),
    ("asinh", |c| one(c.x()?.asinh())),
    ("acosh", |c| one(c.x()?.acosh())),
    ("atanh", |c| one(c.x()?.atanh())),
    ("erf", |c| one(c.x()?.erf())),
    ("erfc", |c| one(c.x()?.erfc())),
    ("erfinv", |c| one(c.x()?.erf_inv())),
    ("special.ndtri", |c| one((c.x()? * 2.0 - 1.0).erf_inv() * SQRT_2)),
    ("lgamma", |c| one(c.x()?.log_gamma())),
    ("digamma", |c| one(c.x()?.digamma())),
    ("polygamma special.polygamma", |c| one(c.x()?.polygamma(c.int(1, "n")? as usize))),
    ("mvlgamma", |c| {
        let (x, p) = (c.x()?, c.int(1, "p")? as usize);
        let constant = (p * (p - 1)) as f64 / 4.0 * PI.ln();
        one((0..p).fold(like(x, constant), |sum, i| sum + (x - i as f64 / 2.0).log_gamma()))
    }),
    ("special.ndtr", |c| one(((c.x()? * FRAC_1_SQRT_2).erf() + 1.0) * 0.5)),
    ("sigmoid", |c| one(c.x()?.sigmoid())),
    ("floor", |c| one(c.x()?.floor())),
    ("ceil", |c| one(c.x()?.ceil())),
    ("trunc", |c| one(c.x()?.trunc())),
    ("frac", |c| one(c.x()? - c.x()?.trunc())),
    ("round", |c| {
        let scale = 10f64.powi(c.int_or(1, "decimals", 0)?.unsigned_abs() as i32);
        one(match c.int_or(1, "decimals", 0)? {
            d if d < 0 => (c.x()? / scale).round() * scale,
            _ => (c.x()? * scale).round() / scale,
        })
    }),
    ("deg2rad", |c| one(c.x()? * (PI / 180.0))),
    ("rad2deg", |c| one(c.x()? * (180.0 / PI))),
    ("angle", |c| {
        let x = c.x()?;
        let turned = x.less(0.0).select(like(x, PI), like(x, 0.0));
        one(x.is_nan().select(x, turned))
    }),
    ("logit", |c| {
        let x = c.x()?;
        let x = match c.maybe_number(1, "eps")? {
            Some(eps) => {
                let low = x.less(eps);
                low.select(like(x, eps), x.greater(1.0 - eps).select(like(x, 1.0 - eps), x))
            }
            None => x,
        };
        one((x / (1.0 - x)).log())
    }),
    ("nan_to_num", |c| {
        let x = c.x()?;
        let top = if x.dtype() == DType::F64 { f64::MAX } else { f32::MAX as f64 };
        let finite = clamped(x, c.number_or(3, "neginf", -top)?, c.number_or(2, "posinf", top)?);
        one(x.is_nan().select(like(x, c.number_or(1, "nan", 0.0)?), finite))
    }),
    ("sinc", |c| one(c.x()?.sinc())),
    ("special.entr", |c| {
        let x = c.x()?;
        let positive = x.greater(0.0);
        let safe = positive.select(x, like(x, 1.0));
        let edge = x.less(0.0).select(like(x, f64::NEG_INFINITY), like(x, 0.0));
        let entropy = positive.select(-(safe * safe.log()), edge);
        one(x.is_nan().select(x, entropy))
    }),
    ("isfinite", |c| one(c.x()?.is_finite())),
    ("isnan", |c| one(c.x()?.is_nan())),
    ("isinf", |c| one(c.x()?.is_inf())),
    ("signbit", |c| one(c.x()?.sign_bit())),
    ("isposinf", |c| one(c.x()?.equals(f64::INFINITY))),
    ("isneginf", |c| one(c.x()?.equals(f64::NEG_INFINITY))),
    ("isreal", |c| one(c.g.full(DType::Bool, c.x()?.shape(), 1.0))),
    ("logical_not", |c| one(c.x()?.equals(0.0))),
    ("bfloat16", |c| one(c.x()?.cast(DType::BF16))),
    ("half", |c| one(c.x()?.cast(DType::F16))),
    ("float", |c| one(c.x()?.cast(DType::F32))),
    ("double", |c| one(c.x()?.cast(DType::F64))),
    ("int", |c| one(c.x()?.cast(DType::I32))),
    ("long", |c| one(c.x()?.cast(DType::I64))),
    ("char", |c| one(c.x()?.cast(DType::I8))),
    ("byte", |c| one(c.x()?.cast(DType::U8))),
    ("bool", |c| one(c.x()?.cast(DType::Bool))),
];
