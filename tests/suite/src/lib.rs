//! Suites that every runtime must pass. A suite says *what* is computed and what must come out; a [`Runtime`] says
//! *where*: the reference interpreter, and each backend. A case is written once and runs everywhere, and what a runtime
//! does differently stands in one list, [`exceptions`], with its reason.

pub mod conform;
pub mod exceptions;
pub mod report;
pub mod runtimes;
pub mod samples;
pub mod spread;
pub mod table;
pub mod torch;

use onestep_ir::{Array, Graph};

pub use runtimes::{Interpreter, Rewritten};

/// A way to run graphs.
pub trait Runtime: Sync {
    /// The name that [`exceptions`] uses.
    fn name(&self) -> &str;

    /// Makes a graph ready to be called, with every state tensor at its first value.
    fn open(&self, graph: &Graph) -> Result<Box<dyn Session>, String>;

    /// The outputs for these inputs, both in the graph's order.
    fn run(&self, graph: &Graph, inputs: &[Array]) -> Result<Vec<Array>, String> {
        self.open(graph)?.call(inputs)
    }
}

/// A graph with its state, on a runtime.
pub trait Session {
    /// Runs the graph once: the outputs for these inputs, both in the graph's order.
    fn call(&mut self, inputs: &[Array]) -> Result<Vec<Array>, String>;

    /// A state tensor.
    fn get(&self, name: &str) -> Result<Array, String>;

    /// Overwrites a state tensor.
    fn set(&mut self, name: &str, value: &Array);
}
