//! The runtimes that the suites run on: the reference interpreter, alone and behind the passes, and the compiler for each
//! device.

use crate::{Runtime, Session};
use onestep_ir::ops::CustomOps;
use onestep_ir::testing::{Horner, Peak};
use onestep_ir::{Array, DType, Graph, Op, Type, interp};
use onestep_passes::schedule::{LoopKernel, MatmulKernel};
use onestep_passes::{Target, cse, decompose, fold, simplify};
use onestep_runtime::{Bound, Device, Executable, Options, State};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Every runtime that a suite runs on: those that the environment's `ONESTEP_SUITE` names, such as `cuda` or
/// `interpreter,cpu`; without it all that every machine has. A new backend is one more line here, and its differences go to
/// [`crate::exceptions`].
pub fn all() -> Vec<&'static dyn Runtime> {
    static CPU: Compiled = Compiled { name: "cpu", device: LazyLock::new(|| said(Device::cpu_with(1))) };
    let known: Vec<&'static dyn Runtime> = vec![&Interpreter, &Rewritten, &CPU];
    let Some(asked) = std::env::var_os("ONESTEP_SUITE") else { return known };
    #[cfg(feature = "cuda")]
    let known = {
        static CUDA: Compiled = Compiled { name: "cuda", device: LazyLock::new(|| said(Device::cuda())) };
        [&known[..], &[&CUDA]].concat()
    };
    let asked = asked.to_string_lossy().into_owned();
    let named = |name: &str| {
        let found = known.iter().find(|r| r.name() == name).copied();
        found.unwrap_or_else(|| panic!("ONESTEP_SUITE: this build has no runtime '{name}'"))
    };
    asked.split(',').map(named).collect()
}

/// The number of its first values' seed.
const SEED: u64 = 7;

fn said<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|e| e.to_string())
}

/// The reference interpreter, which rounds each op's result to its declared dtype.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interpreter;

struct Interpreted {
    graph: Graph,
    state: BTreeMap<Arc<str>, Array>,
}

impl Runtime for Interpreter {
    fn name(&self) -> &str {
        "interpreter"
    }
    fn open(&self, graph: &Graph) -> Result<Box<dyn Session>, String> {
        let first = |s: &onestep_ir::StatePort| {
            let ty = graph.ty(s.value);
            Ok((s.name.clone(), said(s.init.array(ty.dtype, &ty.sizes(), SEED, &s.name))?))
        };
        let state = graph.states.iter().map(first).collect::<Result<_, String>>()?;
        Ok(Box::new(Interpreted { graph: graph.clone(), state }))
    }
}

impl Session for Interpreted {
    fn call(&mut self, inputs: &[Array]) -> Result<Vec<Array>, String> {
        said(interp::run_arrays(&self.graph, inputs, &mut self.state))
    }
    fn get(&self, name: &str) -> Result<Array, String> {
        self.state.get(name).cloned().ok_or_else(|| format!("there is no state '{name}'"))
    }
    fn set(&mut self, name: &str, value: &Array) {
        self.state.insert(name.into(), value.clone());
    }
}

/// The interpreter on what the passes make of the graph's text form, with every composite decomposed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rewritten;

impl Runtime for Rewritten {
    fn name(&self) -> &str {
        "rewritten"
    }
    fn open(&self, graph: &Graph) -> Result<Box<dyn Session>, String> {
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
        Interpreter.open(&graph)
    }
}

/// A device of the compiler: the graph compiled with every pass.
struct Compiled {
    name: &'static str,
    device: LazyLock<Result<Device, String>>,
}

struct OnDevice {
    bound: Bound,
    state: State,
}

impl Runtime for Compiled {
    fn name(&self) -> &str {
        self.name
    }
    fn open(&self, graph: &Graph) -> Result<Box<dyn Session>, String> {
        let device = self.device.as_ref().map_err(String::clone)?;
        let open = || {
            let executable = Executable::compile(graph, device, &Options::default())?;
            let mut state = State::new();
            state.initialise(graph, SEED)?;
            let bound = executable.bind(&state)?;
            Ok(OnDevice { bound, state })
        };
        Ok(Box::new(open().map_err(|e: onestep_runtime::Error| e.to_string())?))
    }
}

impl Session for OnDevice {
    fn call(&mut self, inputs: &[Array]) -> Result<Vec<Array>, String> {
        let out = said(self.bound.run(&mut self.state, inputs))?;
        out.names().map(|name| said(out.array(name))).collect()
    }
    fn get(&self, name: &str) -> Result<Array, String> {
        said(self.state.get(name))
    }
    fn set(&mut self, name: &str, value: &Array) {
        self.state.set(name, value);
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
