//! Suites that every runtime must pass. A suite says *what* is computed and what must come out; a [`Runtime`] says
//! *where*: the reference interpreter, and each backend. A case is written once and runs everywhere, and what a runtime
//! does differently stands in one list, [`exceptions`], with its reason.

pub mod conform;
pub mod exceptions;
pub mod report;
pub mod runtimes;
pub mod samples;
pub mod table;
pub mod torch;

use onestep_ir::{Array, Graph};

pub use runtimes::{Interpreter, Rewritten};

/// A way to run a graph that has inputs and outputs but no state.
pub trait Runtime: Sync {
    /// The name that [`exceptions`] uses.
    fn name(&self) -> &str;

    /// The outputs for these inputs, both in the graph's order.
    fn run(&self, graph: &Graph, inputs: &[Array]) -> Result<Vec<Array>, String>;
}
