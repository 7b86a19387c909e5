//! The runtimes that the suites run on: the reference interpreter, alone and behind the passes, and the CPU.

use crate::Runtime;
use onestep_ir::ops::CustomOps;
use onestep_ir::testing::{Horner, Peak};
use onestep_ir::{Array, DType, Graph, Op, Type, interp};
use onestep_passes::schedule::{LoopKernel, MatmulKernel};
use onestep_passes::{Target, cse, decompose, fold, simplify};
use onestep_runtime::{Device, Executable, Options, State};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Every runtime that a suite runs on. A new backend is one more line here, and its differences go to
/// [`crate::exceptions`].
pub fn all() -> Vec<&'static dyn Runtime> {
    vec![&Interpreter, &Rewritten, &Cpu]
}

/// The reference interpreter, which rounds each op's result to its declared dtype.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interpreter;

impl Runtime for Interpreter {
    fn name(&self) -> &str {
        "interpreter"
    }
    fn run(&self, graph: &Graph, inputs: &[Array]) -> Result<Vec<Array>, String> {
        interp::run_arrays(graph, inputs, &mut BTreeMap::new()).map_err(|e| e.to_string())
    }
}

/// The interpreter on what the passes make of the graph's text form, with every composite decomposed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rewritten;

impl Runtime for Rewritten {
    fn name(&self) -> &str {
        "rewritten"
    }
    fn run(&self, graph: &Graph, inputs: &[Array]) -> Result<Vec<Array>, String> {
        // The table's own tests bring ops of a user.
        let ops = CustomOps::new().with(Horner::new(&[0.0])).with(Peak);
        let rewritten = || {
            graph.verify()?;
            let graph = decompose::decompose(&Graph::parse_with(&graph.to_string(), &ops)?, &Primitives)?;
            let graph = cse::cse(&fold::fold(&simplify::simplify(&graph)?)?)?;
            graph.verify()?;
            Ok(graph)
        };
        let graph = rewritten().map_err(|e: onestep_ir::GraphError| e.to_string())?;
        Interpreter.run(&graph, inputs)
    }
}

/// The CPU backend: the graph compiled with every pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu;

static SERIAL: LazyLock<Device> =
    LazyLock::new(|| Device::cpu_with(1).expect("one thread is the caller's own"));

impl Runtime for Cpu {
    fn name(&self) -> &str {
        "cpu"
    }
    fn run(&self, graph: &Graph, inputs: &[Array]) -> Result<Vec<Array>, String> {
        let run = || {
            let executable = Executable::compile(graph, &SERIAL, &Options::default())?;
            let mut state = State::new();
            let mut bound = executable.bind(&state)?;
            let out = bound.run(&mut state, inputs)?;
            out.names().map(|name| out.array(name)).collect::<Result<Vec<_>, _>>()
        };
        run().map_err(|e: onestep_runtime::Error| e.to_string())
    }
}

/// A target without a kernel for any composite.
struct Primitives;

impl Target for Primitives {
    fn name(&self) -> &'static str {
        "primitives"
    }
    fn accepts(&self, _: &Op, _: &[Type]) -> bool {
        false
    }
    fn takes_strided(&self, _: &Op, _: usize) -> bool {
        true
    }
    fn computes_in(&self, _: DType) -> bool {
        true
    }
    fn takes_epilogue(&self, _: &MatmulKernel, _: &LoopKernel) -> bool {
        false
    }
}
