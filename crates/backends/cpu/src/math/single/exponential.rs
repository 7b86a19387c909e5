//! `exp`, `log` and what is built on them.
//!
//! `exp` writes `x = n ln2 + r` with `|r| <= ln2 / 2` and scales a polynomial in `r` by `2^n`. `log` writes
//! `x = 2^k m` with `m` in `[sqrt(1/2), sqrt(2))` and expands in `s = f / (2 + f)`, `f = m - 1`, as FDLIBM does.
//! `tanh` and `erf` choose between an odd polynomial near 0, where the result is about `x`, and a form `1 - small`
//! further out, where the error of `small` hardly counts.

use super::horner;

/// ln 2 in two parts; the first has 15 bits, so its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;

/// Adding `1.5 * 2^23` rounds to an integer, ties to even, and leaves that integer in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `(n, e^r)` with `x = n ln2 + r`. A NaN gives a meaningless `n` and a NaN.
#[inline(always)]
fn reduced_exp(x: f32) -> (i32, f32) {
    let shifted = x * core::f32::consts::LOG2_E + ROUNDER;
    let n = shifted - ROUNDER;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let p = horner(r, [0.499_999_94, 0.166_665_17, 0.041_668_106, 0.008_369_141, 0.001_383_674_2]);
    let n = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()) as i32;
    (n, 1.0 + (r + r * r * p))
}

/// `e^x` where the result is known to be a normal number: `|x| <= 87`, or NaN.
#[inline(always)]
fn exp_normal(x: f32) -> f32 {
    let (n, y) = reduced_exp(x);
    y * power_of_two(n)
}

/// `e^x`, within 1 ULP: infinite from 88.72284, correctly subnormal below -87.33655, 0 below -103.97208.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // The clamps lie past both thresholds and keep `n` in range; their form lets NaN through.
    let x = if x > 90.0 { 90.0 } else { x };
    let x = if x < -105.0 { -105.0 } else { x };
    let (n, y) = reduced_exp(x);
    // In two steps, each a normal power; only the second can round or overflow.
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// Natural logarithm, within 1 ULP: `-inf` at ±0, NaN below, subnormal arguments included.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    const SQRT_HALF_BITS: u32 = 0x3f35_04f3;
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let shift = if subnormal { -23 } else { 0 };

    let bits = scaled.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let k = (((bits as i32) >> 23) + shift) as f32;
    let m = f32::from_bits((bits & 0x007f_ffff) + SQRT_HALF_BITS);

    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let tail = z * horner(z, [0.666_666_6, 0.400_009_72, 0.284_987_96, 0.242_787_23]);
    let half_square = 0.5 * f * f;
    let y = k * LN2_HIGH + (f - (half_square - (s * (half_square + tail) + k * LN2_LOW)));

    let special = if x < 0.0 { f32::NAN } else { x };
    let special = if x == 0.0 { f32::NEG_INFINITY } else { special };
    if (x > 0.0) & (x < f32::INFINITY) { y } else { special }
}

/// Hyperbolic tangent, within 2 ULP; odd to the bit.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let square = x * x;
    let p = horner(square, [-0.333_332_8, 0.133_314_06, -0.053_736_515, 0.020_628_167, -0.005_692_296]);
    let near = x + x * square * p;

    let size = x.abs();
    let bounded = if size > 10.0 { 10.0 } else { size };
    let far = 1.0 - 2.0 / (exp_normal(2.0 * bounded) + 1.0);

    // Of the zero too: `near` has lost the sign of -0.
    let y = if size < 0.625 { near } else { far };
    y.copysign(x)
}

/// The error function, within 2 ULP; odd to the bit.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let square = x * x;
    let p = horner(
        square,
        [0.128_379_15, -0.376_124_9, 0.112_817_3, -0.026_762_916, 0.004_987_253, -0.000_595_897_8],
    );
    let near = x + x * p;

    // log(erfc(t)) = t q(t); at t = 4 the result is already 1.
    let size = x.abs();
    let t = if size > 4.0 { 4.0 } else { size };
    let q = horner(
        t,
        [
            -1.128_648_5,
            -0.635_151_2,
            -0.106_237_05,
            0.023_762_202,
            -0.003_642_518_3,
            0.000_322_815_3,
            -1.123_317_8e-5,
        ],
    );
    let far = 1.0 - exp_normal(t * q);

    if size < 0.927_734_4 { near } else { far.copysign(x) }
}

/// `1 / (1 + e^-x)`, within 2 ULP: `e^x` is used below 0, so small results keep their digits down to subnormals.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    let numerator = if x >= 0.0 { 1.0 } else { e };
    let denominator = 1.0 + e;
    // What the sum lost is known exactly, and small beside 1: it comes off to first order.
    let lost = e - (denominator - 1.0);
    let y = numerator / denominator;
    y - y * lost
}
