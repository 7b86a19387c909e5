//! Special functions: the gamma function's logarithm and its derivatives, and the inverse error function. All are computed
//! in `f64` and rounded once, with gradients that are those of the formulas.
//!
//! Above 0 the gamma family is an asymptotic series at an argument moved up by 10, with the recurrence that leads back;
//! below 0 it is reflected (Abramowitz and Stegun, "Handbook of mathematical functions", 6.1.17, 6.1.41, 6.4.7, 6.4.11).

use super::Tensor;
use crate::DType;
use std::f64::consts::PI;

/// How far arguments are moved up: the series below then have 16 digits.
const MOVED: usize = 10;

/// The Bernoulli numbers B₂, B₄ … B₂₀.
const BERNOULLI: [f64; 10] = [
    1.0 / 6.0,
    -1.0 / 30.0,
    1.0 / 42.0,
    -1.0 / 30.0,
    5.0 / 66.0,
    -691.0 / 2730.0,
    7.0 / 6.0,
    -3617.0 / 510.0,
    43867.0 / 798.0,
    -174611.0 / 330.0,
];

impl<'g> Tensor<'g> {
    /// log|Γ(x)|; +∞ at 0, at negative integers, and at both infinities.
    #[track_caller]
    pub fn log_gamma(self) -> Tensor<'g> {
        let Some((x, y)) = self.above_zero("log_gamma") else { return self.poison() };
        // Small arguments are moved; large ones would overflow the product that leads back.
        let small = y.less(MOVED as f64);
        let z = small.select(y + MOVED as f64, y);
        let low = small.select(y, 1.0);
        let product = (1..MOVED).fold(low, |p, k| p * (low + k as f64));
        let back = small.select(product, 1.0).log();
        let r = z.reciprocal();
        let term = |j: usize| BERNOULLI[j] / ((2 * j + 2) * (2 * j + 1)) as f64;
        let series = polynomial(r * r, &(0..8).map(term).collect::<Vec<_>>()) * r;
        // Equal to −z + (z − ½)·log z, and +∞ for +∞.
        let main = (z.log() - 1.0) * (z - 0.5) + (0.5 * (2.0 * PI).ln() - 0.5);
        let above = main + series - back;
        let negative = x.less(0.0);
        let turn = negative.select(x - x.round(), 0.25) * PI;
        let below = -(turn.sin().abs().log()) - above + PI.ln();
        let infinite = x.equals(f64::NEG_INFINITY);
        infinite.select(f64::INFINITY, negative.select(below, above)).cast(self.dtype())
    }

    /// The derivative of [`Tensor::log_gamma`]; −∞ at 0, NaN at negative integers.
    #[track_caller]
    pub fn digamma(self) -> Tensor<'g> {
        self.polygamma(0)
    }

    /// The `n`-th derivative of [`Tensor::digamma`], n up to 16; NaN at negative integers.
    #[track_caller]
    pub fn polygamma(self, n: usize) -> Tensor<'g> {
        if n > 16 {
            return self.mistake("polygamma", format!("order {n} is too high"), "use an order up to 16");
        }
        let Some((x, y)) = self.above_zero("polygamma") else { return self.poison() };
        let above = if n == 0 { digamma_above(y) } else { polygamma_above(y, n) };
        // ψₙ(x) = (−1)ⁿ·ψₙ(1 − x) − π·dⁿ cot(πx)/dxⁿ, the latter a polynomial in the cotangent.
        let negative = x.less(0.0);
        let rest = negative.select(x - x.round(), 0.25);
        let cotangent = (rest * PI).tan().reciprocal();
        let mut p = vec![0.0, PI];
        for _ in 0..n {
            p = derived(&p);
        }
        let sign = if n.is_multiple_of(2) { 1.0 } else { -1.0 };
        let below = rest.equals(0.0).select(f64::NAN, above * sign - polynomial(cotangent, &p));
        negative.select(below, above).cast(self.dtype())
    }

    /// The number whose error function is x: ±∞ at ±1, NaN outside. A polynomial (Giles, "Approximating the erfinv
    /// function", 2011) and Newton's steps.
    #[track_caller]
    pub fn erf_inv(self) -> Tensor<'g> {
        if self.value.is_some() && !self.dtype().is_float() {
            return self.mistake(
                "erf_inv",
                format!("takes floats, got {}", self.dtype()),
                "cast it to f32 first",
            );
        }
        let given = self.cast(DType::F64);
        let size = given.abs();
        let x = size.less(1.0).select(given, 0.0);
        let w = -((-x + 1.0) * (x + 1.0)).log();
        let centre = polynomial(
            w.minimum(5.0) - 2.5,
            &[
                1.501_409_41,
                0.246_640_727,
                -0.004_177_681_64,
                -0.001_253_725_03,
                0.000_218_580_87,
                -4.391_506_54e-6,
                -3.523_387_7e-6,
                3.432_739_39e-7,
                2.810_226_36e-8,
            ],
        );
        let tail = polynomial(
            w.maximum(5.0).sqrt() - 3.0,
            &[
                2.832_976_82,
                1.001_674_06,
                0.009_438_870_47,
                -0.007_622_461_3,
                0.005_739_507_73,
                -0.003_673_428_44,
                0.001_349_343_22,
                0.000_100_950_558,
                -0.000_200_214_257,
            ],
        );
        let mut y = w.less(5.0).select(centre, tail) * x;
        for _ in 0..3 {
            let miss = y.erf() - x;
            y = y - miss * (y * y).exp() * (PI.sqrt() / 2.0);
        }
        let signed = given
            .less(0.0)
            .select(self.graph().full(DType::F64, self.shape(), f64::NEG_INFINITY), f64::INFINITY);
        let ends = size.equals(1.0).select(signed, f64::NAN);
        size.less(1.0).select(y, ends).cast(self.dtype())
    }

    /// The argument in `f64`, and where the formulas above 0 are taken for it: itself, or its reflection 1 − x.
    #[track_caller]
    fn above_zero(self, op: &str) -> Option<(Tensor<'g>, Tensor<'g>)> {
        let ty = self.ty()?;
        if !ty.dtype.is_float() {
            self.mistake(op, format!("takes floats, got {ty}"), "cast it to f32 first");
            return None;
        }
        let x = self.cast(DType::F64);
        Some((x, x.less(0.0).select(-x + 1.0, x)))
    }
}

/// tⁿ, n at least 1, by products.
#[track_caller]
fn raised(t: Tensor<'_>, n: usize) -> Tensor<'_> {
    (1..n).fold(t, |p, _| p * t)
}

/// Σₖ cₖ·tᵏ.
#[track_caller]
fn polynomial<'g>(t: Tensor<'g>, c: &[f64]) -> Tensor<'g> {
    let last = t.graph().full(t.dtype(), t.shape(), c.last().copied().unwrap_or(0.0));
    c.iter().rev().skip(1).fold(last, |sum, &c| sum * t + c)
}

/// The coefficients of −π(1 + c²)·p′(c): the derivative by x of p(cot πx).
fn derived(p: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; p.len() + 1];
    for (k, c) in p.iter().enumerate().skip(1) {
        out[k - 1] -= PI * k as f64 * c;
        out[k + 1] -= PI * k as f64 * c;
    }
    out
}

/// The digamma function above 0: ψ(y + 10) − Σ 1/(y + k).
#[track_caller]
fn digamma_above(y: Tensor<'_>) -> Tensor<'_> {
    let z = y + MOVED as f64;
    let r = z.reciprocal();
    let term = |j: usize| -BERNOULLI[j] / (2 * j + 2) as f64;
    let series = polynomial(r * r, &(0..8).map(term).collect::<Vec<_>>()) * r * r;
    (0..MOVED).fold(z.log() - r * 0.5 + series, |sum, k| sum - (y + k as f64).reciprocal())
}

/// The polygamma functions of order 1 and above, above 0: (−1)ⁿ⁺¹·n!·Σₖ (y + k)⁻ⁿ⁻¹ by the formula of Euler and Maclaurin.
#[track_caller]
fn polygamma_above(y: Tensor<'_>, n: usize) -> Tensor<'_> {
    let r = (y + MOVED as f64).reciprocal();
    // Bₖ/k! times the rising product s(s + 1)…(s + k − 2), s = n + 1.
    let (mut factor, mut terms) = (1.0, vec![]);
    for (j, b) in BERNOULLI.iter().enumerate() {
        let k = 2 * j + 2;
        factor *= if j == 0 { 0.5 } else { 1.0 / (k * (k - 1)) as f64 };
        factor *= if j == 0 { (n + 1) as f64 } else { ((n + k - 2) * (n + k - 1)) as f64 };
        terms.push(b * factor);
    }
    let tail = (polynomial(r * r, &terms) * r + 0.5) * r + 1.0 / n as f64;
    let sum = (0..MOVED).fold(tail * raised(r, n), |sum, k| sum + raised((y + k as f64).reciprocal(), n + 1));
    let factorial: f64 = (1..=n).map(|k| k as f64).product();
    sum * if n.is_multiple_of(2) { -factorial } else { factorial }
}
