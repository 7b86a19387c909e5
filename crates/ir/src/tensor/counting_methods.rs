//! Methods that count values: histograms and modes.

use super::Tensor;
use crate::DType;

impl<'g> Tensor<'g> {
    /// How many elements lie in each bin, in this tensor's dtype, or the sum of their `weights`. `edges` is a vector of one
    /// more number than there are bins, in ascending order; a bin holds its lower edge, the last one both.
    #[track_caller]
    pub fn histogram(self, edges: Tensor<'g>, weights: Option<Tensor<'g>>) -> Tensor<'g> {
        let places = self.bins(edges);
        let bins = edges.shape().0.first().and_then(|d| d.size()).unwrap_or(1).saturating_sub(1);
        places.bincount(bins, weights.map(|w| w.flatten()), self.dtype())
    }

    /// The bin, as `i64`, of each element of the flattened tensor: see [`Tensor::histogram`]; −1 outside all.
    #[track_caller]
    pub fn bins(self, edges: Tensor<'g>) -> Tensor<'g> {
        if self.value.is_none() || edges.value.is_none() {
            return self.poison();
        }
        let Some(count) =
            edges.shape().0.first().and_then(|d| d.size()).filter(|&n| n > 1 && edges.rank() == 1)
        else {
            let what = format!("{} are no edges of bins", edges.shape());
            return self.mistake("histogram", what, "give a vector of two numbers at least");
        };
        let x = self.flatten();
        let before = x.expand(1).greater_equal(edges.expand(0)).cast(DType::I64).sum(&[1]);
        let inside = x.greater_equal(edges.at(0, 0)).and(x.less_equal(edges.at(0, count - 1)));
        inside.select((before - 1.0).minimum(count as f64 - 2.0), -1.0)
    }

    /// How often each number below `bins` stands in this vector of integers, or the sum of `weights` there, as `dtype`.
    /// Other numbers do not count.
    #[track_caller]
    pub fn bincount(self, bins: usize, weights: Option<Tensor<'g>>, dtype: DType) -> Tensor<'g> {
        let hits = self.one_hot(bins, dtype);
        weights.map_or(hits, |w| hits * w.expand(1)).sum(&[0])
    }

    /// The most frequent element along `axis`, which disappears and whose size is a number above 0 (the smallest of several),
    /// and where it stands last, as `i32`.
    #[track_caller]
    pub fn mode(self, axis: isize) -> (Tensor<'g>, Tensor<'g>) {
        let Some(at) = self.axis("mode", axis) else { return (self.poison(), self.poison()) };
        let Some(n) = self.shape().0[at].size().filter(|&n| n > 0) else {
            let what = format!("axis {axis} of {} has no known elements", self.shape());
            let poison = self.mistake("mode", what, "give an axis of a fixed size above 0");
            return (poison, poison);
        };
        // Equal elements stand in a row when sorted: how many of them up to each one.
        let (sorted, places) = self.sort(axis, false);
        let here = self.g.iota(DType::I32, sorted.shape(), at);
        let changes = sorted.slice(axis, 1, n).not_equal(sorted.slice(axis, 0, n - 1));
        let begins = changes.pad(axis, 1, 0, 1.0);
        let run = here - begins.select(here, 0.0).cummax(axis);
        let place = places.gather_along(axis, run.argmax(axis).expand(at));
        (self.gather_along(axis, place).squeeze(axis), place.squeeze(axis))
    }
}
