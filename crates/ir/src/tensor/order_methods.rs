//! Methods that go along an axis in order: scans, sorting, and selection by rank.

use super::Tensor;
use crate::ops::{Cumulative, ReduceKind, Sort};
use crate::{DType, GraphBuilder};

/// What [`Tensor::quantile_by`] gives where the rank q·(n − 1) lies between two elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QuantileKind {
    /// Between the two, by the rank's fraction.
    #[default]
    Linear,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// The nearer one; in the middle, the one of even rank.
    Nearest,
    /// The mean of the two.
    Midpoint,
}

impl<'g> Tensor<'g> {
    /// The running sum along `axis`: element `i` is the sum of the elements up to and with `i`.
    #[track_caller]
    pub fn cumsum(self, axis: isize) -> Tensor<'g> {
        self.cumulative(ReduceKind::Sum, axis, false, false)
    }

    /// The running product along `axis`.
    #[track_caller]
    pub fn cumprod(self, axis: isize) -> Tensor<'g> {
        self.cumulative(ReduceKind::Prod, axis, false, false)
    }

    /// The running maximum along `axis`; NaN from the first one on.
    #[track_caller]
    pub fn cummax(self, axis: isize) -> Tensor<'g> {
        self.cumulative(ReduceKind::Max, axis, false, false)
    }

    /// The running minimum along `axis`; NaN from the first one on.
    #[track_caller]
    pub fn cummin(self, axis: isize) -> Tensor<'g> {
        self.cumulative(ReduceKind::Min, axis, false, false)
    }

    /// The running reduction along `axis`; without the element itself when `exclusive`, from the end when `reverse`.
    #[track_caller]
    pub fn cumulative(self, kind: ReduceKind, axis: isize, exclusive: bool, reverse: bool) -> Tensor<'g> {
        let Some(axis) = self.axis("cumulative", axis) else { return self.poison() };
        self.g.emit1(Cumulative { kind, axis, exclusive, reverse }, &[self])
    }

    /// Where the running maximum along `axis` stands (the last of equals, the last NaN), as `i32`.
    #[track_caller]
    pub fn cumargmax(self, axis: isize) -> Tensor<'g> {
        self.record(axis, self.cummax(axis))
    }

    /// Where the running minimum along `axis` stands (the last of equals, the last NaN), as `i32`.
    #[track_caller]
    pub fn cumargmin(self, axis: isize) -> Tensor<'g> {
        self.record(axis, self.cummin(axis))
    }

    /// The last place so far at which this tensor was equal to its running extremum.
    #[track_caller]
    fn record(self, axis: isize, running: Tensor<'g>) -> Tensor<'g> {
        let Some(at) = self.axis("cumulative", axis) else { return self.poison() };
        let equal = self.equals(running);
        let record = if self.dtype().is_float() { equal.or(self.is_nan()) } else { equal };
        record.select(self.g.iota(DType::I32, self.shape(), at), 0.0).cummax(axis)
    }

    /// log Σ eˣ of the elements up to and with each one along `axis`, whose size is a number: by doubling, so that no
    /// exponential overflows and none that counts is lost.
    #[track_caller]
    pub fn log_cumsum_exp(self, axis: isize) -> Tensor<'g> {
        let Some(at) = self.axis("log_cumsum_exp", axis) else { return self.poison() };
        let Some(n) = self.shape().0[at].size() else {
            return self.mistake(
                "log_cumsum_exp",
                format!("axis {axis} has a variable size"),
                "bind it first",
            );
        };
        let (mut total, mut reach) = (self.wide(), 1);
        while reach < n {
            let before = total.slice(axis, 0, n - reach).pad(axis, reach, 0, f64::NEG_INFINITY);
            total = total.log_add_exp(before);
            reach *= 2;
        }
        total.cast(self.dtype())
    }

    /// The elements in order along `axis`, and where each stood, as `i32`. Stable; NaN counts as larger than every
    /// number.
    #[track_caller]
    pub fn sort(self, axis: isize, descending: bool) -> (Tensor<'g>, Tensor<'g>) {
        let Some(axis) = self.axis("sort", axis) else { return (self.poison(), self.poison()) };
        match self.g.emit(Sort { axis, descending }, &[self])[..] {
            [values, indices] => (values, indices),
            _ => (self.poison(), self.poison()),
        }
    }

    /// The indices, as `i32`, that put `axis` in order.
    #[track_caller]
    pub fn argsort(self, axis: isize, descending: bool) -> Tensor<'g> {
        self.sort(axis, descending).1
    }

    /// The `k` largest elements along `axis`, the largest first, and where they stood, as `i32`.
    #[track_caller]
    pub fn top_k(self, axis: isize, k: usize) -> (Tensor<'g>, Tensor<'g>) {
        let (values, indices) = self.sort(axis, true);
        (values.slice(axis, 0, k), indices.slice(axis, 0, k))
    }

    /// The `k`-th smallest element along `axis`, which disappears, counted from 0; and where it stood, as `i32`.
    #[track_caller]
    pub fn kth_smallest(self, axis: isize, k: usize) -> (Tensor<'g>, Tensor<'g>) {
        let (values, indices) = self.sort(axis, false);
        (values.at(axis, k), indices.at(axis, k))
    }

    /// The median along `axis`, which disappears and whose size is a number above 0: of an even number the lower of the
    /// middle two. NaN where there is one.
    #[track_caller]
    pub fn median(self, axis: isize) -> Tensor<'g> {
        let Some(at) = self.axis("median", axis) else { return self.poison() };
        let Some(n) = self.shape().0[at].size().filter(|&n| n > 0) else {
            return self.mistake(
                "median",
                format!("axis {axis} of {} has no known middle", self.shape()),
                "give an axis of a fixed size above 0",
            );
        };
        let sorted = self.sort(axis, false).0;
        let middle = sorted.at(axis, (n - 1) / 2);
        if !self.dtype().is_float() {
            return middle;
        }
        // NaN is sorted to the end.
        let last = sorted.at(axis, n - 1);
        last.is_nan().select(last, middle)
    }

    /// The `q`-quantile along `axis`, which disappears and whose size is a number above 0, interpolated between the two
    /// elements around rank q·(n − 1). NaN where there is one.
    #[track_caller]
    pub fn quantile(self, q: f64, axis: isize) -> Tensor<'g> {
        self.quantile_by(q, axis, QuantileKind::Linear)
    }

    /// [`Tensor::quantile`] with another rule for ranks between two elements.
    #[track_caller]
    pub fn quantile_by(self, q: f64, axis: isize, kind: QuantileKind) -> Tensor<'g> {
        let Some(at) = self.axis("quantile", axis) else { return self.poison() };
        let n = self.shape().0[at].size().unwrap_or(0);
        if n == 0 || !(0.0..=1.0).contains(&q) {
            return self.mistake(
                "quantile",
                format!("there is no {q}-quantile of axis {axis} of {}", self.shape()),
                "give a share from 0 to 1 and an axis of a fixed size above 0",
            );
        }
        let sorted = self.wide().sort(axis, false).0;
        let rank = q * (n - 1) as f64;
        let (below, above) = (rank.floor(), rank.ceil());
        let element = |rank: f64| sorted.at(axis, rank as usize);
        let value = match kind {
            QuantileKind::Lower => element(below),
            QuantileKind::Higher => element(above),
            QuantileKind::Nearest => element(rank.round_ties_even()),
            _ if below == above => element(below),
            QuantileKind::Midpoint => (element(below) + element(above)) * 0.5,
            QuantileKind::Linear => element(below) + (element(above) - element(below)) * rank.fract(),
        };
        let last = sorted.at(axis, n - 1);
        last.is_nan().select(last, value).cast(self.dtype())
    }

    /// [`Tensor::median`] of the elements that are not NaN; NaN where there is none.
    #[track_caller]
    pub fn nan_median(self, axis: isize) -> Tensor<'g> {
        // The lower of the middle two, at rank ⌊(count − 1)/2⌋.
        self.numbers_at(axis, 0.5, QuantileKind::Lower)
    }

    /// [`Tensor::quantile`] of the elements that are not NaN; NaN where there is none.
    #[track_caller]
    pub fn nan_quantile(self, q: f64, axis: isize) -> Tensor<'g> {
        self.nan_quantile_by(q, axis, QuantileKind::Linear)
    }

    /// [`Tensor::nan_quantile`] with another rule for ranks between two elements.
    #[track_caller]
    pub fn nan_quantile_by(self, q: f64, axis: isize, kind: QuantileKind) -> Tensor<'g> {
        if !(0.0..=1.0).contains(&q) {
            return self.mistake(
                "nan_quantile",
                format!("there is no {q}-quantile"),
                "give a share from 0 to 1",
            );
        }
        self.numbers_at(axis, q, kind)
    }

    /// The element of rank q·(count − 1) among those that are numbers.
    #[track_caller]
    fn numbers_at(self, axis: isize, q: f64, kind: QuantileKind) -> Tensor<'g> {
        let Some(at) = self.axis("quantile", axis) else { return self.poison() };
        if self.shape().0[at].size().is_none_or(|n| n == 0) {
            let what = format!("axis {axis} of {} has no known elements", self.shape());
            return self.mistake("quantile", what, "give an axis of a fixed size above 0");
        }
        let sorted = self.wide().sort(axis, false).0;
        let acc = sorted.dtype();
        let count = sorted.is_nan().not().cast(acc).sum_keep(&[axis]);
        let rank = (count - 1.0).maximum(0.0) * q;
        let (below, above) = (rank.floor(), rank.ceil());
        let element = |rank: Tensor<'g>| sorted.gather_along(axis, rank.cast(DType::I32)).squeeze(axis);
        let value = match kind {
            QuantileKind::Lower => element(below),
            QuantileKind::Higher => element(above),
            QuantileKind::Nearest => element(rank.round()),
            QuantileKind::Linear | QuantileKind::Midpoint => {
                let (low, high) = (element(below), element(above));
                let share = (rank - below).squeeze(axis);
                let between = match kind {
                    QuantileKind::Midpoint => (low + high) * 0.5,
                    _ => low + (high - low) * share,
                };
                share.equals(0.0).select(low, between)
            }
        };
        value.cast(self.dtype())
    }
}

impl GraphBuilder {
    /// The numbers from 0 to `n` − 1 in a random order, as `i32`: the order of `n` words of random bits. For `key`,
    /// `counter` and `name`, see [`GraphBuilder::random_bits`].
    #[track_caller]
    pub fn permutation<'g>(
        &'g self,
        name: &str,
        key: Tensor<'g>,
        counter: Tensor<'g>,
        n: usize,
    ) -> Tensor<'g> {
        self.random_bits(name, key, counter, [n]).argsort(0, false)
    }
}
