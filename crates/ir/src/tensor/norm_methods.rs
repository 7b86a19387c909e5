//! Norms over channels, which are axis 1: of a batch, of groups, of an example, of neighbours. They are compositions, which
//! fusion makes kernels of; sums are in `f32` at least.

use super::Tensor;
use crate::{Dim, Shape};

impl<'g> Tensor<'g> {
    /// `[batch, channels, ..]` with each channel scaled to mean 0 and variance 1 over everything else, then by `weight` and
    /// `bias`, both `[channels]` (Ioffe and Szegedy, "Batch normalization", 2015). Gives the result, and the means and
    /// the biased variances that it used, both `[channels]` of `f32` at least.
    #[track_caller]
    pub fn batch_norm(
        self,
        weight: Tensor<'g>,
        bias: Tensor<'g>,
        eps: f64,
    ) -> (Tensor<'g>, Tensor<'g>, Tensor<'g>) {
        if !self.has_channels("batch_norm") {
            return (self.poison(), self.poison(), self.poison());
        }
        let axes: Vec<isize> = (0..self.rank() as isize).filter(|&a| a != 1).collect();
        let x = self.cast(self.dtype().accumulator());
        let mean = x.mean_over(&axes);
        let centred = x - mean.along_channels(self.rank());
        let variance = centred.square().mean_over(&axes);
        let scale = (variance + eps).rsqrt() * weight.cast(x.dtype());
        let y =
            centred * scale.along_channels(self.rank()) + bias.cast(x.dtype()).along_channels(self.rank());
        (y.cast(self.dtype()), mean, variance)
    }

    /// [`Tensor::batch_norm`] by given means and variances, both `[channels]`: what a network that was trained uses.
    #[track_caller]
    pub fn batch_norm_by(
        self,
        mean: Tensor<'g>,
        variance: Tensor<'g>,
        weight: Tensor<'g>,
        bias: Tensor<'g>,
        eps: f64,
    ) -> Tensor<'g> {
        if !self.has_channels("batch_norm_by") {
            return self.poison();
        }
        let acc = self.dtype().accumulator();
        let [mean, variance, weight, bias] = [mean, variance, weight, bias].map(|t| t.cast(acc));
        let scale = (variance + eps).rsqrt() * weight;
        let y = (self.cast(acc) - mean.along_channels(self.rank())) * scale.along_channels(self.rank())
            + bias.along_channels(self.rank());
        y.cast(self.dtype())
    }

    /// `[batch, channels, ..]` with each example's `groups` groups of neighbouring channels scaled to mean 0 and variance 1,
    /// then by `weight` and `bias`, both `[channels]` (Wu and He, "Group normalization", 2018). With as many groups as
    /// channels it is instance normalisation.
    #[track_caller]
    pub fn group_norm(self, groups: usize, weight: Tensor<'g>, bias: Tensor<'g>, eps: f64) -> Tensor<'g> {
        if !self.has_channels("group_norm") {
            return self.poison();
        }
        let dims = self.shape().0;
        let channels = dims[1].size().unwrap_or(0);
        if groups == 0 || !channels.is_multiple_of(groups) {
            let what = format!("{channels} channels do not divide into {groups} groups");
            return self.mistake("group_norm", what, "use a number of groups that divides the channels");
        }
        let acc = self.dtype().accumulator();
        let mut split = vec![dims[0].clone(), groups.into(), (channels / groups).into()];
        split.extend(dims[2..].iter().cloned());
        let axes: Vec<isize> = (2..split.len() as isize).collect();
        let x = self.cast(acc).reshape(Shape(split));
        let centred = x - x.mean_keep(&axes);
        let y = centred * (centred.square().mean_keep(&axes) + eps).rsqrt();
        let y = y.reshape(self.shape()) * weight.cast(acc).along_channels(self.rank())
            + bias.cast(acc).along_channels(self.rank());
        y.cast(self.dtype())
    }

    /// `x / (k + alpha/size · Σ x²)^beta`, the sum over the `size` channels around each (Krizhevsky, Sutskever and Hinton,
    /// "ImageNet classification with deep convolutional neural networks", 2012).
    #[track_caller]
    pub fn local_response_norm(self, size: usize, alpha: f64, beta: f64, k: f64) -> Tensor<'g> {
        if !self.has_channels("local_response_norm") {
            return self.poison();
        }
        if size == 0 {
            return self.mistake("local_response_norm", "a size of 0", "use 1 at least");
        }
        let x = self.cast(self.dtype().accumulator());
        let channels = self.shape().0[1].size().unwrap_or(0);
        let around = x.square().pad(1, size / 2, (size - 1) / 2, 0.0);
        let sum = (1..size).fold(around.slice(1, 0, channels), |s, i| s + around.slice(1, i, i + channels));
        (x / (sum * (alpha / size as f64) + k).pow(beta)).cast(self.dtype())
    }

    /// One number for each channel, ready to stretch over a tensor of this rank.
    #[track_caller]
    fn along_channels(self, rank: usize) -> Tensor<'g> {
        let mut dims = vec![Dim::fixed(1); rank];
        let Some(count) = self.shape().count() else { return self };
        if rank > 1 {
            dims[1] = count;
        }
        self.reshape(Shape(dims))
    }

    #[track_caller]
    fn has_channels(self, op: &str) -> bool {
        let Some(ty) = self.ty() else { return false };
        let fits = ty.dtype.is_float() && ty.shape.rank() >= 2 && ty.shape.0[1].size().is_some();
        if !fits {
            self.mistake(op, format!("{ty} has no axis of channels"), "give floats, [batch, channels, ..]");
        }
        fits
    }
}
