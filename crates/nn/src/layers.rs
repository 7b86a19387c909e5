//! Layers of one formula: linear maps, norms and embeddings.

use crate::WeightInit;
use onestep_ir::{DType, GraphBuilder, Init, Role, Tensor};

/// How a linear layer's parameters start: the options of [`linear_with`]. The default is PyTorch's: weight and bias
/// uniform in `±1/√inputs`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinearOptions {
    /// How the weight starts.
    pub weight: WeightInit,
    /// How the bias starts; `None` for no bias.
    pub bias: Option<WeightInit>,
}

impl Default for LinearOptions {
    fn default() -> LinearOptions {
        LinearOptions { weight: WeightInit::Torch, bias: Some(WeightInit::Torch) }
    }
}

impl LinearOptions {
    /// This weight with a bias of zeros, as most papers have it.
    pub const fn zero_bias(weight: WeightInit) -> LinearOptions {
        LinearOptions { weight, bias: Some(WeightInit::Given(Init::ZEROS)) }
    }
}

/// `x · weightᵀ + bias`: PyTorch's `nn.Linear` with its default initialisation.
///
/// `x` is `[.., inputs]` of any float dtype, with one axis at least, and the result `[.., outputs]` of that dtype.
/// Parameters: `<name>.weight`, `[outputs, inputs]`, and `<name>.bias`, `[outputs]`.
#[track_caller]
pub fn linear<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, outputs: usize) -> Tensor<'g> {
    linear_with(g, name, x, outputs, LinearOptions::default())
}

/// `x · weightᵀ`: [`linear`] without a bias.
#[track_caller]
pub fn linear_no_bias<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, outputs: usize) -> Tensor<'g> {
    linear_with(g, name, x, outputs, LinearOptions { bias: None, ..LinearOptions::default() })
}

/// [`linear`] with another initialisation, or without a bias.
#[track_caller]
pub fn linear_with<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    outputs: usize,
    options: LinearOptions,
) -> Tensor<'g> {
    let Some(inputs) = features(x, "linear") else { return x.poison() };
    let LinearOptions { weight, bias } = options;
    // A vector is a matrix of one row.
    let rows = if x.rank() == 1 { x.expand(0) } else { x };
    let weight = parameter(g, name, "weight", x, &[outputs, inputs], weight.init(inputs, outputs));
    let mut y = rows.matmul_t(weight.cast(x.dtype()), false, true);
    if let Some(bias) = bias {
        // PyTorch bounds the bias by the weight's inputs too.
        y = y + parameter(g, name, "bias", x, &[outputs], bias.init(inputs, outputs)).cast(x.dtype());
    }
    if x.rank() == 1 { y.squeeze(0) } else { y }
}

/// `(x − mean) / √(variance + eps) · weight + bias` over the last axis, with the biased variance: PyTorch's
/// `nn.LayerNorm`, whose `eps` is 1e-5 (Ba, Kiros and Hinton, "Layer normalization", 2016).
///
/// `x` is `[.., features]` of any float dtype; the result has its type. Parameters: `<name>.weight`, `[features]`, ones;
/// `<name>.bias`, `[features]`, zeros.
#[track_caller]
pub fn layer_norm<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, eps: f64) -> Tensor<'g> {
    let Some(features) = features(x, "layer_norm") else { return x.poison() };
    let weight = parameter(g, name, "weight", x, &[features], Init::ONES);
    let bias = parameter(g, name, "bias", x, &[features], Init::ZEROS);
    x.layer_norm(weight, bias, eps)
}

/// `x / √(mean(x²) + eps) · weight` over the last axis: PyTorch's `nn.RMSNorm` (Zhang and Sennrich, "Root mean square
/// layer normalization", 2019). Llama's `eps` is 1e-5 or 1e-6.
///
/// `x` is `[.., features]` of any float dtype; the result has its type. Parameter: `<name>.weight`, `[features]`, ones.
#[track_caller]
pub fn rms_norm<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, eps: f64) -> Tensor<'g> {
    let Some(features) = features(x, "rms_norm") else { return x.poison() };
    x.rms_norm(parameter(g, name, "weight", x, &[features], Init::ONES), eps)
}

/// The rows of a table that integer `ids` name: PyTorch's `nn.Embedding`, with its first values, standard normal.
///
/// `ids` has any shape `[..]`, each from 0 to `rows − 1`; the result is `[.., width]` of `f32`. Parameter:
/// `<name>.weight`, `[rows, width]`.
#[track_caller]
pub fn embedding<'g>(
    g: &'g GraphBuilder,
    name: &str,
    ids: Tensor<'g>,
    rows: usize,
    width: usize,
) -> Tensor<'g> {
    embedding_with(g, name, ids, rows, width, Init::Normal { mean: 0.0, std: 1.0 })
}

/// [`embedding`] with other first values.
#[track_caller]
pub fn embedding_with<'g>(
    g: &'g GraphBuilder,
    name: &str,
    ids: Tensor<'g>,
    rows: usize,
    width: usize,
    init: Init,
) -> Tensor<'g> {
    if ids.value().is_none() {
        return ids;
    }
    g.parameter(&format!("{name}.weight"), &[rows, width], init).gather(0, ids)
}

/// A parameter `<name>.<what>` of the dtype in which `x` is computed: `f32` at least.
#[track_caller]
pub(crate) fn parameter<'g>(
    g: &'g GraphBuilder,
    name: &str,
    what: &str,
    x: Tensor<'g>,
    shape: &[usize],
    init: Init,
) -> Tensor<'g> {
    g.state(&format!("{name}.{what}"), Role::Parameter, x.dtype().accumulator(), shape, init)
}

/// The size of the last axis of a float tensor; `None` and a mistake on record where there is none.
#[track_caller]
pub(crate) fn features(x: Tensor<'_>, layer: &str) -> Option<usize> {
    x.value()?;
    let (dtype, shape) = (x.dtype(), x.shape());
    if !dtype.is_float() {
        let what = format!("takes floats, got {dtype}");
        x.mistake(layer, what, format!("cast them to {}, or look them up in an embedding", DType::F32));
        return None;
    }
    let size = shape.0.last().and_then(|d| d.size());
    if size.is_none() {
        let what = format!("the last axis of {shape} is no number, and the parameters' shapes depend on it");
        x.mistake(layer, what, "give x of shape [.., features]");
    }
    size
}
