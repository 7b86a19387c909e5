//! How a training step is built besides its rule.

use crate::{Clip, Group, Schedule};

/// What happens to a parameter that the loss does not depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnusedParameter {
    /// The step is not built, and the error names the parameter.
    #[default]
    Error,
    /// Its gradient is zero, as PyTorch's zero-filled `grad`: it does not move by the loss, but weight decay and what
    /// is left in its momentum still apply.
    Zero,
}

/// How a step is built besides its rule.
#[derive(Clone, Debug, Default)]
pub struct StepOptions {
    /// Clips the gradients; their norm before it becomes the output `grad_norm`.
    pub clip: Option<Clip>,
    /// The course of the learning rate.
    pub schedule: Schedule,
    /// Parameters with numbers or a rule of their own, or frozen; the first group that fits takes a parameter.
    pub groups: Vec<Group>,
    /// What happens to a parameter that the loss does not depend on.
    pub unused: UnusedParameter,
}
