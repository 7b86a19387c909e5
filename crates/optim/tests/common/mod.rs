//! What the tests share: graphs of a rule on given gradients, and state to run them on.
#![allow(dead_code)]

pub mod recorded;

use onestep_ir::interp::run_arrays;
use onestep_ir::{Array, DType, Graph, GraphBuilder, Init};
use onestep_optim::{StepOptions, Trained, UpdateRule, apply_updates};
use std::collections::BTreeMap;
use std::sync::Arc;

/// State by path.
pub type State = BTreeMap<Arc<str>, Array>;

/// A graph with a parameter and an input for its gradient for each `(path, shape)`, updated by `rule`.
pub fn given_gradients(
    dtype: DType,
    shapes: &[(&str, &[usize])],
    rule: &dyn UpdateRule,
    options: &StepOptions,
) -> Graph {
    let g = GraphBuilder::new("given");
    let trained: Vec<Trained<'_>> = shapes
        .iter()
        .map(|&(path, shape)| Trained {
            path: path.to_string(),
            parameter: g.state(path, onestep_ir::Role::Parameter, dtype, shape, Init::ZEROS),
            gradient: g.input(path, dtype, shape),
        })
        .collect();
    let applied = apply_updates(&g, &trained, rule, options).unwrap();
    if let Some(norm) = applied.norm {
        g.output("grad_norm", norm);
    }
    g.build().unwrap()
}

/// Every state tensor at its first value.
pub fn first_state(graph: &Graph) -> State {
    let array = |s: &onestep_ir::StatePort| {
        let ty = graph.ty(s.value);
        s.init.array(ty.dtype, &ty.sizes(), 7, &s.name).unwrap()
    };
    graph.states.iter().map(|s| (s.name.clone(), array(s))).collect()
}

/// Writes one state tensor, in the dtype that it has.
pub fn set(state: &mut State, path: &str, values: &[f64]) {
    let old = state.get_mut(path).unwrap_or_else(|| panic!("no state '{path}'"));
    *old = Array::from_f64(old.dtype(), old.shape(), values).unwrap();
}

/// The elements of one state tensor.
pub fn get(state: &State, path: &str) -> Vec<f64> {
    state.get(path).unwrap_or_else(|| panic!("no state '{path}'")).to_f64()
}

/// One call with `f32` inputs.
pub fn call(graph: &Graph, state: &mut State, inputs: &[&[f32]]) -> Vec<Array> {
    let shape = |i: usize| graph.ty(graph.inputs[i].value).sizes();
    let inputs: Vec<Array> =
        inputs.iter().enumerate().map(|(i, x)| Array::new(&shape(i), x).unwrap()).collect();
    run_arrays(graph, &inputs, state).unwrap()
}

/// Whether two numbers are equal to within `relative` of the wanted one, or `absolute`.
pub fn close(got: f64, want: f64, relative: f64, absolute: f64) -> bool {
    (got - want).abs() <= absolute + relative * want.abs()
}

/// Asserts that two lists agree to within an absolute tolerance.
#[track_caller]
pub fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    let agree = got.len() == want.len() && got.iter().zip(want).all(|(g, w)| close(*g, *w, 0.0, tolerance));
    assert!(agree, "got {got:?}, want {want:?} to within {tolerance}");
}
