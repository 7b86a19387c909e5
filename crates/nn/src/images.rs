//! Layers of images: convolutions, and norms over channels.

use crate::WeightInit;
use crate::layers::parameter;
use onestep_ir::{ConvOptions, DType, GraphBuilder, Init, Role, Tensor};

/// The options of [`conv2d_with`]. The default is PyTorch's: steps of 1, no padding, weight and bias uniform in
/// `±1/√(channels/groups · kernel²)`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Conv2d {
    /// How the kernel moves, and groups.
    pub window: ConvOptions,
    /// How the weight starts.
    pub weight: WeightInit,
    /// How the bias starts; `None` for no bias.
    pub bias: Option<WeightInit>,
}

impl Default for Conv2d {
    fn default() -> Conv2d {
        Conv2d { window: ConvOptions::default(), weight: WeightInit::Torch, bias: Some(WeightInit::Torch) }
    }
}

impl Conv2d {
    /// Steps of `stride` and so much padding on every side.
    pub fn moving(stride: usize, padding: usize) -> Conv2d {
        let window = ConvOptions { stride, padding, ..ConvOptions::default() };
        Conv2d { window, ..Conv2d::default() }
    }

    /// Without a bias, as before a norm.
    pub fn no_bias(self) -> Conv2d {
        Conv2d { bias: None, ..self }
    }
}

/// A convolution with square kernels, without padding: PyTorch's `nn.Conv2d` with its default initialisation.
///
/// `x` is `[batch, channels, height, width]` of any float dtype, and the result `[batch, outputs, ..]` of that dtype.
/// Parameters: `<name>.weight`, `[outputs, channels, kernel, kernel]`, and `<name>.bias`, `[outputs]`.
#[track_caller]
pub fn conv2d<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    outputs: usize,
    kernel: usize,
) -> Tensor<'g> {
    conv2d_with(g, name, x, outputs, kernel, Conv2d::default())
}

/// [`conv2d`] with steps, padding, groups or another initialisation, or without a bias. The weight is
/// `[outputs, channels/groups, kernel, kernel]`.
#[track_caller]
pub fn conv2d_with<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    outputs: usize,
    kernel: usize,
    options: Conv2d,
) -> Tensor<'g> {
    let Some(channels) = channels(x, "conv2d", 4) else { return x.poison() };
    let groups = options.window.groups;
    if groups == 0 || !channels.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
        let what = format!("{channels} channels and {outputs} outputs do not divide into {groups} groups");
        return x.mistake("conv2d", what, "use a number of groups that divides both");
    }
    let area = kernel.saturating_mul(kernel);
    let (inputs, fan_out) = ((channels / groups).saturating_mul(area), outputs.saturating_mul(area));
    let shape = [outputs, channels / groups, kernel, kernel];
    let weight = parameter(g, name, "weight", x, &shape, options.weight.init(inputs, fan_out));
    let y = x.conv2d(weight.cast(x.dtype()), options.window);
    match options.bias {
        None => y,
        Some(bias) => {
            let bias = parameter(g, name, "bias", x, &[outputs], bias.init(inputs, fan_out));
            y + bias.cast(x.dtype()).reshape([outputs, 1, 1])
        }
    }
}

/// The options of [`batch_norm`]. The default is PyTorch's, in training: `eps` 1e-5, and running values that move by a
/// tenth of the way with each batch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f64,
    /// How far the running values move towards each batch's; `None` for their average over all batches so far, whose number
    /// is then the buffer `<name>.num_batches_tracked`.
    pub momentum: Option<f64>,
    /// Whether a batch is scaled by its own statistics, which then move the running ones; otherwise by the running ones.
    pub training: bool,
}

impl Default for BatchNorm {
    fn default() -> BatchNorm {
        BatchNorm { eps: 1e-5, momentum: Some(0.1), training: true }
    }
}

impl BatchNorm {
    /// The norm of a graph that evaluates.
    pub const EVAL: BatchNorm = BatchNorm { eps: 1e-5, momentum: Some(0.1), training: false };
}

/// Each channel scaled to mean 0 and variance 1 over batch and places: PyTorch's `nn.BatchNorm2d` and its like (Ioffe and
/// Szegedy, "Batch normalization", 2015).
///
/// `x` is `[batch, channels, ..]` of any float dtype; the result has its type. Parameters: `<name>.weight`, `[channels]`,
/// ones, and `<name>.bias`, zeros. Buffers: `<name>.running_mean`, zeros, and `<name>.running_var`, ones, which in
/// training move with every call whose updates are committed; as in PyTorch, a batch is scaled by its biased variance,
/// and the unbiased one moves the running value.
#[track_caller]
pub fn batch_norm<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, options: BatchNorm) -> Tensor<'g> {
    let Some(channels) = channels(x, "batch_norm", 0) else { return x.poison() };
    let weight = parameter(g, name, "weight", x, &[channels], Init::ONES);
    let bias = parameter(g, name, "bias", x, &[channels], Init::ZEROS);
    let acc = x.dtype().accumulator();
    let buffer = |what: &str, init| g.state(&format!("{name}.{what}"), Role::Buffer, acc, &[channels], init);
    let (running_mean, running_var) =
        (buffer("running_mean", Init::ZEROS), buffer("running_var", Init::ONES));
    let BatchNorm { eps, momentum, training } = options;
    if !training {
        return x.batch_norm_by(running_mean, running_var, weight, bias, eps);
    }
    let (y, mean, variance) = x.batch_norm(weight, bias, eps);
    let count = elements(x, acc);
    let unbiased = variance * (count / (count - 1.0).maximum(1.0));
    let momentum = match momentum {
        Some(momentum) => g.scalar(acc, momentum),
        None => {
            let path = format!("{name}.num_batches_tracked");
            let batches = g.state(&path, Role::Buffer, DType::I64, &[], Init::ZEROS);
            let with_this = batches + 1.0;
            g.update(batches, with_this, true);
            1.0 / with_this.cast(acc)
        }
    };
    g.update(running_mean, running_mean * (1.0 - momentum) + mean * momentum, true);
    g.update(running_var, running_var * (1.0 - momentum) + unbiased * momentum, true);
    y
}

/// The number of elements of a channel, as a scalar: the batch may be a variable.
#[track_caller]
fn elements(x: Tensor<'_>, dtype: DType) -> Tensor<'_> {
    let shape = x.shape().without(&[1]);
    match shape.sizes() {
        Some(sizes) => x.graph().scalar(dtype, sizes.iter().product::<usize>() as f64),
        None => x.graph().full(dtype, shape, 1.0).sum_all(),
    }
}

/// Groups of each example's channels scaled to mean 0 and variance 1: PyTorch's `nn.GroupNorm`, whose `eps` is 1e-5 (Wu and
/// He, "Group normalization", 2018).
///
/// `x` is `[batch, channels, ..]` of any float dtype; the result has its type. Parameters: `<name>.weight`, `[channels]`,
/// ones, and `<name>.bias`, zeros.
#[track_caller]
pub fn group_norm<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, groups: usize, eps: f64) -> Tensor<'g> {
    let Some(channels) = channels(x, "group_norm", 0) else { return x.poison() };
    let weight = parameter(g, name, "weight", x, &[channels], Init::ONES);
    let bias = parameter(g, name, "bias", x, &[channels], Init::ZEROS);
    x.group_norm(groups, weight, bias, eps)
}

/// Each example's channels scaled to mean 0 and variance 1: PyTorch's `nn.InstanceNorm2d` and its like with `affine`, whose
/// `eps` is 1e-5 (Ulyanov, Vedaldi and Lempitsky, "Instance normalization", 2016).
///
/// `x` is `[batch, channels, ..]` of any float dtype; the result has its type. Parameters: `<name>.weight`, `[channels]`,
/// ones, and `<name>.bias`, zeros.
#[track_caller]
pub fn instance_norm<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>, eps: f64) -> Tensor<'g> {
    let Some(channels) = channels(x, "instance_norm", 0) else { return x.poison() };
    group_norm(g, name, x, channels, eps)
}

/// The number of channels, axis 1, of a tensor of floats of this rank (0: any); `None` and a mistake on record where there
/// is none.
#[track_caller]
fn channels(x: Tensor<'_>, layer: &str, rank: usize) -> Option<usize> {
    let ty = x.ty()?;
    let size = ty.shape.0.get(1).and_then(|d| d.size());
    if size.is_none() || !ty.dtype.is_float() || (rank > 0 && ty.shape.rank() != rank) {
        x.mistake(layer, format!("takes floats with an axis of channels, got {ty}"), {
            if rank == 4 {
                "give x as [batch, channels, height, width]"
            } else {
                "give x as [batch, channels, ..]"
            }
        });
        return None;
    }
    size
}
