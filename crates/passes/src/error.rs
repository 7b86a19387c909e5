//! What can go wrong between a graph and its plan.

use onestep_ir::GraphError;
use thiserror::Error;

/// A graph that cannot be compiled.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CompileError {
    /// The graph itself is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The backend has no kernel for an op, and the op has no decomposition.
    #[error("{target} has no kernel for {op} on ({operands}) at {loc}")]
    Unsupported {
        /// The backend.
        target: &'static str,
        /// The op.
        op: String,
        /// Its operands' types.
        operands: String,
        /// The line that built it.
        loc: String,
    },
    /// A pass of the user's own failed, or gave a graph that may not stand for the one that it was given.
    #[error("pass '{pass}' {what}")]
    Pass {
        /// The pass.
        pass: &'static str,
        /// What is wrong, and the remedy.
        what: String,
    },
    /// Memory would overflow.
    #[error("buffer '{name}' of {bytes} bytes does not fit the address space")]
    TooLarge {
        /// The buffer.
        name: String,
        /// Its size.
        bytes: u128,
    },
    /// The plan could not be made as asked.
    #[error("state '{state}' cannot be updated in place: {why}; drop `strict` or change the order of reads")]
    NotInPlace {
        /// The state.
        state: String,
        /// The reason.
        why: String,
    },
    /// A mistake in this crate.
    #[error("internal error: {0}; please report this graph")]
    Internal(String),
    /// A mistake in this crate: the independent check of a plan found a fault.
    #[error("internal error: the memory plan is unsound: {0}; please report this graph")]
    Unsound(String),
}
