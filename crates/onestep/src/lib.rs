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

mod lbfgs;
mod population;
mod recompute;
mod step;

pub use onestep_autodiff as autodiff;
pub use onestep_io as io;
pub use onestep_ir as ir;
pub use onestep_nn as nn;

pub use onestep_optim as optim;
pub use onestep_passes as passes;

pub use onestep_runtime::debug;

pub use lbfgs::{LbfgsStep, compile_lbfgs};
pub use onestep_autodiff::{Names, Over, gradients, hvp, jvp, vjp, vmap};
pub use onestep_ir::{Array, DType, Dim, Element, Graph, GraphBuilder, Init, Role, Shape, Tensor, dim};
pub use onestep_optim::{
    Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Asgd, Average, Clip, Group, Lamb, LayoutEntry,
    LayoutRole, Lbfgs, Lion, LossScale, Muon, MuonRate, Nadam, Params, Radam, RmsProp, Rprop, Schedule, Sgd,
    SparseAdam, Storage, UnusedParameter, UpdateRule, Warmup,
};
pub use onestep_passes::precision::{Precision, precision};
pub use onestep_passes::store::store;
pub use onestep_runtime::{
    Binding, Bound, CompileEvent, Device, Error, Executable, Feeds, LaunchReport, Memory, Options, Outputs,
    Program, Remedy, Report, State, Traffic, ValueDigest,
};
pub use population::{CompiledPopulation, Population, PopulationError};
pub use recompute::Recompute;
pub use step::{CompiledStep, TrainingStep, compile, compile_training_step, compile_with_backward};

/// What parts of one's own are written with: update rules, ops and passes. [`UpdateRule`],
/// [`CustomOp`](extend::CustomOp) and [`TrainingStep::pass`] are where each begins.
pub mod extend {
    pub use onestep_ir::op::{Range, Sample};
    pub use onestep_ir::ops::{Backward, CpuKernel, Custom, CustomOp, CustomOps};
    pub use onestep_ir::rewrite::rewrite;
    pub use onestep_ir::{
        Attr, AttrReader, Attrs, Data, Dense, GraphError, Init, Loc, Mistake, Node, Op, Real, Shape, Type,
        ops,
    };
    pub use onestep_optim::{Hyper, OptimError, RuleContext, SlotSpec, UpdateRule};
    pub use onestep_passes::CompileError;
    pub use onestep_passes::user::{Stage, UserPass};
}

/// What a program that builds, trains and runs models needs.
pub mod prelude {
    pub use crate::{
        Adam, AdamW, Array, CompiledStep, Device, Error, Graph, GraphBuilder, Group, Init, Muon, Outputs,
        Precision, Program, Role, Schedule, Sgd, State, Storage, Tensor, TrainingStep, compile, dim, nn,
    };
    pub use onestep_ir::DType::{self, BF16, Bool, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, I64, U8, U32};
}

/// The code blocks of the README and of the concept pages compile and run.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/graph.md")]
    struct GraphPage;
    #[doc = include_str!("../../../docs/precision.md")]
    struct PrecisionPage;
    #[doc = include_str!("../../../docs/optimizers.md")]
    struct OptimizersPage;
    #[doc = include_str!("../../../docs/state.md")]
    struct StatePage;
    #[doc = include_str!("../../../docs/memory.md")]
    struct MemoryPage;
    #[doc = include_str!("../../../docs/transformations.md")]
    struct TransformationsPage;
    #[doc = include_str!("../../../docs/checkpoints.md")]
    struct CheckpointsPage;
    #[doc = include_str!("../../../docs/extending.md")]
    struct ExtendingPage;
}
