//! Optimizers as graph builders: a training step is the forward graph, its gradients and an update rule in one
//! graph, whose parameters, slots and counters are updates of named state.
//!
//! It stands between the automatic differentiation and the passes. Everything numeric is in the graph: the counter,
//! the schedule, the bias corrections, clipping and the decision to skip a step; and every number is a state scalar,
//! so that changing one never compiles again. [`training_step`] puts the whole together; [`with_backward`] stops at
//! the gradients; [`apply_updates`] takes gradients from elsewhere. Around the rule stand loss scaling ([`LossScale`]),
//! micro-batches over several calls ([`StepOptions::accumulate`]) or within one ([`micro_batches`]), and averages of the
//! parameters ([`Average`]).
//!
//! ```
//! use onestep_ir::{DType, GraphBuilder, Init};
//! use onestep_optim::{AdamW, Clip, Params, StepOptions, training_step};
//!
//! let g = GraphBuilder::new("line");
//! let (x, y) = (g.input("x", DType::F32, [8]), g.input("y", DType::F32, [8]));
//! let w = g.parameter("w", &[1], Init::ZEROS);
//! let forward = g.finish((x * w - y).square().sum_all())?;
//!
//! let options = StepOptions { clip: Some(Clip::GlobalNorm(1.0)), ..StepOptions::default() };
//! let step = training_step(&forward, "loss", Params::All, &AdamW::new(3e-4), &options)?;
//! let names: Vec<&str> = step.layout.iter().map(|entry| entry.name.as_str()).collect();
//! assert_eq!(names, ["loss", "w", "opt/w/m", "opt/w/v", "grad_norm"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accumulate;
mod apply;
mod average;
mod clip;
mod combine;
mod error;
mod group;
mod guard;
mod lbfgs;
mod loss_scale;
mod micro_batches;
mod options;
mod part;
mod rule;
pub mod rules;
mod schedule;
mod step;
mod storage;

pub use apply::{Applied, Trained, apply_updates};
pub use average::{Average, Warmup, averaged};
pub use clip::{Clip, global_norm};
pub use combine::Combine;
pub use error::OptimError;
pub use group::Group;
pub use guard::{all_finite, commit_guard};
pub use lbfgs::Lbfgs;
pub use loss_scale::LossScale;
pub use micro_batches::micro_batches;
pub use options::{StepOptions, UnusedParameter};
pub use rule::{Hyper, RuleContext, SlotSpec, UpdateRule};
pub use rules::{
    Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Asgd, Lamb, Lion, Muon, MuonRate, Nadam, Radam,
    RmsProp, Rprop, Sgd, SparseAdam,
};
pub use schedule::Schedule;
pub use step::{LayoutEntry, LayoutRole, Params, StepGraph, training_step, with_backward};
pub use storage::{Storage, stored};
