//! Networks of convolutions: a small classifier, and the basic block of a residual network.

use crate::{BatchNorm, Conv2d, batch_norm, conv2d, conv2d_with, linear};
use onestep_ir::ops::Window;
use onestep_ir::{Dim, GraphBuilder, Shape, Tensor};

/// A small classifier of images: two convolutions of 3×3 without padding, each with ReLU, a 2×2 maximum, a linear layer
/// with ReLU, and logits. The usual first network for 28×28 pixels.
///
/// | parameter | shape |
/// |---|---|
/// | `conv1.{weight,bias}` | `[channels[0], inputs, 3, 3]`, `[channels[0]]` |
/// | `conv2.{weight,bias}` | `[channels[1], channels[0], 3, 3]`, `[channels[1]]` |
/// | `fc1.{weight,bias}` | `[hidden, features]`, `[hidden]` |
/// | `fc2.{weight,bias}` | `[classes, hidden]`, `[classes]` |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cnn {
    /// Outputs of the two convolutions.
    pub channels: [usize; 2],
    /// Features before the logits.
    pub hidden: usize,
    /// Classes.
    pub classes: usize,
}

impl Cnn {
    /// The benchmark's network: 32 and 64 channels, 128 features, ten classes.
    pub const SMALL: Cnn = Cnn { channels: [32, 64], hidden: 128, classes: 10 };

    /// The logits, `[batch, classes]`, of `[batch, inputs, height, width]` of any float dtype; height and width are 6 at
    /// least.
    #[track_caller]
    pub fn build<'g>(&self, g: &'g GraphBuilder, x: Tensor<'g>) -> Tensor<'g> {
        let Cnn { channels: [first, second], hidden, classes } = *self;
        let y = conv2d(g, "conv1", x, first, 3).relu();
        let y = conv2d(g, "conv2", y, second, 3).relu();
        let y = y.max_pool(&[2, 2], Window::tiles(&[2, 2]));
        let y = linear(g, "fc1", flat(y), hidden).relu();
        linear(g, "fc2", y, classes)
    }
}

/// Each example as one row.
#[track_caller]
fn flat(x: Tensor<'_>) -> Tensor<'_> {
    let dims = x.shape().0;
    let features = dims.iter().skip(1).try_fold(Dim::fixed(1), |n, d| n.times(d));
    match (dims.first(), features) {
        (Some(batch), Some(features)) => x.reshape(Shape(vec![batch.clone(), features])),
        _ => x,
    }
}

/// The basic block of a residual network (He and others, "Deep residual learning for image recognition", 2015):
/// `relu(norm2(conv2(relu(norm1(conv1(x))))) + shortcut)`, convolutions of 3×3, the first with steps of `stride`. The
/// shortcut is `x`, or, where the shapes differ, a convolution of 1×1 and a norm.
///
/// `x` is `[batch, channels, height, width]`; the result `[batch, outputs, ..]` of its dtype. Parameters and buffers, named
/// as in torchvision: `<name>.conv1.weight`, `<name>.bn1`, `<name>.conv2.weight`, `<name>.bn2`, and for the shortcut
/// `<name>.downsample.0.weight`, `<name>.downsample.1`; the norms are those of [`batch_norm`].
#[track_caller]
pub fn basic_block<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    outputs: usize,
    stride: usize,
    norm: BatchNorm,
) -> Tensor<'g> {
    let at = |part: &str| format!("{name}.{part}");
    let y = conv2d_with(g, &at("conv1"), x, outputs, 3, Conv2d::moving(stride, 1).no_bias());
    let y = batch_norm(g, &at("bn1"), y, norm).relu();
    let y = conv2d_with(g, &at("conv2"), y, outputs, 3, Conv2d::moving(1, 1).no_bias());
    let y = batch_norm(g, &at("bn2"), y, norm);
    let same = stride == 1 && x.shape().0.get(1).and_then(|d| d.size()) == Some(outputs);
    let shortcut = if same {
        x
    } else {
        let s = conv2d_with(g, &at("downsample.0"), x, outputs, 1, Conv2d::moving(stride, 0).no_bias());
        batch_norm(g, &at("downsample.1"), s, norm)
    };
    (y + shortcut).relu()
}
