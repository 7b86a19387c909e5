//! What the tests share: first state, and calls of the reference interpreter.
#![allow(dead_code)]

use onestep_ir::interp::run_arrays;
use onestep_ir::{Array, Graph, GraphError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// State by path.
pub type State = BTreeMap<Arc<str>, Array>;

/// Every state tensor at its first value.
pub fn first_state(graph: &Graph, seed: u64) -> State {
    let array = |s: &onestep_ir::StatePort| {
        let ty = graph.ty(s.value);
        s.init.array(ty.dtype, &ty.sizes(), seed, &s.name).unwrap()
    };
    graph.states.iter().map(|s| (s.name.clone(), array(s))).collect()
}

/// One call.
pub fn call(graph: &Graph, state: &mut State, inputs: &[Array]) -> Vec<Array> {
    run_arrays(graph, inputs, state).unwrap()
}

/// The paths and shapes of a graph's state.
pub fn shapes(graph: &Graph) -> Vec<(String, Vec<usize>)> {
    graph.states.iter().map(|s| (s.name.to_string(), graph.ty(s.value).sizes())).collect()
}

/// The messages of every mistake, one a line.
pub fn mistakes(built: Result<Graph, GraphError>) -> String {
    built.expect_err("a mistake").to_string()
}

/// Asserts that two lists agree to within an absolute tolerance.
#[track_caller]
pub fn assert_close(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance, "{what}: element {i} is {g}, not {w}");
    }
}
