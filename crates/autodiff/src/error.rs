//! What can be wrong with a request for gradients, each with its remedy.

use onestep_ir::{GraphError, Mistake, Type};
use thiserror::Error;

/// Why there is no gradient.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum AutodiffError {
    /// The loss has more than one element, or axes.
    #[error(
        "the loss is {ty}, not a scalar; reduce it with .mean() or .sum_all() first, or give a cotangent to vjp()"
    )]
    NotScalar {
        /// The loss's type.
        ty: Box<Type>,
    },
    /// Only floats have gradients.
    #[error("{what} is {ty}; only floats have gradients: cast it to f32 before it is used")]
    NotFloat {
        /// The value.
        what: String,
        /// Its type.
        ty: Box<Type>,
    },
    /// The cotangent of an output has another type than the output.
    #[error("output {index} is {want} but its cotangent is {got}; reshape or cast the cotangent")]
    Cotangent {
        /// Which output.
        index: usize,
        /// The output's type.
        want: Box<Type>,
        /// The cotangent's type.
        got: Box<Type>,
    },
    /// The tangent of an input has another type than the input.
    #[error("input {index} is {want} but its tangent is {got}; reshape or cast the tangent")]
    Tangent {
        /// Which input.
        index: usize,
        /// The input's type.
        want: Box<Type>,
        /// The tangent's type.
        got: Box<Type>,
    },
    /// The way from an input to an output leads through an op that has no forward derivative.
    #[error("'{op}' at {loc} has no forward derivative: it has neither a rule nor a decomposition")]
    NoTangent {
        /// The op.
        op: String,
        /// The source line that built it.
        loc: String,
    },
    /// The way from the loss to a parameter leads through an op that has no gradient.
    #[error(
        "'{op}' at {loc} has no gradient ({reason}), and the way from the loss to {parameter} leads through it"
    )]
    NoGradient {
        /// The op.
        op: String,
        /// The source line that built it.
        loc: String,
        /// Why it has none.
        reason: String,
        /// The parameter that needs it.
        parameter: String,
    },
    /// A user's op gave cotangents that do not fit its operands.
    #[error("'{op}' at {loc}: {mistake}")]
    WrongGradient {
        /// The op.
        op: String,
        /// The source line that built it.
        loc: String,
        /// What does not fit.
        mistake: Mistake,
    },
    /// A dimension on the path is still a variable.
    #[error("'{op}' at {loc} gives {ty}: bind the dimension variables before differentiating")]
    Unbound {
        /// The op.
        op: String,
        /// The source line that built it.
        loc: String,
        /// Its result.
        ty: Box<Type>,
    },
    /// A value of another builder's graph.
    #[error("{what} belongs to another graph; build all of one graph with one builder")]
    Foreign {
        /// The value.
        what: String,
    },
    /// The graph has mistakes on record, from before or from a rule that did not fit.
    #[error(transparent)]
    Graph(#[from] GraphError),
}
