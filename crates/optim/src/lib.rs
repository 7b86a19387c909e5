//! Optimizers as graph builders: a training step is the forward graph, its gradients and an update rule in one
//! graph, whose parameters, slots and counters are updates of named state.
//!
//! It stands between the automatic differentiation and the passes. Everything numeric is in the graph: the counter,
//! the schedule, the bias corrections, clipping and the decision to skip a step; and every number is a state scalar,
//! so that changing one never compiles again. [`training_step`] puts the whole together; [`with_backward`] stops at
//! the gradients; [`apply_updates`] takes gradients from elsewhere.

mod apply;
mod clip;
mod error;
mod guard;
mod options;
mod rule;
pub mod rules;
mod schedule;
mod step;

pub use apply::{Applied, Trained, apply_updates};
pub use clip::{Clip, global_norm};
pub use error::OptimError;
pub use guard::{all_finite, commit_guard};
pub use options::{StepOptions, UnusedParameter};
pub use rule::{Hyper, RuleContext, SlotSpec, UpdateRule};
pub use rules::{Adam, AdamW, Sgd};
pub use schedule::Schedule;
pub use step::{LayoutEntry, LayoutRole, Params, StepGraph, training_step, with_backward};
