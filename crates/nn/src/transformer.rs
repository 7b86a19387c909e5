//! The transformer block: attention and an MLP, each with a norm and a way around it.

use crate::attention::{Heads, LAYOUT, Mix, attention_with, causal};
use crate::layers::features;
use crate::{Activation, LinearOptions, dropout, layer_norm, linear_with, rms_norm};
use onestep_ir::{AttentionOptions, GraphBuilder, Tensor};

/// PyTorch's `eps` of a layer norm.
pub(crate) const EPS: f64 = 1e-5;

/// The norm of a block, over the features.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Norm {
    /// [`crate::layer_norm`] with this `eps`.
    Layer(f64),
    /// [`crate::rms_norm`] with this `eps`.
    Rms(f64),
}

impl Norm {
    /// The norm of `x` with parameters at `name`.
    #[track_caller]
    pub(crate) fn apply<'g>(self, g: &'g GraphBuilder, name: &str, x: Tensor<'g>) -> Tensor<'g> {
        match self {
            Norm::Layer(eps) => layer_norm(g, name, x, eps),
            Norm::Rms(eps) => rms_norm(g, name, x, eps),
        }
    }
}

/// Where the norms of a block stand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NormOrder {
    /// In front of each branch: `x + f(norm(x))`, as since GPT-2 (Radford and others, 2019).
    Pre,
    /// Behind each sum: `norm(x + f(x))`, as at first (Vaswani and others, 2017).
    Post,
}

/// What a block does to each position by itself.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mlp {
    /// `down(f(up(x)))`.
    Plain(Activation),
    /// `down(f(gate(x)) · up(x))`: SwiGLU with [`Activation::Silu`], GeGLU with [`Activation::Gelu`] (Shazeer, "GLU variants
    /// improve transformer", 2020).
    Gated(Activation),
}

/// The options of [`transformer_block`] and [`encoder_block`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Block {
    /// Heads of the attention's queries; they divide the width.
    pub heads: usize,
    /// Heads of its keys and values; they divide those of the queries (Ainslie and others, "GQA", 2023).
    pub kv_heads: usize,
    /// Whether queries, keys and values are parts of one linear layer, `attn.qkv`, in this order; else they are three.
    pub packed: bool,
    /// Features between the layers of the MLP: four times the width, as a rule.
    pub hidden: usize,
    /// The MLP.
    pub mlp: Mlp,
    /// The norms.
    pub norm: Norm,
    /// Where they stand.
    pub order: NormOrder,
    /// The probability with which an element of either branch becomes 0.
    pub dropout: f64,
    /// How the linear layers start.
    pub inner: LinearOptions,
    /// How those start that end a branch: `attn.proj` and `mlp.down`.
    pub last: LinearOptions,
}

impl Block {
    /// A GPT's block of this width with PyTorch's first values: layer norms in front, exact GELU between `width`, `4 · width`
    /// and `width` features, and no dropout.
    pub fn new(width: usize, heads: usize) -> Block {
        let (inner, last) = Default::default();
        Block {
            heads,
            kv_heads: heads,
            packed: false,
            hidden: width.saturating_mul(4),
            mlp: Mlp::Plain(Activation::Gelu),
            norm: Norm::Layer(EPS),
            order: NormOrder::Pre,
            dropout: 0.0,
            inner,
            last,
        }
    }

    /// The block of the first transformer: layer norms behind the sums, and ReLU (Vaswani and others, 2017). PyTorch's
    /// `nn.TransformerEncoderLayer` without dropout.
    pub fn post_norm(width: usize, heads: usize) -> Block {
        Block { order: NormOrder::Post, mlp: Mlp::Plain(Activation::Relu), ..Block::new(width, heads) }
    }
}

/// A decoder's block: `h = x + attn(norm1(x))`, then `h + mlp(norm2(h))`, or with the norms behind the sums, and dropout at
/// the end of both branches. Each position sees itself and those before.
///
/// `x` is `[batch, time, width]` of any float dtype, and the result has its type. Parameters: those of the norms at
/// `<name>.norm1` and `<name>.norm2`, of an [`crate::attention`] at `<name>.attn`, and of a [`crate::linear`] at
/// `<name>.mlp.up`, `<name>.mlp.down` and, if gated, `<name>.mlp.gate`.
#[track_caller]
pub fn transformer_block<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, options: Block) -> Tensor<'g> {
    block_with(g, name, x, options, &causal)
}

/// An encoder's block: a [`transformer_block`] in which each position sees all of its sequence.
///
/// Of sequence `b` only the first `lengths[b]` positions are there, `i32` of `[batch]`; without lengths, all. What the others
/// become is of no use.
#[track_caller]
pub fn encoder_block<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    lengths: Option<Tensor<'g>>,
    options: Block,
) -> Tensor<'g> {
    let layout = AttentionOptions { layout: LAYOUT, ..AttentionOptions::default() };
    block_with(g, name, x, options, &|q, k, v| q.attention_with(k, v, None, lengths, layout))
}

/// [`transformer_block`] with another mixture of positions.
#[track_caller]
pub(crate) fn block_with<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    options: Block,
    mix: Mix<'_, 'g>,
) -> Tensor<'g> {
    let Some(width) = features(x, "transformer_block") else { return x.poison() };
    let Block { heads, kv_heads, packed, hidden, norm, order, dropout: p, inner, last, .. } = options;
    let [attn, mlp, norm1, norm2] = ["attn", "mlp", "norm1", "norm2"].map(|part| format!("{name}.{part}"));
    let pre = order == NormOrder::Pre;

    let y = if pre { norm.apply(g, &norm1, x) } else { x };
    let y = attention_with(g, &attn, y, Heads { heads, kv_heads, packed, inner, last }, mix);
    let x = x + dropout(g, &format!("{attn}.dropout"), y, p);
    let x = if pre { x } else { norm.apply(g, &norm1, x) };

    let y = if pre { norm.apply(g, &norm2, x) } else { x };
    let up = linear_with(g, &format!("{mlp}.up"), y, hidden, inner);
    let y = match options.mlp {
        Mlp::Plain(f) => f.apply(up),
        Mlp::Gated(f) => f.apply(linear_with(g, &format!("{mlp}.gate"), y, hidden, inner)) * up,
    };
    let y = linear_with(g, &format!("{mlp}.down"), y, width, last);
    let x = x + dropout(g, &format!("{mlp}.dropout"), y, p);
    if pre { x } else { norm.apply(g, &norm2, x) }
}
