//! Methods that cut, join, pad and index tensors.

use super::Tensor;
use crate::attrs::Real;
use crate::ops::{
    ArgKind, ArgReduce, Concat, DynamicSlice, DynamicUpdateSlice, Gather, GatherAlong, Pad, RandomBits,
    ScatterAdd, ScatterAddAlong, Slice,
};
use crate::{Dim, GraphBuilder, IntoShape, Mistake, Op, Shape, random};

impl<'g> Tensor<'g> {
    /// Elements `start..end` along `axis`, whose size is a number.
    #[track_caller]
    pub fn slice(self, axis: isize, start: usize, end: usize) -> Tensor<'g> {
        self.slice_step(axis, start, end, 1)
    }

    /// Every `step`-th of the elements `start..end` along `axis`.
    #[track_caller]
    pub fn slice_step(self, axis: isize, start: usize, end: usize, step: usize) -> Tensor<'g> {
        let Some(axis) = self.axis("slice", axis) else { return self.poison() };
        self.g.emit1(Slice { axis, start, end, step }, &[self])
    }

    /// One element along `axis`, which disappears.
    #[track_caller]
    pub fn at(self, axis: isize, index: usize) -> Tensor<'g> {
        let Some(axis) = self.axis("slice", axis) else { return self.poison() };
        let end = index.saturating_add(1);
        self.g.emit1(Slice { axis, start: index, end, step: 1 }, &[self]).squeeze(axis as isize)
    }

    /// Consecutive parts along `axis` of the given sizes, which add up to the axis's. A mistake gives as many poisoned
    /// handles.
    #[track_caller]
    pub fn split(self, axis: isize, sizes: &[usize]) -> Vec<Tensor<'g>> {
        let Some(at) = self.axis("split", axis) else { return vec![self.poison(); sizes.len()] };
        let whole = self.shape().0[at].clone();
        let total = sizes.iter().try_fold(0usize, |a, &n| a.checked_add(n));
        if total.map(Dim::fixed) != Some(whole.clone()) {
            let what = format!("sizes {sizes:?} do not add up to axis {axis} of size {whole}");
            self.mistake("split", what, "give sizes whose sum is the axis's size");
            return vec![self.poison(); sizes.len()];
        }
        let (mut start, mut parts) = (0, vec![]);
        for n in sizes {
            parts.push(self.slice(axis, start, start + n));
            start += n;
        }
        parts
    }

    /// `parts` parts of equal size along `axis`.
    #[track_caller]
    pub fn chunk(self, axis: isize, parts: usize) -> Vec<Tensor<'g>> {
        let Some(at) = self.axis("chunk", axis) else { return vec![self.poison(); parts] };
        let whole = self.shape().0[at].clone();
        match whole.size() {
            Some(n) if parts > 0 && n.is_multiple_of(parts) => self.split(axis, &vec![n / parts; parts]),
            _ => {
                let what = format!("axis {axis} of size {whole} does not divide into {parts} equal parts");
                self.mistake("chunk", what, "use split, or a number of parts that divides the size");
                vec![self.poison(); parts]
            }
        }
    }

    /// `low` and `high` times `value` before and behind `axis`, whose size is a number.
    #[track_caller]
    pub fn pad(self, axis: isize, low: usize, high: usize, value: f64) -> Tensor<'g> {
        let Some(axis) = self.axis("pad", axis) else { return self.poison() };
        self.g.emit1(Pad { axis, low, high, interior: 0, value: Real::new(value) }, &[self])
    }

    /// All elements in one axis.
    #[track_caller]
    pub fn flatten(self) -> Tensor<'g> {
        match self.shape().count() {
            Some(n) => self.reshape(Shape(vec![n])),
            None => self.mistake("flatten", "the number of elements overflows", "use a smaller tensor"),
        }
    }

    /// Drops an axis of size 1.
    #[track_caller]
    pub fn squeeze(self, axis: isize) -> Tensor<'g> {
        let Some(at) = self.axis("squeeze", axis) else { return self.poison() };
        let size = self.shape().0[at].clone();
        if !size.is_one() {
            return self.mistake(
                "squeeze",
                format!("axis {axis} has size {size}"),
                "only an axis of size 1 can go",
            );
        }
        self.reshape(self.shape().without(&[at]))
    }

    /// The slices of `axis` that the integer `indices` name, in place of that axis. `table.gather(0, ids)` is an
    /// embedding.
    #[track_caller]
    pub fn gather(self, axis: isize, indices: Tensor<'g>) -> Tensor<'g> {
        let Some(axis) = self.axis("gather", axis) else { return self.poison() };
        self.g.emit1(Gather { axis }, &[self, indices])
    }

    /// One element per index along `axis`: `torch.gather`. `indices` has this tensor's shape but on `axis`.
    #[track_caller]
    pub fn gather_along(self, axis: isize, indices: Tensor<'g>) -> Tensor<'g> {
        let Some(axis) = self.axis("gather_along", axis) else { return self.poison() };
        self.g.emit1(GatherAlong { axis }, &[self, indices])
    }

    /// Adds `updates` to the slices of `axis` that the integer `indices` name.
    #[track_caller]
    pub fn scatter_add(self, axis: isize, indices: Tensor<'g>, updates: Tensor<'g>) -> Tensor<'g> {
        let Some(axis) = self.axis("scatter_add", axis) else { return self.poison() };
        self.g.emit1(ScatterAdd { axis }, &[self, indices, updates])
    }

    /// Adds one element of `updates` per index along `axis`: `torch.scatter_add`.
    #[track_caller]
    pub fn scatter_add_along(self, axis: isize, indices: Tensor<'g>, updates: Tensor<'g>) -> Tensor<'g> {
        let Some(axis) = self.axis("scatter_add_along", axis) else { return self.poison() };
        self.g.emit1(ScatterAddAlong { axis }, &[self, indices, updates])
    }

    /// `size` elements of `axis` from the integer scalar `start`.
    #[track_caller]
    pub fn dynamic_slice(self, axis: isize, start: Tensor<'g>, size: usize) -> Tensor<'g> {
        let Some(axis) = self.axis("dynamic_slice", axis) else { return self.poison() };
        self.g.emit1(DynamicSlice { axis, size }, &[self, start])
    }

    /// This tensor with the elements of `axis` from the integer scalar `start` replaced by `update`.
    #[track_caller]
    pub fn dynamic_update_slice(self, axis: isize, update: Tensor<'g>, start: Tensor<'g>) -> Tensor<'g> {
        let Some(axis) = self.axis("dynamic_update_slice", axis) else { return self.poison() };
        self.g.emit1(DynamicUpdateSlice { axis }, &[self, update, start])
    }

    /// Where the largest element of `axis` stands (the first of equals, the first NaN before all), as `i32`.
    #[track_caller]
    pub fn argmax(self, axis: isize) -> Tensor<'g> {
        let Some(axis) = self.axis("argmax", axis) else { return self.poison() };
        self.g.emit1(ArgReduce { kind: ArgKind::Max, axis }, &[self])
    }

    /// Where the smallest element of `axis` stands (the first of equals, the first NaN before all), as `i32`.
    #[track_caller]
    pub fn argmin(self, axis: isize) -> Tensor<'g> {
        let Some(axis) = self.axis("argmin", axis) else { return self.poison() };
        self.g.emit1(ArgReduce { kind: ArgKind::Min, axis }, &[self])
    }
}

impl GraphBuilder {
    /// Tensors one behind the other along `axis`.
    #[track_caller]
    pub fn concat<'g>(&'g self, parts: &[Tensor<'g>], axis: isize) -> Tensor<'g> {
        match self.joining("concat", parts, axis, 0) {
            Ok(axis) => self.emit1(Concat { axis }, parts),
            Err(poisoned) => poisoned,
        }
    }

    /// Tensors of one shape along a new axis, which stands at `axis` of the result.
    #[track_caller]
    pub fn stack<'g>(&'g self, parts: &[Tensor<'g>], axis: isize) -> Tensor<'g> {
        match self.joining("stack", parts, axis, 1) {
            Ok(axis) => {
                let mut parts = parts.to_vec();
                for t in &mut parts {
                    *t = t.expand(axis);
                }
                self.emit1(Concat { axis }, &parts)
            }
            Err(poisoned) => poisoned,
        }
    }

    /// The axis, counted in a result that has `more` axes than the first part.
    #[track_caller]
    fn joining<'g>(
        &'g self,
        op: &str,
        parts: &[Tensor<'g>],
        axis: isize,
        more: isize,
    ) -> Result<usize, Tensor<'g>> {
        let Some(first) = parts.first() else {
            return Err(self.mistake(
                op,
                &[],
                Mistake::new("takes at least one tensor, got none", "give it one"),
            ));
        };
        if first.value.is_none() {
            return Err(first.poison());
        }
        let rank = first.rank() as isize + more;
        let at = if axis < 0 { axis.saturating_add(rank) } else { axis };
        if (0..rank).contains(&at) {
            return Ok(at as usize);
        }
        let what = format!("axis {axis} is out of range for {}", first.shape());
        Err(self.mistake(op, parts, Mistake::new(what, "use an axis within the rank")))
    }

    /// 32 random bits per element from `key` (`u32[2]`) and `counter` (`u32[]`). The stream's id comes from the current
    /// path joined with `name`, so that adding a layer changes no other's numbers; using one path twice with the same
    /// key and counter would repeat the numbers, and is a mistake.
    #[track_caller]
    pub fn random_bits<'g>(
        &'g self,
        name: &str,
        key: Tensor<'g>,
        counter: Tensor<'g>,
        shape: impl IntoShape,
    ) -> Tensor<'g> {
        let Some(shape) = self.shape("random_bits", shape) else { return Tensor { g: self, value: None } };
        let path = self.path(name);
        let stream = random::stream_id(&path);
        let key = self.iteration_key(key);
        let repeated = self.with_graph(|g| {
            let same = |op: &Op| matches!(op, Op::RandomBits(r) if r.stream == stream);
            let operands = [key.value, counter.value];
            g.nodes.iter().any(|n| same(&n.op) && n.operands.iter().map(|v| Some(*v)).eq(operands))
        });
        if repeated {
            let what = format!("random numbers are drawn twice at path '{path}'");
            return self.mistake(
                "random_bits",
                &[key, counter],
                Mistake::new(what, "use another name or scope"),
            );
        }
        self.emit1(RandomBits { dims: shape.0, stream }, &[key, counter])
    }
}

/// Tensors one behind the other along `axis`; [`GraphBuilder::concat`] takes a list.
#[track_caller]
pub fn concat<'g, const N: usize>(parts: &[Tensor<'g>; N], axis: isize) -> Tensor<'g> {
    const { assert!(N > 0, "concat takes at least one tensor") };
    parts[0].g.concat(parts, axis)
}

/// Tensors of one shape along a new axis; [`GraphBuilder::stack`] takes a list.
#[track_caller]
pub fn stack<'g, const N: usize>(parts: &[Tensor<'g>; N], axis: isize) -> Tensor<'g> {
    const { assert!(N > 0, "stack takes at least one tensor") };
    parts[0].g.stack(parts, axis)
}
