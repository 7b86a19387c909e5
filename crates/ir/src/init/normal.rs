//! The standard normal distribution function and its inverse.

use std::f64::consts::{PI, SQRT_2};

/// The share of a standard normal below `x`.
pub(super) fn distribution(x: f64) -> f64 {
    0.5 * libm::erfc(-x / SQRT_2)
}

/// The number below which a share `p` lies: −∞ for 0, ∞ for 1, exact to a few roundings of `p`.
///
/// A first guess by the tail's asymptote or the middle's slope, then Newton's steps on the logarithm of the smaller tail,
/// which is concave, so that they converge from anywhere.
pub(super) fn quantile(p: f64) -> f64 {
    if p > 0.5 {
        return -quantile(1.0 - p);
    }
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let target = libm::log(p);
    let mut x = if p < 0.1 { -libm::sqrt(-2.0 * target) } else { (p - 0.5) * libm::sqrt(2.0 * PI) };
    for _ in 0..50 {
        let below = distribution(x);
        let density = libm::exp(-0.5 * x * x) / libm::sqrt(2.0 * PI);
        let step = (libm::log(below) - target) * below / density;
        x -= step;
        // The error is about the step's square from here on.
        if step.abs() <= 1e-8 {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tabulated quantiles, and the inverse of the function over its whole range.
    #[test]
    fn the_quantile_inverts_the_distribution() {
        for (p, x) in [
            (0.5, 0.0),
            (0.025, -1.959_963_984_540_054),
            (0.975, 1.959_963_984_540_054),
            (0.841_344_746_068_542_9, 1.0),
            (1e-10, -6.361_340_902_404_056),
        ] {
            assert!((quantile(p) - x).abs() < 1e-12, "{p}: {}", quantile(p));
        }
        for i in -3700..=0 {
            let x = i as f64 / 100.0;
            let back = quantile(distribution(x));
            assert!((back - x).abs() <= 1e-11 * x.abs().max(1.0), "{x}: {back}");
        }
        assert_eq!(quantile(0.0), f64::NEG_INFINITY);
        assert_eq!(quantile(1.0), f64::INFINITY);
    }
}
