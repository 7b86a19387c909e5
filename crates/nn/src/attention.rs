//! Causal self-attention and the transformer block around it.

use crate::layers::features;
use crate::{Activation, LinearOptions, dropout, layer_norm, linear_with};
use onestep_ir::ops::AttentionLayout;
use onestep_ir::{AttentionOptions, GraphBuilder, Shape, Tensor};

/// The `eps` of every layer norm here: PyTorch's.
pub(crate) const EPS: f64 = 1e-5;

/// The options of [`transformer_block`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Block {
    /// Heads of the attention; they divide the width.
    pub heads: usize,
    /// Features between the two layers of the MLP: four times the width, as a rule.
    pub hidden: usize,
    /// What stands between those layers.
    pub activation: Activation,
    /// The probability with which an element of either branch becomes 0.
    pub dropout: f64,
    /// How the linear layers start.
    pub inner: LinearOptions,
    /// How those start that end a branch: `attn.proj` and `mlp.down`.
    pub last: LinearOptions,
}

impl Block {
    /// A GPT's block of this width with PyTorch's first values: exact GELU between `width`, `4 · width` and `width`
    /// features, and no dropout.
    pub fn new(width: usize, heads: usize) -> Block {
        let (inner, last) = Default::default();
        let hidden = width.saturating_mul(4);
        Block { heads, hidden, activation: Activation::Gelu, dropout: 0.0, inner, last }
    }
}

/// Causal self-attention of `heads` heads: `proj(softmax(q·kᵀ/√(width/heads), over the keys up to the query) · v)`, where
/// `q`, `k` and `v` are linear in `x` (Vaswani and others, "Attention is all you need", 2017).
///
/// `x` is `[batch, time, width]` of any float dtype, and the result has its type. The heads are split off behind the time
/// axis, so that nothing is transposed. Parameters: those of a [`crate::linear`] from `width` to `width` at `<name>.q`,
/// `<name>.k`, `<name>.v` and `<name>.proj`.
#[track_caller]
pub fn attention<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, heads: usize) -> Tensor<'g> {
    let plain = LinearOptions::default();
    attention_with(g, name, x, heads, plain, plain, &causal)
}

/// What mixes the positions, from queries, keys and values, each `[batch, time, heads, head size]`.
pub(crate) type Mix<'m, 'g> = &'m dyn Fn(Tensor<'g>, Tensor<'g>, Tensor<'g>) -> Tensor<'g>;

/// Each query sees the keys of its sequence up to its own.
#[track_caller]
fn causal<'g>(q: Tensor<'g>, k: Tensor<'g>, v: Tensor<'g>) -> Tensor<'g> {
    let layout = AttentionLayout::Bthd;
    q.attention(k, v, None, AttentionOptions { layout, causal: true, ..AttentionOptions::default() })
}

/// [`attention`] with linear layers that start otherwise, and another mixture.
#[track_caller]
fn attention_with<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    heads: usize,
    inner: LinearOptions,
    last: LinearOptions,
    mix: Mix<'_, 'g>,
) -> Tensor<'g> {
    let Some(width) = features(x, "attention") else { return x.poison() };
    let shape = x.shape();
    let [batch, time, _] = &shape.0[..] else {
        return x.mistake(
            "attention",
            format!("{shape} has not three axes"),
            "give x of shape [batch, time, width]",
        );
    };
    if heads == 0 || !width.is_multiple_of(heads) {
        let what = format!("a width of {width} does not divide into {heads} heads");
        return x.mistake("attention", what, "use a number of heads that divides the width");
    }
    let split = Shape(vec![batch.clone(), time.clone(), heads.into(), (width / heads).into()]);
    let q = linear_with(g, &format!("{name}.q"), x, width, inner).reshape(split.clone());
    let k = linear_with(g, &format!("{name}.k"), x, width, inner).reshape(split.clone());
    let v = linear_with(g, &format!("{name}.v"), x, width, inner).reshape(split);
    let mixed = mix(q, k, v).reshape(shape);
    linear_with(g, &format!("{name}.proj"), mixed, width, last)
}

/// A pre-norm transformer block: `h = x + attn(norm1(x))`, then `h + mlp(norm2(h))` (Radford and others, "Language models
/// are unsupervised multitask learners", 2019), with dropout at the end of both branches.
///
/// `x` is `[batch, time, width]` of any float dtype, and the result has its type. Parameters: those of a
/// [`crate::layer_norm`] at `<name>.norm1` and `<name>.norm2`, of an [`attention`] at `<name>.attn`, and of a
/// [`crate::linear`] at `<name>.mlp.up` and `<name>.mlp.down`.
#[track_caller]
pub fn transformer_block<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, options: Block) -> Tensor<'g> {
    block_with(g, name, x, options, &causal)
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
    let Block { heads, hidden, activation, dropout: p, inner, last } = options;
    let attn = format!("{name}.attn");
    let mixed = layer_norm(g, &format!("{name}.norm1"), x, EPS);
    let mixed = attention_with(g, &attn, mixed, heads, inner, last, mix);
    let x = x + dropout(g, &format!("{attn}.dropout"), mixed, p);

    let mlp = format!("{name}.mlp");
    let y = layer_norm(g, &format!("{name}.norm2"), x, EPS);
    let y = activation.apply(linear_with(g, &format!("{mlp}.up"), y, hidden, inner));
    let y = linear_with(g, &format!("{mlp}.down"), y, width, last);
    x + dropout(g, &format!("{mlp}.dropout"), y, p)
}
