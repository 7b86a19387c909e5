//! `sin` and `cos`: reduction to `[-π/4, π/4]` and both polynomials in f64, one rounding at the end.
//!
//! The reduction is Cody and Waite's: π/2 in two parts, the first of 25 bits, so that `x - n * first` is exact while
//! `n` has at most 28. Up to [`TRIG_LIMIT`] the reduced argument then has an error below 2^-58, and no f32 there comes
//! closer to a multiple of π/2 than about 2^-28: full accuracy for every argument. Beyond it `sin` and `cos` use the
//! crate `libm`, whose reduction has as many digits as it needs but branches. A loop that should vectorise asks
//! [`beyond_trig_limit`] of its block, then calls [`sin_near`] (or `sin` if the answer is yes): an element's bits do
//! not depend on which of the two loops ran.

/// The largest magnitude that [`sin_near`] and [`cos_near`] take.
pub const TRIG_LIMIT: f32 = 1_048_576.0;

/// Adding `1.5 * 2^52` rounds to an integer and leaves it in the low bits, in two's complement.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

const HALF_PI_HIGH: f64 = 1.570_796_310_901_641_8;
const HALF_PI_LOW: f64 = 1.589_325_477_352_819_6e-8;

/// Whether any element needs [`sin`] and [`cos`] rather than their `_near` forms. NaN and infinities do not.
#[inline(always)]
pub fn beyond_trig_limit(block: &[f32]) -> bool {
    block.iter().fold(false, |any, &x| any | ((x.abs() > TRIG_LIMIT) & (x.abs() < f32::INFINITY)))
}

/// Sine, within 1 ULP for every argument.
#[inline]
pub fn sin(x: f32) -> f32 {
    if beyond_trig_limit(&[x]) { libm::sinf(x) } else { sin_near(x) }
}

/// Cosine, within 1 ULP for every argument.
#[inline]
pub fn cos(x: f32) -> f32 {
    if beyond_trig_limit(&[x]) { libm::cosf(x) } else { cos_near(x) }
}

/// Sine for `|x| <= TRIG_LIMIT`, within 1 ULP; NaN for infinities; no meaning otherwise. Vectorises.
#[inline(always)]
pub fn sin_near(x: f32) -> f32 {
    quarter_wave(x, 0)
}

/// Cosine for `|x| <= TRIG_LIMIT`, within 1 ULP; NaN for infinities; no meaning otherwise. Vectorises.
#[inline(always)]
pub fn cos_near(x: f32) -> f32 {
    quarter_wave(x, 1)
}

/// `sin(x + turn * π/2)`.
#[inline(always)]
fn quarter_wave(x: f32, turn: u64) -> f32 {
    let x = f64::from(x);
    let shifted = x * core::f64::consts::FRAC_2_PI + ROUNDER;
    let n = shifted - ROUNDER;
    let r = (x - n * HALF_PI_HIGH) - n * HALF_PI_LOW;
    let quadrant = shifted.to_bits().wrapping_add(turn);

    let s = r * r;
    let p = -1.983_932_713_918_985_3e-4 + s * 2.718_237_295_823_974e-6;
    let p = -0.166_666_666_414_266_92 + s * (8.333_329_362_292_136e-3 + s * p);
    // As a product, which keeps the sign of a zero.
    let sine = r * (1.0 + s * p);
    let p = -1.388_888_103_226_219_5e-3 + s * (2.479_903_095_496_179e-5 + s * -2.717_935_565_516_581e-7);
    let cosine = 1.0 + s * (-0.499_999_999_995_405_8 + s * (4.166_666_656_124_741e-2 + s * p));

    let y = if quadrant & 1 == 0 { sine } else { cosine };
    f64::from_bits(y.to_bits() ^ ((quadrant & 2) << 62)) as f32
}
