//! Reading grids between their elements at places that are data: spatial transformers, warps.

use super::Tensor;
use super::resize_methods::{Interpolation, cubic_weights};
use crate::{DType, Dim, Shape};

/// What stands outside the grid that [`Tensor::grid_sample`] reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outside {
    /// Zeros.
    Zeros,
    /// The nearest element of the edge.
    Edge,
    /// The mirror image: around the centres of the outer elements with `align_corners`, else around their outer edges.
    Mirror,
}

/// The options of [`Tensor::grid_sample`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GridSample {
    /// How to find what stands between elements; [`Interpolation::Nearest`] takes the nearest one, of equal ones the one at
    /// the even place.
    pub kind: Interpolation,
    /// What stands outside.
    pub outside: Outside,
    /// Whether −1 and 1 are the centres of the outer elements; otherwise their outer edges.
    pub align_corners: bool,
}

/// The elements that a result is made of along one axis: places, and weights where they are not 1.
type Taps<'g> = Vec<(Tensor<'g>, Option<Tensor<'g>>)>;

impl GridSample {
    /// Places from −1 to 1 as places among `n` elements.
    #[track_caller]
    fn unscaled<'g>(&self, at: Tensor<'g>, n: usize) -> Tensor<'g> {
        let n = n as f64;
        if self.align_corners { (at + 1.0) * ((n - 1.0) / 2.0) } else { ((at + 1.0) * n - 1.0) / 2.0 }
    }

    /// Places outside brought to where their value is read.
    #[track_caller]
    fn inside<'g>(&self, at: Tensor<'g>, n: usize) -> Tensor<'g> {
        let top = n as f64 - 1.0;
        match self.outside {
            Outside::Zeros => at,
            Outside::Edge => at.clamp(0.0, top),
            Outside::Mirror => {
                let (low, span) = if self.align_corners { (0.0, top) } else { (-0.5, top + 1.0) };
                if span == 0.0 {
                    return at * 0.0;
                }
                let from = (at - low).abs();
                let (rest, turns) = (from.remainder(span), (from / span).floor());
                let even = turns.remainder(2.0).equals(0.0);
                (even.select(rest, -rest + span) + low).clamp(0.0, top)
            }
        }
    }

    /// The elements that a place among `n` is made of.
    #[track_caller]
    fn taps<'g>(&self, at: Tensor<'g>, n: usize) -> Taps<'g> {
        let at = self.unscaled(at, n);
        match self.kind {
            Interpolation::Nearest | Interpolation::NearestCell => vec![(self.inside(at, n).round(), None)],
            Interpolation::Linear => {
                let at = self.inside(at, n);
                let low = at.floor();
                let t = at - low;
                vec![(low, Some(-t + 1.0)), (low + 1.0, Some(t))]
            }
            Interpolation::Cubic => {
                let low = at.floor();
                let weights = cubic_weights(at - low);
                let place = |k: usize| self.inside(low + (k as f64 - 1.0), n);
                weights.into_iter().enumerate().map(|(k, w)| (place(k), Some(w))).collect()
            }
        }
    }
}

impl<'g> Tensor<'g> {
    /// This `[batch, channels, spatial…]` read at the places `grid`, `[batch, places…, axes]`, whose last axis has a number
    /// from −1 to 1 for each spatial axis, the last one's first: `[batch, channels, places…]`, PyTorch's `grid_sample`. Both
    /// are floats of one dtype; sizes other than the batch are numbers.
    #[track_caller]
    pub fn grid_sample(self, grid: Tensor<'g>, options: GridSample) -> Tensor<'g> {
        let op = "grid_sample";
        let (Some(tx), Some(tg)) = (self.ty(), grid.ty()) else { return self.poison() };
        let numbers = |dims: &[Dim]| dims.iter().map(Dim::size).collect::<Option<Vec<usize>>>();
        let of = tx.shape.0.get(2..).and_then(numbers).filter(|n| !n.is_empty() && !n.contains(&0));
        let places = tg.shape.0.get(1..).and_then(numbers);
        let fits = |of: &[usize], places: &[usize]| {
            places.last() == Some(&of.len())
                && tx.shape.0[0] == tg.shape.0[0]
                && tx.dtype == tg.dtype
                && tx.dtype.is_float()
        };
        let (Some(of), Some(mut places)) = (of, places) else {
            return self.mistake(
                op,
                format!("{tx} at places {tg}"),
                "only the batch may be variable or empty",
            );
        };
        if !fits(&of, &places) {
            let what = format!("{tx} is not read at places {tg}");
            return self.mistake(op, what, "give floats of one dtype, and a place for each spatial axis");
        }
        places.pop();
        let (batch, channels) = (tx.shape.0[0].clone(), tx.shape.0[1].clone());
        let (count, whole) = (places.iter().product(), of.iter().product());
        let at = grid.wide().reshape(vec![batch.clone(), Dim::fixed(count), Dim::fixed(of.len())]);
        let x = self.wide().reshape(vec![batch.clone(), channels.clone(), Dim::fixed(whole)]);
        let full = Shape(vec![batch.clone(), channels.clone(), Dim::fixed(count)]);
        // Every combination of one tap along each axis: its place in the flattened grid and its weight.
        let mut combined: Taps<'g> = vec![];
        for (axis, &n) in of.iter().enumerate() {
            let mut taps = options.taps(at.at(-1, of.len() - 1 - axis), n);
            for (place, weight) in &mut taps {
                if options.outside == Outside::Zeros {
                    let there = place.greater_equal(0.0).and(place.less_equal(n as f64 - 1.0));
                    let one = there.cast(place.dtype());
                    *weight = Some(weight.map_or(one, |w| there.select(w, 0.0)));
                }
                *place = place.clamp(0.0, n as f64 - 1.0).cast(DType::I32);
            }
            combined = match combined.is_empty() {
                true => taps,
                false => product(&combined, &taps, n),
            };
        }
        let mut sum: Option<Tensor<'g>> = None;
        for (place, weight) in combined {
            let read = x.gather_along(2, place.expand(1).broadcast(&full));
            let term = weight.map_or(read, |w| read * w.expand(1));
            sum = Some(sum.map_or(term, |s| s + term));
        }
        let out = [vec![batch, channels], places.into_iter().map(Dim::fixed).collect()].concat();
        sum.unwrap_or(x).cast(tx.dtype).reshape(Shape(out))
    }
}

/// Taps over several axes with those of one more, of `n` elements.
#[track_caller]
fn product<'g>(before: &Taps<'g>, taps: &Taps<'g>, n: usize) -> Taps<'g> {
    let mut all = vec![];
    for (p, v) in before {
        for (q, w) in taps {
            let weight = match (v, w) {
                (Some(v), Some(w)) => Some(*v * *w),
                (v, w) => v.or(*w),
            };
            all.push((*p * n as f64 + *q, weight));
        }
    }
    all
}
