//! Methods that reduce over axes.

use super::Tensor;
use crate::ops::{Mean, Reduce, ReduceKind};
use crate::{DType, Dim, Shape};

impl<'g> Tensor<'g> {
    /// Axes as NumPy counts them, sorted. `None` (and a mistake on record) when one is out of range.
    #[track_caller]
    fn axes(self, op: &str, axes: &[isize]) -> Option<Vec<usize>> {
        // A loop, since a closure would hide the caller's line.
        let mut at = vec![];
        for &a in axes {
            at.push(self.axis(op, a)?);
        }
        at.sort_unstable();
        Some(at)
    }

    /// `reduced` with the axes that disappeared put back with size 1.
    #[track_caller]
    fn kept(self, reduced: Tensor<'g>, axes: &[usize]) -> Tensor<'g> {
        if reduced.value.is_none() {
            return reduced;
        }
        let mut dims = self.shape().0;
        axes.iter().for_each(|&a| dims[a] = Dim::fixed(1));
        reduced.reshape(Shape(dims))
    }

    #[track_caller]
    fn reduce(self, kind: ReduceKind, axes: &[isize], keep: bool) -> Tensor<'g> {
        let Some(at) = self.axes(kind.name(), axes) else { return self.poison() };
        let out = self.g.emit1(Reduce { kind, axes: at.clone() }, &[self]);
        if keep { self.kept(out, &at) } else { out }
    }

    /// Every axis, for a full reduction.
    fn every_axis(self) -> Vec<isize> {
        (0..self.rank() as isize).collect()
    }

    /// How many elements a reduction over `axes` takes together, as a scalar of `dtype`.
    #[track_caller]
    pub(crate) fn count_over(self, dtype: DType, axes: &[isize]) -> Tensor<'g> {
        let shape = self.shape();
        let rank = shape.rank() as isize;
        let at = |a: isize| shape.0.get(if a < 0 { a + rank } else { a } as usize);
        let dims: Vec<Dim> = axes.iter().filter_map(|&a| at(a).cloned()).collect();
        match Shape(dims.clone()).sizes() {
            Some(sizes) => self.g.scalar(dtype, sizes.iter().map(|&n| n as f64).product()),
            None => self.g.full(dtype, dims, 1.0).sum_all(),
        }
    }

    /// The sum over `axes`, which disappear.
    #[track_caller]
    pub fn sum(self, axes: &[isize]) -> Tensor<'g> {
        self.reduce(ReduceKind::Sum, axes, false)
    }

    /// The sum over `axes`, which stay with size 1.
    #[track_caller]
    pub fn sum_keep(self, axes: &[isize]) -> Tensor<'g> {
        self.reduce(ReduceKind::Sum, axes, true)
    }

    /// The sum of all elements.
    #[track_caller]
    pub fn sum_all(self) -> Tensor<'g> {
        self.sum(&self.every_axis())
    }

    /// The largest over `axes`, which disappear.
    #[track_caller]
    pub fn max(self, axes: &[isize]) -> Tensor<'g> {
        self.reduce(ReduceKind::Max, axes, false)
    }

    /// The largest over `axes`, which stay with size 1.
    #[track_caller]
    pub fn max_keep(self, axes: &[isize]) -> Tensor<'g> {
        self.reduce(ReduceKind::Max, axes, true)
    }

    /// The smallest over `axes`, which disappear.
    #[track_caller]
    pub fn min(self, axes: &[isize]) -> Tensor<'g> {
        self.reduce(ReduceKind::Min, axes, false)
    }

    /// The product over `axes`, which disappear.
    #[track_caller]
    pub fn prod(self, axes: &[isize]) -> Tensor<'g> {
        self.reduce(ReduceKind::Prod, axes, false)
    }

    /// Whether every element of a `bool` tensor is true.
    #[track_caller]
    pub fn all(self) -> Tensor<'g> {
        self.reduce(ReduceKind::Min, &self.every_axis(), false)
    }

    /// Whether any element of a `bool` tensor is true.
    #[track_caller]
    pub fn any(self) -> Tensor<'g> {
        self.reduce(ReduceKind::Max, &self.every_axis(), false)
    }

    /// A float tensor as it is; integers and truth values as `f32`.
    #[track_caller]
    pub(super) fn as_float(self) -> Tensor<'g> {
        if self.dtype().is_float() { self } else { self.cast(DType::F32) }
    }

    /// The mean of all elements (NaN when there is none). Integers and truth values are cast to `f32` first, so that
    /// the mean of a comparison is the share that holds.
    #[track_caller]
    pub fn mean(self) -> Tensor<'g> {
        self.mean_over(&self.every_axis())
    }

    /// The mean of all elements: another name for [`Tensor::mean`].
    #[track_caller]
    pub fn mean_all(self) -> Tensor<'g> {
        self.mean()
    }

    /// The mean over `axes`, which disappear.
    #[track_caller]
    pub fn mean_over(self, axes: &[isize]) -> Tensor<'g> {
        let Some(axes) = self.axes("mean", axes) else { return self.poison() };
        self.g.emit1(Mean { axes }, &[self.as_float()])
    }

    /// The mean over `axes`, which stay with size 1.
    #[track_caller]
    pub fn mean_keep(self, axes: &[isize]) -> Tensor<'g> {
        let Some(at) = self.axes("mean", axes) else { return self.poison() };
        self.kept(self.mean_over(axes), &at)
    }
}
