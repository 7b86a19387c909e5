//! Methods that resample images: nearest, linear and cubic interpolation along the last axes, and pixel shuffles.
//!
//! Interpolation is linear in the elements and goes axis by axis: one product with a constant matrix of weights for each
//! axis. An element with weight 0 is part of the product too, so that one that is not finite reaches the whole line.

use super::Tensor;
use crate::{Array, Dim, Shape};
use std::ops::{Add, Mul, Neg};

/// How [`Tensor::resize`] finds what stands between elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interpolation {
    /// The element at `⌊i·n/out⌋`: PyTorch's `nearest`.
    Nearest,
    /// The element whose cell the centre of the result's cell lies in: `nearest-exact`.
    NearestCell,
    /// Between the two neighbours: `linear`, `bilinear`, `trilinear`.
    Linear,
    /// Through four neighbours, with the coefficient −0.75 (Keys, "Cubic convolution interpolation for digital image
    /// processing", 1981): `bicubic`.
    Cubic,
}

/// The options of [`Tensor::resize`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Resize<'a> {
    /// How to find what stands between elements.
    pub kind: Interpolation,
    /// Whether the first and last elements keep their places; otherwise the outer edges of their cells do. For linear and
    /// cubic interpolation.
    pub align_corners: bool,
    /// Distance of neighbouring results in elements, for each axis, where it is not the ratio of the sizes.
    pub steps: Option<&'a [f64]>,
    /// Whether linear interpolation to fewer elements weighs all that lie within two steps, as a triangle: nothing is
    /// passed over.
    pub antialias: bool,
}

impl Resize<'_> {
    /// This interpolation between the edges of cells.
    pub fn new(kind: Interpolation) -> Self {
        Resize { kind, align_corners: false, steps: None, antialias: false }
    }

    /// The distance of neighbouring results along an axis.
    fn step(&self, axis: usize, n: usize, out: usize) -> f64 {
        let corners = self.align_corners && matches!(self.kind, Interpolation::Linear | Interpolation::Cubic);
        match self.steps.and_then(|s| s.get(axis)) {
            _ if corners => {
                if out > 1 {
                    (n - 1) as f64 / (out - 1) as f64
                } else {
                    0.0
                }
            }
            Some(step) => *step,
            None => n as f64 / out as f64,
        }
    }

    /// For each result along an axis, the elements that it is made of and their weights.
    fn taps(&self, axis: usize, n: usize, out: usize) -> Vec<Vec<(usize, f64)>> {
        let step = self.step(axis, n, out);
        let inside = |i: f64| (i.max(0.0) as usize).min(n - 1);
        let source =
            |i: usize| if self.align_corners { i as f64 * step } else { (i as f64 + 0.5) * step - 0.5 };
        let one = |i: usize| match self.kind {
            Interpolation::Nearest => vec![(inside((i as f64 * step).floor()), 1.0)],
            Interpolation::NearestCell => vec![(inside(((i as f64 + 0.5) * step).floor()), 1.0)],
            Interpolation::Linear if self.antialias => {
                let (centre, reach) = ((i as f64 + 0.5) * step, step.max(1.0));
                let (from, to) = (inside(centre - reach + 0.5), ((centre + reach + 0.5) as usize).min(n));
                let weight = |k: usize| (1.0 - ((k as f64 - centre + 0.5) / reach).abs()).max(0.0);
                let total: f64 = (from..to).map(weight).sum();
                (from..to).map(|k| (k, weight(k) / total)).collect()
            }
            Interpolation::Linear => {
                let at = source(i).max(0.0);
                let (low, t) = (inside(at.floor()), at - at.floor());
                vec![(low, 1.0 - t), ((low + 1).min(n - 1), t)]
            }
            Interpolation::Cubic => {
                let at = source(i);
                let (low, t) = (at.floor(), at - at.floor());
                cubic_weights(t).iter().enumerate().map(|(k, &w)| (inside(low + k as f64 - 1.0), w)).collect()
            }
        };
        (0..out).map(one).collect()
    }
}

/// The weights of the four neighbours of a place that lies `t` behind the second one (Keys, 1981; with −0.75).
pub(super) fn cubic_weights<T>(t: T) -> [T; 4]
where
    T: Copy + Add<f64, Output = T> + Mul<f64, Output = T> + Mul<T, Output = T> + Neg<Output = T>,
{
    let near = |t: T| (t * 1.25 + -2.25) * t * t + 1.0;
    let far = |t: T| ((t * -0.75 + 3.75) * t + -6.0) * t + 3.0;
    [far(t + 1.0), near(t), near(-t + 1.0), far(-t + 2.0)]
}

impl<'g> Tensor<'g> {
    /// The last axes, as many as `out` has sizes, resampled to those sizes: PyTorch's `interpolate`.
    #[track_caller]
    pub fn resize(self, out: &[usize], options: Resize<'_>) -> Tensor<'g> {
        let Some(ty) = self.ty() else { return self };
        let rank = ty.shape.rank();
        let sizes: Option<Vec<usize>> = match rank.checked_sub(out.len()) {
            Some(lead) => ty.shape.0[lead..].iter().map(|d| d.size()).collect(),
            None => None,
        };
        let Some(sizes) = sizes.filter(|n| !n.contains(&0) && !out.contains(&0) && ty.dtype.is_float())
        else {
            let what = format!("{ty} does not resize to {out:?}");
            return self.mistake(
                "resize",
                what,
                "give floats whose last axes have sizes, and sizes of 1 at least",
            );
        };
        (0..out.len()).fold(self, |x, a| {
            let (axis, n, m) = (rank - out.len() + a, sizes[a], out[a]);
            let taps = options.taps(a, n, m);
            if matches!(options.kind, Interpolation::Nearest | Interpolation::NearestCell) {
                let places: Vec<i32> = taps.iter().filter_map(|t| Some(t.first()?.0 as i32)).collect();
                return match Array::new(&[m], &places) {
                    Ok(places) => x.gather(axis as isize, self.g.constant(places)),
                    Err(_) => x,
                };
            }
            let mut weights = vec![0.0; n * m];
            for (i, taps) in taps.iter().enumerate() {
                taps.iter().for_each(|(k, w)| weights[k * m + i] += w);
            }
            let Ok(weights) = Array::from_f64(ty.dtype, &[n, m], &weights) else { return x };
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(axis, rank - 1);
            let rows = x.transpose(&order);
            // A vector is a matrix of one row.
            let rows = if rank == 1 { rows.expand(0) } else { rows };
            let y = rows.matmul(self.g.constant(weights));
            if rank == 1 { y.squeeze(0) } else { y.transpose(&order) }
        })
    }

    /// `[.., channels·r², height, width]` as `[.., channels, height·r, width·r]`: every r² channels become squares of
    /// pixels (Shi and others, "Real-time single image and video super-resolution using an efficient sub-pixel
    /// convolutional neural network", 2016).
    #[track_caller]
    pub fn pixel_shuffle(self, r: usize) -> Tensor<'g> {
        let Some([c, h, w]) = self.image("pixel_shuffle") else { return self.poison() };
        if r == 0 || !c.is_multiple_of(r.saturating_mul(r)) {
            let what = format!("{c} channels do not make squares of {r}×{r}");
            return self.mistake("pixel_shuffle", what, "use a factor whose square divides the channels");
        }
        self.regrouped(&[c / (r * r), r, r, h, w], &[0, 3, 1, 4, 2], &[c / (r * r), h * r, w * r])
    }

    /// The reverse of [`Tensor::pixel_shuffle`].
    #[track_caller]
    pub fn pixel_unshuffle(self, r: usize) -> Tensor<'g> {
        let Some([c, h, w]) = self.image("pixel_unshuffle") else { return self.poison() };
        if r == 0 || !h.is_multiple_of(r) || !w.is_multiple_of(r) {
            let what = format!("{h}×{w} pixels do not make squares of {r}×{r}");
            return self.mistake("pixel_unshuffle", what, "use a factor that divides height and width");
        }
        self.regrouped(&[c, h / r, r, w / r, r], &[0, 2, 4, 1, 3], &[c * r * r, h / r, w / r])
    }

    /// Channels, height and width: the last three axes.
    #[track_caller]
    fn image(self, op: &str) -> Option<[usize; 3]> {
        let dims = self.ty()?.shape.0;
        let last = dims.len().checked_sub(3).and_then(|lead| {
            let sizes: Option<Vec<usize>> = dims[lead..].iter().map(|d| d.size()).collect();
            sizes?.try_into().ok()
        });
        if last.is_none() {
            let what = format!("{} has no channels, height and width", self.shape());
            self.mistake(op, what, "give [.., channels, height, width]");
        }
        last
    }

    /// The last three axes split, reordered and joined.
    #[track_caller]
    fn regrouped(self, split: &[usize], order: &[usize], joined: &[usize]) -> Tensor<'g> {
        let dims = self.shape().0;
        let lead = &dims[..dims.len() - 3];
        let with = |sizes: &[usize]| {
            Shape([lead.to_vec(), sizes.iter().copied().map(Dim::fixed).collect()].concat())
        };
        let order: Vec<usize> = (0..lead.len()).chain(order.iter().map(|o| o + lead.len())).collect();
        self.reshape(with(split)).transpose(&order).reshape(with(joined))
    }
}
