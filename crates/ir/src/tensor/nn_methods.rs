//! Methods of neural networks: softmax, losses, norms, activations, dropout and attention.

use super::Tensor;
use crate::attrs::Real;
use crate::ops::{
    Attention, AttentionAlign, AttentionLayout, CrossEntropy, Dropout, Gelu, LayerNorm, LogSoftmax, RmsNorm,
    Silu, Softmax,
};
use crate::{DType, Dim, Shape};

/// The label that [`Tensor::cross_entropy`] ignores, as PyTorch does.
pub(super) const IGNORED: i64 = -100;

/// How [`Tensor::attention`] reads its operands and what its queries see. The default: `[batch, heads, sequence, head size]`,
/// every query sees every key, scores scaled by `1/√head size`.
///
/// A query stands at a place among the keys, which `align` says; it sees the keys that `causal`, `window`, a mask and
/// lengths all allow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionOptions {
    /// The order of the axes.
    pub layout: AttentionLayout,
    /// Whether a query sees only the keys up to its place.
    pub causal: bool,
    /// What the scores are multiplied by; `None` for `1/√head size`.
    pub scale: Option<f64>,
    /// Scaled scores become `cap · tanh(scores / cap)`, before any mask.
    pub softcap: Option<f64>,
    /// A query sees the keys from `left` before its place to `right` behind it. A sliding window of `w` keys is causal with
    /// `[w − 1, 0]`.
    pub window: Option<[u32; 2]>,
    /// Whether the first query stands at the first key, or the last query at the last key.
    pub align: AttentionAlign,
}

impl Default for AttentionOptions {
    fn default() -> Self {
        AttentionOptions {
            layout: AttentionLayout::Bhtd,
            causal: false,
            scale: None,
            softcap: None,
            window: None,
            align: AttentionAlign::TopLeft,
        }
    }
}

impl<'g> Tensor<'g> {
    /// eˣ over its sum along `axis`. A row that is all −inf gives 0.
    #[track_caller]
    pub fn softmax(self, axis: isize) -> Tensor<'g> {
        let Some(axis) = self.axis("softmax", axis) else { return self.poison() };
        self.g.emit1(Softmax { axis }, &[self])
    }

    /// The logarithm of [`Tensor::softmax`], exact also where that is tiny.
    #[track_caller]
    pub fn log_softmax(self, axis: isize) -> Tensor<'g> {
        let Some(axis) = self.axis("log_softmax", axis) else { return self.poison() };
        self.g.emit1(LogSoftmax { axis }, &[self])
    }

    /// The mean cross-entropy of these logits, `[.., classes]`, with integer `labels`, `[..]`, over the rows whose label
    /// is not −100; 0 when there is none. A scalar of `f32` (`f64` for `f64` logits).
    #[track_caller]
    pub fn cross_entropy(self, labels: Tensor<'g>) -> Tensor<'g> {
        let acc = self.dtype().accumulator();
        let logits = if self.dtype().is_float() { self.cast(acc) } else { self };
        let losses = logits.cross_entropy_with(labels, IGNORED);
        // Wide enough that an unsigned label never passes for the ignored one.
        let wide = if labels.dtype() == DType::U32 { labels.cast(DType::I64) } else { labels };
        let wide = if matches!(wide.dtype(), DType::I8 | DType::U8) { wide.cast(DType::I32) } else { wide };
        let count = wide.not_equal(IGNORED as f64).cast(DType::I32).sum_all().cast(acc);
        losses.sum_all() / count.maximum(1.0)
    }

    /// The cross-entropy of each row of these logits, `[.., classes]`, with its integer label, `[..]`; 0 where the label
    /// is `ignore_index`.
    #[track_caller]
    pub fn cross_entropy_with(self, labels: Tensor<'g>, ignore_index: i64) -> Tensor<'g> {
        self.g.emit1(CrossEntropy { ignore_index }, &[self, labels])
    }

    /// The mean squared difference from `target`, which has this tensor's shape: broadcasting a loss hides mistakes. A
    /// scalar of `f32` (`f64` for `f64`).
    #[track_caller]
    pub fn mse(self, target: Tensor<'g>) -> Tensor<'g> {
        if self.value.is_some() && target.value.is_some() && self.shape() != target.shape() {
            let what = format!("shapes {} and {} differ", self.shape(), target.shape());
            return self.mistake("mse", what, "reshape or broadcast the target");
        }
        let acc = self.dtype().accumulator();
        (self.cast(acc) - target.cast(acc)).square().mean()
    }

    /// Rows of the last axis scaled to mean 0 and variance 1, then by `weight` and `bias`.
    #[track_caller]
    pub fn layer_norm(self, weight: Tensor<'g>, bias: Tensor<'g>, eps: f64) -> Tensor<'g> {
        self.g.emit1(LayerNorm { eps: Real::new(eps) }, &[self, weight, bias])
    }

    /// Rows of the last axis scaled to mean square 1, then by `weight`.
    #[track_caller]
    pub fn rms_norm(self, weight: Tensor<'g>, eps: f64) -> Tensor<'g> {
        self.g.emit1(RmsNorm { eps: Real::new(eps) }, &[self, weight])
    }

    /// The Gaussian error linear unit, with `erf`.
    #[track_caller]
    pub fn gelu(self) -> Tensor<'g> {
        self.g.emit1(Gelu { tanh: false }, &[self])
    }

    /// The tanh form of the Gaussian error linear unit, as GPT-2 uses it.
    #[track_caller]
    pub fn gelu_tanh(self) -> Tensor<'g> {
        self.g.emit1(Gelu { tanh: true }, &[self])
    }

    /// x · sigmoid(x).
    #[track_caller]
    pub fn silu(self) -> Tensor<'g> {
        self.g.emit1(Silu, &[self])
    }

    /// Zeros each element with probability `p` and divides the others by `1 − p`. `bits` has this tensor's shape and
    /// comes from [`crate::GraphBuilder::random_bits`].
    #[track_caller]
    pub fn dropout(self, p: f64, bits: Tensor<'g>) -> Tensor<'g> {
        self.g.emit1(Dropout { p: Real::new(p) }, &[self, bits])
    }

    /// Scaled dot-product attention of these queries over keys `k` and values `v`, which may have fewer heads: so many that
    /// they divide those of the queries. A mask is `bool` (true: may attend) or of the queries' dtype (added to the scores,
    /// and differentiated); it stretches to `[batch, heads, queries, keys]`. A query that sees nothing gives 0.
    #[track_caller]
    pub fn attention(
        self,
        k: Tensor<'g>,
        v: Tensor<'g>,
        mask: Option<Tensor<'g>>,
        options: AttentionOptions,
    ) -> Tensor<'g> {
        self.attention_with(k, v, mask, None, options)
    }

    /// [`Tensor::attention`] over sequences of different lengths: of sequence `b` only the first `lengths[b]` keys are there,
    /// and the rest is not read. `lengths` is `i32` of `[batch]`; one outside `0..=keys` is an index out of range. Aligned
    /// at the bottom right, the last query stands at the last key that is there: so a cache is read.
    #[track_caller]
    pub fn attention_with(
        self,
        k: Tensor<'g>,
        v: Tensor<'g>,
        mask: Option<Tensor<'g>>,
        lengths: Option<Tensor<'g>>,
        options: AttentionOptions,
    ) -> Tensor<'g> {
        let AttentionOptions { layout, causal, scale, softcap, window, align } = options;
        let mut operands = vec![self, k, v];
        let sizes = |t: Tensor<'g>| <[Dim; 4]>::try_from(t.shape().0).ok().map(|dims| layout.arrange(dims));
        let mut head_size = Some(1);
        // Operands of another rank are left for the op to refuse.
        if let (Some([_, _, queries, size]), Some([_, _, keys, _])) = (sizes(self), sizes(k)) {
            head_size = size.size();
            if let Some(mask) = mask {
                operands.push(mask.stretched_mask(queries, keys));
            }
        } else {
            operands.extend(mask);
        }
        operands.extend(lengths);
        let Some(scale) = scale.or(head_size.map(|d| 1.0 / (d.max(1) as f64).sqrt())) else {
            return self.mistake("attention", "the head size is a variable", "give a scale");
        };
        let (scale, softcap) = (Real::new(scale), softcap.map(Real::new));
        let op = Attention { layout, causal, scale, softcap, window, align, lengths: lengths.is_some() };
        self.g.emit1(op, &operands)
    }

    /// A mask with leading axes of size 1 up to rank 4, and its last two axes stretched.
    #[track_caller]
    fn stretched_mask(self, queries: Dim, keys: Dim) -> Tensor<'g> {
        if self.value.is_none() || self.rank() > 4 {
            return self;
        }
        let mut dims = vec![Dim::fixed(1); 4 - self.rank()];
        dims.extend(self.shape().0);
        let mask = self.reshape(Shape(dims.clone()));
        for (axis, full) in [(2, queries), (3, keys)] {
            if dims[axis].is_one() {
                dims[axis] = full;
            }
        }
        mask.broadcast(&Shape(dims))
    }
}
