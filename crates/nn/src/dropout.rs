//! Dropout with counted random bits: which elements fall out depends on the run's seed, the layer's path and the number
//! of the call, all of them state. So the same run gives the same masks on every device, a resumed run goes on with
//! those that an uninterrupted one would have had, and a second layer changes none of the first's.

use onestep_ir::{DType, GraphBuilder, Init, Role, Tensor};

/// Path of the key: `u32[2]`, the run's seed.
const KEY: &str = "rng/key";
/// Path of the counter: `u32[]`, the calls so far.
const COUNTER: &str = "rng/counter";

/// Zeros each element with probability `p` and divides the others by `1 − p`, so that the mean stays (Srivastava and
/// others, "Dropout", 2014). With `p = 0`, as in a graph that evaluates, `x` itself: nothing is drawn or declared.
///
/// `x` has any shape and float dtype, and the result has its type. It has no parameter. A scope's first dropout declares
/// the state `rng/key` and `rng/counter` with the role of random numbers; the counter grows by 1 with every call whose
/// updates are committed. It is not the optimizer's `opt/step`, so that a graph without an optimizer has dropout too.
/// Two dropouts of one graph need two names, below the current scope: the name tells their numbers apart.
#[track_caller]
pub fn dropout<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, p: f64) -> Tensor<'g> {
    if p == 0.0 || x.value().is_none() {
        return x;
    }
    x.dropout(p, bits(g, "dropout", name, x, x.rank()))
}

/// [`dropout`] of whole channels: of each example, a channel falls out altogether with probability `p` (Tompson and others,
/// "Efficient object localization using convolutional networks", 2015). PyTorch's `nn.Dropout1d`, `2d` and `3d`.
///
/// `x` is `[batch, channels, ..]` of any float dtype, and the result has its type.
#[track_caller]
pub fn dropout_channels<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, p: f64) -> Tensor<'g> {
    dropout_along(g, "dropout_channels", name, x, p, 2)
}

/// [`dropout`] of whole examples: what a residual branch computes for an example falls out altogether with probability
/// `p` (Huang and others, "Deep networks with stochastic depth", 2016). torchvision's `StochasticDepth` in mode `row`.
///
/// `x` is `[batch, ..]` of any float dtype, and the result has its type.
#[track_caller]
pub fn stochastic_depth<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, p: f64) -> Tensor<'g> {
    dropout_along(g, "stochastic_depth", name, x, p, 1)
}

/// Dropout after a SELU: an element falls to that function's lowest value, and all are then scaled and shifted so that
/// numbers of mean 0 and variance 1 keep both (Klambauer and others, "Self-normalizing neural networks", 2017). PyTorch's
/// `nn.AlphaDropout`.
///
/// `x` has any shape and float dtype, and the result has its type.
#[track_caller]
pub fn alpha_dropout<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, p: f64) -> Tensor<'g> {
    alpha_dropout_along(g, "alpha_dropout", name, x, p, x.rank())
}

/// [`alpha_dropout`] of whole channels: PyTorch's `nn.FeatureAlphaDropout`.
///
/// `x` is `[batch, channels, ..]` of any float dtype, and the result has its type.
#[track_caller]
pub fn alpha_dropout_channels<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, p: f64) -> Tensor<'g> {
    alpha_dropout_along(g, "alpha_dropout_channels", name, x, p, 2)
}

/// Random bits for `x`, one word for all that falls out together: along every axis from `axes` on. A poisoned handle, and
/// a mistake on record, where there are fewer axes.
#[track_caller]
fn bits<'g>(g: &'g GraphBuilder, layer: &str, name: &str, x: Tensor<'g>, axes: usize) -> Tensor<'g> {
    let mut shape = x.shape();
    if shape.rank() < axes {
        let help = format!("give x of shape [{}, ..]", ["batch", "channels"][..axes].join(", "));
        return x.mistake(layer, format!("{shape} has not {axes} axes"), help);
    }
    shape.0.iter_mut().skip(axes).for_each(|d| *d = 1.into());
    let (key, counter) = random_state(g);
    g.random_bits(name, key, counter, shape)
}

#[track_caller]
fn dropout_along<'g>(
    g: &'g GraphBuilder,
    layer: &str,
    name: &str,
    x: Tensor<'g>,
    p: f64,
    axes: usize,
) -> Tensor<'g> {
    if p == 0.0 || x.value().is_none() {
        return x;
    }
    x.dropout(p, bits(g, layer, name, x, axes).broadcast(&x.shape()))
}

#[track_caller]
fn alpha_dropout_along<'g>(
    g: &'g GraphBuilder,
    layer: &str,
    name: &str,
    x: Tensor<'g>,
    p: f64,
    axes: usize,
) -> Tensor<'g> {
    /// The lowest value of a SELU: −scale · alpha.
    const LOWEST: f64 = -1.758_099_340_847_376_6;
    if p == 0.0 || x.value().is_none() {
        return x;
    }
    let bits = bits(g, layer, name, x, axes);
    let kept = g.full(DType::F32, bits.shape(), 1.0).dropout(p, bits).greater(0.0);
    // With probability 1 all is lost, and there is no variance to keep.
    let scale = if p < 1.0 { ((1.0 + p * LOWEST * LOWEST) * (1.0 - p)).sqrt().recip() } else { 0.0 };
    let shift = -scale * p * LOWEST;
    let wide = x.cast(x.dtype().accumulator());
    (kept.broadcast(&x.shape()).select(wide, LOWEST) * scale + shift).cast(x.dtype())
}

/// Key and counter, declared on first use.
#[track_caller]
fn random_state(g: &GraphBuilder) -> (Tensor<'_>, Tensor<'_>) {
    if let (Some(key), Some(counter)) = (g.find_state(&g.path(KEY)), g.find_state(&g.path(COUNTER))) {
        return (key, counter);
    }
    let key = g.state(KEY, Role::Rng, DType::U32, &[2], Init::Seed);
    let counter = g.state(COUNTER, Role::Rng, DType::U32, &[], Init::ZEROS);
    // Once a call, also where the layer is part of a region that runs several times.
    g.in_body(|| g.update(counter, counter + 1.0, true));
    (key, counter)
}
