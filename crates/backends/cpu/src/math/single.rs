//! f32 functions that vectorise: range reduction, a minimax polynomial, and selects instead of branches.
//!
//! The polynomials are Remez fits of relative error, their coefficients rounded to f32 one by one with the rest fitted
//! again. Each function states its bound in ULP (units in the last place of the exact result); the test
//! `math_accuracy` holds them to it. All propagate NaN and honour subnormals in both argument and result.
//!
//! `floor`, `ceil`, `trunc` and `round_even` are single instructions from SSE4.1 on, and calls on older processors.

mod exponential;
mod trigonometric;

pub use exponential::{erf, exp, log, sigmoid, tanh};
pub use trigonometric::{TRIG_LIMIT, beyond_trig_limit, cos, cos_near, sin, sin_near};

super::exact_functions!(f32);

/// `e^x − 1`, exact near 0. Within 1 ULP; a scalar call (the crate `libm`), so it does not vectorise.
#[inline]
pub fn expm1(x: f32) -> f32 {
    libm::expm1f(x)
}

/// `log(1 + x)`, exact near 0. Within 1 ULP; a scalar call (the crate `libm`), so it does not vectorise.
#[inline]
pub fn log1p(x: f32) -> f32 {
    libm::log1pf(x)
}

/// `x` to the power `y`, with C's special cases. Within 1 ULP; a scalar call (the crate `libm`), so it does not vectorise.
#[inline]
pub fn pow(x: f32, y: f32) -> f32 {
    libm::powf(x, y)
}

/// Functions that are computed in f64 and rounded once: within 1 ULP. Scalar calls (the crate `libm`), so they do not
/// vectorise.
macro_rules! by_double {
    ($($(#[$doc:meta])* $name:ident($($x:ident),+)),+ $(,)?) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name($($x: f32),+) -> f32 {
            super::double::$name($($x.into()),+) as f32
        }
    )+};
}

by_double!(
    /// Tangent.
    tan(x),
    /// Arc sine.
    asin(x),
    /// Arc cosine.
    acos(x),
    /// Arc tangent.
    atan(x),
    /// Hyperbolic sine.
    sinh(x),
    /// Hyperbolic cosine.
    cosh(x),
    /// Inverse hyperbolic sine.
    asinh(x),
    /// Inverse hyperbolic cosine.
    acosh(x),
    /// Inverse hyperbolic tangent.
    atanh(x),
    /// `1 − erf(x)`, accurate where that is tiny.
    erfc(x),
    /// The angle of the point `(x, y)`, with C's special cases.
    atan2(y, x),
);

/// `c[0] + x * (c[1] + x * (…))`, in that order.
#[inline(always)]
fn horner<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut sum = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = sum * x + c[i];
    }
    sum
}
