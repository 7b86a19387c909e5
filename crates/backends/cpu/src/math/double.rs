//! f64 functions: the crate `libm`, a pure-Rust port of musl's, so that the bits do not depend on the platform.
//!
//! Scalar, within about 1 ULP (`sigmoid`: 2). f64 is for checking and for scalars of a step, not for hot loops.

super::exact_functions!(f64);

/// `e^x`.
#[inline]
pub fn exp(x: f64) -> f64 {
    libm::exp(x)
}

/// Natural logarithm: `-inf` at 0, NaN below.
#[inline]
pub fn log(x: f64) -> f64 {
    libm::log(x)
}

/// Hyperbolic tangent.
#[inline]
pub fn tanh(x: f64) -> f64 {
    libm::tanh(x)
}

/// The error function.
#[inline]
pub fn erf(x: f64) -> f64 {
    libm::erf(x)
}

/// `1 / (1 + e^-x)`, without overflow on either side.
#[inline]
pub fn sigmoid(x: f64) -> f64 {
    let e = libm::exp(-x.abs());
    let numerator = if x >= 0.0 { 1.0 } else { e };
    numerator / (1.0 + e)
}

/// Sine.
#[inline]
pub fn sin(x: f64) -> f64 {
    libm::sin(x)
}

/// Cosine.
#[inline]
pub fn cos(x: f64) -> f64 {
    libm::cos(x)
}

/// `e^x − 1`, exact near 0. Within 1 ULP; a scalar call (the crate `libm`), so it does not vectorise.
#[inline]
pub fn expm1(x: f64) -> f64 {
    libm::expm1(x)
}

/// `log(1 + x)`, exact near 0. Within 1 ULP; a scalar call (the crate `libm`), so it does not vectorise.
#[inline]
pub fn log1p(x: f64) -> f64 {
    libm::log1p(x)
}

/// `x` to the power `y`, with C's special cases.
#[inline]
pub fn pow(x: f64, y: f64) -> f64 {
    libm::pow(x, y)
}

/// Tangent.
#[inline]
pub fn tan(x: f64) -> f64 {
    libm::tan(x)
}

/// Arc sine.
#[inline]
pub fn asin(x: f64) -> f64 {
    libm::asin(x)
}

/// Arc cosine.
#[inline]
pub fn acos(x: f64) -> f64 {
    libm::acos(x)
}

/// Arc tangent.
#[inline]
pub fn atan(x: f64) -> f64 {
    libm::atan(x)
}

/// Hyperbolic sine.
#[inline]
pub fn sinh(x: f64) -> f64 {
    libm::sinh(x)
}

/// Hyperbolic cosine.
#[inline]
pub fn cosh(x: f64) -> f64 {
    libm::cosh(x)
}

/// Inverse hyperbolic sine.
#[inline]
pub fn asinh(x: f64) -> f64 {
    libm::asinh(x)
}

/// Inverse hyperbolic cosine: NaN below 1, where the library's formula gives numbers to some arguments below −1.
#[inline]
pub fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// Inverse hyperbolic tangent.
#[inline]
pub fn atanh(x: f64) -> f64 {
    libm::atanh(x)
}

/// `1 − erf(x)`, accurate where that is tiny.
#[inline]
pub fn erfc(x: f64) -> f64 {
    libm::erfc(x)
}

/// The angle of the point `(x, y)`, with C's special cases.
#[inline]
pub fn atan2(y: f64, x: f64) -> f64 {
    libm::atan2(y, x)
}
