//! Residual networks (He and others, "Deep residual learning for image recognition", 2015), with torchvision's names, so
//! that its checkpoints load unchanged.

use crate::{BatchNorm, Conv2d, Fan, Spread, WeightInit, batch_norm, conv2d_with, linear};
use onestep_ir::ops::Window;
use onestep_ir::{GraphBuilder, Tensor};

/// A convolution as residual networks have them: without a bias, and normal with variance `2/outputs` at first.
fn convolution(stride: usize, padding: usize) -> Conv2d {
    let weight = WeightInit::kaiming(Spread::Normal, Fan::Out);
    Conv2d { weight, ..Conv2d::moving(stride, padding).no_bias() }
}

/// What goes around a block: `x`, or, where the shapes differ, a convolution of 1×1 and a norm.
#[track_caller]
fn shortcut<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    outputs: usize,
    stride: usize,
    norm: BatchNorm,
) -> Tensor<'g> {
    if stride == 1 && x.shape().0.get(1).and_then(|d| d.size()) == Some(outputs) {
        return x;
    }
    let s = conv2d_with(g, &format!("{name}.downsample.0"), x, outputs, 1, convolution(stride, 0));
    batch_norm(g, &format!("{name}.downsample.1"), s, norm)
}

/// The basic block of a residual network:
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
    let y = conv2d_with(g, &at("conv1"), x, outputs, 3, convolution(stride, 1));
    let y = batch_norm(g, &at("bn1"), y, norm).relu();
    let y = conv2d_with(g, &at("conv2"), y, outputs, 3, convolution(1, 1));
    let y = batch_norm(g, &at("bn2"), y, norm);
    (y + shortcut(g, name, x, outputs, stride, norm)).relu()
}

/// The bottleneck block of a deep residual network: convolutions of 1×1 to a quarter of the outputs, 3×3 with steps of
/// `stride`, and 1×1 back, each with a norm and ReLU, the last ReLU behind the sum with the shortcut. The steps are those of
/// the 3×3, as in torchvision, and not of the first, as in the paper.
///
/// `x` is `[batch, channels, height, width]`; the result `[batch, outputs, ..]` of its dtype, `outputs` a multiple of 4.
/// Parameters and buffers as in [`basic_block`], with `<name>.conv3.weight` and `<name>.bn3`.
#[track_caller]
pub fn bottleneck_block<'g>(
    g: &'g GraphBuilder,
    name: &str,
    x: Tensor<'g>,
    outputs: usize,
    stride: usize,
    norm: BatchNorm,
) -> Tensor<'g> {
    if !outputs.is_multiple_of(4) {
        let what = format!("{outputs} outputs have no quarter");
        return x.mistake("bottleneck_block", what, "use a multiple of 4");
    }
    let at = |part: &str| format!("{name}.{part}");
    let y = conv2d_with(g, &at("conv1"), x, outputs / 4, 1, convolution(1, 0));
    let y = batch_norm(g, &at("bn1"), y, norm).relu();
    let y = conv2d_with(g, &at("conv2"), y, outputs / 4, 3, convolution(stride, 1));
    let y = batch_norm(g, &at("bn2"), y, norm).relu();
    let y = conv2d_with(g, &at("conv3"), y, outputs, 1, convolution(1, 0));
    let y = batch_norm(g, &at("bn3"), y, norm);
    (y + shortcut(g, name, x, outputs, stride, norm)).relu()
}

/// The block of a [`ResNet`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResidualBlock {
    /// [`basic_block`], of 64 outputs in the first stage.
    Basic,
    /// [`bottleneck_block`], of 256 outputs in the first stage.
    Bottleneck,
}

/// A residual network for photographs: a convolution of 7×7 and a maximum of 3×3, both in steps of 2, four stages of blocks,
/// each but the first halving the sides and doubling the channels, the mean over all places, and a linear layer.
///
/// Parameters and buffers are named as in torchvision: `conv1.weight`, `bn1`, `layer<1 to 4>.<i>` with the parts of
/// [`basic_block`] or [`bottleneck_block`], and `fc.{weight,bias}`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResNet {
    /// The block.
    pub block: ResidualBlock,
    /// Blocks of each stage.
    pub stages: [usize; 4],
    /// Classes.
    pub classes: usize,
}

impl ResNet {
    /// 18 layers: 11,689,512 parameters for ImageNet's 1,000 classes.
    pub const RESNET_18: ResNet = ResNet { block: ResidualBlock::Basic, stages: [2, 2, 2, 2], classes: 1000 };
    /// 34 layers: 21,797,672 parameters.
    pub const RESNET_34: ResNet = ResNet { stages: [3, 4, 6, 3], ..ResNet::RESNET_18 };
    /// 50 layers: 25,557,032 parameters.
    pub const RESNET_50: ResNet = ResNet { block: ResidualBlock::Bottleneck, ..ResNet::RESNET_34 };
    /// 101 layers: 44,549,160 parameters.
    pub const RESNET_101: ResNet = ResNet { stages: [3, 4, 23, 3], ..ResNet::RESNET_50 };

    /// The logits, `[batch, classes]`, of images `[batch, colours, height, width]` of any float dtype; height and width are 1
    /// at least, and 224 as a rule.
    #[track_caller]
    pub fn build<'g>(&self, g: &'g GraphBuilder, x: Tensor<'g>, norm: BatchNorm) -> Tensor<'g> {
        let y = conv2d_with(g, "conv1", x, 64, 7, convolution(2, 3));
        let y = batch_norm(g, "bn1", y, norm).relu();
        let window =
            Window { stride: vec![2, 2], low: vec![1, 1], high: vec![1, 1], ..Window::tiles(&[2, 2]) };
        let mut y = y.max_pool(&[3, 3], window);
        for (stage, &blocks) in self.stages.iter().enumerate() {
            for i in 0..blocks {
                let name = format!("layer{}.{i}", stage + 1);
                let stride = if stage > 0 && i == 0 { 2 } else { 1 };
                y = match self.block {
                    ResidualBlock::Basic => basic_block(g, &name, y, 64 << stage, stride, norm),
                    ResidualBlock::Bottleneck => bottleneck_block(g, &name, y, 256 << stage, stride, norm),
                };
            }
        }
        linear(g, "fc", y.mean_over(&[2, 3]), self.classes)
    }
}
