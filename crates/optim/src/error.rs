//! Why a training step cannot be built: typed, and each with its remedy.

use onestep_autodiff::AutodiffError;
use onestep_ir::{DType, GraphError, Type};
use thiserror::Error;

/// A training step that cannot be built.
#[derive(Debug, Error)]
pub enum OptimError {
    /// The graph has no output of this name.
    #[error("the graph has no output '{name}'{}", suggest(.nearest))]
    UnknownLoss {
        /// The name asked for.
        name: String,
        /// The nearest output.
        nearest: Option<String>,
    },
    /// The graph has no output of a name that is to weigh micro-batches or to add up.
    #[error("micro-batches are combined by the output '{name}', which the graph has not{}", suggest(.nearest))]
    UnknownOutput {
        /// The name asked for.
        name: String,
        /// The nearest output.
        nearest: Option<String>,
    },
    /// An output that is no number, so that it cannot weigh micro-batches or add up.
    #[error(
        "the output '{name}' is {ty}; only a scalar number weighs micro-batches or adds up: reduce it with .sum_all()"
    )]
    NotCombined {
        /// The output.
        name: String,
        /// Its type.
        ty: Box<Type>,
    },
    /// The training step keeps no averages.
    #[error("the training step keeps no averages of its parameters; add them with .ema(0.999)")]
    NoAverages,
    /// The loss is not of a float dtype.
    #[error("the loss '{name}' is {ty}; only a float has a gradient: cast it, or choose another output")]
    LossDType {
        /// The output.
        name: String,
        /// Its type.
        ty: Box<Type>,
    },
    /// The loss has several elements.
    #[error(
        "the loss '{name}' is {ty}, not a scalar; reduce it, with .sum_all() or a mean over its elements, to say what is minimised"
    )]
    LossShape {
        /// The output.
        name: String,
        /// Its type.
        ty: Box<Type>,
    },
    /// No update rule was chosen.
    #[error("the training step has no optimizer; add one with .optimizer(AdamW::new(3e-4))")]
    NoOptimizer,
    /// Nothing to train.
    #[error("there is no parameter to train; declare state with the role 'parameter', or name some state")]
    NoParameters,
    /// The graph has no state at this path.
    #[error("the graph has no state '{path}'{}", suggest(.nearest))]
    UnknownParameter {
        /// The path asked for.
        path: String,
        /// The nearest path of a float state.
        nearest: Option<String>,
    },
    /// One parameter was named twice.
    #[error("parameter '{path}' is named twice; name it once")]
    RepeatedParameter {
        /// Its path.
        path: String,
    },
    /// A state that has no gradient.
    #[error("state '{path}' is {dtype}; only float state has a gradient: leave it out of the parameters")]
    NotDifferentiable {
        /// Its path.
        path: String,
        /// Its dtype.
        dtype: DType,
    },
    /// A parameter of a dtype that is not updated directly.
    #[error(
        "parameter '{path}' is {dtype}; only f32 and f64 are updated: declare it in f32, and let the step compute or keep it in 16 bits"
    )]
    ParameterDType {
        /// Its path.
        path: String,
        /// Its dtype.
        dtype: DType,
    },
    /// A gradient that does not have its parameter's type.
    #[error("the gradient of '{path}' is {got}, but the parameter is {want}; reshape or cast it")]
    GradientType {
        /// The parameter's path.
        path: String,
        /// The parameter's type.
        want: Box<Type>,
        /// The gradient's type.
        got: Box<Type>,
    },
    /// The loss does not depend on a parameter.
    #[error(
        "the loss '{loss}' does not depend on parameter '{path}'; leave it out of the parameters (it is then frozen), or ask for UnusedParameter::Zero"
    )]
    UnusedParameter {
        /// The parameter's path.
        path: String,
        /// The loss.
        loss: String,
    },
    /// Dimension variables that have no size yet.
    #[error("dimensions are not bound: {}; bind them before a training step is built", .names.join(", "))]
    Unbound {
        /// The variables.
        names: Vec<String>,
    },
    /// A number out of its range, or options that exclude each other.
    #[error("{owner}: {name} is {value}; {want}")]
    Hyper {
        /// The rule, schedule or clipping.
        owner: &'static str,
        /// The number's name.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What it takes.
        want: &'static str,
    },
    /// A rule that gave another number of new slots than it has slots.
    #[error("rule '{rule}' has {want} slot(s) but its update gave {got}; give one new value for each slot")]
    SlotCount {
        /// The rule.
        rule: &'static str,
        /// How many it declares.
        want: usize,
        /// How many it gave.
        got: usize,
    },
    /// A rule that gave another number of new scalars than it has.
    #[error("rule '{rule}' has {want} scalar(s) but advance() gave {got}; give one new value for each")]
    ScalarCount {
        /// The rule.
        rule: &'static str,
        /// How many it declares.
        want: usize,
        /// How many it gave.
        got: usize,
    },
    /// A group's name that is no part of a path.
    #[error(
        "parameter group '{group}': the name is part of its state's paths; use one without '/' that is not empty"
    )]
    GroupName {
        /// The name.
        group: String,
    },
    /// Two groups of one name.
    #[error("two parameter groups are named '{group}'; give each a name of its own")]
    RepeatedGroup {
        /// The name.
        group: String,
    },
    /// A group without a pattern.
    #[error("parameter group '{group}' has no pattern; say which parameters it takes, such as '*.bias'")]
    GroupWithoutPattern {
        /// The name.
        group: String,
    },
    /// A pattern that takes no parameter.
    #[error("parameter group '{group}': '{pattern}' {}", takes_nothing(.earlier, .nearest))]
    PatternTakesNothing {
        /// The group.
        group: String,
        /// The pattern.
        pattern: String,
        /// The group before it that has taken what fits, if anything does.
        earlier: Option<String>,
        /// The nearest path of a trained parameter.
        nearest: Option<String>,
    },
    /// A number out of its range.
    #[error(
        "parameter group '{group}': {number} is {value}; use a finite number, and 0 or above for a rate or a decay"
    )]
    GroupNumber {
        /// The group.
        group: String,
        /// The number's name.
        number: String,
        /// What was given.
        value: f64,
    },
    /// A number that no rule of the group's parameters has.
    #[error("parameter group '{group}': its rule has no number '{number}'{}", suggest(.nearest))]
    UnknownNumber {
        /// The group.
        group: String,
        /// The number's name.
        number: String,
        /// The nearest name.
        nearest: Option<String>,
    },
    /// The loss cannot be differentiated.
    #[error(transparent)]
    Autodiff(#[from] AutodiffError),
    /// The graph has mistakes, such as a name that is taken.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

fn suggest(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!("; did you mean '{n}'?")).unwrap_or_default()
}

fn takes_nothing(earlier: &Option<String>, nearest: &Option<String>) -> String {
    match earlier {
        Some(group) => {
            format!("fits only what group '{group}' before it has taken; put the narrower group first")
        }
        None => format!("fits no trained parameter{}", suggest(nearest)),
    }
}

/// Refuses a number that `fits` does not hold for.
pub(crate) fn check(
    owner: &'static str,
    name: &'static str,
    value: f64,
    fits: impl Fn(f64) -> bool,
    want: &'static str,
) -> Result<(), OptimError> {
    if fits(value) { Ok(()) } else { Err(OptimError::Hyper { owner, name, value, want }) }
}

/// Refuses a number that is negative or not finite.
pub(crate) fn check_non_negative(
    owner: &'static str,
    name: &'static str,
    value: f64,
) -> Result<(), OptimError> {
    check(owner, name, value, |x| x >= 0.0 && x.is_finite(), "use a finite number, 0 or above")
}
