//! What can be wrong with a request for a graph of several members, each with its remedy.

use onestep_ir::GraphError;
use thiserror::Error;

/// Why a graph has no mapped form.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum VmapError {
    /// No member at all.
    #[error("a graph cannot be mapped over 0 members; give it one at least")]
    Empty,
    /// A name that the graph does not have.
    #[error("the graph has no {kind} '{name}'{}", nearest.as_ref().map(|n| format!("; did you mean '{n}'?")).unwrap_or_default())]
    Unknown {
        /// Input or state.
        kind: &'static str,
        /// The name.
        name: String,
        /// The one that resembles it most.
        nearest: Option<String>,
    },
    /// A dimension is still a variable.
    #[error("dimension '{name}' has no size; bind the dimension variables before mapping")]
    Unbound {
        /// The variable.
        name: String,
    },
    /// One state for all members, but each member would write another value.
    #[error(
        "state '{name}' is shared by all members, but its update differs from member to member; map the state too"
    )]
    Shared {
        /// The state.
        name: String,
    },
    /// An op that has no rule for these operands.
    #[error("'{op}' at {loc} has no rule for mapped operands, nor a decomposition")]
    NoRule {
        /// The op.
        op: String,
        /// The source line that built it.
        loc: String,
    },
    /// The graph has mistakes on record, from before or from a rule that did not fit.
    #[error(transparent)]
    Graph(#[from] GraphError),
}
