//! Elementwise functions composed of others. Those of several steps are computed in `f32` at least and rounded once.

use super::{Rhs, Tensor};
use std::f64::consts::{LN_2, LN_10, PI};

impl<'g> Tensor<'g> {
    /// A float tensor in its accumulator's dtype, for a formula of several steps that is rounded once. Others as they
    /// are, for the formula's ops to refuse. (Not a method that takes the formula: a closure would hide the caller's
    /// line.)
    #[track_caller]
    pub(crate) fn wide(self) -> Tensor<'g> {
        if self.dtype().is_float() { self.cast(self.dtype().accumulator()) } else { self }
    }

    /// 2ˣ.
    #[track_caller]
    pub fn exp2(self) -> Tensor<'g> {
        self.g.full(self.dtype(), self.shape(), 2.0).pow(self)
    }

    /// Logarithm to base 2.
    #[track_caller]
    pub fn log2(self) -> Tensor<'g> {
        (self.wide().log() / LN_2).cast(self.dtype())
    }

    /// Logarithm to base 10.
    #[track_caller]
    pub fn log10(self) -> Tensor<'g> {
        (self.wide().log() / LN_10).cast(self.dtype())
    }

    /// Whether x is +∞ or −∞ (`bool` result).
    #[track_caller]
    pub fn is_inf(self) -> Tensor<'g> {
        self.abs().equals(f64::INFINITY)
    }

    /// Whether the sign is minus, that of −0 too (`bool` result); false for NaN.
    #[track_caller]
    pub fn sign_bit(self) -> Tensor<'g> {
        let negative = self.less(0.0);
        if self.dtype().is_float() { negative.or(self.reciprocal().less(0.0)) } else { negative }
    }

    /// |x| with the sign of `sign`, that of a zero too. A NaN counts as positive.
    #[track_caller]
    pub fn copysign(self, sign: impl Into<Rhs<'g>>) -> Tensor<'g> {
        let (x, sign) = self.paired(sign.into());
        sign.sign_bit().select(-x.abs(), x.abs())
    }

    /// The remainder with the divisor's sign, as Python's `%`: x − ⌊x/d⌋·d. For integers, the remainder by 0 is x.
    #[track_caller]
    pub fn floor_mod(self, divisor: impl Into<Rhs<'g>>) -> Tensor<'g> {
        let (a, b) = self.paired(divisor.into());
        let r = a.remainder(b);
        let wrong = r.not_equal(0.0).and(r.less(0.0).xor(b.less(0.0)));
        wrong.select(r + b, r)
    }

    /// ⌊x/d⌋, as Python's `//`. For integers, the quotient by 0 is 0.
    #[track_caller]
    pub fn floor_div(self, divisor: impl Into<Rhs<'g>>) -> Tensor<'g> {
        let (a, b) = self.paired(divisor.into());
        if a.dtype().is_float() {
            return (a / b).floor();
        }
        let (q, r) = (a / b, a.remainder(b));
        let above = b.not_equal(0.0).and(r.not_equal(0.0)).and(r.less(0.0).xor(b.less(0.0)));
        above.select(q - 1.0, q)
    }

    /// x held between two numbers; the gradient is 1 at both and 0 outside. NaN stays.
    #[track_caller]
    pub fn clamp(self, low: f64, high: f64) -> Tensor<'g> {
        let x = self.less(low).select(low, self);
        x.greater(high).select(high, x)
    }

    /// √(a² + b²), without overflow on the way; its gradient is 0 at the origin. NaN if either is.
    #[track_caller]
    pub fn hypot(self, other: impl Into<Rhs<'g>>) -> Tensor<'g> {
        let (p, q) = self.paired(other.into());
        let (a, b) = (p.wide(), q.wide());
        let (a, b) = (a.abs(), b.abs());
        let (large, small) = (a.maximum(b), a.minimum(b));
        // By themselves at the ends, where the quotient would be 0/0 or ∞/∞.
        let plain = large.equals(0.0).or(large.equals(f64::INFINITY));
        let ratio = plain.select(0.0, small / plain.select(1.0, large));
        (large * (ratio * ratio + 1.0).sqrt()).cast(p.dtype())
    }

    /// log(eᵃ + eᵇ), without overflow on the way.
    #[track_caller]
    pub fn log_add_exp(self, other: impl Into<Rhs<'g>>) -> Tensor<'g> {
        let (p, q) = self.paired(other.into());
        let (a, b) = (p.wide(), q.wide());
        // Equal ones are taken out before the difference, which of two infinities is NaN, and has a NaN for a slope.
        let same = a.equals(b);
        let gap = (same.select(0.0, a) - same.select(0.0, b)).abs();
        (a.maximum(b) + (-gap).exp().log_1p()).cast(p.dtype())
    }

    /// x·log(y), and 0 where x is 0 and y has no logarithm.
    #[track_caller]
    pub fn xlogy(self, y: impl Into<Rhs<'g>>) -> Tensor<'g> {
        let (p, q) = self.paired(y.into());
        let (x, y) = (p.wide(), q.wide());
        let none = x.equals(0.0).and(y.less_equal(0.0));
        (none.select(0.0, x * none.select(1.0, y).log())).cast(p.dtype())
    }

    /// sin(πx)/(πx), and 1 at 0.
    #[track_caller]
    pub fn sinc(self) -> Tensor<'g> {
        let x = self.wide();
        let zero = x.equals(0.0);
        let turn = zero.select(1.0, x) * PI;
        zero.select(1.0, turn.sin() / turn).cast(self.dtype())
    }
}
