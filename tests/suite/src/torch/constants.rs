//! Tensors made of nothing: filled, counted, and windows.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble};
use super::helpers::{fixed, one};
use onestep_ir::{DType, Tensor};
use std::f64::consts::PI;

pub const TABLE: &[Entry] = &[
    ("zeros_like zero_", |c| like_input(c, 0.0)),
    ("ones_like", |c| like_input(c, 1.0)),
    ("full_like", |c| like_input(c, c.number(1, "fill_value")?)),
    ("fill", |c| like_input(c, c.number(1, "value")?)),
    ("zeros", |c| filled(c, 0, 0.0)),
    ("ones", |c| filled(c, 0, 1.0)),
    ("full", |c| filled(c, 0, c.number(1, "fill_value")?)),
    ("new_zeros", |c| filled(c, 1, 0.0)),
    ("new_ones", |c| filled(c, 1, 1.0)),
    ("new_full", |c| filled(c, 1, c.number(2, "fill_value")?)),
    ("scalar_tensor", |c| one(c.g.scalar(dtype(c)?, c.number(0, "s")?))),
    ("eye", |c| {
        let n = c.int(0, "n")?;
        let shape = [n as usize, c.int_or(1, "m", n)? as usize];
        one(c.g.iota(DType::I32, shape, 0).equals(c.g.iota(DType::I32, shape, 1)).cast(dtype(c)?))
    }),
    ("arange", |c| {
        let (start, end) = match c.count() {
            1 => (0.0, c.number(0, "end")?),
            _ => (c.number(0, "start")?, c.number(1, "end")?),
        };
        let step = c.number_or(2, "step", 1.0)?;
        let n = ((end - start) / step).ceil().max(0.0) as usize;
        one(c.g.iota(dtype(c)?, [n], 0) * step + start)
    }),
    ("linspace", |c| one(line(c)?)),
    ("logspace", |c| {
        let (exponents, base) = (line(c)?, c.number_or(3, "base", 10.0)?);
        one(super::helpers::like(exponents, base).pow(exponents))
    }),
    ("signal.windows.bartlett", |c| window(c, |t| 1.0 - (t * 2.0 - 1.0).abs())),
    ("signal.windows.blackman", |c| window(c, |t| cosines(t, &[0.42, 0.5, 0.08]))),
    ("signal.windows.hamming", |c| window(c, |t| cosines(t, &[0.54, 0.46]))),
    ("signal.windows.hann", |c| window(c, |t| cosines(t, &[0.5, 0.5]))),
    ("signal.windows.nuttall", |c| window(c, |t| cosines(t, &[0.3635819, 0.4891775, 0.1365995, 0.0106411]))),
    ("signal.windows.general_hamming", |c| {
        let alpha = c.number_or(KEYWORD, "alpha", 0.54)?;
        window(c, |t| cosines(t, &[alpha, 1.0 - alpha]))
    }),
    ("signal.windows.general_cosine", |c| {
        let crate::samples::Value::List(terms) = c.get(KEYWORD, "a") else {
            return Err(Trouble::Malformed("a window without terms".into()));
        };
        let term = |v: &crate::samples::Value| match v {
            crate::samples::Value::Float(x) => *x,
            crate::samples::Value::Int(i) => *i as f64,
            _ => f64::NAN,
        };
        let terms: Vec<f64> = terms.iter().map(term).collect();
        window(c, |t| cosines(t, &terms))
    }),
    ("signal.windows.cosine", |c| {
        let span = extent(c)?.1;
        window(c, |t| ((t * span + 0.5) * (PI / (span + 1.0))).sin())
    }),
    ("signal.windows.exponential", |c| {
        let (span, tau) = (extent(c)?.1, c.number_or(KEYWORD, "tau", 1.0)?);
        let centre = c.number_or(KEYWORD, "center", span / 2.0)?;
        window(c, |t| (-((t * span - centre).abs() / tau)).exp())
    }),
    ("signal.windows.gaussian", |c| {
        let (span, std) = (extent(c)?.1, c.number_or(KEYWORD, "std", 1.0)?);
        window(c, |t| (((t - 0.5) * (span / std)).square() * -0.5).exp())
    }),
];

/// The dtype asked for: the sample's where none is.
fn dtype(c: &Call<'_, '_>) -> Result<DType, Trouble> {
    Ok(c.dtype(KEYWORD, "dtype")?.unwrap_or(c.sample.dtype))
}

fn like_input<'g>(c: &Call<'_, 'g>, value: f64) -> Built<'g> {
    one(c.g.full(dtype(c)?, c.x()?.shape(), value))
}

fn filled<'g>(c: &Call<'_, 'g>, position: usize, value: f64) -> Built<'g> {
    let sizes: Vec<usize> = c.ints(position, "size")?.into_iter().map(|n| n as usize).collect();
    one(c.g.full(dtype(c)?, fixed(&sizes), value))
}

/// Equal steps from a start to an end, each a number or a tensor.
fn line<'g>(c: &Call<'_, 'g>) -> Result<Tensor<'g>, Trouble> {
    let dtype = dtype(c)?;
    let (start, end) = (c.operand(0, "start", dtype)?.cast(dtype), c.operand(1, "end", dtype)?.cast(dtype));
    let n = c.int_or(2, "steps", 100)? as usize;
    let at = c.g.iota(dtype, [n], 0);
    // From the nearer end, so that both are exact.
    let step = (end - start) / (n.max(2) - 1) as f64;
    let late = at.greater_equal((n / 2).max(1) as f64);
    Ok(late.select(end - step * ((n.max(1) - 1) as f64 - at), start + step * at))
}

/// The number of points, the distance between the first and the last of a whole window, and the dtype. A window that
/// is not symmetric is one point shorter than its period.
fn extent(c: &Call<'_, '_>) -> Result<(usize, f64, DType), Trouble> {
    let n = c.int(0, "M")? as usize;
    let span = if c.flag(KEYWORD, "sym", true)? { n as f64 - 1.0 } else { n as f64 };
    Ok((n, span, dtype(c)?))
}

/// A function of the place in the window, from 0 to 1; a window of one point is 1.
fn window<'g>(c: &Call<'_, 'g>, f: impl FnOnce(Tensor<'g>) -> Tensor<'g>) -> Built<'g> {
    let (n, span, dtype) = extent(c)?;
    if n <= 1 {
        return one(c.g.full(dtype, [n], 1.0));
    }
    one(f(c.g.iota(dtype, [n], 0) / span))
}

/// a₀ − a₁ cos 2πt + a₂ cos 4πt − …
fn cosines<'g>(t: Tensor<'g>, terms: &[f64]) -> Tensor<'g> {
    let sign = |k: usize| if k.is_multiple_of(2) { 1.0 } else { -1.0 };
    let term = |(k, a): (usize, &f64)| (t * (2.0 * PI * k as f64)).cos() * (sign(k) * a);
    terms.iter().enumerate().map(term).reduce(|a, b| a + b).unwrap_or(t)
}
