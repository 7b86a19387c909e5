//! A small network of convolutions.

use crate::{conv2d, linear};
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
