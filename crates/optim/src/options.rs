//! How a training step is built besides its rule.

use crate::{Average, Clip, Combine, Group, LayoutRole, LossScale, Schedule, Storage};

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
    /// Scales the loss so that small gradients do not vanish in `f16`; the scale of the call becomes the output
    /// `loss_scale`, and whether the call was refused the output `skipped` (`i32`, 0 or 1).
    pub loss_scale: Option<LossScale>,
    /// Sums gradients over this many calls before a step is taken.
    pub accumulate: Option<u32>,
    /// How those calls are combined.
    pub combine: Combine,
    /// In which dtype [`training_step`](crate::training_step) keeps the trained parameters between steps.
    pub parameters: Storage,
    /// In which dtype it keeps their slots.
    pub slots: Storage,
    /// Keeps averages of the trained parameters.
    pub average: Option<Average>,
}

impl StepOptions {
    /// In which dtype a new value of this role is kept.
    pub(crate) fn storage(&self, role: LayoutRole) -> Storage {
        match role {
            LayoutRole::Parameter => self.parameters,
            LayoutRole::Slot => self.slots,
            _ => Storage::Exact,
        }
    }
}
