//! Self-attention as a layer: the linear maps around the op, and what mixes the positions between them.

use crate::layers::features;
use crate::{LinearOptions, linear_with};
use onestep_ir::ops::AttentionLayout;
use onestep_ir::{AttentionOptions, GraphBuilder, Loc, Shape, Tensor};

/// Causal self-attention of `heads` heads: `proj(softmax(q·kᵀ/√(width/heads), over the keys up to the query) · v)`, where
/// `q`, `k` and `v` are linear in `x` (Vaswani and others, "Attention is all you need", 2017).
///
/// `x` is `[batch, time, width]` of any float dtype, and the result has its type. The heads are split off behind the time
/// axis, so that nothing is transposed. Parameters: those of a [`crate::linear`] from `width` to `width` at `<name>.q`,
/// `<name>.k`, `<name>.v` and `<name>.proj`.
#[track_caller]
pub fn attention<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, heads: usize) -> Tensor<'g> {
    let plain = LinearOptions::default();
    attention_with(
        g,
        name,
        x,
        Heads { heads, kv_heads: heads, packed: false, inner: plain, last: plain },
        &causal,
    )
}

/// The heads of an attention and how its linear layers start.
#[derive(Clone, Copy)]
pub(crate) struct Heads {
    /// Heads of the queries; they divide the width.
    pub heads: usize,
    /// Heads of keys and values; they divide those of the queries.
    pub kv_heads: usize,
    /// Whether queries, keys and values are parts of one linear layer.
    pub packed: bool,
    /// Of queries, keys and values.
    pub inner: LinearOptions,
    /// Of the projection.
    pub last: LinearOptions,
}

/// What mixes the positions, from queries, keys and values, each `[batch, time, heads, head size]`.
pub(crate) type Mix<'m, 'g> = &'m dyn Fn(Tensor<'g>, Tensor<'g>, Tensor<'g>) -> Tensor<'g>;

/// A [`Mix`] for each block, by its name.
pub(crate) type NamedMix<'m, 'g> = &'m dyn Fn(&str, Tensor<'g>, Tensor<'g>, Tensor<'g>) -> Tensor<'g>;

/// The order of the axes in a [`Mix`].
pub(crate) const LAYOUT: AttentionLayout = AttentionLayout::Bthd;

/// Each query sees the keys of its sequence up to its own.
#[track_caller]
pub(crate) fn causal<'g>(q: Tensor<'g>, k: Tensor<'g>, v: Tensor<'g>) -> Tensor<'g> {
    let options = AttentionOptions { layout: LAYOUT, causal: true, ..AttentionOptions::default() };
    q.attention(k, v, None, options)
}

/// [`attention`] with grouped heads, linear layers that start otherwise, and another mixture.
#[track_caller]
pub(crate) fn attention_with<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    options: Heads,
    mix: Mix<'_, 'g>,
) -> Tensor<'g> {
    let Heads { heads, kv_heads, packed, inner, last } = options;
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
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        let what = format!("{heads} heads of queries do not share {kv_heads} heads of keys");
        return x.mistake("attention", what, "use a number of key heads that divides that of the queries");
    }
    let size = width / heads;
    let split = |heads: usize| Shape(vec![batch.clone(), time.clone(), heads.into(), size.into()]);
    let (all, some) = (width, kv_heads * size);
    let [q, k, v] = if packed {
        let qkv = linear_with(g, &format!("{name}.qkv"), x, all + 2 * some, inner);
        [(0, all), (all, some), (all + some, some)].map(|(start, n)| qkv.slice(-1, start, start + n))
    } else {
        [("q", all), ("k", some), ("v", some)]
            .map(|(part, n)| linear_with(g, &format!("{name}.{part}"), x, n, inner))
    };
    let (q, k, v) = (q.reshape(split(heads)), k.reshape(split(kv_heads)), v.reshape(split(kv_heads)));
    // A function behind a reference does not see its caller: the nodes get the user's line here.
    let mixed = g.at(Some(Loc::caller()), || mix(q, k, v)).reshape(shape);
    linear_with(g, &format!("{name}.proj"), mixed, width, last)
}
