//! Reductions composed of others: variance, norms, log-sum-exp, counts. Computed in `f32` at least and rounded once.

use super::Tensor;
use crate::{DType, Dim, Shape};

impl<'g> Tensor<'g> {
    /// Whether every element along `axes`, which disappear, is true (not 0, for numbers).
    #[track_caller]
    pub fn all_over(self, axes: &[isize]) -> Tensor<'g> {
        self.truth().min(axes)
    }

    /// Whether any element along `axes`, which disappear, is true (not 0, for numbers).
    #[track_caller]
    pub fn any_over(self, axes: &[isize]) -> Tensor<'g> {
        self.truth().max(axes)
    }

    /// Whether each element is not 0.
    #[track_caller]
    fn truth(self) -> Tensor<'g> {
        if self.dtype() == DType::Bool { self } else { self.not_equal(0.0) }
    }

    /// How many elements along `axes`, which disappear, are not 0, as `i64`.
    #[track_caller]
    pub fn count_nonzero(self, axes: &[isize]) -> Tensor<'g> {
        self.truth().cast(DType::I64).sum(axes)
    }

    /// The variance over `axes`, which disappear: the mean squared distance from the mean, or with the count less one
    /// when `unbiased` (NaN of a single element). Integers are cast to `f32` first.
    #[track_caller]
    pub fn var(self, axes: &[isize], unbiased: bool) -> Tensor<'g> {
        self.var_with(axes, if unbiased { 1.0 } else { 0.0 })
    }

    /// The same with `correction` taken off the count.
    #[track_caller]
    pub fn var_with(self, axes: &[isize], correction: f64) -> Tensor<'g> {
        let given = self.as_float();
        let x = given.wide();
        let squares = (x - x.mean_keep(axes)).square().sum(axes);
        let count = x.count_over(x.dtype(), axes) - correction;
        (squares / count.maximum(0.0)).cast(given.dtype())
    }

    /// The square root of [`Tensor::var`], with gradient 0 where that is 0.
    #[track_caller]
    pub fn std(self, axes: &[isize], unbiased: bool) -> Tensor<'g> {
        let given = self.as_float();
        given.wide().var(axes, unbiased).safe_sqrt().cast(given.dtype())
    }

    /// √x with gradient 0 at 0, where the root's own is infinite: for lengths.
    #[track_caller]
    pub fn safe_sqrt(self) -> Tensor<'g> {
        let zero = self.equals(0.0);
        zero.select(0.0, zero.select(1.0, self).sqrt())
    }

    /// log Σ eˣ over `axes`, which disappear; −inf over nothing and over −inf alone.
    #[track_caller]
    pub fn log_sum_exp(self, axes: &[isize]) -> Tensor<'g> {
        let x = self.wide();
        let top = x.max_keep(axes);
        let shift = top.is_finite().select(top, 0.0);
        let total = (x - shift).exp().sum(axes);
        // The logarithm never sees a 0, where its slope is infinite: a row of −inf has gradient 0.
        let none = total.equals(0.0);
        let log = none.select(f64::NEG_INFINITY, none.select(1.0, total).log());
        (log + shift.reshape(total.shape())).cast(self.dtype())
    }

    /// The p-norm over `axes`, which disappear: the sum of magnitudes for 1, the length for 2, the largest magnitude for
    /// `f64::INFINITY`, the number of elements that are not 0 for 0. Its gradient is 0 at 0.
    #[track_caller]
    pub fn norm(self, p: f64, axes: &[isize]) -> Tensor<'g> {
        let x = self.wide();
        let size = x.abs();
        let norm = match p {
            f64::INFINITY => size.max(axes),
            f64::NEG_INFINITY => size.min(axes),
            0.0 => x.not_equal(0.0).cast(x.dtype()).sum(axes),
            1.0 => size.sum(axes),
            2.0 => x.square().sum(axes).safe_sqrt(),
            _ => {
                let total = size.magnitude_pow(p).sum(axes);
                let zero = total.equals(0.0);
                let root = zero.select(1.0, total).pow(1.0 / p);
                zero.select(if p > 0.0 { 0.0 } else { f64::INFINITY }, root)
            }
        };
        norm.cast(self.dtype())
    }

    /// xᵖ of magnitudes, with slope 0 at 0, where that of a power below 1 is infinite.
    #[track_caller]
    pub(super) fn magnitude_pow(self, p: f64) -> Tensor<'g> {
        let zero = self.equals(0.0);
        let at_zero = if p > 0.0 { 0.0 } else { f64::INFINITY };
        zero.select(at_zero, zero.select(1.0, self).pow(p))
    }

    /// The same with the axes kept at size 1.
    #[track_caller]
    pub fn norm_keep(self, p: f64, axes: &[isize]) -> Tensor<'g> {
        let norm = self.norm(p, axes);
        let mut dims = self.shape().0;
        for &a in axes {
            let Some(at) = self.axis("norm", a) else { return self.poison() };
            dims[at] = Dim::fixed(1);
        }
        norm.reshape(Shape(dims))
    }

    /// Scaled to length 1 along `axis`; what is shorter than `eps` is divided by `eps`.
    #[track_caller]
    pub fn normalize(self, axis: isize, eps: f64) -> Tensor<'g> {
        let x = self.wide();
        (x / x.norm_keep(2.0, &[axis]).at_least(eps)).cast(self.dtype())
    }

    /// The cosine of the angle between this and `other` along `axis`, which disappears; lengths below `eps` count as
    /// `eps`.
    #[track_caller]
    pub fn cosine_similarity(self, other: Tensor<'g>, axis: isize, eps: f64) -> Tensor<'g> {
        let (p, q) = self.stretched(other);
        let (a, b) = (p.wide(), q.wide());
        let lengths = a.norm(2.0, &[axis]).at_least(eps) * b.norm(2.0, &[axis]).at_least(eps);
        ((a * b).sum(&[axis]) / lengths).cast(p.dtype())
    }

    /// x raised to `low` where it is below; where they are equal, the gradient goes to x.
    #[track_caller]
    pub fn at_least(self, low: f64) -> Tensor<'g> {
        self.less(low).select(low, self)
    }
}
