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

mod activation;
mod attention;
mod cnn;
mod decode;
mod dropout;
mod gpt;
mod images;
mod init;
mod layers;
mod mlp;

pub use activation::Activation;
pub use attention::{Block, attention, transformer_block};
pub use cnn::{Cnn, basic_block};
pub use dropout::{alpha_dropout, alpha_dropout_channels, dropout, dropout_channels, stochastic_depth};
pub use gpt::{Gpt, GptInit};
pub use images::{BatchNorm, Conv2d, batch_norm, conv2d, conv2d_with, group_norm, instance_norm};
pub use init::WeightInit;
pub use layers::{
    LinearOptions, embedding, embedding_with, layer_norm, linear, linear_no_bias, linear_with, rms_norm,
};
pub use mlp::{mlp, mlp_classifier};
