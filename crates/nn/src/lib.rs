//! Layers and models: functions that declare parameters and give tensors, written only with the public builder of
//! `onestep-ir`. They stand before everything else: what they build is a plain graph.
//!
//! Every function takes the graph and a name. Its parameters are state at `<name>.weight`, `<name>.bias` and so on, below
//! the builder's current scope, in PyTorch's layouts, so that a PyTorch checkpoint with these names loads unchanged.
//! Parameters are `f32`, or `f64` where the input is `f64`; for an `f16` or `bf16` input they are cast on the way. A
//! mistake is recorded with the caller's line and gives a poisoned handle, as the builder's own do.
//!
//! ```
//! use onestep_ir::{DType, GraphBuilder, dim};
//! use onestep_nn as nn;
//!
//! let g = GraphBuilder::new("mlp");
//! let x = g.input("x", DType::F32, (dim("B").at_most(512), 784));
//! let y = g.input("y", DType::I32, [dim("B")]);
//! let hidden = nn::linear(&g, "fc1", x, 256).relu();
//! let logits = nn::linear(&g, "fc2", hidden, 10);
//! let graph = g.finish(logits.cross_entropy(y))?;
//! let paths: Vec<&str> = graph.states.iter().map(|s| &*s.name).collect();
//! assert_eq!(paths, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
//! # Ok::<(), onestep_ir::GraphError>(())
//! ```
//!
//! A stack of equal layers that [`onestep_ir::GraphBuilder::repeat`] builds is compiled once, however deep; each parameter
//! has a leading axis for the layers. Its gradient keeps the input of each layer and computes the rest again.
//!
//! ```
//! # use onestep_ir::{DType, GraphBuilder};
//! # use onestep_nn as nn;
//! # let g = GraphBuilder::new("deep");
//! let x = g.input("x", DType::F32, [8, 16, 64]);
//! let y = g.repeat(24, x, |x, _| nn::transformer_block(&g, "block", x, nn::Block::new(64, 4)));
//! # g.output("y", y);
//! let graph = g.build()?;
//! let weight = graph.state("block.mlp.up.weight").unwrap();
//! assert_eq!(graph.ty(weight.value).to_string(), "f32[24, 256, 64]");
//! # Ok::<(), onestep_ir::GraphError>(())
//! ```

mod activation;
mod attention;
mod bert;
mod cache;
mod cnn;
mod dropout;
mod gpt;
mod images;
mod init;
mod layers;
mod llama;
mod mlp;
mod recurrent;
mod resnet;
mod transformer;

pub use activation::Activation;
pub use attention::attention;
pub use bert::Bert;
pub use cnn::Cnn;
pub use dropout::{alpha_dropout, alpha_dropout_channels, dropout, dropout_channels, stochastic_depth};
pub use gpt::{Gpt, GptInit};
pub use images::{BatchNorm, Conv2d, batch_norm, conv2d, conv2d_with, group_norm, instance_norm};
pub use init::{Fan, Spread, WeightInit};
pub use layers::{
    LinearOptions, embedding, embedding_with, layer_norm, linear, linear_no_bias, linear_with, rms_norm,
};
pub use llama::Llama;
pub use mlp::{mlp, mlp_classifier};
pub use recurrent::{Cell, Recurred, Recurrent, RecurrentState};
pub use resnet::{ResNet, ResidualBlock, basic_block, bottleneck_block};
pub use transformer::{Block, Mlp, Norm, NormOrder, encoder_block, transformer_block};
