//! Methods that pick, repeat and mirror elements by position. All of it is index arithmetic of views, slices and masks.

use super::Tensor;
use crate::ops::Reverse;
use crate::{DType, Dim, GraphBuilder, Mistake, Shape};

impl<'g> Tensor<'g> {
    /// The size of an axis that must be a number; `None` and a mistake on record otherwise.
    #[track_caller]
    fn number_of(self, op: &str, axis: isize) -> Option<usize> {
        let at = self.axis(op, axis)?;
        let size = self.shape().0[at].size();
        if size.is_none() {
            self.mistake(op, format!("axis {axis} of {} has a variable size", self.shape()), "bind it first");
        }
        size
    }

    /// The elements of `axes` from the last to the first.
    #[track_caller]
    pub fn reverse(self, axes: &[isize]) -> Tensor<'g> {
        let mut at = vec![];
        for &axis in axes {
            let Some(axis) = self.axis("reverse", axis) else { return self.poison() };
            at.push(axis);
        }
        self.g.emit1(Reverse { axes: at }, &[self])
    }

    /// Elements `start`, `start + step` … before `end` along `axis`, as Python's slices: negative positions count from
    /// the end, those beyond it are moved to it, and a negative step goes backwards. `None` is as far as there is.
    #[track_caller]
    pub fn slice_signed(
        self,
        axis: isize,
        start: Option<isize>,
        end: Option<isize>,
        step: isize,
    ) -> Tensor<'g> {
        let Some(n) = self.number_of("slice", axis) else { return self.poison() };
        if step == 0 {
            return self.mistake(
                "slice",
                "step is 0",
                "use a step of at least 1, or below 0 to go backwards",
            );
        }
        let n = n as isize;
        let from_start = |i: isize| if i < 0 { i.saturating_add(n) } else { i };
        let stride = step.unsigned_abs();
        if step > 0 {
            let start = start.map_or(0, |i| from_start(i).clamp(0, n));
            let end = end.map_or(n, |i| from_start(i).clamp(0, n)).max(start);
            return self.slice_step(axis, start as usize, end as usize, stride);
        }
        // Backwards: the same counted from the other end of the reversed axis.
        let first = start.map_or(n - 1, |i| from_start(i).clamp(-1, n - 1));
        let last = end.map_or(-1, |i| from_start(i).clamp(-1, n - 1)).min(first);
        self.reverse(&[axis]).slice_step(axis, (n - 1 - first) as usize, (n - 1 - last) as usize, stride)
    }

    /// Elements moved `by` places towards the end of `axis` (or the start, when negative), around the end.
    #[track_caller]
    pub fn roll(self, axis: isize, by: isize) -> Tensor<'g> {
        let Some(n) = self.number_of("roll", axis) else { return self.poison() };
        let by = if n == 0 { 0 } else { by.rem_euclid(n as isize) as usize };
        if by == 0 {
            return self;
        }
        self.g.concat(&[self.slice(axis, n - by, n), self.slice(axis, 0, n - by)], axis)
    }

    /// The whole tensor repeated `times[i]` times along axis `i`. Of more numbers than axes, the first are for new leading
    /// axes.
    #[track_caller]
    pub fn tile(self, times: &[usize]) -> Tensor<'g> {
        if self.value.is_none() {
            return self;
        }
        let rank = times.len().max(self.rank());
        let ones = |n: usize| vec![Dim::fixed(1); n];
        let sizes = [ones(rank - self.rank()), self.shape().0].concat();
        let times = [ones(rank - times.len()), times.iter().map(|&n| Dim::fixed(n)).collect()].concat();
        // Each axis of n elements becomes one of [times, n].
        let (mut narrow, mut wide, mut merged) = (vec![], vec![], vec![]);
        for (n, t) in sizes.into_iter().zip(times) {
            let Some(product) = n.times(&t) else {
                return self.mistake("tile", "the number of elements overflows", "repeat less often");
            };
            narrow.extend([Dim::fixed(1), n.clone()]);
            wide.extend([t, n]);
            merged.push(product);
        }
        self.reshape(Shape(narrow)).broadcast(&Shape(wide)).reshape(Shape(merged))
    }

    /// Each element along `axis` repeated `times` times, one behind the other.
    #[track_caller]
    pub fn repeat_interleave(self, axis: isize, times: usize) -> Tensor<'g> {
        let Some(at) = self.axis("repeat_interleave", axis) else { return self.poison() };
        let mut dims = self.shape().0;
        let Some(product) = dims[at].times(&Dim::fixed(times)) else {
            return self.mistake(
                "repeat_interleave",
                "the number of elements overflows",
                "repeat less often",
            );
        };
        let mut merged = dims.clone();
        merged[at] = product;
        dims.insert(at + 1, Dim::fixed(times));
        self.expand(at + 1).broadcast(&Shape(dims)).reshape(Shape(merged))
    }

    /// Padded along `axis` with the mirror image around the first and the last element, which are not repeated.
    #[track_caller]
    pub fn pad_reflect(self, axis: isize, low: usize, high: usize) -> Tensor<'g> {
        let Some(n) = self.number_of("pad_reflect", axis) else { return self.poison() };
        if low.max(high) >= n && low.max(high) > 0 {
            return self.mistake(
                "pad_reflect",
                format!("axis {axis} of {} has no {} elements to mirror", self.shape(), low.max(high)),
                "pad by less than the axis's size",
            );
        }
        let before = self.slice(axis, 1.min(n), low + 1.min(n)).reverse(&[axis]);
        let after = self.slice(axis, n.saturating_sub(high + 1), n.saturating_sub(1)).reverse(&[axis]);
        self.between(axis, before, after)
    }

    /// Padded along `axis` with its first and its last element.
    #[track_caller]
    pub fn pad_edge(self, axis: isize, low: usize, high: usize) -> Tensor<'g> {
        let Some(n) = self.number_of("pad_edge", axis) else { return self.poison() };
        if n == 0 && low.max(high) > 0 {
            return self.mistake("pad_edge", format!("axis {axis} is empty"), "it has no element to repeat");
        }
        let before = self.slice(axis, 0, 1.min(n)).repeat_interleave(axis, low);
        let after = self.slice(axis, n.saturating_sub(1), n).repeat_interleave(axis, high);
        self.between(axis, before, after)
    }

    /// Padded along `axis` with what comes around from the other end.
    #[track_caller]
    pub fn pad_circular(self, axis: isize, low: usize, high: usize) -> Tensor<'g> {
        let Some(n) = self.number_of("pad_circular", axis) else { return self.poison() };
        if low.max(high) > n {
            return self.mistake(
                "pad_circular",
                format!("axis {axis} of {} comes around more than once", self.shape()),
                "pad by at most the axis's size",
            );
        }
        self.between(axis, self.slice(axis, n - low, n), self.slice(axis, 0, high))
    }

    #[track_caller]
    fn between(self, axis: isize, before: Tensor<'g>, after: Tensor<'g>) -> Tensor<'g> {
        self.g.concat(&[before, self, after], axis)
    }

    /// Windows of `size` elements along `axis`, `step` apart: the axis counts windows, and a new last axis the places
    /// within one.
    #[track_caller]
    pub fn windows(self, axis: isize, size: usize, step: usize) -> Tensor<'g> {
        let Some(n) = self.number_of("windows", axis) else { return self.poison() };
        let Some(at) = self.axis("windows", axis) else { return self.poison() };
        if step == 0 || size > n {
            return self.mistake(
                "windows",
                format!("there is no window of {size} elements in steps of {step} in axis {axis} of {n}"),
                "use a step of at least 1 and a size up to the axis's",
            );
        }
        let count = (n - size) / step + 1;
        let g = self.g;
        let first = g.iota(DType::I32, [count, size], 0) * step as f64;
        let cut = self.gather(axis, first + g.iota(DType::I32, [count, size], 1));
        let rest = (0..cut.rank()).filter(|&a| a != at + 1);
        cut.transpose(&rest.chain([at + 1]).collect::<Vec<_>>())
    }

    /// The elements of the last two axes on and below a diagonal, zeros above it: the main one for 0, one to the right
    /// for 1.
    #[track_caller]
    pub fn tril(self, diagonal: isize) -> Tensor<'g> {
        self.triangle("tril", diagonal, true)
    }

    /// The elements of the last two axes on and above a diagonal, zeros below it.
    #[track_caller]
    pub fn triu(self, diagonal: isize) -> Tensor<'g> {
        self.triangle("triu", diagonal, false)
    }

    #[track_caller]
    fn triangle(self, op: &str, diagonal: isize, lower: bool) -> Tensor<'g> {
        let rank = self.rank();
        if self.value.is_none() {
            return self;
        }
        if rank < 2 {
            return self.mistake(op, format!("{} has no two axes", self.shape()), "reshape it to a matrix");
        }
        let matrix = Shape(self.shape().0[rank - 2..].to_vec());
        let column = self.g.iota(DType::I64, matrix.clone(), 1);
        let edge = self.g.iota(DType::I64, matrix, 0) + diagonal as f64;
        let kept = if lower { column.less_equal(edge) } else { column.greater_equal(edge) };
        kept.select(self, 0.0)
    }

    /// The diagonal of the last two axes, of fixed sizes, as one last axis: the main one for 0, one to the right for 1.
    #[track_caller]
    pub fn diagonal(self, offset: isize) -> Tensor<'g> {
        let rank = self.rank();
        if rank < 2 && self.value.is_some() {
            let what = format!("{} has no two axes", self.shape());
            return self.mistake("diagonal", what, "reshape it to a matrix");
        }
        let Some(rows) = self.number_of("diagonal", -2) else { return self.poison() };
        let Some(columns) = self.number_of("diagonal", -1) else { return self.poison() };
        let (low, right) = ((-offset).max(0) as usize, offset.max(0) as usize);
        let n = rows.saturating_sub(low).min(columns.saturating_sub(right));
        let (low, right) = (low.min(rows), right.min(columns));
        // Every (n + 1)-th element of the square that has the diagonal for its own.
        let square = self.slice(-2, low, low + n).slice(-1, right, right + n);
        let mut flat = self.shape().0[..rank - 2].to_vec();
        flat.push(Dim::fixed(n * n));
        square.reshape(Shape(flat)).slice_step(-1, 0, n * n, n + 1)
    }

    /// The sum of the main diagonal of the last two axes.
    #[track_caller]
    pub fn trace(self) -> Tensor<'g> {
        self.diagonal(0).sum(&[-1])
    }

    /// The last axis, of a fixed size, on a diagonal of two new last axes, zeros elsewhere.
    #[track_caller]
    pub fn diag_embed(self, offset: isize) -> Tensor<'g> {
        let Some(n) = self.number_of("diag_embed", -1) else { return self.poison() };
        let (low, right) = ((-offset).max(0) as usize, offset.max(0) as usize);
        let eye = self.g.eye(DType::Bool, n, n);
        let square = eye.select(self.expand(self.rank()), 0.0);
        square.pad(-2, low, right, 0.0).pad(-1, right, low, 0.0)
    }

    /// 1 at each integer's place along a new last axis of `classes` elements, 0 elsewhere; all 0 for one outside.
    #[track_caller]
    pub fn one_hot(self, classes: usize, dtype: DType) -> Tensor<'g> {
        if self.value.is_none() {
            return self;
        }
        let wide = if self.dtype().size() == 1 { self.cast(DType::I32) } else { self };
        let mut dims = self.shape().0;
        dims.push(Dim::fixed(classes));
        let place = self.g.iota(wide.dtype(), Shape(dims), self.rank());
        place.equals(wide.expand(self.rank())).cast(dtype)
    }
}

impl GraphBuilder {
    /// A matrix with ones on the main diagonal.
    #[track_caller]
    pub fn eye(&self, dtype: DType, rows: usize, columns: usize) -> Tensor<'_> {
        let at = |axis| self.iota(DType::I64, [rows, columns], axis);
        at(0).equals(at(1)).cast(dtype)
    }

    /// Vectors as the coordinates of a grid: each along its own axis, repeated along the others.
    #[track_caller]
    pub fn meshgrid<'g>(&'g self, vectors: &[Tensor<'g>]) -> Vec<Tensor<'g>> {
        if let Some(wrong) = vectors.iter().find(|t| t.value.is_some() && t.rank() != 1) {
            let what = format!("{} is not a vector", wrong.shape());
            let poisoned = self.mistake("meshgrid", &[*wrong], Mistake::new(what, "flatten it"));
            return vec![poisoned; vectors.len()];
        }
        if let Some(poisoned) = vectors.iter().find(|t| t.value.is_none()) {
            return vec![*poisoned; vectors.len()];
        }
        let full = Shape(vectors.iter().map(|t| t.shape().0[0].clone()).collect());
        let mut grids = vec![];
        for (axis, t) in vectors.iter().enumerate() {
            let mut dims = vec![Dim::fixed(1); full.rank()];
            dims[axis] = full.0[axis].clone();
            grids.push(t.reshape(Shape(dims)).broadcast(&full));
        }
        grids
    }
}
