//! **Onestep** compiles a whole training step (forward, loss, backward, clipping, optimizer) into one executable.
//! Parameters, optimizer slots, counters and random keys stay on the device as named state and are updated in place; a
//! step is one dispatch.
//!
//! ```
//! use onestep::prelude::*;
//!
//! let g = GraphBuilder::new("mlp");
//! let x = g.input("x", F32, (dim("B").at_most(512), 784));
//! let y = g.input("y", I32, (dim("B").at_most(512),));
//! let hidden = nn::linear(&g, "fc1", x, 256).relu();
//! let logits = nn::linear(&g, "fc2", hidden, 10);
//! let loss = logits.cross_entropy(y);
//! let accuracy = logits.argmax(-1).equals(y).mean();
//!
//! let mut step = TrainingStep::new(g.finish(loss)?)
//!     .metric("accuracy", accuracy)
//!     .optimizer(AdamW::new(3e-4).weight_decay(0.1))
//!     .clip_global_norm(1.0)
//!     .compile(&Device::cpu()?)?; // forward + loss + backward + update: one executable
//!
//! let mut state = step.init(42)?; // named, on the device
//! let (xb, yb) = (Array::new(&[32, 784], &vec![0.5f32; 32 * 784])?, Array::new(&[32], &[3i32; 32])?);
//! for _ in 0..3 {
//!     let out = step.run(&mut state, [&xb, &yb])?; // one dispatch; binds at the first call
//!     println!("{} {}", out.loss()?, out.scalar("accuracy")?);
//! }
//! # Ok::<(), onestep::Error>(())
//! ```
//!
//! A graph is built with [`GraphBuilder`] and [`Tensor`] handles; [`nn`] holds layers. [`TrainingStep`] makes a training
//! step of it, [`compile`] an inference program, [`compile_with_backward`] a program whose gradients stay resident. All of
//! them run on a [`State`], which any number of programs share.

mod step;

pub use onestep_autodiff as autodiff;
pub use onestep_io as io;
pub use onestep_ir as ir;
pub use onestep_nn as nn;

pub use onestep_optim as optim;
pub use onestep_passes as passes;

pub use onestep_runtime::debug;

pub use onestep_ir::{Array, DType, Dim, Element, Graph, GraphBuilder, Init, Role, Shape, Tensor, dim};
pub use onestep_optim::{
    Adam, AdamW, Clip, LayoutEntry, LayoutRole, Params, Schedule, Sgd, UnusedParameter, UpdateRule,
};
pub use onestep_runtime::{
    Binding, Bound, CompileEvent, Device, Error, Executable, Feeds, Options, Outputs, Program, Report, State,
    Traffic, ValueDigest,
};
pub use step::{CompiledStep, TrainingStep, compile, compile_training_step, compile_with_backward};

/// What a program that builds, trains and runs models needs.
pub mod prelude {
    pub use crate::{
        Adam, AdamW, Array, CompiledStep, Device, Error, Graph, GraphBuilder, Init, Outputs, Program, Role,
        Schedule, Sgd, State, Tensor, TrainingStep, compile, dim, nn,
    };
    pub use onestep_ir::DType::{self, BF16, Bool, F16, F32, F64, I8, I32, I64, U8, U32};
}

/// The code blocks of the README and of the concept pages compile and run.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/graph.md")]
    struct GraphPage;
    #[doc = include_str!("../../../docs/state.md")]
    struct StatePage;
    #[doc = include_str!("../../../docs/checkpoints.md")]
    struct CheckpointsPage;
}
